"""Leaves that an analysis found, as fields of a spec."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from warpsmith.kernels_db.job.dtypes import is_float
from warpsmith.kernels_db.spec.dist import FLOAT_ONLY, INTEGER_ONLY


def dist_of(found: Mapping[str, Any] | None, dtype: str) -> dict[str, Any] | None:
    """Return a recorded distribution as the spec's, for a tensor of `dtype`.

    None where the spec has none that says it.
    """
    if found is None:
        return None
    kind = found.get("kind")
    if kind == "empty":
        found, kind = {"kind": "constant", "value": 0}, "constant"
    if kind == "constant":
        value = found.get("value", 0)
        if not isinstance(value, bool | int | float):
            return None
        if dtype == "bool":
            return {"kind": "constant", "value": bool(value)}
        return {"kind": "constant", "value": float(value) if is_float(dtype) else int(value)}
    if kind == "randint" and dtype == "bool":
        return {"kind": "bernoulli", "p": 0.5} if (found.get("low"), found.get("high")) == (0, 2) else None
    suits = (is_float(dtype) and kind in FLOAT_ONLY) or (not is_float(dtype) and kind in INTEGER_ONLY)
    return dict(found) if suits else None


def is_contiguous(shape: Sequence[int], strides: Sequence[int] | None) -> bool:
    """Check whether the strides that matter are those of a tensor laid out in order."""
    if strides is None:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def permutation_of(shape: Sequence[int], strides: Sequence[int]) -> list[int] | None:
    """Return the axes of a dense tensor from the outermost in memory to the innermost.

    None where it is not dense.
    """
    order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], -shape[axis], axis))
    expected = 1
    for axis in reversed(order):
        if shape[axis] != 1 and strides[axis] != expected:
            return None
        expected *= shape[axis]
    return order if expected == math.prod(shape) else None

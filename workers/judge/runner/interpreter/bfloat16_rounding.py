"""Casts of float32 to bfloat16 under Triton's interpreter, rounded to the nearest number as on a GPU.

Without this module it would cut them toward zero, and most kernels with a result in bfloat16 would be found wrong.

The caller imports Triton, in the process that runs the candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

_CONVERT = "_convert_float"
"""The function of Triton's interpreter behind every cast between floating types."""


@contextmanager
def bfloat16_rounding() -> Iterator[None]:
    """Round interpreted casts of float32 to bfloat16 inside the block; those that ask to be cut are cut."""
    convert: Callable[..., Any] = getattr(interpreter, _CONVERT)
    toward_zero = interpreter._ir.ROUNDING_MODE.RTZ

    def rounded(data: Any, source: Any, target: Any, mode: Any) -> Any:
        if source == tl.float32 and target == tl.bfloat16 and mode != toward_zero:
            return round_to_bfloat16(data)
        return convert(data, source, target, mode)

    setattr(interpreter, _CONVERT, rounded)
    try:
        yield
    finally:
        setattr(interpreter, _CONVERT, convert)


def round_to_bfloat16(data: Any) -> Any:
    """Return the bits (uint16) of float32 `data` in bfloat16, of its shape: the nearest number, of two the even one.

    NaN stays NaN, and keeps its sign.
    """
    bits = np.ascontiguousarray(data, dtype=np.float32).view(np.uint32).astype(np.uint64)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(data), (bits >> 16) | 0x40, nearest).astype(np.uint16)

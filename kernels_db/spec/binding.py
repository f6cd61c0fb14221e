"""Binds axes, shapes and distributions: works out their names and expressions as numbers.

It does so for one workload.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from warpsmith.kernels_db.job.attack_documents import InputValues
from warpsmith.kernels_db.job.documents import ResolvedInput
from warpsmith.kernels_db.job.dtypes import is_float
from warpsmith.kernels_db.spec import expr
from warpsmith.kernels_db.spec.basic_types import INTEGER_RANGE, MAX_ELEMENTS
from warpsmith.kernels_db.spec.dist import FLOAT_ONLY, INTEGER_ONLY, Constant, Dist, amounts, default_dist
from warpsmith.kernels_db.spec.errors import SpecError, listed
from warpsmith.kernels_db.spec.schema import InputOverride
from warpsmith.kernels_db.spec.tensors import Axis, ConstAxis, ExprAxis, Input, Output, Values, VarAxis

Sizes = Mapping[str, int]
Typed = TypeVar("Typed", Input, Output)


def bind_axes(axes: Mapping[str, Axis], values: Sizes) -> dict[str, int]:
    """Return every axis with its size; `values` holds the var axes.

    Raises SpecError: a cycle or an unknown name among derived axes, a size below 1 or above 2**48, a var axis without
    value.
    """
    bound: dict[str, int] = {}
    pending: dict[str, expr.Expression] = {}
    for name, axis in axes.items():
        if isinstance(axis, ConstAxis):
            bound[name] = axis.value
        elif isinstance(axis, VarAxis):
            if name not in values:
                raise SpecError(f"axes.{name}", None, "a size from the workload")
            bound[name] = values[name]
        else:
            pending[name] = expr.parse(axis.expr, "integer")
    while pending:
        ready = [name for name, expression in pending.items() if expression.names <= bound.keys()]
        if not ready:
            name, expression = next(iter(pending.items()))
            raise SpecError(f"axes.{name}.expr", expression.text, "an expression over known axes, without a cycle")
        for name in ready:
            bound[name] = _axis_size(name, pending.pop(name), bound)
    return bound


def cyclic_axes(axes: Mapping[str, Axis]) -> list[str]:
    """Return the derived axes that depend on themselves, by name."""
    reads = {
        name: expr.parse(axis.expr, "integer").names & axes.keys()
        for name, axis in axes.items()
        if isinstance(axis, ExprAxis)
    }
    settled = axes.keys() - reads.keys()
    while True:
        ready = {name for name, names in reads.items() if name not in settled and names <= settled}
        if not ready:
            # The rest reads a cycle; only an axis that can reach itself is part of one.
            return [name for name in reads if name not in settled and _reaches(name, name, reads)]
        settled |= ready


def _reaches(start: str, goal: str, reads: Mapping[str, frozenset[str]]) -> bool:
    seen: set[str] = set()
    open_names = set(reads.get(start, ()))
    while open_names:
        name = open_names.pop()
        if name == goal:
            return True
        if name not in seen:
            seen.add(name)
            open_names |= reads.get(name, frozenset())
    return False


def _axis_size(name: str, expression: expr.Expression, bound: Sizes) -> int:
    field = f"axes.{name}.expr"
    try:
        size = expression.integer(bound)
    except expr.ExprError as error:
        raise SpecError(field, expression.text, f"an expression with a value ({error})") from None
    if not 1 <= size <= MAX_ELEMENTS:
        raise SpecError(field, f"{expression.text} = {size}", "a size from 1 to 2**48")
    return size


def amount(field: str, value: int | str, bound: Sizes) -> int:
    """Return the value of `value`, an integer or an expression; raises SpecError for `field`."""
    if isinstance(value, int):
        return value
    try:
        return expr.parse(value, "integer").integer(bound)
    except expr.ExprError as error:
        raise SpecError(field, value, f"an expression with a value ({error})") from None


def bind_shape(field: str, shape: Sequence[int | str], bound: Sizes) -> list[int]:
    """Return the sizes of a shape of axis names and integers.

    Raises SpecError: an unknown axis, or more than 2**48 elements.
    """
    sizes: list[int] = []
    for index, dimension in enumerate(shape):
        if isinstance(dimension, str) and dimension not in bound:
            raise SpecError(f"{field}[{index}]", dimension, f"an axis: one of {listed(bound)}")
        sizes.append(bound[dimension] if isinstance(dimension, str) else dimension)
    elements = math.prod(sizes)
    if elements > MAX_ELEMENTS:
        raise SpecError(field, f"{sizes}: {elements} elements", f"at most {MAX_ELEMENTS} (2**48) elements")
    return sizes


def extent(shape: Sequence[int], strides: Sequence[int] | None) -> int:
    """Return the number of elements from the first to the last one addressed, both included.

    A buffer must hold so many.
    """
    if strides is None:
        return math.prod(shape)
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def bind_strides(field: str, item: Input, shape: Sequence[int], bound: Sizes) -> list[int] | None:
    """Return the strides in elements, None where contiguous.

    Raises SpecError: negative, too far, or overlapping where written.
    """
    if item.strides is None:
        return None
    if len(item.strides) != len(shape):
        raise SpecError(field, f"{len(item.strides)} strides", f"one for each of the {len(shape)} axes")
    strides = [amount(f"{field}[{index}]", value, bound) for index, value in enumerate(item.strides)]
    for index, stride in enumerate(strides):
        if not 0 <= stride <= MAX_ELEMENTS:
            raise SpecError(f"{field}[{index}]", stride, "a stride from 0 to 2**48")
    if extent(shape, strides) > MAX_ELEMENTS:
        raise SpecError(field, strides, f"strides that stay within {MAX_ELEMENTS} (2**48) elements")
    if item.mutated:
        reached = 0
        for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size > 1):
            if stride <= reached:
                raise SpecError(field, strides, "strides without overlap, because the input is mutated")
            reached += stride * (size - 1)
    return strides


def bind_dist(field: str, dist: Dist | None, dtype: str, shape: Sequence[int], bound: Sizes) -> dict[str, Any]:
    """Return the distribution in its resolved form.

    Raises SpecError where it does not suit dtype or shape.
    """
    chosen = dist if dist is not None else default_dist(dtype)
    if chosen is None:
        raise SpecError(field, None, f"a distribution: inputs of dtype {dtype} have no default")
    if chosen.kind in FLOAT_ONLY and not is_float(dtype):
        raise SpecError(f"{field}.kind", chosen.kind, f"one for {dtype}, such as randint, constant or bernoulli")
    if chosen.kind in INTEGER_ONLY and dtype not in INTEGER_RANGE:
        raise SpecError(f"{field}.kind", chosen.kind, f"one for {dtype}, such as normal, uniform or constant")
    resolved = chosen.model_dump(mode="json")
    for name, value in amounts(chosen).items():
        resolved[name] = amount(f"{field}.{name}", value, bound)
    if isinstance(chosen, Constant):
        resolved["value"] = bind_value(f"{field}.value", chosen.value, dtype)
    _check_dist(field, resolved, dtype, shape)
    return resolved


def _check_dist(field: str, dist: Mapping[str, Any], dtype: str, shape: Sequence[int]) -> None:
    lowest, highest = INTEGER_RANGE.get(dtype, (0, 0))
    match dist:
        case {"kind": "randint", "low": low, "high": high} if low >= high:
            raise SpecError(f"{field}.high", high, f"more than low ({low})")
        case {"kind": "randint", "low": low, "high": high} if low < lowest or high - 1 > highest:
            raise SpecError(field, f"{low} to {high - 1}", f"values of {dtype}: {lowest} to {highest}")
        case {"kind": "permutation"} if not shape or shape[-1] - 1 > highest:
            expected = f"a last axis of 1 to {highest + 1} for {dtype}"
            raise SpecError(field, f"a permutation over shape {list(shape)}", expected)
        case {"kind": "indptr"} if len(shape) != 1:
            raise SpecError(field, f"indptr over shape {list(shape)}", "a shape of one axis")
        case {"kind": "indptr", "total": total} if not 0 <= total <= (0 if shape[0] == 1 else highest):
            raise SpecError(f"{field}.total", total, f"0 to {highest} for {dtype}, and 0 where there is one offset")
        case {"kind": "ends"} if len(shape) != 1:
            raise SpecError(field, f"ends over shape {list(shape)}", "a shape of one axis")
        case {"kind": "ends", "total": total} if not 0 <= total <= highest:
            raise SpecError(f"{field}.total", total, f"0 to {highest} for {dtype}")
        case {"kind": "spd"} if len(shape) < 2 or shape[-1] != shape[-2]:
            raise SpecError(field, f"spd over shape {list(shape)}", "a shape whose last two axes are equal")


def bind_value(field: str, value: bool | int | float, dtype: str) -> bool | int | float:
    """Return `value` as a Python number of `dtype`; raises SpecError where it is none."""
    if dtype == "bool":
        if isinstance(value, bool):
            return value
        raise SpecError(field, value, "true or false for dtype bool")
    if isinstance(value, bool):
        raise SpecError(field, value, f"a number for dtype {dtype}")
    if is_float(dtype):
        return float(value)
    lowest, highest = INTEGER_RANGE[dtype]
    if isinstance(value, float) or not lowest <= value <= highest:
        raise SpecError(field, value, f"an integer from {lowest} to {highest} for dtype {dtype}")
    return value


def with_dtype(item: Typed, dtypes: Mapping[str, str]) -> Typed:
    """Return a tensor with the dtype that a workload gives its named one."""
    dtype = dtypes.get(item.dtype, item.dtype)
    return item if dtype == item.dtype else item.model_copy(update={"dtype": dtype})


def bind_input(field: str, item: Input, override_field: str, override: InputOverride, bound: Sizes) -> ResolvedInput:
    """Return one input of a workload. Raises SpecError.

    `field` and `override_field` are the places of the two in the document. An omitted input has shape and value
    None and an empty distribution.
    """
    resolved: ResolvedInput = {
        "name": item.name,
        "shape": None,
        "strides": None,
        "dtype": item.dtype,
        "dist": {},
        "value": None,
        "mutated": False,
    }
    if override.omit:
        if not item.optional:
            raise SpecError(f"{override_field}.omit", True, f"false, because input {item.name!r} is not optional")
        return resolved
    held = bind_values(f"{field}.values", item.values, item.dtype)
    if item.shape is None:
        number = _scalar(field, item, override_field, override)
        _check_within(f"{field}.values", held, item.dtype, {"kind": "constant", "value": number})
        resolved["value"] = number
        if held:
            resolved["values"] = held
        return resolved
    if override.value is not None:
        raise SpecError(f"{override_field}.value", override.value, f"nothing, because {item.name!r} is a tensor")
    shape = bind_shape(f"{field}.shape", item.shape, bound)
    dist_field = f"{field}.dist" if override.dist is None else f"{override_field}.dist"
    resolved = {
        **resolved,
        "shape": shape,
        "strides": bind_strides(f"{field}.strides", item, shape, bound),
        "dist": bind_dist(dist_field, override.dist or item.dist, item.dtype, shape, bound),
        "mutated": item.mutated,
    }
    _check_within(f"{field}.values", held, item.dtype, resolved["dist"])
    if item.alignment is not None:
        resolved["alignment"] = item.alignment
    if held:
        resolved["values"] = held
    return resolved


def bind_values(field: str, values: Values, dtype: str) -> InputValues:
    """Return what an input of `dtype` may hold, without what says nothing. Raises SpecError."""
    found: InputValues = {}
    if values.finite:
        if not is_float(dtype):
            raise SpecError(f"{field}.finite", True, f"nothing, for every number of dtype {dtype} is finite")
        found["finite"] = True
    if values.range is not None:
        if dtype == "bool":
            raise SpecError(f"{field}.range", list(values.range), "nothing, for dtype bool")
        found["range"] = [bind_value(f"{field}.range[{at}]", end, dtype) for at, end in enumerate(values.range)]
    return found


def _check_within(field: str, values: InputValues, dtype: str, dist: Mapping[str, Any]) -> None:
    """Raise SpecError where a distribution gives what an input may not hold, or is one that no search may change."""
    if not values:
        return
    if dist["kind"] not in _CHANGEABLE:
        name = "range" if "range" in values else "finite"
        raise SpecError(
            f"{field}.{name}", values.get(name), f"nothing, for values of kind {dist['kind']} are never changed"
        )
    if "range" not in values:
        return
    low, high = values["range"]
    least, most = _extremes(dist, dtype)
    if least < low or most > high:
        expected = f"a range that holds what dist {dist['kind']} gives, from {least:g} to {most:g}"
        raise SpecError(f"{field}.range", values["range"], expected)


_CHANGEABLE = ("normal", "uniform", "constant", "randint")
_DEVIATIONS = 6.0
"""Standard deviations of a normal distribution that a range must hold: beyond is one value in a billion."""


def _extremes(dist: Mapping[str, Any], dtype: str) -> tuple[float, float]:
    """Return the smallest and the largest value that a distribution gives."""
    if dist["kind"] == "normal":
        reach = _DEVIATIONS * dist.get("std", 1.0)
        return dist.get("mean", 0.0) - reach, dist.get("mean", 0.0) + reach
    if dist["kind"] == "constant":
        return float(dist["value"]), float(dist["value"])
    high = dist.get("high", 1.0)
    return dist.get("low", 0.0), high if is_float(dtype) else high - 1


def _scalar(field: str, item: Input, override_field: str, override: InputOverride) -> bool | int | float:
    if override.dist is not None:
        raise SpecError(f"{override_field}.dist", override.dist.kind, f"nothing, because {item.name!r} is a scalar")
    if override.value is not None:
        return bind_value(f"{override_field}.value", override.value, item.dtype)
    if item.value is None:
        raise SpecError(f"{field}.value", None, "a value, because the input is a scalar")
    return bind_value(f"{field}.value", item.value, item.dtype)

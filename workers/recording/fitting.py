"""From recorded calls to the workloads of an op: which calls are of the op, and which sizes its axes have in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from warpsmith.kernels_db.spec import expr
from warpsmith.kernels_db.spec.binding import bind_axes
from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.kernels_db.spec.op import Op
from warpsmith.kernels_db.spec.tensors import ConstAxis, ExprAxis, Input, VarAxis
from warpsmith.workers.recording.calls import Call, Calls, TensorOf

MOST_WORKLOADS = 8
LONGEST_ID = 100


class Unfit(Exception):  # noqa: N818 - an answer, no error
    """A call that is none of the op's: the place in the op, what the call has there, and what the op asks for."""

    def __init__(self, place: str, found: object, expected: str) -> None:
        super().__init__(f"{place}: found {found}, expected {expected}")


@dataclass(frozen=True)
class Shape:
    """The sizes of the var axes in some calls.

    `omitted`: optional inputs that they leave out. `dtypes`: of the op's named ones.
    """

    sizes: tuple[tuple[str, int], ...]
    omitted: tuple[str, ...] = ()
    dtypes: tuple[tuple[str, str], ...] = ()


@dataclass
class Fitted:
    """The calls of an op.

    `modules` and `functions`: how many calls of each sort had each shape. `refused`: calls of those names that are none
    of the op, by reason.
    `devices`: calls that fit, by type of device.
    """

    modules: dict[Shape, int] = field(default_factory=dict)
    functions: dict[Shape, int] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    devices: dict[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> dict[Shape, int]:
        """How many calls had each shape.

        The larger number of both sorts: a module's call and that of a function inside of it are one.
        """
        shapes = dict.fromkeys((*self.modules, *self.functions))
        return {shape: max(self.modules.get(shape, 0), self.functions.get(shape, 0)) for shape in shapes}

    @property
    def total(self) -> int:
        """How many calls fit."""
        return sum(self.counts.values())

    def device(self) -> str | None:
        """Return the type of device that served the most calls; None where none fits."""
        return max(self.devices, key=lambda device: self.devices[device], default=None)


def is_call_of(call: Call, names: Iterable[str]) -> bool:
    """Check whether a call has one of the names, in full or its last parts: `RMSNorm`, `layernorm.RMSNorm`."""
    return any(call.name == name or call.name.endswith(f".{name}") for name in names)


def fit(op: Op, calls: Calls, names: Sequence[str] = ()) -> Fitted:
    """Find the calls of `op`: those of its field `calls`, and of `names`, whose tensors its inputs can be."""
    fitted, wanted = Fitted(), [*op.calls, *names]
    for call, count in calls.counts.items():
        if not is_call_of(call, wanted):
            continue
        try:
            shape = _bind(op, call)
        except Unfit as unfit:
            reason = f"{call.name}: {unfit}"
            fitted.refused[reason] = fitted.refused.get(reason, 0) + count
            continue
        counts = fitted.functions if call.kind == "function" else fitted.modules
        counts[shape] = counts.get(shape, 0) + count
        device = _device(call)
        fitted.devices[device] = fitted.devices.get(device, 0) + count
    return fitted


def with_workloads(op: Op, fitted: Fitted, device: str, most: int = MOST_WORKLOADS) -> tuple[dict[str, Any], int]:
    """Return the op's document with the most frequent shapes as bench workloads, and how many calls they leave out.

    A workload's `weight` is its number of calls. Each choice of dtypes has its most frequent shape among them, however
    rare its calls are, as far as `most` has room: an op is timed on all its dtypes. They replace the bench workloads
    that the op has for targets of type `device`, but for those of dtypes that none of them has; test and hold-out
    workloads stay.
    """
    document = op.document()
    sections = document.get("targets", {})
    section = sections.get(device, document)
    chosen = _most_frequent(fitted.counts, most)
    recorded = [dict(shape.dtypes) for shape in chosen]
    kept = [item for item in section["workloads"] if item["role"] != "bench" or item.get("dtypes", {}) not in recorded]
    taken = {item["id"] for item in kept}
    made = []
    for shape, count in chosen.items():
        item: dict[str, Any] = {"id": _id(shape, taken), "role": "bench", "axes": dict(shape.sizes), "weight": count}
        if shape.dtypes:
            item["dtypes"] = dict(shape.dtypes)
        if shape.omitted:
            item["inputs"] = {name: {"omit": True} for name in shape.omitted}
        taken.add(item["id"])
        made.append(item)
    section["workloads"] = [*made, *kept]
    return document, fitted.total - sum(chosen.values())


def _most_frequent(counts: Mapping[Shape, int], most: int) -> dict[Shape, int]:
    """Return at most so many shapes, the most frequent first: the first of each choice of dtypes, then any."""
    ordered = sorted(counts, key=lambda shape: (-counts[shape], shape.sizes, shape.dtypes))
    first: dict[tuple[tuple[str, str], ...], Shape] = {}
    for shape in ordered:
        first.setdefault(shape.dtypes, shape)
    taken = set(list(dict.fromkeys([*first.values(), *ordered]))[:most])
    return {shape: counts[shape] for shape in ordered if shape in taken}


def _id(shape: Shape, taken: set[str]) -> str:
    parts = [*(f"{axis}{size}" for axis, size in shape.sizes), *(dtype for _, dtype in shape.dtypes)]
    name = "-".join(parts) or "recorded"
    name = name.lstrip("_")[:LONGEST_ID]
    number = 2
    found = name
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    return found


def _device(call: Call) -> str:
    held = [*call.arguments, *(each for _, each in call.keywords), *(each for _, each in call.parameters)]
    return next(each.device for each in held if isinstance(each, TensorOf))


def _bind(op: Op, call: Call) -> Shape:
    """Return the sizes that the call gives the op's var axes. Raises Unfit."""
    pairs, omitted = _pair(op, call)
    sizes: dict[str, int] = {}
    dtypes: dict[str, str] = {}
    fixed = {name: axis.value for name, axis in op.axes.items() if isinstance(axis, ConstAxis)}
    derived: list[tuple[str, str, int]] = []
    for item, tensor, flattens in pairs:
        place = f"inputs.{item.name}"
        if tensor.dtype in op.dtypes.get(item.dtype, ()):
            dtypes.setdefault(item.dtype, tensor.dtype)
        wanted = dtypes.get(item.dtype, " or ".join(op.dtypes.get(item.dtype, (item.dtype,))))
        if tensor.dtype != wanted:
            raise Unfit(f"{place}.dtype", tensor.dtype, wanted)
        if (tensor.strides is not None) != (item.strides is not None):
            raise Unfit(f"{place}.strides", tensor.strides, "contiguous" if item.strides is None else "strides")
        dimensions = item.shape or ()
        for index, (axis, size) in enumerate(zip(dimensions, _shape(item, tensor, flattens), strict=True)):
            known = axis if isinstance(axis, int) else fixed.get(axis, sizes.get(axis))
            if known is not None and known != size:
                raise Unfit(f"{place}.shape[{index}]", size, f"{known} ({axis})" if known != axis else str(known))
            if isinstance(axis, str) and isinstance(op.axes[axis], ExprAxis):
                derived.append((place, axis, size))
            elif isinstance(axis, str) and known is None:
                sizes[axis] = size
    _solve(op, sizes, fixed, derived)
    _check(op, sizes, derived)
    variable = tuple((name, sizes[name]) for name, axis in op.axes.items() if isinstance(axis, VarAxis))
    return Shape(variable, omitted, tuple(sorted(dtypes.items())))


def _pair(op: Op, call: Call) -> tuple[list[tuple[Input, TensorOf, bool]], tuple[str, ...]]:
    """Return each of the op's tensors with the call's, and whether leading axes may be flattened into one.

    By name first, then in order: arguments, keywords, the module's parameters.
    """
    state = {item.name: item.attribute for item in op.state}
    wanted = [*(item for item in op.inputs if item.shape is not None), *(item.as_input() for item in op.state)]
    held: list[tuple[str, TensorOf, bool]] = [("", each, True) for each in call.arguments if isinstance(each, TensorOf)]
    for named, flattens in ((call.keywords, True), (call.parameters, False)):
        held += [(name, each, flattens) for name, each in named if isinstance(each, TensorOf)]
    found: dict[str, tuple[TensorOf, bool]] = {}
    for item in wanted:
        for entry in held:
            if entry[0] and entry[0] == state.get(item.name, item.name):
                found[item.name] = entry[1:]
                held.remove(entry)
                break
    for item in wanted:
        if held and item.name not in found:
            found[item.name] = held.pop(0)[1:]
    missing = [item for item in wanted if item.name not in found]
    optional = {item.name for item in op.inputs if item.optional}
    lacking = [item.name for item in missing if item.name not in optional]
    if held or lacking:
        number = len(found) + len(held)
        raise Unfit("inputs", f"{number} tensors", f"{len(wanted)}: {', '.join(item.name for item in wanted)}")
    pairs = [
        (item, found[item.name][0], found[item.name][1] and item.role == "input")
        for item in wanted
        if item.name in found
    ]
    return pairs, tuple(item.name for item in missing)


def _shape(item: Input, tensor: TensorOf, flattens: bool) -> tuple[int, ...]:
    """Return the tensor's shape with as many axes as the input has: leading ones are one axis. Raises Unfit."""
    rank, shape = len(item.shape or ()), tensor.shape
    if len(shape) == rank:
        return shape
    if not flattens or not rank or len(shape) < rank - 1:
        raise Unfit(f"inputs.{item.name}.shape", list(shape), f"{rank} axes")
    leading = len(shape) - rank + 1
    return (math.prod(shape[:leading]), *shape[leading:])


def _solve(op: Op, sizes: dict[str, int], fixed: Mapping[str, int], derived: Sequence[tuple[str, str, int]]) -> None:
    """Find a var axis that no input has, from a derived axis that depends on it alone and on it linearly."""
    for _, name, size in derived:
        axis = op.axes[name]
        assert isinstance(axis, ExprAxis)
        expression = expr.parse(axis.expr, "integer")
        unknown = [each for each in expression.names if each not in sizes and each not in fixed]
        if len(unknown) != 1 or not isinstance(op.axes[unknown[0]], VarAxis):
            continue
        known = {each: value for each, value in (*fixed.items(), *sizes.items()) if each in expression.names}
        try:
            one, two = (expression.integer({**known, unknown[0]: value}) for value in (1, 2))
            if two != one and (size - one) % (two - one) == 0 and (found := 1 + (size - one) // (two - one)) > 0:
                sizes[unknown[0]] = found
        except expr.ExprError:
            continue


def _check(op: Op, sizes: Mapping[str, int], derived: Sequence[tuple[str, str, int]]) -> None:
    """Raise Unfit where an axis has no size, a derived one another, or a constraint does not hold."""
    for name, axis in op.axes.items():
        if isinstance(axis, VarAxis) and name not in sizes:
            raise Unfit(f"axes.{name}", "no tensor of the call that has it", "an axis of an input")
    try:
        bound = bind_axes(op.axes, sizes)
        for place, name, size in derived:
            if bound[name] != size:
                raise Unfit(f"{place}.shape", size, f"{bound[name]} ({name})")
        for text in _broken(op, bound):
            raise Unfit("axes", ", ".join(f"{name}={size}" for name, size in sizes.items()), f"{text}")
    except (SpecError, expr.ExprError) as error:
        raise Unfit("axes", dict(sizes), f"sizes for which every axis has one ({error})") from None


def _broken(op: Op, bound: Mapping[str, int]) -> Iterator[str]:
    yield from (f"{name} of at least 1" for name, size in bound.items() if size < 1)
    yield from (text for text in op.constraints if not expr.parse(text, "boolean").boolean(bound))

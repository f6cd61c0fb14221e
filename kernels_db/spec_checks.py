"""What the parts of a spec must agree on. Works on whatever parts are well-formed, so that all errors are told at once."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from kernels_db import expr
from kernels_db.binding import amount, bind_axes, bind_input, bind_shape, cyclic_axes
from kernels_db.dist import Code, Dist, amounts
from kernels_db.spec import Axis, CodeCheck, ConstAxis, Input, InputOverride, Limits, Output, State, VarAxis, Workload
from kernels_db.spec_errors import SpecError

_AXIS: TypeAdapter[Axis] = TypeAdapter(Axis)
_NO_OVERRIDE = InputOverride()
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
Placed = list[tuple[str, T]]
"""Parts with the field where each stands."""


@dataclass(frozen=True)
class Parts:
    """The well-formed parts of a document. `axis_names` holds the malformed axes too: naming one is no second error."""

    document: Mapping[str, Any]
    axis_names: frozenset[str]
    axes: dict[str, Axis]
    constraints: Placed[str]
    inputs: Placed[Input]
    outputs: Placed[Output]
    state: Placed[State]
    workload_lists: list[Placed[Workload]]
    limits: Limits


def parts_of(document: Mapping[str, Any]) -> Parts:
    """Pick the well-formed parts out of `document`."""
    raw_axes = document.get("axes")
    raw_axes = raw_axes if isinstance(raw_axes, dict) else {}
    axes = {name: axis for name, raw in raw_axes.items() if (axis := _valid(_AXIS.validate_python, raw)) is not None}
    conditions = [
        (field, text)
        for field, text in _listed(document, "constraints")
        if isinstance(text, str) and _parses(text, "boolean")
    ]
    lists = [_models(Workload, _listed(document, "workloads"))]
    targets = document.get("targets")
    for device, section in targets.items() if isinstance(targets, dict) else ():
        if isinstance(section, dict):
            lists.append(_models(Workload, _listed(section, "workloads", f"targets.{device}.")))
    return Parts(
        document=document,
        axis_names=frozenset(raw_axes),
        axes=axes,
        constraints=conditions,
        inputs=_models(Input, _listed(document, "inputs")),
        outputs=_models(Output, _listed(document, "outputs")),
        state=_models(State, _listed(document, "state")),
        workload_lists=lists,
        limits=_valid(Limits.model_validate, document.get("limits", {})) or Limits(),
    )


def check(parts: Parts) -> list[SpecError]:
    """Every disagreement among `parts`."""
    errors = [
        *_check_names(parts),
        *_check_axis_references(parts),
        *_check_inputs(parts),
        *_check_reference(parts),
        *_check_sources(parts),
    ]
    for workloads in parts.workload_lists:
        errors += _check_bindings(parts, workloads)
    if not errors:
        # Only with every name known do numbers mean something.
        errors += _check_values(parts)
    return errors


def _check_names(parts: Parts) -> Iterator[SpecError]:
    yield from _repeated([*parts.inputs, *parts.state, *parts.outputs], lambda item: item.name, "name")
    for workloads in parts.workload_lists:
        yield from _repeated(workloads, lambda workload: workload.id, "id")
        if workloads and not any(workload.role == "bench" for _, workload in workloads):
            field = workloads[0][0].rsplit("[", 1)[0]
            yield SpecError(field, "no workload with role bench", "at least one: the search is judged by it")


def _repeated(items: Iterable[tuple[str, T]], key: Callable[[T], str], attribute: str) -> Iterator[SpecError]:
    first: dict[str, str] = {}
    for field, item in items:
        if key(item) in first:
            yield SpecError(f"{field}.{attribute}", key(item), f"another {attribute}: {first[key(item)]} bears it")
        first.setdefault(key(item), field)


def _check_axis_references(parts: Parts) -> Iterator[SpecError]:
    known = f"an axis: one of {', '.join(sorted(parts.axis_names)) or 'none'}"
    for field, item in (*parts.inputs, *parts.outputs, *parts.state):
        for index, dimension in enumerate(item.shape or ()):
            if isinstance(dimension, str) and dimension not in parts.axis_names:
                yield SpecError(f"{field}.shape[{index}]", dimension, known)
    for field, text, kind in _expressions(parts):
        unknown = sorted(expr.parse(text, kind).names - parts.axis_names)
        if unknown:
            yield SpecError(field, text, f"only axes as names, not {', '.join(unknown)}; {known}")
    for name in cyclic_axes(parts.axes):
        axis = parts.axes[name]
        found = None if isinstance(axis, ConstAxis | VarAxis) else axis.expr
        yield SpecError(f"axes.{name}.expr", found, "an expression that does not depend on the axis itself")


def _expressions(parts: Parts) -> Iterator[tuple[str, str, expr.Kind]]:
    """Every expression of the document with its field."""
    for name, axis in parts.axes.items():
        if not isinstance(axis, ConstAxis | VarAxis):
            yield f"axes.{name}.expr", axis.expr, "integer"
    for field, text in parts.constraints:
        yield field, text, "boolean"
    found: list[tuple[str, int | str | None]] = []
    for field, item in parts.inputs:
        found += [(f"{field}.strides[{index}]", stride) for index, stride in enumerate(item.strides or ())]
    for field, dist in _dists(parts):
        found += [(f"{field}.{name}", value) for name, value in amounts(dist).items()]
    found += [("limits.flops", parts.limits.flops), ("limits.bytes", parts.limits.bytes)]
    for field, value in found:
        if isinstance(value, str):
            yield field, value, "integer"


def _dists(parts: Parts) -> Iterator[tuple[str, Dist]]:
    for field, item in (*parts.inputs, *parts.state):
        if item.dist is not None:
            yield f"{field}.dist", item.dist
    for workloads in parts.workload_lists:
        for field, workload in workloads:
            for name, override in workload.inputs.items():
                if override.dist is not None:
                    yield f"{field}.inputs.{name}.dist", override.dist


def _check_inputs(parts: Parts) -> Iterator[SpecError]:
    for field, item in parts.inputs:
        if item.alignment is not None and item.alignment & (item.alignment - 1):
            yield SpecError(f"{field}.alignment", item.alignment, "a power of two")
        if item.shape is None:
            given = {
                "dist": item.dist,
                "strides": item.strides,
                "alignment": item.alignment,
                "mutated": item.mutated or None,
            }
            for attribute, value in given.items():
                if value is not None:
                    found = value if isinstance(value, int) else "a value"
                    yield SpecError(f"{field}.{attribute}", found, "nothing, because the input is a scalar (no shape)")
        elif item.value is not None:
            yield SpecError(f"{field}.value", item.value, "nothing, because the input is a tensor; use dist constant")
        if item.shape is not None and item.strides is not None and len(item.strides) != len(item.shape):
            yield SpecError(
                f"{field}.strides", f"{len(item.strides)} strides", f"one for each of the {len(item.shape)} axes"
            )
    results = len(_raw_list(parts.document, "outputs")) + sum(item.mutated for _, item in parts.inputs)
    if results == 0 and len(parts.inputs) == len(_raw_list(parts.document, "inputs")):
        yield SpecError("outputs", None, "at least one output, or an input with mutated: true")


def _check_reference(parts: Parts) -> Iterator[SpecError]:
    source = parts.document.get("reference")
    if not isinstance(source, str):
        return
    count = len(_raw_list(parts.document, "inputs"))
    if parts.document.get("init") is None and not _raw_list(parts.document, "state"):
        yield from _check_function("reference", source, "run", count, "one for each input")
        return
    model = _definition(source, "Model", ast.ClassDef)
    if model is None:
        yield SpecError(
            "reference", "no class Model", "a class Model (torch.nn.Module), because the op has init or state"
        )
        return
    yield from _check_parameters(
        "reference", _member(model.body, "forward"), "Model.forward", count + 1, "self and one for each input"
    )


def _check_sources(parts: Parts) -> Iterator[SpecError]:
    for field, dist in _dists(parts):
        if isinstance(dist, Code):
            yield from _check_function(f"{field}.source", dist.source, "make", 3, "shape, dtype and generator")
    for field, output in parts.outputs:
        if isinstance(output.check, CodeCheck):
            yield from _check_function(
                f"{field}.check.source", output.check.source, "check", 3, "inputs, expected and found"
            )


def _check_function(field: str, source: str, name: str, count: int, described: str) -> Iterator[SpecError]:
    yield from _check_parameters(field, _definition(source, name, ast.FunctionDef), name, count, described)


def _check_parameters(
    field: str, function: ast.FunctionDef | None, name: str, count: int, described: str
) -> Iterator[SpecError]:
    if function is None:
        yield SpecError(field, f"no function {name}", f"a function {name} with {count} parameters ({described})")
        return
    spec = function.args
    positional = len(spec.posonlyargs) + len(spec.args)
    required = positional - len(spec.defaults)
    keyword_only = sum(default is None for default in spec.kw_defaults)
    if keyword_only or not required <= count <= (count if spec.vararg else positional):
        found = f"{name}({ast.unparse(spec)}), line {function.lineno}"
        yield SpecError(field, found, f"{name} with {count} positional parameters ({described})")


D = TypeVar("D", ast.FunctionDef, ast.ClassDef)


def _definition(source: str, name: str, kind: type[D]) -> D | None:
    """The last definition of `name` at the top level of `source`; None also where `source` does not parse (told elsewhere)."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = [node for node in body if isinstance(node, kind) and node.name == name]
    return found[-1] if found else None


def _member(body: Sequence[ast.stmt], name: str) -> ast.FunctionDef | None:
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == name]
    return found[-1] if found else None


def _check_bindings(parts: Parts, workloads: Placed[Workload]) -> Iterator[SpecError]:
    variables = {name for name, axis in parts.axes.items() if isinstance(axis, VarAxis)}
    names = {item.name for _, item in (*parts.inputs, *parts.state)}
    complete = len(parts.inputs) == len(_raw_list(parts.document, "inputs"))
    for field, workload in workloads:
        for name in sorted(variables - workload.axes.keys()):
            yield SpecError(f"{field}.axes.{name}", None, "a size, because the axis is var")
        for name, size in workload.axes.items():
            if name not in parts.axis_names:
                expected = f"an axis of kind var: one of {', '.join(sorted(variables)) or 'none'}"
                yield SpecError(f"{field}.axes.{name}", size, expected)
            elif name in parts.axes and name not in variables:
                yield SpecError(f"{field}.axes.{name}", size, f"no size, because the axis is {parts.axes[name].kind}")
        for name in sorted(workload.inputs.keys() - names) if complete else ():
            yield SpecError(f"{field}.inputs.{name}", name, f"an input: one of {', '.join(sorted(names))}")


def _check_values(parts: Parts) -> list[SpecError]:
    """Bind every workload; a field that is wrong for several workloads is told once, for the first."""
    errors: dict[str, SpecError] = {}
    if parts.axes.keys() < parts.axis_names:
        return []
    for workloads in parts.workload_lists:
        for field, workload in workloads:
            for error in _workload_values(parts, field, workload):
                errors.setdefault(error.field, error)
    return list(errors.values())


def _workload_values(parts: Parts, field: str, workload: Workload) -> Iterator[SpecError]:
    try:
        bound = bind_axes(parts.axes, workload.axes)
    except SpecError as error:
        yield _for_workload(error, field, workload)
        return
    for index, text in parts.constraints:
        try:
            if expr.parse(text, "boolean").boolean(bound):
                continue
            expected = f"sizes that meet the constraint {text!r}"
        except expr.ExprError as error:
            expected = f"sizes for which the constraint {text!r} has a value ({error})"
        yield SpecError(f"{field}.axes", _sizes(bound), f"{expected} ({index})")
    tasks: list[Callable[[], object]] = []
    for place, item in (*parts.inputs, *((place, _as_input(state)) for place, state in parts.state)):
        override = workload.inputs.get(item.name, _NO_OVERRIDE)
        where = f"{field}.inputs.{item.name}"
        tasks.append(lambda p=place, i=item, w=where, o=override: bind_input(p, i, w, o, bound))  # type: ignore[misc]
    for place, output in parts.outputs:
        tasks.append(lambda p=place, o=output: bind_shape(f"{p}.shape", o.shape, bound))  # type: ignore[misc]
    for name in ("flops", "bytes"):
        if (value := getattr(parts.limits, name)) is not None:
            tasks.append(lambda n=name, v=value: _positive(f"limits.{n}", v, bound))  # type: ignore[misc]
    for task in tasks:
        try:
            task()
        except SpecError as error:
            yield _for_workload(error, field, workload)


def _positive(field: str, value: int | str, bound: Mapping[str, int]) -> None:
    number = amount(field, value, bound)
    if number < 1:
        raise SpecError(field, f"{value} = {number}", "a positive number")


def _as_input(state: State) -> Input:
    return Input(name=state.name, shape=state.shape, dtype=state.dtype, dist=state.dist, role="weight")


def _for_workload(error: SpecError, field: str, workload: Workload) -> SpecError:
    if error.field.startswith(field):
        return error
    return SpecError(error.field, error.found, f"{error.expected} (workload {workload.id!r}: {_sizes(workload.axes)})")


def _sizes(bound: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in bound.items()) or "no axes"


def _valid(validate: Callable[[Any], T], raw: Any) -> T | None:
    try:
        return validate(raw)
    except ValidationError:
        return None


def _parses(text: str, kind: expr.Kind) -> bool:
    try:
        expr.parse(text, kind)
    except expr.ExprError:
        return False
    return True


def _raw_list(document: Mapping[str, Any], name: str) -> Sequence[Any]:
    raw = document.get(name)
    return raw if isinstance(raw, list | tuple) else ()


def _listed(document: Mapping[str, Any], name: str, prefix: str = "") -> Placed[Any]:
    return [(f"{prefix}{name}[{index}]", raw) for index, raw in enumerate(_raw_list(document, name))]


def _models(model: type[M], items: Placed[Any]) -> Placed[M]:
    return [(field, found) for field, raw in items if (found := _valid(model.model_validate, raw)) is not None]

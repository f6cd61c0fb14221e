"""The well-formed parts of a document, each with its field.

The document may be malformed elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from warpsmith.kernels_db.spec import expr
from warpsmith.kernels_db.spec.dist import Dist, amounts
from warpsmith.kernels_db.spec.schema import Limits, NamedDtypes, Objective, Workload
from warpsmith.kernels_db.spec.tensors import Axis, ExprAxis, Input, Output, Shape, State

_AXIS: TypeAdapter[Axis] = TypeAdapter(Axis)
_DTYPES: TypeAdapter[Sequence[str]] = TypeAdapter(NamedDtypes)
_SHAPE: TypeAdapter[Sequence[int | str]] = TypeAdapter(Shape)
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
Context = dict[str, list[str]]
Placed = list[tuple[str, T]]
"""Parts with their fields, such as `inputs[1]`."""


class WorkloadList(NamedTuple):
    """One list of workloads; `complete` means that none in it is malformed."""

    field: str
    workloads: Placed[Workload]
    complete: bool


@dataclass(frozen=True)
class Parts:
    """The well-formed parts of a document.

    `axis_names` holds the malformed axes too: naming one is no second error. `input_count` and `output_count`
    count the malformed ones too; None where there is no list.
    """

    reference: str | None
    has_model: bool
    axis_names: frozenset[str]
    axes: dict[str, Axis]
    dtypes: dict[str, tuple[str, ...]]
    constraints: Placed[str]
    inputs: Placed[Input]
    input_count: int | None
    outputs: Placed[Output]
    output_count: int | None
    state: Placed[State]
    workload_lists: list[WorkloadList]
    limits: Limits
    objective: Objective
    other_shapes: Placed[Sequence[int | str]]
    """Well-formed shapes of inputs, outputs and state that are malformed elsewhere."""

    def arguments(self) -> Placed[Input]:
        """Return the inputs, then the state as inputs."""
        return [*self.inputs, *((field, state.as_input()) for field, state in self.state)]

    def shapes(self) -> Iterator[tuple[str, Sequence[int | str]]]:
        """Yield every shape."""
        for field, item in self.arguments():
            yield f"{field}.shape", item.shape or ()
        for field, output in self.outputs:
            yield f"{field}.shape", output.shape
        yield from self.other_shapes

    def dists(self) -> Iterator[tuple[str, Dist]]:
        """Yield every distribution that is written out."""
        for field, item in self.arguments():
            if item.dist is not None:
                yield f"{field}.dist", item.dist
        for workload_list in self.workload_lists:
            for field, workload in workload_list.workloads:
                for name, override in workload.inputs.items():
                    if override.dist is not None:
                        yield f"{field}.inputs.{name}.dist", override.dist

    def expressions(self) -> Iterator[tuple[str, expr.Expression]]:
        """Yield every expression."""
        for name, axis in self.axes.items():
            if isinstance(axis, ExprAxis):
                yield f"axes.{name}.expr", expr.parse(axis.expr, "integer")
        for field, text in self.constraints:
            yield field, expr.parse(text, "boolean")
        for field, value in self._amounts():
            if isinstance(value, str):
                yield field, expr.parse(value, "integer")

    def _amounts(self) -> Iterator[tuple[str, int | str | None]]:
        for field, item in self.inputs:
            yield from ((f"{field}.strides[{index}]", stride) for index, stride in enumerate(item.strides or ()))
        for field, dist in self.dists():
            yield from ((f"{field}.{name}", value) for name, value in amounts(dist).items())
        yield "limits.flops", self.limits.flops
        yield "limits.bytes", self.limits.bytes


def named_dtypes(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the context in which the tensors of a document are validated: the names of dtypes."""
    named = document.get("dtypes")
    return {"dtypes": [name for name in named if isinstance(name, str)] if isinstance(named, dict) else []}


def parts_of(document: Mapping[str, Any]) -> Parts:
    """Pick the well-formed parts out of `document`."""
    axes = document.get("axes")
    axes = axes if isinstance(axes, dict) else {}
    named = document.get("dtypes")
    named = named if isinstance(named, dict) else {}
    context = named_dtypes(document)
    reference = document.get("reference")
    return Parts(
        reference=reference if isinstance(reference, str) else None,
        has_model=document.get("init") is not None or bool(document.get("state")),
        axis_names=frozenset(axes),
        axes={name: axis for name, raw in axes.items() if (axis := _valid(_AXIS.validate_python, raw)) is not None},
        dtypes={
            name: tuple(found)
            for name, raw in named.items()
            if (found := _valid(_DTYPES.validate_python, raw)) is not None
        },
        constraints=[(field, raw) for field, raw in _listed(document, "constraints") if _is_condition(raw)],
        inputs=_models(Input, _listed(document, "inputs"), context),
        input_count=_count(document, "inputs"),
        outputs=_models(Output, _listed(document, "outputs"), context),
        output_count=_count(document, "outputs"),
        state=_models(State, _listed(document, "state"), context),
        workload_lists=list(_workload_lists(document)),
        limits=_valid(Limits.model_validate, document.get("limits", {})) or Limits(),
        objective=_valid(Objective.model_validate, document.get("objective", {})) or Objective(),
        other_shapes=list(_other_shapes(document, context)),
    )


def _other_shapes(document: Mapping[str, Any], context: Context) -> Iterator[tuple[str, Sequence[int | str]]]:
    kinds: dict[str, type[BaseModel]] = {"inputs": Input, "outputs": Output, "state": State}
    for name, model in kinds.items():
        for field, raw in _listed(document, name):
            if isinstance(raw, dict) and raw.get("shape") is not None and _validated(model, raw, context) is None:
                shape = _valid(_SHAPE.validate_python, raw["shape"])
                if shape is not None:
                    yield f"{field}.shape", shape


def _workload_lists(document: Mapping[str, Any]) -> Iterator[WorkloadList]:
    targets = document.get("targets")
    sections = targets.items() if isinstance(targets, dict) else ()
    for prefix, section in [("", document), *((f"targets.{device}.", section) for device, section in sections)]:
        if isinstance(section, dict) and _count(section, "workloads"):
            workloads = _models(Workload, _listed(section, "workloads", prefix))
            yield WorkloadList(f"{prefix}workloads", workloads, len(workloads) == _count(section, "workloads"))


def _valid(validate: Callable[[Any], T], raw: Any) -> T | None:
    try:
        return validate(raw)
    except ValidationError:
        return None


def _is_condition(raw: Any) -> bool:
    try:
        return isinstance(raw, str) and bool(expr.parse(raw, "boolean"))
    except expr.ExprError:
        return False


def _count(document: Mapping[str, Any], name: str) -> int | None:
    raw = document.get(name)
    return len(raw) if isinstance(raw, list | tuple) else None


def _listed(document: Mapping[str, Any], name: str, prefix: str = "") -> Placed[Any]:
    raw = document.get(name)
    return [(f"{prefix}{name}[{i}]", item) for i, item in enumerate(raw)] if isinstance(raw, list | tuple) else []


def _models(model: type[M], items: Placed[Any], context: Context | None = None) -> Placed[M]:
    return [(field, found) for field, raw in items if (found := _validated(model, raw, context)) is not None]


def _validated(model: type[M], raw: Any, context: Context | None) -> M | None:
    return _valid(partial(model.model_validate, context=context), raw)

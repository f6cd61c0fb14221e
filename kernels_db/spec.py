"""The models of the op spec: what to compute, on which shapes, and what counts as right.

Each model checks its own fields; what several fields must agree on is checked in `spec_checks`. Load a spec with `kernels_db.op`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, model_validator

from kernels_db.dist import Dist
from kernels_db.spec_errors import SpecError, SpecErrors
from kernels_db.spec_types import (
    MAX_RANK,
    Amount,
    BooleanExpr,
    Dimension,
    Dtype,
    IntegerExpr,
    Items,
    Label,
    Name,
    Number,
    Python,
    Size,
    Spec,
    refuse,
)
from kernels_db.target import Target

Role = Literal["bench", "test", "holdout"]
Text = Annotated[str, Field(max_length=4000)]
Shape = Annotated[Items[Dimension], Field(max_length=MAX_RANK)]


class ConstAxis(Spec):
    """An axis with one size for all workloads."""

    kind: Literal["const"]
    value: Size
    """The size, at least 1."""
    description: Text = ""
    """For people and models; no effect."""


class VarAxis(Spec):
    """An axis whose size each workload gives."""

    kind: Literal["var"]
    description: Text = ""
    """For people and models; no effect."""


class ExprAxis(Spec):
    """An axis derived from others."""

    kind: Literal["expr"]
    expr: IntegerExpr
    """The size as an expression over other axes, such as `2 * hidden`."""
    description: Text = ""
    """For people and models; no effect."""


Axis = Annotated[ConstAxis | VarAxis | ExprAxis, Discriminator("kind")]


class Input(Spec):
    """One argument of `run`, in order: a tensor, or a scalar where `shape` is null."""

    name: Name
    """The argument's name."""
    shape: Shape | None = None
    """Axis names and integers, outermost first; null or absent for a scalar. An empty list is a tensor of one element."""
    dtype: Dtype
    """Element type, by torch's name. A scalar's value is a Python number of this type."""
    dist: Dist | None = None
    """How values are drawn. Default: standard normal for floating dtypes, fair coin for bool; integer inputs must say."""
    value: Number | None = None
    """A scalar's value. A workload may give another."""
    role: Literal["input", "weight"] = "input"
    """`weight`: a parameter, the same from call to call in use, as opposed to an activation."""
    optional: bool = False
    """Whether a workload may leave it out; `run` then gets None."""
    mutated: bool = False
    """Whether `run` writes into it (in-place op): it is then checked like an output, and restored before every call."""
    strides: Annotated[Items[Amount], Field(max_length=MAX_RANK)] | None = None
    """Elements between neighbours along each axis: integers or expressions over the axes, 0 for a broadcast axis. Default: contiguous."""
    alignment: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Bytes, a power of two: all that may be assumed of the data pointer. Default: an allocator's own alignment, 16 or more."""
    description: Text = ""
    """For people and models; no effect."""


class State(Spec):
    """A parameter or buffer of the reference's `Model`; `run` gets it after the inputs."""

    name: Name
    """The name of the argument that candidates get."""
    attribute: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.\w+)*$", max_length=256)]
    """Where the module keeps it: its key in `state_dict()`, such as `linear.weight`."""
    shape: Shape
    """Axis names and integers."""
    dtype: Dtype
    """Element type, by torch's name."""
    dist: Dist | None = None
    """How values are drawn; defaults as for inputs."""
    description: Text = ""
    """For people and models; no effect."""


class Tolerance(Spec):
    """An element passes where |found - expected| <= atol + rtol |expected|, expected being the float64 reference."""

    rtol: Annotated[float, Field(ge=0)]
    """Relative part."""
    atol: Annotated[float, Field(ge=0)]
    """Absolute part."""


class DerivedCheck(Spec):
    """Tolerance derived from PyTorch's own error against float64, unless `tolerance` is given. Integer outputs must be equal."""

    kind: Literal["derived"]


class ExactCheck(Spec):
    """Every element equal to the reference's."""

    kind: Literal["exact"]


class CodeCheck(Spec):
    """The user's own check. It is kept with the spec, but this version of the judge does not run it and refuses such a job."""

    kind: Literal["code"]
    source: Python
    """A module with `check(inputs, expected, found)` that returns whether the outputs are right."""


class Output(Spec):
    """One tensor that the reference returns, and one buffer that a candidate fills; passed to a candidate's `run` after the inputs."""

    name: Name
    """The buffer's name."""
    shape: Shape
    """Axis names and integers, outermost first."""
    dtype: Dtype
    """Element type, by torch's name."""
    tolerance: Tolerance | None = None
    """The op's own tolerance; the verdict then says so. Default: derived from float64."""
    check: Annotated[DerivedCheck | ExactCheck | CodeCheck, Discriminator("kind")] = DerivedCheck(kind="derived")
    """How the output is compared with the reference's."""
    description: Text = ""
    """For people and models; no effect."""

    @model_validator(mode="after")
    def _one_criterion(self) -> Output:
        if self.tolerance is not None and self.check.kind != "derived":
            raise refuse(f"a tolerance or the check {self.check.kind!r}, not both")
        return self


class InputOverride(Spec):
    """What one workload changes of one input."""

    dist: Dist | None = None
    """Another distribution."""
    value: Number | None = None
    """Another value of a scalar."""
    omit: bool = False
    """Leave an optional input out; `run` gets None."""


class Workload(Spec):
    """One binding of the var axes."""

    id: Label
    """Its name, unique in its list."""
    role: Role
    """`bench`: timed, and shown to the search. `test`: checked only. `holdout`: checked in verification, never shown to the search."""
    axes: dict[str, Size] = {}
    """A size for every var axis."""
    inputs: dict[str, InputOverride] = {}
    """Changes by input name."""


class TargetSection(Spec):
    """What differs on one type of device."""

    workloads: Annotated[Items[Workload], Field(min_length=1)]
    """Replaces the spec's `workloads` there."""


class Targets(Spec):
    """Per type of device."""

    cpu: TargetSection | None = None
    """For targets `cpu:*`."""
    cuda: TargetSection | None = None
    """For targets `cuda:*`."""


class Objective(Spec):
    """What a faster kernel is faster than, and how workloads are weighed."""

    rank: Literal["geomean"] = "geomean"
    """The score: geometric mean over bench workloads of the speed-up over the fastest baseline."""
    baselines: Annotated[Items[Literal["eager", "compile", "max_autotune"]], Field(min_length=1)] = (
        "eager",
        "compile",
        "max_autotune",
    )
    """Ways to run the reference: PyTorch eager, torch.compile, torch.compile(mode="max-autotune-no-cudagraphs")."""


class Limits(Spec):
    """The work that no kernel can avoid, for the physical limit of its time."""

    flops: Amount | None = None
    """Operations of one call, a multiply-add counting two: an integer or an expression over the axes. Default: not limited by operations."""
    bytes: Amount | None = None
    """Bytes of one call. Default: every input read once, every output and mutated input written once."""


class OriginFile(Spec):
    """One raw file; exactly one of `text` and `base64`."""

    path: Annotated[str, Field(min_length=1, max_length=1024)]
    """Where it stood in the imported set."""
    text: str | None = None
    """Its content, where that is UTF-8."""
    base64: str | None = None
    """Its content otherwise."""

    @model_validator(mode="after")
    def _one_content(self) -> OriginFile:
        if (self.text is None) == (self.base64 is None):
            raise refuse("exactly one of text and base64")
        return self


class Origin(Spec):
    """Where an imported spec came from: its raw files, so that it can be given back byte for byte."""

    format: Label
    """The format it was imported from."""
    files: Items[OriginFile] = ()
    """The raw files."""


class Op(Spec):
    """An op spec: one document."""

    schema_version: Literal[1]
    """Version of this format."""
    name: Name
    """The op's name; exports use it as the operator's name."""
    description: Text = ""
    """What it computes, for people and models."""
    family: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")] | None = None
    """The kind of op (`normalization`, `gemm`, ...): where similar kernels are looked for."""
    axes: dict[Name, Axis] = {}
    """The named sizes."""
    constraints: Items[BooleanExpr] = ()
    """Conditions over the axes that every workload meets, such as `hidden % 8 == 0`. Candidates may rely on them."""
    inputs: Annotated[Items[Input], Field(min_length=1, max_length=64)]
    """The arguments of `run`, in order."""
    outputs: Annotated[Items[Output], Field(max_length=64)] = ()
    """What `run` returns, in order. May be empty where an input is mutated."""
    reference: Python
    """A Python module with `run(*inputs)` in PyTorch: it returns the outputs (one tensor or a tuple), or None where there are none.
    With `state` or `init`: a module with a class `Model`, a torch.nn.Module whose `forward(*inputs)` does the same."""
    init: Items[Any] | None = None
    """Arguments to construct `Model` with."""
    state: Items[State] = ()
    """Parameters and buffers of `Model`."""
    workloads: Annotated[Items[Workload], Field(min_length=1)]
    """Bindings of the var axes; at least one has the role `bench`."""
    targets: Targets = Targets()
    """What differs by type of device."""
    math: Literal["ieee", "tf32"] = "ieee"
    """The arithmetic that baselines and candidates may use for float32 products."""
    objective: Objective = Objective()
    """What to be faster than."""
    library_calls: bool = False
    """Whether candidates may call a named list of library functions (`torch.mm`, `conv2d`, ...)."""
    limits: Limits = Limits()
    """Work that no kernel can avoid."""
    origin: Origin | None = None
    """Raw files of an import."""

    def document(self) -> dict[str, Any]:
        """The spec as a JSON document without what equals the defaults; `parse_op` reads it back to an equal Op."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the canonical document: the identity of the stored spec."""
        return _digest(self.document())

    @property
    def semantic_digest(self) -> str:
        """SHA-256 (hex) of what is computed, however described and on whatever workloads: the identity for pools and envelopes."""
        fields = ("name", "axes", "constraints", "inputs", "outputs", "reference", "init", "state", "math")
        document = self.document()
        return _digest({field: _undescribed(document[field]) for field in fields if field in document})

    def workloads_for(self, target: Target) -> list[Workload]:
        """The workloads of `target`'s device type."""
        section = self.targets.cpu if target.device == "cpu" else self.targets.cuda
        return list(self.workloads if section is None else section.workloads)

    def workload(self, target: Target, workload_id: str) -> Workload:
        """The workload of that id; raises SpecErrors naming the ids there are."""
        workloads = self.workloads_for(target)
        for workload in workloads:
            if workload.id == workload_id:
                return workload
        raise SpecErrors([SpecError("workload", workload_id, f"one of {', '.join(item.id for item in workloads)}")])


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _undescribed(part: Any) -> Any:
    if isinstance(part, dict):
        # An axis may bear the name "description"; only a text is a description.
        return {k: _undescribed(v) for k, v in part.items() if k != "description" or not isinstance(v, str)}
    return [_undescribed(value) for value in part] if isinstance(part, list) else part

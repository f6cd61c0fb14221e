"""The op spec: what to compute, on which shapes, and what to be faster than.

Each model checks its own fields; what several fields must agree on is checked in `spec.checks`. Load a spec with
`warpsmith.kernels_db.spec.op`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from warpsmith.kernels_db.job.attack_documents import Accuracy
from warpsmith.kernels_db.job.baselines import MAX_EXPERTS, PYTORCH_BASELINES
from warpsmith.kernels_db.spec.basic_types import (
    MAX_AXES,
    MAX_TENSORS,
    Amount,
    BooleanExpr,
    CallName,
    Dtype,
    Items,
    Label,
    Name,
    Number,
    Python,
    Size,
    Spec,
    Text,
    Weight,
    refuse,
)
from warpsmith.kernels_db.spec.dist import Dist
from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors
from warpsmith.kernels_db.spec.experts import Expert, ExpertName
from warpsmith.kernels_db.spec.near_misses import one_of
from warpsmith.kernels_db.spec.target import Target
from warpsmith.kernels_db.spec.tensors import Axis, Input, Output, State

MAX_NAMED_DTYPES = 8

NamedDtypes = Annotated[Items[Dtype], Field(min_length=1, max_length=12)]
"""The dtypes that one name may be."""

Role = Literal["bench", "test", "holdout"]


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
    """`bench`: timed, and shown to the search. `test`: checked only. `holdout`: checked in verification, not shown."""
    axes: dict[str, Size] = Field(default_factory=dict)
    """A size for every var axis."""
    dtypes: dict[str, Dtype] = Field(default_factory=dict)
    """A dtype for every name of the op's `dtypes`."""
    inputs: dict[str, InputOverride] = Field(default_factory=dict)
    """Changes by input name."""
    weight: Weight = 1.0
    """How often it occurs, against the other bench workloads: its part in the score. Only for the role `bench`."""


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
    """The score: geometric mean over bench workloads, by their weights, of the speed-up over the fastest baseline."""
    baselines: Annotated[Items[Name], Field(min_length=1)] = PYTORCH_BASELINES
    """Ways to run the reference: `eager`, `compile` (torch.compile), `max_autotune` (with
    mode="max-autotune-no-cudagraphs"), of which at least one; and the names of experts."""
    experts: Annotated[dict[ExpertName, Expert], Field(max_length=MAX_EXPERTS)] = Field(default_factory=dict)
    """Calls of installed libraries that give the op's results, by the names that `baselines` has them under:
    `liger.rms_norm(x, weight)`, `MODULE:NAME(x, weight)` or a module with `run(*inputs)`."""


class Limits(Spec):
    """The work that no kernel can avoid, for the physical limit of its time."""

    flops: Amount | None = None
    """Operations of one call, a multiply-add counting two: an integer or an expression over the axes.
    Default: not limited by operations."""
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
    axes: Annotated[dict[Name, Axis], Field(max_length=MAX_AXES)] = Field(default_factory=dict)
    """The named sizes."""
    dtypes: Annotated[dict[Name, NamedDtypes], Field(max_length=MAX_NAMED_DTYPES)] = Field(default_factory=dict)
    """Named dtypes, each with those that it may be, such as `elem: [float32, bfloat16]`. Tensors have the name as
    their dtype, each workload says which one that is, and a candidate is judged on all of them."""
    constraints: Items[BooleanExpr] = ()
    """Conditions over the axes that every workload meets, such as `hidden % 8 == 0`. Candidates may rely on them."""
    inputs: Annotated[Items[Input], Field(min_length=1, max_length=MAX_TENSORS)]
    """The arguments of `run`, in order."""
    outputs: Annotated[Items[Output], Field(max_length=MAX_TENSORS)] = ()
    """What `run` returns, in order. May be empty where an input is mutated."""
    reference: Python
    """A Python module with `run(*inputs)` in PyTorch: it returns the outputs (a tensor or a tuple), or None where
    there are none. With `state` or `init`: a class `Model`, a torch.nn.Module whose `forward(*inputs)` does so."""
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
    accuracy: Accuracy = "componentwise"
    """How the judge's counterexample search measures errors: every element against its own size, or (`normwise`)
    against the largest of its tensor, which fast matrix products such as Strassen's and Winograd's need."""
    objective: Objective = Objective()
    """What to be faster than."""
    library_calls: bool = False
    """Whether candidates may call a named list of library functions (`torch.mm`, `conv2d`, ...)."""
    limits: Limits = Limits()
    """Work that no kernel can avoid."""
    calls: Items[CallName] = ()
    """The functions and classes of modules whose calls are this op, such as `torch.nn.functional.rms_norm` or
    `LlamaRMSNorm`: `warpsmith workloads` makes workloads of recorded ones. A name may leave out its first parts. No
    part of the op's identity."""
    origin: Origin | None = None
    """Raw files of an import."""

    def document(self) -> dict[str, Any]:
        """Return the spec as a JSON document without the fields that equal the defaults.

        `parse_op` reads it back to an equal Op.
        """
        return self.model_dump(mode="json", exclude_defaults=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy, which computes its own digest."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("digest", None)
        return copied

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the canonical document without `calls`: the identity of the stored spec."""
        return _digest({name: value for name, value in self.document().items() if name != "calls"})

    @property
    def semantic_digest(self) -> str:
        """SHA-256 (hex) of the computation, whatever the description and the workloads.

        Pools and envelopes use it.
        """
        return _digest(self.semantic_document())

    def semantic_document(self) -> dict[str, Any]:
        """Return those fields of `document` that define the computation, without descriptions."""
        document = self.document()
        return {field: _undescribed(document[field]) for field in _MEANING if field in document}

    def workloads_for(self, target: Target) -> list[Workload]:
        """Return the workloads of `target`'s device type."""
        return self.workloads_by_device()[target.device]

    def workloads_by_device(self) -> dict[str, list[Workload]]:
        """Return the workloads of every device type; empty where the op is for another one."""
        return {
            device: list(self.workloads if section is None else section.workloads)
            for device, section in self._sections()
        }

    def dtypes_for(self, target: Target) -> list[dict[str, str]]:
        """Return the dtypes of the named ones that workloads of `target` have, each choice once.

        One choice, of nothing, where the op names no dtypes.
        """
        found: list[dict[str, str]] = []
        for workload in self.workloads_for(target):
            if workload.dtypes not in found:
                found.append(dict(workload.dtypes))
        return found

    def with_dtypes(self, chosen: Mapping[str, str]) -> Op:
        """Return the op with `chosen` in place of its named dtypes, and with the workloads of these dtypes alone.

        A list without a bench workload among them is dropped, for no op is without one: a type of device then has
        the common list, and the common list is that of a type of device. Raises ValueError where no bench workload has
        these dtypes.
        """
        if not self.dtypes:
            return self
        document = self.document()
        del document["dtypes"]
        for field in ("inputs", "outputs", "state"):
            for item in document.get(field, ()):
                item["dtype"] = chosen.get(item["dtype"], item["dtype"])
        targets = document.get("targets", {})
        lists = [(document, self.workloads)]
        lists += [(targets[device], section.workloads) for device, section in self._sections() if section is not None]
        for place, workloads in lists:
            rows = zip(place["workloads"], workloads, strict=True)
            found = [row for row, workload in rows if workload.dtypes == chosen]
            place["workloads"] = found if any(row["role"] == "bench" for row in found) else []
            for row in place["workloads"]:
                row.pop("dtypes", None)
        for device in [device for device in targets if not targets[device]["workloads"]]:
            del targets[device]
        document["workloads"] = document["workloads"] or next(
            (section["workloads"] for section in targets.values()), []
        )
        return Op.model_validate(document)

    def _sections(self) -> list[tuple[str, TargetSection | None]]:
        return [("cpu", self.targets.cpu), ("cuda", self.targets.cuda)]

    def workload(self, target: Target, workload_id: str) -> Workload:
        """Return the workload of that id; raises SpecErrors naming the ids there are."""
        workloads = self.workloads_for(target)
        for workload in workloads:
            if workload.id == workload_id:
                return workload
        ids = [item.id for item in workloads]
        raise SpecErrors([SpecError("workload", workload_id, one_of(workload_id, ids))])


_MEANING: tuple[str, ...] = (
    "name",
    "axes",
    "dtypes",
    "constraints",
    "inputs",
    "outputs",
    "reference",
    "init",
    "state",
    "math",
    "accuracy",
)
"""The fields that define what an op computes."""


def _digest(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _undescribed(part: Any) -> Any:
    if isinstance(part, dict):
        # An axis may bear the name "description"; only a text is a description.
        return {k: _undescribed(v) for k, v in part.items() if k != "description" or not isinstance(v, str)}
    return [_undescribed(value) for value in part] if isinstance(part, list) else part

"""The checked results of an analysis.

The file shares the process that answers, so an answer is the file's own statement about itself, and is read as
strictly as the file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from keyword import iskeyword
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from warpsmith.kernels_db.formats.shared.files import refused
from warpsmith.kernels_db.job.file_analysis import Analyse, AnalysisFailed
from warpsmith.kernels_db.job.file_constants import LONGEST, is_literal
from warpsmith.kernels_db.spec.basic_types import MAX_ELEMENTS, MAX_ITEMS, MAX_RANK, MAX_TENSORS, Dtype, Size
from warpsmith.kernels_db.spec.document import MAX_DEPTH

MOST_WORKLOADS = 64
"""Of one task, each of which is run."""

MOST_LEAVES = 256
"""Tensors and numbers on one side of a task's call. A spec has fewer: a workload with more than that is left out."""

LONGEST_NAME = 256
"""Of an attribute, and of a key in a task's data."""


class Facts(BaseModel):
    """Base of what an answer says."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _bounded(value: float) -> float:
    if not (math.isfinite(value) if isinstance(value, float) else -(2**63) <= value < 2**63):
        raise ValueError("not a finite number of at most 64 bits")
    return value


def _flat(dist: dict[str, Any]) -> dict[str, Any]:
    for key, value in dist.items():
        if not isinstance(value, str | int | float):
            raise ValueError(f"{key} is not a text or a number")
        try:
            _bounded(0 if isinstance(value, str) else value)
        except ValueError as error:
            raise ValueError(f"{key} is {error}") from None
    return dist


Stride = Annotated[int, Field(ge=0, le=MAX_ELEMENTS)]
Number = Annotated[bool | int | float, AfterValidator(_bounded)]
Drawn = Annotated[dict[str, Any], AfterValidator(_flat)]
"""A distribution: texts and numbers by name."""


ByteDtype = Literal["float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"]
"""Dtypes of torch of one byte that no spec has. A closed list: the name becomes part of a spec's source."""


class Leaf(Facts):
    """A tensor, or a number, whose `shape` is None.

    `dist`: the distribution that it was seen to be drawn from, {"kind": "empty"} for memory that was not written;
    None where that is not known. `bytes_of`: the dtype of torch whose bytes these are, where no spec has it.
    """

    shape: list[Size] | None = Field(max_length=MAX_RANK)
    dtype: Dtype
    strides: list[Stride] | None = None
    dist: Drawn | None = None
    value: Number | None = None
    bytes_of: ByteDtype | None = None

    @model_validator(mode="after")
    def _one_stride_for_each_axis(self) -> Leaf:
        if self.bytes_of is not None and (self.dtype != "uint8" or self.shape is None):
            raise ValueError(f"bytes of {self.bytes_of} that are no tensor of uint8")
        if self.strides is not None and len(self.strides) != len(self.shape or []):
            raise ValueError(f"{len(self.strides)} strides for {len(self.shape or [])} axes")
        return self


Leaves = Annotated[list[Leaf], Field(max_length=MAX_TENSORS)]
"""The tensors and numbers on one side of a call."""


class StateLeaf(Facts):
    """A parameter or buffer; `plain`: a tensor that the module keeps as an ordinary attribute."""

    attribute: str = Field(max_length=LONGEST_NAME)
    shape: list[Size] = Field(max_length=MAX_RANK)
    dtype: Dtype
    dist: Drawn | None
    plain: bool = False


class Written(Facts):
    """The values that a call of a module writes to: inputs by position, state by attribute."""

    inputs: list[int] = Field(max_length=MAX_TENSORS)
    state: list[str] = Field(max_length=MAX_ITEMS)


class ConstantInput(Facts):
    """An input of a module that is no tensor or number: `source` is its value as Python writes it."""

    position: int = Field(ge=0, lt=MAX_TENSORS)
    source: str = Field(max_length=LONGEST)

    @model_validator(mode="after")
    def _plain(self) -> ConstantInput:
        if not is_literal(self.source):
            raise ValueError("no plain value")
        return self


class ModuleFacts(Facts):
    """The inputs and outputs of a module; `init` is None where JSON cannot carry the arguments.

    `small`: other sizes of the file, with which it computes on little. `constants`: inputs that became part of it.
    """

    init: list[bool | int | float | str | None] | None = Field(max_length=MAX_ITEMS)
    inputs: Leaves
    state: list[StateLeaf] = Field(max_length=MAX_ITEMS)
    outputs: Leaves
    written: Written
    small: SmallFacts | None = None
    constants: list[ConstantInput] = Field(default=[], max_length=MAX_TENSORS)


class SmallFacts(Facts):
    """Numbers to put at the names of a file's sizes, and what is then true of it."""

    sizes: dict[Annotated[str, Field(max_length=LONGEST_NAME)], Size] = Field(max_length=MAX_ITEMS)
    facts: ModuleFacts


class ReferenceFacts(Facts):
    """How a spec's reference was seen to compute as the file does: on values, or only on shapes and dtypes.

    `unread`: attributes of state whose values do not show in the results.
    """

    compared: Literal["values", "shapes"]
    unread: list[Annotated[str, Field(max_length=LONGEST_NAME)]] = Field(default=[], max_length=MAX_ITEMS)


class TaskWorkload(Facts):
    """One call of a task.

    Structure and leaves of its data and of its result, which of the data were written, which overwritten before they
    were read or not touched (`unread`), and for each output which of the data it is, if any. A structure is
    {"leaf": n}, {"tuple": [...]}, {"list": [...]}, {"dict": {...}}, {"constant": text or None} or, for an object of a
    class of the task's, {"object": {"class": name, "attributes": {...}, "parameters": [...], "buffers": [...]}}.
    """

    structure: dict[str, Any]
    result: dict[str, Any]
    inputs: list[Leaf] = Field(max_length=MOST_LEAVES)
    outputs: list[Leaf] = Field(max_length=MOST_LEAVES)
    written: list[int] = Field(max_length=MOST_LEAVES)
    aliases: list[int | None] = Field(max_length=MOST_LEAVES)
    unread: list[int] = Field(default=[], max_length=MOST_LEAVES)

    @property
    def elements(self) -> int:
        """How many elements the data and the results have."""
        return sum(math.prod(leaf.shape) for leaf in [*self.inputs, *self.outputs] if leaf.shape is not None)

    @property
    def fits(self) -> bool:
        """Whether a spec has room for so many inputs and outputs."""
        return max(len(self.inputs), len(self.outputs)) <= MAX_TENSORS

    @model_validator(mode="after")
    def _whole(self) -> TaskWorkload:
        """Check that the structures hold every leaf once and in order, and no other."""
        for structure, leaves in ((self.structure, self.inputs), (self.result, self.outputs)):
            if list(_leaves(structure, 0)) != list(range(len(leaves))):
                raise ValueError("other leaves than the structures have, or out of order")
        if len(self.aliases) != len(self.outputs):
            raise ValueError("other aliases than outputs")
        return self


class TaskFacts(Facts):
    """The calls of a task.

    A workload is None where it needs values and was not to have them. `inferred`: those whose results were not
    computed; their sizes follow from the data's as they do in smaller calls.
    """

    workloads: list[TaskWorkload | None] = Field(min_length=1, max_length=MOST_WORKLOADS)
    inferred: list[int] = Field(default=[], max_length=MOST_WORKLOADS)

    @property
    def understood(self) -> list[TaskWorkload]:
        """The workloads of which something is known."""
        return [workload for workload in self.workloads if workload is not None]


class SmallCall(Facts):
    """A call of a task with smaller arguments, which computes on little."""

    arguments: dict[Annotated[str, Field(max_length=LONGEST_NAME)], Any]
    workload: TaskWorkload


class SmallCalls(Facts):
    """The smaller call that was found, if any."""

    calls: list[SmallCall] = Field(max_length=1)


def _leaves(structure: Any, depth: int) -> Iterator[int]:
    if depth > MAX_DEPTH or not isinstance(structure, dict) or len(structure) != 1:
        raise ValueError("no structure")
    kind, content = next(iter(structure.items()))
    if kind == "leaf" and type(content) is int:
        yield content
    elif kind in ("tuple", "list") and isinstance(content, list):
        for item in content:
            yield from _leaves(item, depth + 1)
    elif kind == "dict" and isinstance(content, dict):
        for key, item in content.items():
            if len(key) > LONGEST_NAME:
                raise ValueError(f"a key of {len(key)} characters, at most {LONGEST_NAME}")
            yield from _leaves(item, depth + 1)
    elif kind == "object" and isinstance(content, dict):
        yield from _leaves_of_object(content, depth)
    elif kind != "constant" or not (content is None or isinstance(content, str)):
        raise ValueError("no structure")


def _leaves_of_object(content: dict[str, Any], depth: int) -> Iterator[int]:
    """Yield the leaves of an object; its names become part of a spec's source."""
    attributes = content.get("attributes")
    if set(content) != {"class", "attributes", "parameters", "buffers"} or not isinstance(attributes, dict):
        raise ValueError("no structure")
    marked = [content["parameters"], content["buffers"]]
    if not all(isinstance(names, list) and all(name in attributes for name in names) for names in marked):
        raise ValueError("no structure")
    for name in [content["class"], *attributes]:
        if not isinstance(name, str) or not _is_name(name):
            raise ValueError(f"{str(name)[:LONGEST_NAME]!r} is no name of a class or an attribute")
    for item in attributes.values():
        yield from _leaves(item, depth + 1)


def _is_name(name: str) -> bool:
    return len(name) <= LONGEST_NAME and name.isascii() and name.isidentifier() and not iskeyword(name)


Kind = TypeVar("Kind", bound=Facts)

_EXPECTED = "a file that runs in the sandbox, under its limits, with torch and what the file brings itself"

_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_PACKAGE = (
    "a file that needs torch, what it brings itself, and packages that are installed beside Warpsmith: {name} is not"
)


def asked(analyse: Analyse | None, request: dict[str, Any], kind: type[Kind], field: str) -> tuple[Kind, str]:
    """Return the answer to a request about the file `field`, and the sandbox's level.

    Raises SpecErrors without one.
    """
    if analyse is None:
        raise refused(field, "a file that must be run to be understood", "a machine with torch, where it can be run")
    try:
        found = analyse(request)
        return kind.model_validate(found.answer), found.sandbox
    except AnalysisFailed as failed:
        lacking = _NO_MODULE.match(str(failed)) if failed.kind == "raises" else None
        expected = _PACKAGE.format(name=lacking[1].partition(".")[0]) if lacking else _EXPECTED
        raise refused(field, f"{failed.kind}: {failed}", expected) from failed
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in wrong["loc"])
        raise refused(field, f"{where} {wrong['msg']}: {wrong['input']!r}", _EXPECTED) from error

"""The models of axes, inputs, state, outputs and output checks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, model_validator

from warpsmith.kernels_db.spec.basic_types import (
    INTEGER_RANGE,
    MAX_RANK,
    Amount,
    Dimension,
    ElementType,
    IntegerExpr,
    Items,
    Name,
    Number,
    Python,
    Size,
    Spec,
    Text,
    refuse,
)
from warpsmith.kernels_db.spec.dist import Dist

Shape = Annotated[Items[Dimension], Field(max_length=MAX_RANK)]
"""Axis names and integers, outermost first."""


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


class Values(Spec):
    """What an input may hold in use, beyond its distribution: nothing else is asked of a kernel, nor promised."""

    finite: bool = False
    """Whether NaN and infinities never occur. Floating dtypes."""
    range: Annotated[Items[Number], Field(min_length=2, max_length=2)] | None = None
    """Smallest and largest value, both included; NaN and infinities are outside of every range. What the distribution
    gives must lie within, six standard deviations of a normal one. A scalar's values are drawn from all of it, and
    integers are asked to its ends on every workload: leave it out of indices into an axis that varies. Without it
    integers are what the distribution gives."""

    @model_validator(mode="after")
    def _ordered(self) -> Values:
        if self.range is not None and self.range[0] > self.range[1]:
            raise refuse("a range whose first number is not above its second")
        return self


class Input(Spec):
    """One argument of `run`, in order: a tensor, or a scalar where `shape` is null."""

    name: Name
    """The argument's name."""
    shape: Shape | None = None
    """Axis names and integers, outermost first; null or absent for a scalar. An empty list: a tensor of one element."""
    dtype: ElementType
    """Element type, by torch's name or by one of `dtypes`. A scalar's value is a Python number of this type."""
    dist: Dist | None = None
    """How values are drawn. Default: standard normal for floating dtypes, a fair coin for bool; integers must say."""
    value: Number | None = None
    """A scalar's value. A workload may give another."""
    values: Values = Values()
    """What it may hold in use. Default: whatever its dtype holds, of the sign that the distribution has."""
    role: Literal["input", "weight"] = "input"
    """`weight`: a parameter, the same from call to call in use, as opposed to an activation."""
    optional: bool = False
    """Whether a workload may leave it out; `run` then gets None."""
    mutated: bool = False
    """Whether `run` writes into it (in-place op): it is then checked like an output, and restored before every call."""
    strides: Annotated[Items[Amount], Field(max_length=MAX_RANK)] | None = None
    """Elements between neighbours along each axis: integers or expressions over the axes, 0 for a broadcast axis.
    Default: contiguous."""
    alignment: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Bytes, a power of two: all that may be assumed of the data pointer. Default: the allocator's own, 16 or more."""
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
    dtype: ElementType
    """Element type, by torch's name or by one of `dtypes`."""
    dist: Dist | None = None
    """How values are drawn; defaults as for inputs."""
    values: Values = Values()
    """What it may hold in use, as for inputs."""
    description: Text = ""
    """For people and models; no effect."""

    def as_input(self) -> Input:
        """Return the argument of `run` that it becomes."""
        # Not validated again: which names of dtypes there are, the document of the op alone says.
        return Input.model_construct(
            name=self.name, shape=self.shape, dtype=self.dtype, dist=self.dist, values=self.values, role="weight"
        )


class Tolerance(Spec):
    """An element passes where |found - expected| <= atol + rtol |expected|, expected being the float64 reference."""

    rtol: Annotated[float, Field(ge=0)]
    """Relative part."""
    atol: Annotated[float, Field(ge=0)]
    """Absolute part."""


class DerivedCheck(Spec):
    """Within a tolerance derived from PyTorch's own error against float64, or `tolerance`. An integer must be the
    reference's, or another that roundoff or the order of equals leaves open."""

    kind: Literal["derived"]


class ExactCheck(Spec):
    """Every element equal to the reference's."""

    kind: Literal["exact"]


class IndicesCheck(Spec):
    """Indices into an input, any of those that select equal values where their order is open.

    An op needs this check only where the judge cannot find it out: see [the judge](judge.md#results-that-have-steps).
    """

    kind: Literal["indices"]
    ties: Literal["any", "first"] = "any"
    """Which of equals is right: `any` of them, or the `first`, as the reference gives it."""
    of: Name | None = None
    """The floating input whose values are selected. Default: the judge looks for it."""
    axis: int = -1
    """The axis of that input along which the indices count; negative from the last."""


class CodeCheck(Spec):
    """The user's own check. Kept with the spec, but this version of the judge does not run it: no job is built."""

    kind: Literal["code"]
    source: Python
    """A module with `check(inputs, expected, found)` that returns whether the outputs are right."""


class Output(Spec):
    """One tensor that the reference returns, and one buffer that a candidate fills: an argument after the inputs."""

    name: Name
    """The buffer's name."""
    shape: Shape
    """Axis names and integers, outermost first."""
    dtype: ElementType
    """Element type, by torch's name or by one of `dtypes`."""
    tolerance: Tolerance | None = None
    """The op's own tolerance; the verdict then says so. Default: derived from float64."""
    check: Annotated[DerivedCheck | ExactCheck | IndicesCheck | CodeCheck, Discriminator("kind")] = DerivedCheck(
        kind="derived"
    )
    """How the output is compared with the reference's."""
    description: Text = ""
    """For people and models; no effect."""

    @model_validator(mode="after")
    def _one_criterion(self) -> Output:
        if self.tolerance is not None and self.check.kind != "derived":
            raise refuse(f"a tolerance or the check {self.check.kind!r}, not both")
        if self.check.kind == "indices" and self.dtype not in INTEGER_RANGE:
            raise refuse(f"an integer dtype for the check 'indices', not {self.dtype}")
        return self

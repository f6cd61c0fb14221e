"""The distributions of input values; the judge reads them with expressions worked out.

All draws are independent between tensors and between calls. Floating values are drawn in float32 (float64 for float64
inputs) and rounded to the input's dtype.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, model_validator

from warpsmith.kernels_db.spec.basic_types import Amount, Number, Python, Spec, refuse


class Normal(Spec):
    """Independent normal values. Floating dtypes. The default of floating inputs, with mean 0 and std 1."""

    kind: Literal["normal"]
    mean: float = 0.0
    """Mean of every element."""
    std: Annotated[float, Field(ge=0)] = 1.0
    """Standard deviation of every element."""


class Uniform(Spec):
    """Independent values, uniform in [low, high). Floating dtypes."""

    kind: Literal["uniform"]
    low: float = 0.0
    """Smallest value."""
    high: float = 1.0
    """Upper bound, above `low`; itself not drawn."""

    @model_validator(mode="after")
    def _ordered(self) -> Uniform:
        if self.low >= self.high:
            raise refuse(f"low below high, not low={self.low} and high={self.high}")
        return self


class Constant(Spec):
    """Every element has the same value. Any dtype that holds it."""

    kind: Literal["constant"]
    value: Number
    """The value."""


class RandInt(Spec):
    """Independent integers, uniform in [low, high). Integer dtypes."""

    kind: Literal["randint"]
    low: Amount = 0
    """Smallest value: an integer or an expression over the axes."""
    high: Amount
    """Upper bound, itself not drawn: an integer or an expression over the axes, such as `vocabulary`."""


class Permutation(Spec):
    """Each row along the last axis (of length n) is an independent random permutation of 0 .. n-1. Integer dtypes."""

    kind: Literal["permutation"]


class Indptr(Spec):
    """Row offsets of a ragged batch, one axis of length n+1: starts at 0, never falls, ends at `total`; the n-1 inner
    offsets are drawn uniformly from 0 .. total and sorted. Integer dtypes."""

    kind: Literal["indptr"]
    total: Amount
    """The last offset: an integer or an expression over the axes."""


class Ends(Spec):
    """Where each group of a ragged batch ends, one axis of length n: `indptr` without its leading 0, as PyTorch's
    grouped products take offsets. It never falls and ends at `total`; the n-1 others are drawn uniformly from
    0 .. total and sorted, so a group may be empty. Integer dtypes."""

    kind: Literal["ends"]
    total: Amount
    """The last end: an integer or an expression over the axes."""


class Spd(Spec):
    """Symmetric positive definite matrices over the last two axes, n by n: A A^T / n + shift I with A standard normal.
    Floating dtypes."""

    kind: Literal["spd"]
    shift: Annotated[float, Field(gt=0)] = 1.0
    """Added to the diagonal: a lower bound of every eigenvalue."""


class Bernoulli(Spec):
    """Independent values, 1 (true) with probability `p`, else 0 (false). Any dtype. The default of bool inputs."""

    kind: Literal["bernoulli"]
    p: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Probability of 1."""


class Code(Spec):
    """Values from the user's own function. Any dtype."""

    kind: Literal["code"]
    source: Python
    """A module with `make(shape, dtype, generator)`: `shape` a list of integers, `dtype` a torch dtype, `generator` a
    seeded torch.Generator on the CPU. It returns a CPU tensor of that shape and dtype, the same for the same generator
    state."""


Dist = Annotated[
    Normal | Uniform | Constant | RandInt | Permutation | Indptr | Ends | Spd | Bernoulli | Code,
    Discriminator("kind"),
]
"""One of the distributions, told apart by `kind`."""

FLOAT_ONLY = ("normal", "uniform", "spd")
INTEGER_ONLY = ("randint", "permutation", "indptr", "ends")


def default_dist(dtype: str) -> Dist | None:
    """Return the distribution of an input without `dist`.

    It is normal, or a fair coin for bool; None: integers have no default.
    """
    if "float" in dtype:
        return Normal(kind="normal")
    return Bernoulli(kind="bernoulli") if dtype == "bool" else None


def amounts(dist: Dist) -> dict[str, Any]:
    """Return the fields of `dist` that may be expressions over the axes."""
    names = {"randint": ("low", "high"), "indptr": ("total",), "ends": ("total",)}.get(dist.kind, ())
    return {name: getattr(dist, name) for name in names}

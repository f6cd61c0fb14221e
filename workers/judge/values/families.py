"""Input families: values on which a right kernel is right and a shortcut is not.

They differ from the declared values.

A kernel may be right on the declared distribution alone: on zero-mean values a mean of zero can be returned unread, a
product with small weights can be left out, a diagonal can be taken for the whole matrix. A family changes the values
that were drawn, never their shapes:

| family          | what an input drawn from a normal distribution becomes      | catches                         |
|-----------------|-------------------------------------------------------------|---------------------------------|
| shifted         | its mean moved by 3 to 6 standard deviations, either way    | sums taken for zero             |
| heavy           | cubes of normal values                                      | clipping, narrow ranges         |
| tiny, large     | scaled by a power of two, down or up                        | absolute thresholds, overflow   |
| constant_rows   | one value along the last axis, another for every row        | divisions by a variance of zero |
| integers        | whole numbers from -3 to 3                                  | rounding where none is needed   |
| low_rank        | the outer product of a row and a column                     | pivoting, and its absence       |
| diagonal        | zero off the diagonal                                       | skipping what is mostly zero    |
| one_hot         | one nonzero element a row                                   | sums over a part                |
| zeroed:NAME     | this input zero, the others as declared                     | an input that is not read       |
| emphasised:NAME | this input scaled up, the others as declared                | terms too small to be seen      |

Only floating inputs change, and of them only those whose distribution is normal or uniform. A uniform one stays within
its declared range, and takes part in the families that make sense there. A normal one whose mean is 3 standard
deviations or more from zero is taken to be of one sign (a variance, a scale): it stays so. What an op says of an
input's `values` holds for all. Integers, masks, structured
values and what the user's own code makes are left alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from warpsmith.kernels_db.job.documents import ResolvedInput, ResolvedWorkload

ONE_SIDED = 3.0
"""Standard deviations from zero to the mean that make a normal input one-sided.

A normal input with a mean at least this far away counts as of one sign.
"""

TINY_LARGE_EMPHASIS = {
    torch.float64: (-20, 10, 6),
    torch.float32: (-20, 10, 6),
    torch.bfloat16: (-20, 6, 6),
    torch.float16: (-8, 3, 3),
    torch.float8_e5m2: (-4, 3, 2),
    torch.float8_e4m3fn: (-2, 2, 1),
}
"""Powers of two that scale a dtype in the families tiny, large and emphasised.

They stay well inside its range.
"""

TIES = frozenset({"constant_rows", "integers", "low_rank", "diagonal", "one_hot", "zeroed"})
"""Families with equal elements.

They are for an op with integer results only where it is known which of equals it may choose.
"""

EVERYWHERE, ELSEWHERE = "shifted", 2
"""The family asked of every workload, and how many others, drawn at random, go with it.

The workload that is asked all families is not meant.
"""

TRIVIAL = 1024
"""Elements of a workload's inputs below which it is too small to show much."""

MOST_SINGLED_OUT = 3
"""Inputs, drawn at random, that get the families of a single input."""


@dataclass(frozen=True)
class Family:
    """A way to change inputs; `only` names the one input that it changes."""

    kind: str
    only: str | None = None

    @property
    def name(self) -> str:
        """As verdicts call it."""
        return self.kind if self.only is None else f"{self.kind}:{self.only}"


@dataclass(frozen=True)
class _Drawn:
    """One input's values, in float64 or float32, with what is known of them."""

    values: torch.Tensor
    dist: dict[str, Any]
    dtype: torch.dtype
    generator: torch.Generator
    rng: random.Random

    @property
    def mean(self) -> float:
        return float(self.dist.get("mean", 0.0))

    @property
    def std(self) -> float:
        return float(self.dist.get("std", 1.0))

    @property
    def side(self) -> float:
        """The sign that the values keep, 0 where they have both."""
        return _side(self.dist)

    def standard(self) -> torch.Tensor:
        """Return the values before mean and deviation."""
        return (self.values - self.mean) / self.std

    def random_integers(self, low: int, high: int) -> torch.Tensor:
        """Return integers from `low` to `high`, both included, as floating values."""
        shape, device = self.values.shape, self.values.device
        whole = torch.randint(low, high + 1, shape, generator=self.generator, device=device)
        return whole.to(self.values.dtype)


def _side(dist: dict[str, Any]) -> float:
    mean, std = float(dist.get("mean", 0.0)), float(dist.get("std", 1.0))
    return 0.0 if abs(mean) < ONE_SIDED * std else 1.0 if mean > 0 else -1.0


def _shifted(one: _Drawn) -> torch.Tensor:
    distance = one.rng.uniform(3.0, 6.0)
    if one.side:
        return one.values + one.mean * distance / ONE_SIDED
    return one.values + one.rng.choice((-1, 1)) * distance * one.std


def _heavy(one: _Drawn) -> torch.Tensor:
    cubes = one.standard() ** 3 * one.std
    return one.mean + (one.side * cubes.abs() if one.side else cubes)


def _tiny(one: _Drawn) -> torch.Tensor:
    return one.values * 2.0 ** TINY_LARGE_EMPHASIS[one.dtype][0]


def _large(one: _Drawn) -> torch.Tensor:
    return one.values * 2.0 ** TINY_LARGE_EMPHASIS[one.dtype][1]


def _emphasised(one: _Drawn) -> torch.Tensor:
    return one.values * 2.0 ** TINY_LARGE_EMPHASIS[one.dtype][2]


def _constant_rows(one: _Drawn) -> torch.Tensor:
    return one.values[..., :1].expand(one.values.shape)


def _integers(one: _Drawn) -> torch.Tensor:
    return one.side * one.random_integers(1, 3) if one.side else one.random_integers(-3, 3)


def _low_rank(one: _Drawn) -> torch.Tensor:
    standard = one.standard()
    return one.mean + one.std * standard[..., :, :1] * standard[..., :1, :]


def _diagonal(one: _Drawn) -> torch.Tensor:
    rows, columns = one.values.shape[-2:]
    row = torch.arange(rows, device=one.values.device)
    column = torch.arange(columns, device=one.values.device)
    return torch.where(row.unsqueeze(1) == column, one.values, 0.0)


def _one_hot(one: _Drawn) -> torch.Tensor:
    place = torch.rand(one.values.shape, generator=one.generator, device=one.values.device).argmax(-1, keepdim=True)
    return torch.zeros_like(one.values).scatter_(-1, place, one.values.gather(-1, place))


def _zeroed(one: _Drawn) -> torch.Tensor:
    return torch.zeros_like(one.values)


def _upper_eighth(one: _Drawn) -> torch.Tensor:
    high = float(one.dist.get("high", 1.0))
    return high - (high - one.values) / 8


def _near_low(one: _Drawn) -> torch.Tensor:
    low = float(one.dist.get("low", 0.0))
    return low + (one.values - low) * 2.0**-10


def _ends(one: _Drawn) -> torch.Tensor:
    low, high = float(one.dist.get("low", 0.0)), float(one.dist.get("high", 1.0))
    upper = torch.rand(one.values.shape, generator=one.generator, device=one.values.device) < 0.5
    return torch.where(upper, high, low).to(one.values.dtype)


Change = Callable[[_Drawn], torch.Tensor]
_OF_NORMAL: dict[str, Change] = {
    "shifted": _shifted,
    "heavy": _heavy,
    "tiny": _tiny,
    "large": _large,
    "constant_rows": _constant_rows,
    "integers": _integers,
    "low_rank": _low_rank,
    "diagonal": _diagonal,
    "one_hot": _one_hot,
    "zeroed": _zeroed,
    "emphasised": _emphasised,
}
_OF_UNIFORM: dict[str, Change] = {
    "shifted": _upper_eighth,
    "tiny": _near_low,
    "large": _ends,
    "constant_rows": _constant_rows,
}
_OF_ONE_SIGN = frozenset({"shifted", "heavy", "tiny", "large", "constant_rows", "integers", "emphasised"})
_OF_ONE_INPUT = ("zeroed", "emphasised")


def _change(kind: str, item: ResolvedInput) -> Change | None:
    """Return how a family of this kind changes this input; None where it does not."""
    dist, shape = item["dist"], item["shape"]
    if shape is None or getattr(torch, item["dtype"]) not in TINY_LARGE_EMPHASIS or not _has_room(kind, shape):
        return None
    if dist.get("kind") == "uniform":
        return _OF_UNIFORM.get(kind)
    if dist.get("kind") != "normal" or dist.get("std", 1.0) == 0 or (_side(dist) and kind not in _OF_ONE_SIGN):
        return None
    return _OF_NORMAL[kind]


def _has_room(kind: str, shape: Sequence[int]) -> bool:
    """Check whether a shape has the rows or the two axes that a family needs."""
    if kind in ("low_rank", "diagonal"):
        return len(shape) > 1 and min(shape[-2:]) > 1
    return kind not in ("constant_rows", "one_hot") or (bool(shape) and shape[-1] > 1)


def families(workload: ResolvedWorkload, rng: random.Random, *, ties: bool = False) -> list[Family]:
    """Return the families that change something about a workload.

    Of those that single an input out, a few at random. `ties`: also with integer results those of equal elements.
    """
    inputs = workload["inputs"]
    whole = [
        Family(kind) for kind in _OF_NORMAL if kind not in _OF_ONE_INPUT and any(_change(kind, item) for item in inputs)
    ]
    singled = [
        Family(kind, item["name"])
        for item in rng.sample(inputs, len(inputs))
        for kind in _OF_ONE_INPUT
        if _change(kind, item)
    ]
    several = sum(item["shape"] is not None for item in inputs) > 1
    found = whole + (singled[: MOST_SINGLED_OUT * len(_OF_ONE_INPUT)] if several else [])
    exact = [item for item in workload["outputs"] if "float" not in item["dtype"]]
    exact_inputs = [item for item in inputs if item["mutated"] and "float" not in item["dtype"]]
    return [family for family in found if ties or not (exact or exact_inputs) or family.kind not in TIES]


def plan(
    workloads: Sequence[ResolvedWorkload],
    rng: random.Random,
    *,
    sparing: bool,
    ties: Callable[[ResolvedWorkload], bool] = lambda _: False,
) -> dict[str, list[Family]]:
    """Return the families to ask, by workload id.

    All of them on the smallest bench workload, a few drawn at random on every other, so that no shape is known to be
    safe. `sparing`: a few on the smallest workload alone. `ties`: whether a workload may be asked those of equal
    elements though it has integer results.
    """

    def few(found: list[Family]) -> list[Family]:
        first = [family for family in found if family.kind == EVERYWHERE]
        others = [family for family in found if family.kind != EVERYWHERE]
        return first + rng.sample(others, min(ELSEWHERE, len(others)))

    if sparing:
        least = min(workloads, key=elements)
        return {least["id"]: few(families(least, rng, ties=ties(least)))}
    bench = [workload for workload in workloads if workload["role"] == "bench"]
    most = min(bench or workloads, key=elements)["id"]
    found = {workload["id"]: families(workload, rng, ties=ties(workload)) for workload in workloads}
    return {name: mine if name == most else few(mine) for name, mine in found.items()}


def elements(workload: ResolvedWorkload) -> int:
    """Return the number of elements of a workload's inputs."""
    return sum(math.prod(item["shape"]) for item in workload["inputs"] if item["shape"] is not None)


def telling(workloads: Sequence[ResolvedWorkload]) -> ResolvedWorkload:
    """Return the smallest workload that is not trivial, or the largest where all are."""
    ordered = sorted(workloads, key=elements)
    return next((one for one in ordered if elements(one) >= TRIVIAL), ordered[-1])


def changed(
    family: Family,
    inputs: Sequence[ResolvedInput],
    values: Sequence[torch.Tensor | None],
    generator: torch.Generator,
    rng: random.Random,
) -> list[torch.Tensor | None]:
    """`values` as the family changes them, in the inputs' dtypes, on the generator's device."""
    return [
        _changed(family, item, value, generator, rng) if value is not None else None
        for item, value in zip(inputs, values, strict=True)
    ]


def _changed(
    family: Family, item: ResolvedInput, value: torch.Tensor, generator: torch.Generator, rng: random.Random
) -> torch.Tensor:
    change = _change(family.kind, item)
    if change is None or family.only not in (None, item["name"]):
        return value
    wide = value.to(torch.float64 if value.dtype == torch.float64 else torch.float32)
    found = change(_Drawn(wide, item["dist"], value.dtype, generator, rng))
    if item["dist"]["kind"] == "uniform":
        found = found.clamp(*_within(item["dist"], value.dtype))
    if (given := item.get("values", {}).get("range")) is not None:
        found = found.clamp(inward(given[0], value.dtype), inward(given[1], value.dtype))
    return found.to(value.dtype)


def inward(bound: float, dtype: torch.dtype) -> float:
    """Return the bound, or the next number of a dtype towards zero where rounding would carry it away from zero."""
    rounded = float(torch.tensor(bound, dtype=torch.float64).to(dtype).to(torch.float64))
    return bound if abs(rounded) <= abs(bound) else bound * (1.0 - float(torch.finfo(dtype).eps))


def _within(dist: dict[str, Any], dtype: torch.dtype) -> tuple[float, float]:
    """Return the smallest and largest numbers of a dtype in [low, high).

    As nearly as two roundings tell them.
    """
    low, high = float(dist.get("low", 0.0)), float(dist.get("high", 1.0))
    spacing = float(torch.finfo(dtype).eps) * max(abs(low), abs(high), 2.0**-20)
    return low, max(low, high - spacing)

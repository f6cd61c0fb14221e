"""What an input may hold: the kind of its values, its sign, its range, whether it must be finite."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from warpsmith.kernels_db.job.documents import ResolvedInput
from warpsmith.workers.judge.values.families import ONE_SIDED, inward

Kind = Literal["float", "spd", "integer", "mask", "permutation", "indptr", "ends", "scalar"]
"""How an input may change: `float` element by element, the others only in ways that keep what they are."""

_BY_DIST: dict[str, Kind] = {
    "spd": "spd",
    "randint": "integer",
    "bernoulli": "mask",
    "permutation": "permutation",
    "indptr": "indptr",
    "ends": "ends",
}


def kind_of(item: ResolvedInput) -> Kind | None:
    """Return how an input may change; None where it may not: the user's own code, no elements, integer constants."""
    if item["shape"] is None:
        return None if item["value"] is None else "scalar"
    dtype, dist = getattr(torch, item["dtype"]), item["dist"].get("kind")
    if 0 in item["shape"] or dist == "code" or dtype.is_complex:
        return None
    if dtype == torch.bool:
        return "mask"
    if dist in ("normal", "uniform", "constant"):
        if dtype.is_floating_point:
            return "float"
        return "integer" if item.get("values", {}).get("range") is not None else None
    return _BY_DIST.get(str(dist))


@dataclass(frozen=True)
class Bounds:
    """The finite values of a floating input, `low` to `high`; whether NaN and infinities may stand among them."""

    low: float
    high: float
    finite: bool

    @property
    def side(self) -> int:
        """The sign that all values have, 0 where both may occur."""
        return 1 if self.low >= 0 else -1 if self.high <= 0 else 0


def bounds_of(item: ResolvedInput) -> Bounds:
    """Return what a floating tensor or a scalar may hold.

    A declared range is kept to. Without one a distribution of one sign keeps it: uniform on one side of zero, normal
    with a mean three deviations away, a constant that is not zero. Such values stay off zero where the declared do.
    """
    information = torch.finfo(getattr(torch, item["dtype"])) if "float" in item["dtype"] else torch.finfo(torch.float64)
    most, least = float(information.max), float(information.smallest_normal)
    values = item.get("values", {})
    if (given := values.get("range")) is not None:
        return Bounds(max(-most, given[0]), min(most, given[1]), True)
    low, high = _declared(item)
    finite = bool(values.get("finite", False)) or item["dtype"] == "float8_e4m3fn"
    if low >= 0:
        return Bounds(least if low > 0 else 0.0, most, finite)
    if high <= 0:
        return Bounds(-most, -least if high < 0 else -0.0, finite)
    return Bounds(-most, most, finite)


def _declared(item: ResolvedInput) -> tuple[float, float]:
    """Return between what numbers the declared values lie, as far as their sign matters."""
    dist = item["dist"]
    kind = dist.get("kind")
    if kind == "uniform":
        return float(dist.get("low", 0.0)), float(dist.get("high", 1.0))
    if kind == "normal":
        mean, std = float(dist.get("mean", 0.0)), float(dist.get("std", 1.0))
        if mean and abs(mean) >= ONE_SIDED * std:
            return (mean, math.inf) if mean > 0 else (-math.inf, mean)
    if kind == "constant" and dist["value"]:
        return float(dist["value"]), float(dist["value"])
    return -math.inf, math.inf


def integers_of(item: ResolvedInput) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer input, both included.

    They are those of its `values`, within its dtype; where it has none, what its distribution gives.
    """
    given, dist = item.get("values", {}).get("range"), item["dist"]
    if given is None:
        low, high = int(dist.get("low", 0)), int(dist["high"]) - 1
    else:
        ends = torch.iinfo(getattr(torch, item["dtype"]))
        low, high = max(ends.min, math.ceil(given[0])), min(ends.max, math.floor(given[1]))
    return low, max(low, high)


def keep_within(wide: torch.Tensor, item: ResolvedInput) -> torch.Tensor:
    """Return float64 values as the nearest that a floating input may hold, in its dtype."""
    bounds, dtype = bounds_of(item), getattr(torch, item["dtype"])
    signed = bounds.side * wide.abs() if bounds.side else wide
    held = torch.nan_to_num(signed, nan=0.0) if bounds.finite else signed
    limited = held.clamp(inward(bounds.low, dtype), inward(bounds.high, dtype))
    return (limited if bounds.finite else torch.where(held.isinf(), held, limited)).to(dtype)

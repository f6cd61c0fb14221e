"""Moves of integers, masks, structured inputs and scalars. Each keeps what the input is."""

from __future__ import annotations

import random
from typing import Any

import torch

from warpsmith.kernels_db.job.documents import ResolvedInput
from warpsmith.workers.judge.attack.bounds import Kind, bounds_of, integers_of
from warpsmith.workers.judge.attack.move import (
    AXIS,
    DRAW,
    EXPONENT,
    Change,
    Move,
    Target,
    drawn_range,
    number,
    rank,
)

_INTEGER: frozenset[Kind] = frozenset({"integer"})
_MASK: frozenset[Kind] = frozenset({"mask"})


def _axis(item: ResolvedInput, rng: random.Random) -> int:
    return rng.randrange(rank(item))


def _draw(rng: random.Random) -> int:
    return rng.randrange(2**31)


def _alike(one: Target, change: Change) -> torch.Tensor:
    low, high = integers_of(one.item)
    return torch.full_like(one.values, min(high, low + round((high - low) * float(change["at"]))))


def _ends(one: Target, change: Change) -> torch.Tensor:
    low, high = integers_of(one.item)
    return torch.where(one.uniform(one.values.shape, 0, 1) < 0.5, low, high).to(one.values.dtype)


def _skew(one: Target, change: Change) -> torch.Tensor:
    low, high = integers_of(one.item)
    share = one.uniform(one.values.shape, 0, 1) ** int(change["power"])
    # The ends of int64 are no float64: what was rounded beyond them comes back within.
    return (low + share * float(high - low + 1)).floor().to(torch.int64).clamp(low, high).to(one.values.dtype)


def _count(one: Target, change: Change) -> torch.Tensor:
    low, high = integers_of(one.item)
    counted = torch.arange(one.values.numel(), device=one.values.device) % min(high - low + 1, one.values.numel())
    return (low + counted).to(one.values.dtype).reshape(one.values.shape)


def _share(one: Target, change: Change) -> torch.Tensor:
    return (one.uniform(one.values.shape, 0, 1) < float(change["share"])).to(one.values.dtype)


def _mask_slices(one: Target, change: Change) -> torch.Tensor:
    kept = one.uniform(one.along(one.axis(change)), 0, 1) < 0.5
    value = torch.tensor(int(change["to"]), dtype=one.values.dtype, device=one.values.device)
    return torch.where(kept, one.values, value)


def _mask_part(one: Target, change: Change) -> torch.Tensor:
    shape = one.along(one.axis(change))
    size = one.values.shape[one.axis(change)]
    first = torch.arange(size, device=one.values.device) < round(size * float(change["share"]))
    return first.reshape(shape).expand_as(one.values).to(one.values.dtype)


def _permute(one: Target, change: Change) -> torch.Tensor:
    size = one.values.shape[-1]
    places = torch.arange(size, device=one.values.device)
    row = {"as it is": places, "reversed": size - 1 - places, "rotated": (places + 1) % size}[change["how"]]
    return row.to(one.values.dtype).expand_as(one.values)


def _offsets(one: Target, change: Change) -> torch.Tensor:
    leading = 0 if one.item["dist"]["kind"] == "ends" else 1
    bags, total = one.values.numel() - leading, int(one.item["dist"]["total"])
    places = torch.arange(bags + 1, device=one.values.device)
    if change["how"] == "all in the first":
        found = torch.where(places > 0, total, 0)
    elif change["how"] == "all in the last":
        found = torch.where(places == bags, total, 0)
    elif change["how"] == "all in the middle":
        found = torch.where(places > bags // 2, total, 0)
    else:
        found = places * total // max(1, bags)
    return found[1 - leading :].to(one.values.dtype) if bags > 0 else one.values


def _congruent(one: Target, change: Change) -> torch.Tensor:
    """Return D A D for a diagonal D of powers of two: symmetric and positive definite, as A is."""
    powers = one.powers([one.values.shape[-1]], change)
    return one.values * powers.unsqueeze(-1) * powers


def _gentle_range(item: ResolvedInput, rng: random.Random) -> dict[str, int]:
    """Return exponents of which two may be multiplied within the dtype."""
    found = drawn_range(item, rng)
    return {"low": found["low"] // 4, "high": found["high"] // 4}


def scalar_value(item: ResolvedInput, rng: random.Random) -> dict[str, Any]:
    """Return another value of a scalar: within its declared range, or near its own, of its sign.

    Whole numbers and booleans, which often say how many or which, change only within a declared range.
    """
    value, given = item["value"], item.get("values", {}).get("range")
    if isinstance(value, bool) or "float" not in item["dtype"]:
        if given is None:
            return {"number": value}
        return {"number": rng.randint(*integers_of({**item, "dist": {}}))}
    assert value is not None
    if given is not None:
        bounds = bounds_of(item)
        return {"number": rng.choice((bounds.low, bounds.high, rng.uniform(bounds.low, bounds.high)))}
    return {"number": float(f"{float(value) * rng.uniform(0.25, 1.0):.3g}")}


OTHER_MOVES = (
    Move(
        "all equal",
        _INTEGER,
        {"at": (0.0, 1.0)},
        _alike,
        lambda item, rng: {"at": rng.choice((0.0, 1.0, rng.random()))},
        lambda it: f"the same everywhere: {it['at']:.0%} of the way from its smallest to its largest value",
    ),
    Move(
        "ends",
        _INTEGER,
        {"draw": DRAW},
        _ends,
        lambda item, rng: {"draw": _draw(rng)},
        lambda it: "its smallest and its largest value alone",
    ),
    Move(
        "skew",
        _INTEGER,
        {"power": (1, 64), "draw": DRAW},
        _skew,
        lambda item, rng: {"power": rng.choice((2, 4, 16)), "draw": _draw(rng)},
        lambda it: f"mostly small: uniform numbers to the power {it['power']}",
    ),
    Move("count", _INTEGER, {}, _count, lambda item, rng: {}, lambda it: "counted up, again and again"),
    Move(
        "share",
        _MASK,
        {"share": (0.0, 1.0), "draw": DRAW},
        _share,
        lambda item, rng: {"share": rng.choice((0.0, 1.0, rng.random())), "draw": _draw(rng)},
        lambda it: f"true in {it['share']:.0%} of its elements",
    ),
    Move(
        "mask slices",
        _MASK,
        {"axis": AXIS, "to": (0, 1), "draw": DRAW},
        _mask_slices,
        lambda item, rng: {"axis": _axis(item, rng), "to": rng.randint(0, 1), "draw": _draw(rng)},
        lambda it: f"{'true' if it['to'] else 'false'} all over half of the slices of axis {it['axis']}",
    ),
    Move(
        "mask part",
        _MASK,
        {"axis": AXIS, "share": (0.0, 1.0)},
        _mask_part,
        lambda item, rng: {"axis": _axis(item, rng), "share": rng.random()},
        lambda it: f"true in the first {it['share']:.0%} of axis {it['axis']} and false in the rest",
    ),
    Move(
        "permute",
        frozenset({"permutation"}),
        {"how": ("as it is", "reversed", "rotated")},
        _permute,
        lambda item, rng: {"how": rng.choice(("as it is", "reversed", "rotated"))},
        lambda it: f"every row {'in order' if it['how'] == 'as it is' else it['how']}",
    ),
    Move(
        "offsets",
        frozenset({"indptr", "ends"}),
        {"how": ("all in the first", "all in the last", "all in the middle", "even")},
        _offsets,
        lambda item, rng: {"how": rng.choice(("all in the first", "all in the last", "all in the middle", "even"))},
        lambda it: "every bag as large as the others" if it["how"] == "even" else f"{it['how']} bag, the others empty",
    ),
    Move(
        "congruence",
        frozenset({"spd"}),
        {"low": EXPONENT, "high": EXPONENT, "draw": DRAW},
        _congruent,
        lambda item, rng: {**_gentle_range(item, rng), "draw": _draw(rng)},
        lambda it: f"rows and columns scaled alike by powers of two from 2^{it['low']} to 2^{it['high']}",
    ),
    Move(
        "number",
        frozenset({"scalar"}),
        {"number": (-1e300, 1e300)},
        lambda one, change: one.values,
        scalar_value,
        lambda it: f"is {number(it['number'])}",
    ),
)

"""Moves of floating inputs: scales, shifts, special values, order, equal and sparse elements, cancellation."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import torch

from warpsmith.kernels_db.job.documents import ResolvedInput
from warpsmith.workers.judge.attack.bounds import Kind
from warpsmith.workers.judge.attack.move import (
    AXIS,
    DRAW,
    EXPONENT,
    Change,
    Move,
    Target,
    drawn_range,
    exponents,
    number,
    power_of_two,
    rank,
)

_FLOAT: frozenset[Kind] = frozenset({"float"})
_SPECIAL = ("nan", "-nan", "inf", "-inf", "-0", "denormal", "largest", "-largest", "smallest")
_PLACES = ("one", "some", "slice", "all", "ends", "first half")
_ORDERS = ("rising", "falling", "by size")


_SPOKEN: dict[str, str] = {
    "one": "one element",
    "some": "one element in 16",
    "slice": "one slice of axis {}",
    "all": "every element",
    "ends": "the first and the last element",
    "first half": "the first half along axis {}",
}
_NAMED: dict[str, str] = {
    "nan": "NaN",
    "-nan": "NaN with every bit set",
    "inf": "infinity",
    "-inf": "-infinity",
    "-0": "-0.0",
    "denormal": "a number below the smallest normal one",
    "largest": "the largest number",
    "-largest": "minus the largest number",
    "smallest": "the smallest normal number",
}


def _axis(item: ResolvedInput, rng: random.Random) -> int:
    """Return an axis at random, more often the last, along which most rows lie."""
    last = rank(item) - 1
    return last if rng.random() < 0.5 else rng.randint(0, last)


def _draw(rng: random.Random) -> int:
    return rng.randrange(2**31)


def _power(change: Change) -> float:
    return math.ldexp(1.0, max(-1022, min(1023, int(change["exponent"]))))


def _scale(one: Target, change: Change) -> torch.Tensor:
    return one.values * _power(change)


def _grade(one: Target, change: Change) -> torch.Tensor:
    return one.values * one.powers(one.along(one.axis(change)), change)


def _slope(one: Target, change: Change) -> torch.Tensor:
    shape = one.along(one.axis(change))
    steps = torch.linspace(change["low"], change["high"], math.prod(shape), dtype=torch.float64)
    return one.values * power_of_two(steps.round()).to(one.values.device).reshape(shape)


def _spread(one: Target, change: Change) -> torch.Tensor:
    return one.values * one.powers(one.values.shape, change)


def _shift(one: Target, change: Change) -> torch.Tensor:
    return one.values + float(change["by"])


def _shift_slices(one: Target, change: Change) -> torch.Tensor:
    shape = one.along(one.axis(change))
    sign = torch.where(one.uniform(shape, 0, 1) < 0.5, -1.0, 1.0)
    return one.values + sign * one.powers(shape, change)


def _peak(one: Target, change: Change) -> torch.Tensor:
    place = one.uniform(one.values.shape, 0, 1).argmax(one.axis(change), keepdim=True)
    peak = one.values.gather(one.axis(change), place)
    return one.values.scatter(one.axis(change), place, peak * _power(change))


def _cancel(one: Target, change: Change) -> torch.Tensor:
    axis = one.axis(change)
    pairs = one.values.shape[axis] // 2
    index = torch.arange(pairs, device=one.values.device)
    first = one.values.index_select(axis, 2 * index)
    return one.values.index_copy(axis, 2 * index + 1, -first * (1.0 + 2.0 ** -int(change["bits"])))


_ALL_ONES: float = struct.unpack("<d", b"\xff" * 8)[0]
"""A NaN that carries into infinity where its bits are rounded as a number's are."""


def _special(one: Target, value: str) -> float:
    information = torch.finfo(getattr(torch, one.item["dtype"]))
    smallest = float(information.smallest_normal)
    return {
        "nan": math.nan,
        "-nan": _ALL_ONES,
        "inf": math.inf,
        "-inf": -math.inf,
        "-0": -0.0,
        "denormal": smallest * max(float(information.eps), 2.0**-5),
        "largest": float(information.max),
        "-largest": -float(information.max),
        "smallest": smallest,
    }[value]


def _plant(one: Target, change: Change) -> torch.Tensor:
    where, special, values = change["where"], _special(one, change["value"]), one.values
    if where == "all":
        return torch.full_like(values, special)
    if where == "slice":
        shape = one.along(one.axis(change))
        chosen = torch.zeros(math.prod(shape), dtype=torch.bool, device=values.device)
        chosen[int(one.uniform([1], 0, chosen.numel()))] = True
        return torch.where(chosen.reshape(shape), special, values)
    if where == "some":
        return torch.where(one.uniform(values.shape, 0, 1) < 1 / 16, special, values)
    if where == "first half":
        axis, found = one.axis(change), values.clone()
        found.narrow(axis, 0, values.shape[axis] // 2).fill_(special)
        return found
    flat = values.reshape(-1).clone()
    for place in (0, -1) if where == "ends" else (int(one.uniform([1], 0, flat.numel())),):
        flat[place] = special
    return flat.reshape(values.shape)


def _same(one: Target, change: Change) -> torch.Tensor:
    return one.values.narrow(one.axis(change), 0, 1).expand_as(one.values)


def _keep(one: Target, change: Change) -> torch.Tensor:
    axis = one.axis(change)
    kept = min(int(change["count"]), one.values.shape[axis])
    places = one.uniform(one.values.shape, 0, 1).topk(kept, axis).indices
    return torch.zeros_like(one.values).scatter(axis, places, one.values.gather(axis, places))


def _order(one: Target, change: Change) -> torch.Tensor:
    axis, how = one.axis(change), change["how"]
    if how == "by size":
        return one.values.gather(axis, one.values.abs().argsort(dim=axis, stable=True))
    return one.values.sort(dim=axis, descending=how == "falling", stable=True).values


def _repeat(one: Target, change: Change) -> torch.Tensor:
    axis = one.axis(change)
    index = torch.arange(one.values.shape[axis], device=one.values.device) % int(change["period"])
    return one.values.index_select(axis, index)


def _levels(one: Target, change: Change) -> torch.Tensor:
    return (one.values * int(change["steps"])).round() / int(change["steps"])


def _fill(one: Target, change: Change) -> torch.Tensor:
    return torch.full_like(one.values, float(change["number"]))


def _by(item: ResolvedInput, rng: random.Random) -> float:
    most = exponents(item)[1]
    return rng.choice((-1.0, 1.0)) * 2.0 ** rng.randint(3, max(4, min(most - 2, rng.choice((12, 24, 60)))))


FLOAT_MOVES = (
    Move(
        "scale",
        frozenset({"float", "spd"}),
        {"exponent": EXPONENT},
        _scale,
        lambda item, rng: {"exponent": rng.choice((rng.randint(*exponents(item)), rng.randint(-20, 20)))},
        lambda it: f"scaled by 2^{it['exponent']}",
    ),
    Move(
        "grade",
        _FLOAT,
        {"axis": AXIS, "low": EXPONENT, "high": EXPONENT, "draw": DRAW},
        _grade,
        lambda item, rng: {"axis": _axis(item, rng), **drawn_range(item, rng), "draw": _draw(rng)},
        lambda it: f"each slice of axis {it['axis']} scaled by a power of two from 2^{it['low']} to 2^{it['high']}",
    ),
    Move(
        "slope",
        _FLOAT,
        {"axis": AXIS, "low": EXPONENT, "high": EXPONENT},
        _slope,
        lambda item, rng: {"axis": _axis(item, rng), **_turned(drawn_range(item, rng), rng)},
        lambda it: f"scaled along axis {it['axis']} by powers of two that go from 2^{it['low']} to 2^{it['high']}",
    ),
    Move(
        "spread",
        _FLOAT,
        {"low": EXPONENT, "high": EXPONENT, "draw": DRAW},
        _spread,
        lambda item, rng: {**drawn_range(item, rng), "draw": _draw(rng)},
        lambda it: f"each element scaled by a power of two from 2^{it['low']} to 2^{it['high']}",
    ),
    Move(
        "shift",
        _FLOAT,
        {"by": (-1e300, 1e300)},
        _shift,
        lambda item, rng: {"by": _by(item, rng)},
        lambda it: f"{number(it['by'])} added to every element",
    ),
    Move(
        "shift slices",
        _FLOAT,
        {"axis": AXIS, "low": EXPONENT, "high": EXPONENT, "draw": DRAW},
        _shift_slices,
        lambda item, rng: {"axis": _axis(item, rng), **drawn_range(item, rng), "draw": _draw(rng)},
        lambda it: (
            f"each slice of axis {it['axis']} moved by a number of its own, between 2^{it['low']} and 2^{it['high']}"
        ),
    ),
    Move(
        "peak",
        _FLOAT,
        {"axis": AXIS, "exponent": EXPONENT, "draw": DRAW},
        _peak,
        lambda item, rng: {"axis": _axis(item, rng), "exponent": rng.randint(4, 40), "draw": _draw(rng)},
        lambda it: f"one element in each line along axis {it['axis']} scaled by 2^{it['exponent']}",
    ),
    Move(
        "cancel",
        _FLOAT,
        {"axis": AXIS, "bits": (1, 60)},
        _cancel,
        lambda item, rng: {"axis": _axis(item, rng), "bits": rng.randint(4, 30)},
        lambda it: f"along axis {it['axis']} every second element is minus the one before, times 1 + 2^-{it['bits']}",
    ),
    Move(
        "plant",
        _FLOAT,
        {"value": _SPECIAL, "where": _PLACES, "axis": AXIS, "draw": DRAW},
        _plant,
        lambda item, rng: {
            "value": rng.choice(_SPECIAL),
            "where": rng.choice(_PLACES),
            "axis": _axis(item, rng),
            "draw": _draw(rng),
        },
        lambda it: f"{_SPOKEN[it['where']].format(it['axis'])} set to {_NAMED.get(it['value'], it['value'])}",
    ),
    Move(
        "same",
        _FLOAT,
        {"axis": AXIS},
        _same,
        lambda item, rng: {"axis": _axis(item, rng)},
        lambda it: f"the same value all along axis {it['axis']}",
    ),
    Move(
        "keep",
        _FLOAT,
        {"axis": AXIS, "count": (1, 64), "draw": DRAW},
        _keep,
        lambda item, rng: {"axis": _axis(item, rng), "count": rng.choice((1, 1, 2, 3, 8)), "draw": _draw(rng)},
        lambda it: f"zero but for {it['count']} in each line along axis {it['axis']}",
    ),
    Move(
        "order",
        frozenset({"float", "integer"}),
        {"axis": AXIS, "how": _ORDERS},
        _order,
        lambda item, rng: {"axis": _axis(item, rng), "how": rng.choice(_ORDERS)},
        lambda it: f"sorted along axis {it['axis']}, {it['how']}",
    ),
    Move(
        "repeat",
        frozenset({"float", "integer", "mask"}),
        {"axis": AXIS, "period": (1, 4096)},
        _repeat,
        lambda item, rng: {"axis": _axis(item, rng), "period": rng.choice((1, 2, 3, 4, 8, 32, 128))},
        lambda it: f"repeated along axis {it['axis']} every {it['period']}",
    ),
    Move(
        "levels",
        _FLOAT,
        {"steps": (1, 1024)},
        _levels,
        lambda item, rng: {"steps": rng.choice((1, 2, 4, 16))},
        lambda it: f"rounded to multiples of 1/{it['steps']}, so that many are equal",
    ),
    Move(
        "fill",
        _FLOAT,
        {"number": (-1e300, 1e300)},
        _fill,
        lambda item, rng: {"number": rng.choice((0.0, 1.0, -1.0, _by(item, rng)))},
        lambda it: f"{number(it['number'])} everywhere",
    ),
)


def _turned(found: dict[str, int], rng: random.Random) -> dict[str, Any]:
    """Return a range as it is or from high to low."""
    return found if rng.random() < 0.5 else {"low": found["high"], "high": found["low"]}

"""The first recipes of a search: every class of move once on every input, the most telling first."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

from warpsmith.kernels_db.job.attack_documents import Recipe
from warpsmith.kernels_db.job.documents import ResolvedInput, ResolvedWorkload
from warpsmith.workers.judge.attack.bounds import kind_of
from warpsmith.workers.judge.attack.move import Change, exponents, rank
from warpsmith.workers.judge.attack.recipe import MOST_CHANGES, moves_for

OPENINGS_PER_MOVE = 2
"""Recipes with parameters drawn at random for each move and input, after the listed ones."""

EQUAL = ((12, 0.0), (12, -7.0), (20, 1.0), (26, 3.0), (30, -5.0))
"""Equal elements: the power of two that scales them, and their mean in deviations.

Sums of squares round there, in float32 or float64. Which way they round goes by the digits, which a power of two alone
does not change.
"""


def openings(workload: ResolvedWorkload, seed: int, rng: random.Random) -> list[Recipe]:
    """Return the first recipes, in the order in which to ask them."""
    inputs = [item for item in workload["inputs"] if kind_of(item) is not None]
    floats = [item for item in inputs if kind_of(item) == "float"]
    small: list[Change] = [{"input": item["name"], "move": "scale", "exponent": -12} for item in floats]
    scalars = [item for item in inputs if kind_of(item) == "scalar"]
    # A changed scalar, beside small tensors: an eps shows beside no others.
    plans = [plan for item in inputs for plan in _anywhere(item)]
    plans += [plan for item in floats for plan in _on_one_workload(item)]
    plans += _infinities_that_meet(floats)
    plans += [[change, *small] for item in scalars for change in itertools.islice(_of_input(item), 1)]
    rows = [list(_of_input(item)) for item in inputs]
    for turn in range(max((len(row) for row in rows), default=0)):
        plans += [[row[turn]] for row in rows if turn < len(row)]
        if turn == 0:
            plans += _together(floats)
    for _ in range(OPENINGS_PER_MOVE):
        drawn = [
            {"input": item["name"], "move": move.name, **move.draw(item, rng)}
            for item in inputs
            for move in moves_for(item)
        ]
        plans += [[change] for change in rng.sample(drawn, len(drawn))]
    return [{"workload": workload["id"], "seed": seed, "changes": changes} for changes in plans]


def certain(workload: ResolvedWorkload, *, chief: bool) -> int:
    """Return how many of the first recipes are asked however little time there is.

    What a kernel does at the ends of a tensor and with special values goes by the shape, so every workload is asked it;
    what it does with numbers goes by its arithmetic, so the `chief` workload alone is.
    """
    count = sum(len(_anywhere(item)) for item in workload["inputs"])
    floats = [item for item in workload["inputs"] if kind_of(item) == "float"]
    if not chief:
        return count
    return count + sum(len(_on_one_workload(item)) for item in floats) + len(_infinities_that_meet(floats))


def _may_be_special(item: ResolvedInput) -> bool:
    values = item.get("values", {})
    return kind_of(item) == "float" and not values.get("finite", False) and "range" not in values


def _anywhere(item: ResolvedInput) -> list[list[Change]]:
    """Return changes that plant NaN and both infinities in one element each, and NaN in the first and the last.

    Code for a rare case, padding that is multiplied by zero, parts of a number that are NaN: no kernel computes with
    these as it does with numbers, and each workload may take its own way through it. Of all elements the last is most
    often code of its own: what a vector or a tile leaves over.
    """
    if not _may_be_special(item):
        return []
    name = item["name"]
    one = [
        {"input": name, "move": "plant", "value": value, "where": "one", "axis": 0, "draw": draw}
        for draw, value in enumerate(("nan", "inf", "-inf"), 1)
    ]
    return [one, [{"input": name, "move": "plant", "value": "nan", "where": "ends", "axis": 0, "draw": 1}]]


def _on_one_workload(item: ResolvedInput) -> list[list[Change]]:
    """Return changes of a floating input that single faults need and that hardly a draw at random makes.

    Rows that are minus infinity as a whole or at first, as masks make them; equal large numbers in each slice of the
    first axis, of both signs and all far below zero: their variance in one pass may be less than nothing, and a maximum
    that begins at zero is not theirs.
    """
    name, last = item["name"], rank(item) - 1
    _, most = exponents(item)
    plans: list[list[Change]] = []
    if _may_be_special(item):
        plans += [
            [{"input": name, "move": "plant", "value": "-inf", "where": where, "axis": axis, "draw": 1}]
            for where, axis in (("slice", 0), ("first half", last))
        ]
    equal = [{"input": name, "move": "same", "axis": axis} for axis in range(1, rank(item))]
    if 0 < len(equal) <= MOST_CHANGES - 2:
        for power, times in EQUAL:
            if power + 3 < most // 2:
                scaled = {"input": name, "move": "scale", "exponent": power}
                plans.append([*equal, scaled, {"input": name, "move": "shift", "by": times * 2.0**power}])
    return plans


MEETING = (("inf", "inf"), ("inf", "-inf"), ("inf", "-0"), ("-0", "inf"))
"""Special values of two inputs that meet: their sums, differences, products and quotients are NaN in some order."""


def _infinities_that_meet(floats: Sequence[ResolvedInput]) -> list[list[Change]]:
    """Return changes that plant infinities, or zeros for them to be multiplied by, in all floating inputs at once.

    They meet in one element: at the same place of the inputs that are as large as the largest, and everywhere in
    smaller ones, which are spread over it. What infinity minus infinity or times zero is shows nowhere else.
    """
    able = [item for item in floats if _may_be_special(item)][:MOST_CHANGES]
    if len(able) < 2:
        return []
    sizes = [math.prod(item["shape"] or []) for item in able]
    wheres = ["one" if size == max(sizes) else "all" for size in sizes]
    return [
        [
            {"input": item["name"], "move": "plant", "value": values[number % 2], "where": where, "axis": 0, "draw": 1}
            for number, (item, where) in enumerate(zip(able, wheres, strict=True))
        ]
        for values in MEETING
    ]


def _of_input(item: ResolvedInput) -> Iterator[Change]:
    """Yield the listed changes of one input, the most telling first."""
    listed = {
        "float": _of_float,
        "integer": _of_integer,
        "mask": _of_mask,
        "scalar": _of_scalar,
    }.get(str(kind_of(item)))
    for move, parameters in listed(item) if listed else ():
        yield {"input": item["name"], "move": move, **parameters}


_Listed = Iterator[tuple[str, dict[str, Any]]]


def _of_float(item: ResolvedInput) -> _Listed:
    least, most = exponents(item)
    axes = range(rank(item) - 1, -1, -1)
    far = min(20, most // 2)
    for axis in axes:
        yield "grade", {"axis": axis, "low": -far, "high": far, "draw": 1}
    yield "plant", {"value": "nan", "where": "one", "axis": 0, "draw": 1}
    for power in (6, 11, 17, 24):
        if power < most:
            yield "shift", {"by": 2.0**power}
    yield "spread", {"low": -far, "high": far, "draw": 1}
    for power in (5, 8, 12, 20, most // 2, -8, -20, least // 2, most - 8, least + 4):
        yield "scale", {"exponent": power}
    for value in ("inf", "-inf"):
        for where in ("one", "slice", "all"):
            yield "plant", {"value": value, "where": where, "axis": 0, "draw": 1}
    for value in ("nan", "-nan", "-0"):
        yield "plant", {"value": value, "where": "some", "axis": 0, "draw": 1}
    for axis in axes:
        yield "keep", {"axis": axis, "count": 1, "draw": 1}
        yield "slope", {"axis": axis, "low": -far, "high": far}
        yield "peak", {"axis": axis, "exponent": 14, "draw": 1}
        yield "cancel", {"axis": axis, "bits": 12}
        yield "same", {"axis": axis}
        yield "order", {"axis": axis, "how": "rising"}
        yield "shift slices", {"axis": axis, "low": 0, "high": 12, "draw": 1}
        yield "grade", {"axis": axis, "low": least, "high": most - 8, "draw": 2}
    for number in (0.0, 1.0, -1.0):
        yield "fill", {"number": number}
    for value in ("denormal", "smallest", "largest"):
        yield "plant", {"value": value, "where": "some", "axis": 0, "draw": 1}
    yield "levels", {"steps": 1}


def _of_integer(item: ResolvedInput) -> _Listed:
    yield "all equal", {"at": 0.0}
    yield "all equal", {"at": 1.0}
    yield "ends", {"draw": 1}
    yield "skew", {"power": 4, "draw": 1}
    yield "count", {}
    yield "order", {"axis": rank(item) - 1, "how": "rising"}


def _of_mask(item: ResolvedInput) -> _Listed:
    yield "share", {"share": 0.0, "draw": 1}
    yield "share", {"share": 1.0, "draw": 1}
    for axis in range(rank(item)):
        yield "mask slices", {"axis": axis, "to": 0, "draw": 1}
        yield "mask part", {"axis": axis, "share": 0.5}


def _of_scalar(item: ResolvedInput) -> _Listed:
    given = item.get("values", {}).get("range")
    value = item["value"]
    assert value is not None
    if given is not None:
        whole = "float" not in item["dtype"]
        yield from (("number", {"number": round(end) if whole else end}) for end in given)
    elif "float" in item["dtype"]:
        yield "number", {"number": float(value) * 0.5}


def _together(floats: Sequence[ResolvedInput]) -> list[list[Change]]:
    """Return changes of all floating inputs at once: scales that meet, that cancel each other, one rising."""
    if len(floats) < 2:
        return []
    plans: list[list[Change]] = [[] for _ in range(6)]
    for number, item in enumerate(floats):
        name, (_, most) = item["name"], exponents(item)
        far, last = min(20, most // 4), rank(item) - 1
        axis = last if number % 2 == 0 else 0
        low, high = (-far, far) if number % 2 == 0 else (far, -far)
        plans[0].append({"input": name, "move": "slope", "axis": axis, "low": low, "high": high})
        plans[1].append({"input": name, "move": "slope", "axis": last, "low": low, "high": high})
        plans[2].append({"input": name, "move": "spread", "low": -far, "high": far, "draw": 1 + number})
        plans[3].append({"input": name, "move": "scale", "exponent": min(8, most // 4)})
        plans[4].append({"input": name, "move": "keep", "axis": axis, "count": 1, "draw": 1 + number})
        plans[5].append({"input": name, "move": "scale", "exponent": 2})
    # What weighs little, times what is large: weights that are further apart, of values of every size
    plans[5][-1] = {"input": name, "move": "grade", "axis": max(0, last - 1), "low": -far, "high": far, "draw": 1}
    return plans

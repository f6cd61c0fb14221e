"""Search for the recipe on which a candidate is worst: openings first, then the best are mutated and crossed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from warpsmith.kernels_db.job.attack_documents import Recipe
from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.workers.judge.attack.bounds import kind_of
from warpsmith.workers.judge.attack.move import Change, Parameter
from warpsmith.workers.judge.attack.openings import certain, openings
from warpsmith.workers.judge.attack.oracle import Answer
from warpsmith.workers.judge.attack.recipe import MOVES, moves_for

MOST_TRIES = 4000
KEPT, LONGEST = 8, 4
"""Recipes that are bred from, and changes that one has at most."""
NEW, CROSSED, OTHER_VALUES = 0.15, 0.25, 0.25
"""Chances of a child: a new change alone, two parents' changes, other declared values."""

Ask = Callable[[Recipe], Answer]


@dataclass(frozen=True)
class Found:
    """What a search came to: its worst answer, if any was fair, and how many were asked."""

    worst: Answer | None
    tries: int


def search(
    workload: ResolvedWorkload,
    ask: Ask,
    rng: random.Random,
    seconds: float,
    *,
    chief: bool = True,
    most: int = MOST_TRIES,
    clock: Callable[[], float] = time.monotonic,
) -> Found:
    """Ask until a recipe fails, the seconds are over or `most` were asked; what is certain to be asked at least.

    chief: whether this is the workload that is searched longest, and asked more however little time there is.
    Raises what `ask` raises. Where no input may change nothing is asked.
    """
    if all(kind_of(item) is None for item in workload["inputs"]):
        return Found(None, 0)
    end = clock() + seconds
    first = rng.getrandbits(62)
    kept: list[Answer] = []
    tries = 0
    seen: set[str] = set()
    listed = openings(workload, first, rng)
    at_least = max(1, certain(workload, chief=chief))
    while tries < most and (tries < at_least or clock() < end):
        recipe = listed[tries] if tries < len(listed) else bred(workload, kept, first, rng)
        tries += 1
        if (key := repr(recipe)) in seen:
            continue
        seen.add(key)
        answer = ask(recipe)
        if answer.failed:
            return Found(answer, tries)
        if answer.ratio >= 0:
            kept = sorted([*kept, answer], key=lambda one: -one.ratio)[:KEPT]
    return Found(kept[0] if kept else None, tries)


def bred(workload: ResolvedWorkload, kept: list[Answer], seed: int, rng: random.Random) -> Recipe:
    """Return a recipe made of the best so far."""
    chance = rng.random()
    if not kept or chance < NEW:
        return {"workload": workload["id"], "seed": seed, "changes": [drawn(workload, rng)]}
    parent = rng.choice(kept).recipe
    changes = [dict(change) for change in parent["changes"]]
    if chance < NEW + CROSSED:
        changes = [*changes, *(dict(change) for change in rng.choice(kept).recipe["changes"])]
        changes = rng.sample(changes, min(len(changes), LONGEST))
    elif not changes or (rng.random() < 0.5 and len(changes) < LONGEST):
        changes.insert(rng.randint(0, len(changes)), drawn(workload, rng))
    else:
        place = rng.randrange(len(changes))
        changes[place] = mutated(changes[place], workload, rng)
    fixed = any(item["dist"].get("kind") == "code" for item in workload["inputs"])
    other = not fixed and rng.random() < OTHER_VALUES  # the user's generator runs in a process of its own for each
    return {"workload": workload["id"], "seed": rng.getrandbits(62) if other else parent["seed"], "changes": changes}


def drawn(workload: ResolvedWorkload, rng: random.Random) -> Change:
    """Return a change at random of an input that may change."""
    item = rng.choice([item for item in workload["inputs"] if kind_of(item) is not None])
    move = rng.choice(moves_for(item))
    return {"input": item["name"], "move": move.name, **move.draw(item, rng)}


def mutated(change: Change, workload: ResolvedWorkload, rng: random.Random) -> Change:
    """Return a change with one parameter near its own, or drawn again."""
    item = next(item for item in workload["inputs"] if item["name"] == change["input"])
    move = MOVES[change["move"]]
    if not move.parameters:
        return change
    name = rng.choice(list(move.parameters))
    again = move.draw(item, rng)
    near = rng.random() < 0.5 and name != "axis" and kind_of(item) != "scalar"
    return {**change, name: _near(change[name], move.parameters[name], rng) if near else again[name]}


def _near(value: object, allowed: Parameter, rng: random.Random) -> object:
    low, high = allowed[0], allowed[-1]
    if isinstance(value, str) or isinstance(low, str) or isinstance(high, str):
        return rng.choice(allowed)
    if isinstance(low, int) and isinstance(value, int):
        return max(low, min(int(high), value + rng.choice((-8, -2, -1, 1, 2, 8))))
    assert isinstance(value, int | float)
    return max(low, min(high, value * rng.choice((0.25, 0.5, 0.75, 1.5, 2.0, 4.0))))

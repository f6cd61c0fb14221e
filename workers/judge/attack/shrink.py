"""Make a counterexample simple: leave changes out, move parameters to round numbers, while it still fails."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

from warpsmith.kernels_db.job.attack_documents import Recipe
from warpsmith.workers.judge.attack.move import Change
from warpsmith.workers.judge.attack.oracle import Answer
from warpsmith.workers.judge.attack.recipe import MOVES

MOST_QUESTIONS = 80


def shrink(
    answer: Answer,
    ask: Callable[[Recipe], Answer],
    seconds: float,
    *,
    most: int = MOST_QUESTIONS,
    clock: Callable[[], float] = time.monotonic,
) -> Answer:
    """Return the simplest failure that was found in so many seconds and questions. Raises what `ask` raises."""
    end, asked, best = clock() + seconds, 0, answer
    simpler = True
    while simpler:
        simpler = False
        for recipe in _simpler(best.recipe):
            if asked >= most or clock() >= end:
                return best
            asked += 1
            tried = ask(recipe)
            if tried.failed:
                best, simpler = tried, True
                break
    return best


def _simpler(recipe: Recipe) -> Iterator[Recipe]:
    """Yield recipes that are simpler in one thing, the greatest first."""
    changes = recipe["changes"]
    for place in range(len(changes)):
        yield {**recipe, "changes": changes[:place] + changes[place + 1 :]}
    for place, change in enumerate(changes):
        for rounder in rounded(change):
            yield {**recipe, "changes": [*changes[:place], rounder, *changes[place + 1 :]]}


def rounded(change: Change) -> Iterator[Change]:
    """Yield a change with one parameter at a rounder number."""
    for name, allowed in MOVES[change["move"]].parameters.items():
        value = change[name]
        if isinstance(value, str):
            continue
        for better in _rounder(value):
            if allowed[0] <= better <= allowed[1]:  # type: ignore[operator]  # not words: the value is none
                yield {**change, name: better}


def _rounder(value: float) -> Iterator[float]:
    """Yield numbers that are rounder than a value, the roundest first; each again yields rounder ones or none."""
    if isinstance(value, int):
        steps = [0, 1, *(int(math.copysign(2 ** (abs(value).bit_length() - 1), value)),)] if value else []
        yield from (step for step in steps if _weight(step) < _weight(value))
        return
    if value and math.isfinite(value):
        for better in (1.0, math.copysign(2.0 ** math.floor(math.log2(abs(value))), value), float(f"{value:.1g}")):
            if len(repr(better)) < len(repr(value)):
                yield better


def _weight(value: int) -> tuple[int, int]:
    """Order whole numbers by how much there is to say: 0, 1, powers of two, others; small before large."""
    return (abs(value).bit_count() + (abs(value) > 1) + (value < 0), abs(value).bit_length())

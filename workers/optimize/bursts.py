"""Time parts of a model beside others on the host: in bursts, in turns, and again where a time cannot be.

What disturbs a timing makes it longer and never shorter. So the shortest of several bursts counts, and a part that
takes longer than a whole that contains it was disturbed in each of its bursts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from warpsmith.workers.judge.machine import host

Burst = Callable[[], float]
"""Times a part once more: microseconds of a call, in the shortest round."""
TURNS = 2
"""Further bursts of each part, in turns with the others."""
AGAIN = 3
"""Further bursts, at most, of a part that takes longer than a whole."""
SURELY = 2.0
"""How many times as long as a whole a part takes at least for its time to be doubted.

Alone a part writes results that stay inside of the whole, and has a beginning and an end of its own.
"""


class Doubt(NamedTuple):
    """A part that takes surely longer than a whole that contains it: None is the model."""

    part: int
    whole: int | None
    whole_us: float


def time_again(
    found: dict[int, float],
    bursts: Mapping[int, Burst],
    wholes: Mapping[int, Sequence[int]],
    model_us: float,
    turns: int = TURNS,
) -> list[Doubt]:
    """Time parts that have had a burst in further ones, and put the shortest time of each into `found`.

    wholes: by part, the parts that contain it. Returns what still cannot be.
    """

    def take(parts: Sequence[int]) -> None:
        for part in parts:
            found[part] = min(found[part], bursts[part]())

    for _ in range(turns):
        take(list(bursts))
    for _ in range(AGAIN):
        if not (doubts := find_doubts(found, wholes, model_us)):
            break
        take([doubt.part for doubt in doubts])
    return find_doubts(found, wholes, model_us)


def find_doubts(found: Mapping[int, float], wholes: Mapping[int, Sequence[int]], model_us: float) -> list[Doubt]:
    """Find the parts that take surely longer than a whole, each with the shortest such whole."""
    doubts = []
    for part, time_us in found.items():
        times = [(found[whole], whole) for whole in wholes.get(part, ()) if whole in found]
        doubt = Doubt(part, None, model_us)
        if times and min(times)[0] < model_us:
            doubt = Doubt(part, min(times)[1], min(times)[0])
        if time_us > SURELY * doubt.whole_us:
            doubts.append(doubt)
    return doubts


@contextmanager
def noting_others(shares: list[float], device: str) -> Iterator[None]:
    """Append the share of a CPU that other processes took inside, where that is what is timed."""
    before = host.usage()
    yield
    if device == "cpu":
        shares.append(host.share_of_others(before, host.usage()))

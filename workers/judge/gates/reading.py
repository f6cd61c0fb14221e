"""One timing of a workload, and which of several counts. Pure.

On a GPU a host that is held up launches a call when the device is there already, and the device waits between the
call's events: the time is the host's. A contender with late calls in most of its blocks is launched more slowly than it
runs, whatever goes on beside: another timing would have them again. One that has them in some of its blocks was held up
by neighbours, and its median may be of either kind: the times are unsure, and where it is a baseline the timing is made
again. Which timing counts is not asked of the candidate: its calls are counted in its own process, and one that called
its slow blocks late would have the luckiest of three.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from warpsmith.workers.judge.clock.timing import Samples

SPOILT = 0.25
"""Share of a contender's blocks that may have late calls before its median is in doubt."""

HABIT = 0.9
"""Share of a contender's blocks from which, in every timing, late calls are its own."""


@dataclass(frozen=True)
class Reading:
    """One timing of a workload: the samples of every contender, and what is to be said of them.

    exchange_us: what the clock reads where nothing runs. deferred_us: microseconds a call that the candidate's samples
    leave out. aside_us: of each expert, microseconds a call that its events do not show, and that count as its time.
    late_calls, late_blocks: of each contender, how many calls were launched late, and the share of blocks that have
    such calls. unsure: a contender's median may be the host's, and there was no time for a better timing.
    hopeless: the candidate's first calls took longer than the plan's `hopeless_us`; its sample is of those, unchecked.
    """

    samples: Samples
    exchange_us: float | None = None
    deferred_us: float = 0.0
    clocks_us: dict[str, dict[str, float]] = field(default_factory=dict)
    aside_us: dict[str, float] = field(default_factory=dict)
    late_calls: dict[str, int] = field(default_factory=dict)
    late_blocks: dict[str, float] = field(default_factory=dict)
    unsure: bool = False
    hopeless: bool = False


def is_spoilt(reading: Reading, readings: Sequence[Reading]) -> bool:
    """Check whether the host spoilt one of the timings of a workload, by its baselines."""
    return _lateness(reading, readings, _baselines(reading)) > SPOILT


def choose(readings: Sequence[Reading]) -> Reading:
    """Return the timing that counts: the one that leaves least out, of several the one with the least spoilt baselines.

    What it leaves out is added to the candidate's samples.
    """
    best = min(readings, key=lambda one: (one.deferred_us, _lateness(one, readings, _baselines(one))))
    more = {"candidate": best.deferred_us}
    samples = {name: [value + more.get(name, 0.0) for value in values] for name, values in best.samples.items()}
    return replace(best, samples=samples, unsure=_lateness(best, readings, best.late_blocks) > SPOILT)


def _baselines(reading: Reading) -> list[str]:
    return [name for name in reading.late_blocks if name != "candidate"]


def _lateness(reading: Reading, readings: Sequence[Reading], names: Iterable[str]) -> float:
    """Return the largest share of late blocks of one of these contenders, whose habit they are not."""
    own = [name for name in names if any(one.late_blocks[name] < HABIT for one in readings)]
    return max((reading.late_blocks[name] for name in own), default=0.0)

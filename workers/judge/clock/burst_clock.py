"""Time bursts of GPU calls by the device's clock, checked against the referee's own clock.

The device's events tell the time of each call. They are read in the runner, so they are believed only as far as the
referee's wall clock around the burst agrees. The burst's wall clock, minus that of a burst that flushes and runs
nothing, also measures its calls. Where the wall clock shows more than the events explain, the difference counts as
time. Work on another stream, work that starts late and work hidden in the flush all show on the wall clock.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warpsmith.workers.judge.clock.timing import Samples
from warpsmith.workers.judge.runner.burst import EMPTY
from warpsmith.workers.judge.runner.runner_handle import Burst, RunnerHandle
from warpsmith.workers.judge.values.workload_specs import Values

BLOCK_US = 2_000.0
"""Time of a block's calls, by the first contender's."""

FEWEST_CALLS, MOST_CALLS = 4, 24
_EMPTY_CALLS = (2, 10)
_EMPTY_BURSTS = 4
_MANY_SLOTS = 12
AGREEMENT = 0.05
"""Share of a call's time by which the two clocks may differ."""

_GAP_US = 4.0
"""Microseconds a call by which they may differ besides: the host's own gaps between calls."""


@dataclass(frozen=True)
class Call:
    """One call of a burst, chosen at random: its slot and what it was given.

    It holds the same for the burst's last call, and for slots that were filled like the others and not called.
    """

    slot: int
    values: Values
    last_slot: int
    last_values: Values
    idle: tuple[tuple[int, Values], ...]


class BurstClock:
    """Times blocks of one workload. Every contender is bound to it and has run at least once."""

    def __init__(
        self, contenders: Mapping[str, RunnerHandle], call_s: float, draw: Callable[[], Values], rng: random.Random
    ) -> None:
        self._contenders = contenders
        self._call_s = call_s
        self._draw = draw
        self._rng = rng
        self._calls = FEWEST_CALLS
        self._empty: dict[str, _Empty] = {}
        self._unexplained: dict[str, list[float]] = {name: [] for name in contenders}
        self._events: dict[str, list[float]] = {name: [] for name in contenders}

    def calibrate(self, first: str) -> float:
        """Choose how many calls a block has, and measure the empty bursts.

        The number follows from the first contender's time, so that a candidate has no influence on it. Returns the time
        that the events show where nothing runs, in microseconds.
        """
        median = float(np.median(self._burst(first, FEWEST_CALLS)[0]))
        self._calls = int(min(MOST_CALLS, max(FEWEST_CALLS, round(BLOCK_US / max(median, 1.0)))))
        nothing: list[float] = []
        for name in self._contenders:
            walls: dict[int, list[int]] = {calls: [] for calls in _EMPTY_CALLS}
            for _ in range(_EMPTY_BURSTS):
                for calls in _EMPTY_CALLS:
                    burst = self._nothing(name, calls)
                    walls[calls].append(burst.wall_ns)
                    nothing += burst.calls_us
            self._empty[name] = _Empty.of(walls)
        return float(np.median(nothing))

    def block(self, name: str) -> tuple[float, Call]:
        """Run one block; return its median in microseconds by the device's clock, and a call.

        The call is one of its last burst, to be checked.
        """
        times: list[float] = []
        wall_us = 0.0
        call: Call | None = None
        for part in self._parts(name):
            spent, wall_ns, call = self._burst(name, part)
            times += spent
            wall_us += wall_ns / 1e3 - self._empty[name].wall_us(part)
        assert call is not None
        self._events[name].append(float(np.mean(times)))
        self._unexplained[name].append((wall_us - sum(times)) / len(times))
        return float(np.median(times)), call

    def clocks(self) -> dict[str, dict[str, float]]:
        """Return the microseconds of one call by each clock, the median over blocks."""
        return {
            name: {
                "events": round(float(np.median(events)), 3),
                "wall": round(float(np.median(events)) + float(np.median(self._unexplained[name])), 3),
            }
            for name, events in self._events.items()
        }

    def corrected(self, samples: Samples, candidate: str) -> Samples:
        """Return the samples, the candidate's increased where the two clocks disagree.

        The increase is the time that only the wall clock saw. A baseline is never made slower: that would favour the
        candidate.
        """
        surplus = self.surplus(candidate) if candidate in samples else 0.0
        return {name: [value + surplus * (name == candidate) for value in values] for name, values in samples.items()}

    def surplus(self, name: str) -> float:
        """Return the microseconds a call that only the wall clock saw; 0 where the clocks agree."""
        missing = float(np.median(self._unexplained[name]))
        jitter = self._empty[name].spread_us / min(self._parts(name))
        allowed = AGREEMENT * float(np.median(self._events[name])) + _GAP_US + jitter
        return missing if missing > allowed else 0.0

    def _parts(self, name: str) -> list[int]:
        """Divide the calls of a block into bursts that leave some slots idle."""
        slots = len(self._contenders[name].slots)
        full, rest = divmod(self._calls, slots - _idle(slots))
        return [slots - _idle(slots)] * full + ([rest] if rest else [])

    def _nothing(self, name: str, calls: int) -> Burst:
        """Run an empty burst.

        As before any other burst, the device has just run work of the referee's: the switch is part of the time to
        subtract.
        """
        self._contenders[name].fill(0, self._draw())
        return self._contenders[name].burst([EMPTY] * calls, self._call_s)

    def _burst(self, name: str, calls: int) -> tuple[list[float], int, Call]:
        """Run at most `calls` calls in random order, each on its own slot with new values.

        More slots are filled than are called, and only the referee knows which. A candidate that computes ahead for a
        later call of the burst, whose inputs are there already, also computes for calls that are never made, and is
        detected.
        """
        contender = self._contenders[name]
        slots = len(contender.slots)
        chosen = self._rng.sample(range(slots), min(calls, slots - _idle(slots)) + _idle(slots))
        values = {slot: self._draw() for slot in chosen}
        for slot in chosen:
            contender.fill(slot, values[slot])
        order, idle = chosen[_idle(slots) :], chosen[: _idle(slots)]
        burst = contender.burst(order, self._call_s * len(order))
        looked_at, last = self._rng.choice(order), order[-1]
        left = tuple((slot, values[slot]) for slot in idle)
        return burst.calls_us, burst.wall_ns, Call(looked_at, values[looked_at], last, values[last], left)


def _idle(slots: int) -> int:
    """Return how many slots of a burst are filled and not called."""
    return 1 if slots < _MANY_SLOTS else 2


@dataclass(frozen=True)
class _Empty:
    """The wall clock of a burst that runs nothing, in microseconds.

    `fixed_us`, and `call_us` for each flush; `spread_us` is half the range of the bursts of one length.
    """

    fixed_us: float
    call_us: float
    spread_us: float

    @classmethod
    def of(cls, walls_ns: Mapping[int, Sequence[int]]) -> _Empty:
        """Fit the line through the medians of bursts of two lengths."""
        (few, short), (many, long) = sorted((calls, np.asarray(walls) / 1e3) for calls, walls in walls_ns.items())
        call_us = float(np.median(long) - np.median(short)) / (many - few)
        spread = max(float(np.ptp(short)), float(np.ptp(long))) / 2
        return cls(float(np.median(short)) - few * call_us, call_us, spread)

    def wall_us(self, calls: int) -> float:
        """Return the wall clock of an empty burst of so many calls."""
        return self.fixed_us + calls * self.call_us

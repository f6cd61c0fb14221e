"""Time bursts of GPU calls by the device's clock, checked against the referee's own clock.

The device's events tell the time of each call. They are read in the runner, so they are believed only as far as the
referee's wall clock around the burst agrees. The burst's wall clock, minus that of a burst that flushes and runs
nothing, also measures its calls. Where the wall clock shows more than the events explain, the difference counts as
time. Work on another stream, work that starts late and work hidden in the flush all show on the wall clock.

A block's value is the sum of its calls over their number: where within a burst the work is done makes no difference.
How long a burst is, nobody can tell before it ends, and after one of its calls, chosen at random, a digest of that
call's results is taken before the next call begins: results that a later call writes are seen.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warpsmith.workers.judge.clock.deferral import Ledger
from warpsmith.workers.judge.clock.timing import Samples
from warpsmith.workers.judge.machine.buffers import Slot
from warpsmith.workers.judge.runner.burst import EMPTY
from warpsmith.workers.judge.runner.digest import Digester, Seal, make_seal
from warpsmith.workers.judge.runner.runner_handle import Burst, RunnerHandle
from warpsmith.workers.judge.values.workload_specs import Values

BLOCK_US = 2_000.0
"""Time of a block's calls, by the first contender's."""

FEWEST_CALLS, MOST_CALLS = 4, 24
_EMPTY_CALLS = (2, 10)
_EMPTY_BURSTS = 5
_MANY_SLOTS = 12
AGREEMENT = 0.05
"""Share of a call's time by which the two clocks may differ."""

_GAP_US = 4.0
"""Microseconds a call by which they may differ besides: the host's own gaps between calls."""


SHORTEST, LONGEST = 0.75, 1.25
"""Calls of a block at least and at most, as shares of how many there are on average."""


@dataclass(frozen=True)
class Call:
    """The sealed call of a burst, chosen at random: its slot and what it was given.

    kept: whether its results still are what stood there as it ended. It holds slot and values of the burst's last call
    as well, and of slots that were filled like the others and not called.
    """

    slot: int
    values: Values
    kept: bool
    last_slot: int
    last_values: Values
    idle: tuple[tuple[int, Values], ...]


class BurstClock:
    """Times blocks of one workload. Every contender is bound to it and has run at least once."""

    def __init__(
        self,
        contenders: Mapping[str, RunnerHandle],
        call_s: float,
        draw: Callable[[], Values],
        rng: random.Random,
        results: Sequence[int] = (),
    ) -> None:
        """`results`: positions in a slot of what a call produces."""
        self._contenders = contenders
        self._results = results
        self._digester: Digester | None = None
        self._call_s = call_s
        self._draw = draw
        self._rng = rng
        self._calls = FEWEST_CALLS  # of a block, on average
        self._empty: dict[str, _Empty] = {}
        self._unexplained: dict[str, list[float]] = {name: [] for name in contenders}
        self._events: dict[str, list[float]] = {name: [] for name in contenders}
        self._late: dict[str, list[int]] = {name: [] for name in contenders}
        self.ledger = Ledger()
        self.first_us: float | None = None
        """A call of the first burst, the median; None before it, and where calls of it were launched late."""

    def calibrate(self, first: str, against_wall: bool = True) -> float | None:
        """Choose how many calls a block has, make one burst of every contender, and measure its empty ones.

        The number follows from the first contender's time, so that a candidate has no influence on it. A contender's
        first burst loads what every burst needs, which takes milliseconds and is no part of an empty one. Returns the
        time that the events show where nothing runs, in microseconds. Without `against_wall` no empty burst is made,
        the events are believed as they are, and None is returned.
        """
        made = self._burst(first, FEWEST_CALLS)[0]
        median = float(np.median(made.calls_us))
        self.first_us = None if made.late else median
        self._calls = int(min(MOST_CALLS, max(FEWEST_CALLS, round(BLOCK_US / max(median, 1.0)))))
        nothing: list[float] = []
        for name in self._contenders:
            if name != first:
                self._burst(name, FEWEST_CALLS)
            if not against_wall:
                continue
            walls: dict[int, list[int]] = {calls: [] for calls in _EMPTY_CALLS}
            for _ in range(_EMPTY_BURSTS):
                for calls in _EMPTY_CALLS:
                    burst = self._nothing(name, calls)
                    walls[calls].append(burst.wall_ns)
                    nothing += burst.calls_us
            self._empty[name] = _Empty.of(walls)
        return float(np.median(nothing)) if nothing else None

    def block(self, name: str, look: Callable[[Call], None] | None = None) -> float:
        """Run one block; return the mean of its calls in microseconds by the device's clock.

        `look` is given the sealed call of one of its bursts, chosen at random, as soon as that burst has ended.
        """
        times: list[float] = []
        wall_us, late = 0.0, 0
        parts = self._parts(name)
        looked_at = self._rng.randrange(len(parts))
        for number, part in enumerate(parts):
            burst, call = self._burst(name, part)
            times += burst.calls_us
            late += burst.late
            self.ledger.add(name, sum(burst.calls_us), part)
            if name in self._empty:
                wall_us += burst.wall_ns / 1e3 - self._empty[name].wall_us(part)
            if look is not None and number == looked_at:
                look(call)
        mean = sum(times) / len(times)
        self._events[name].append(mean)
        self._late[name].append(late)
        if name in self._empty:
            self._unexplained[name].append(wall_us / len(times) - mean)
        return mean

    def clocks(self) -> dict[str, dict[str, float]]:
        """Return the microseconds of one call by each clock, the median over blocks; nothing where one was read."""
        return {
            name: {
                "events": round(float(np.median(events)), 3),
                "wall": round(float(np.median(events)) + float(np.median(self._unexplained[name])), 3),
            }
            for name, events in self._events.items()
            if self._unexplained[name]
        }

    def late_calls(self) -> dict[str, int]:
        """Count the calls of all blocks that were launched late, by contender; leaves out those that have none."""
        return {name: sum(blocks) for name, blocks in self._late.items() if any(blocks)}

    def late_blocks(self) -> dict[str, float]:
        """Return the share of each contender's blocks that have calls which were launched late."""
        return {name: sum(map(bool, blocks)) / len(blocks) for name, blocks in self._late.items()}

    def corrected(self, samples: Samples, names: Collection[str]) -> Samples:
        """Return the samples, those of `names` increased where the two clocks disagree.

        The increase is the time that only the wall clock saw. PyTorch's own baselines are not to be among the names:
        made slower, they would favour the candidate, and their calls wait for all that they launch. An expert is
        somebody's library, which may not: taken at its events, it would be faster than any kernel can be.
        """
        more = {name: self.surplus(name) if name in names else 0.0 for name in samples}
        return {name: [value + more[name] for value in values] for name, values in samples.items()}

    def surplus(self, name: str) -> float:
        """Return the microseconds a call that only the wall clock saw; 0 where the clocks agree, or one was read."""
        if not self._unexplained[name]:
            return 0.0
        missing = float(np.median(self._unexplained[name]))
        slots = len(self._contenders[name].slots)
        jitter = self._empty[name].spread_us / min(self._calls, slots - _idle(slots))
        allowed = AGREEMENT * float(np.median(self._events[name])) + _GAP_US + jitter
        return missing if missing > allowed else 0.0

    def _parts(self, name: str) -> list[int]:
        """Choose how many calls a block has, and divide them into bursts that leave some slots idle."""
        fewest = max(FEWEST_CALLS, math.ceil(SHORTEST * self._calls))
        calls = self._rng.randint(fewest, max(fewest, min(MOST_CALLS, int(LONGEST * self._calls))))
        slots = len(self._contenders[name].slots)
        full, rest = divmod(calls, slots - _idle(slots))
        return [slots - _idle(slots)] * full + ([rest] if rest else [])

    def _nothing(self, name: str, calls: int) -> Burst:
        """Run an empty burst.

        As before any other burst, the device has just run work of the referee's: the switch is part of the time to
        subtract.
        """
        self._contenders[name].fill(0, self._draw())
        seal = self._seal(self._contenders[name].slots[0], calls)
        return self._contenders[name].burst([EMPTY] * calls, seal, self._call_s)

    def _burst(self, name: str, calls: int) -> tuple[Burst, Call]:
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
        fixed = self._rng.randrange(len(order))
        sealed = contender.slots[order[fixed]]
        seal = self._seal(sealed, len(order), fixed)
        burst = contender.burst(order, seal, self._call_s * len(order))
        kept = self._digest(sealed, seal) == burst.digest
        left = tuple((slot, values[slot]) for slot in idle)
        return burst, Call(order[fixed], values[order[fixed]], kept, order[-1], values[order[-1]], left)

    def _seal(self, slot: Slot, calls: int, fixed: int | None = None) -> Seal:
        """Return a seal of the results in a slot, after a call at random where it is not given."""
        extents = [slot.extent(position) for position in self._results]
        return make_seal(self._rng.randrange(calls) if fixed is None else fixed, extents, self._rng)

    def _digest(self, slot: Slot, seal: Seal) -> int:
        """Return the digest of what stands in a slot now."""
        if self._digester is None:
            self._digester = Digester(slot.arena.device)
        return int(self._digester.take(slot.arena, seal).item())


def _idle(slots: int) -> int:
    """Return how many slots of a burst are filled and not called."""
    return 1 if slots < _MANY_SLOTS else 2


@dataclass(frozen=True)
class _Empty:
    """The wall clock of a burst that runs nothing, in microseconds.

    `fixed_us`, and `call_us` for each flush; `spread_us` is half the range of the bursts of one length, the slowest
    left out: a neighbour that holds up one of them for milliseconds would excuse as much of every call.
    """

    fixed_us: float
    call_us: float
    spread_us: float

    @classmethod
    def of(cls, walls_ns: Mapping[int, Sequence[int]]) -> _Empty:
        """Fit the line through the medians of bursts of two lengths."""
        (few, short), (many, long) = sorted((calls, np.asarray(walls) / 1e3) for calls, walls in walls_ns.items())
        call_us = float(np.median(long) - np.median(short)) / (many - few)
        spread = max(float(np.ptp(np.sort(walls)[:-1])) for walls in (short, long)) / 2
        return cls(float(np.median(short)) - few * call_us, call_us, spread)

    def wall_us(self, calls: int) -> float:
        """Return the wall clock of an empty burst of so many calls."""
        return self.fixed_us + calls * self.call_us

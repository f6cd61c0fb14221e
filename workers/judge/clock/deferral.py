"""Work that a candidate moves to calls that do not decide its time. Pure.

A time is the median over rounds of the means of blocks, which a neighbour's disturbance of some blocks does not move.
Nor would it move if a candidate did its work in fewer than half of the blocks, in the call before each block that wakes
it, or in the checks after the last round. So all calls of a timing are added up, whatever they were made for, except
the first one of each contender, which compiles, tunes and maps. A candidate whose average call takes longer than its
time says, by more than the baselines' do, has deferred work: the difference counts as its time.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ALLOWED = {"cpu": 0.25, "cuda": 0.10}
"""Share of its time by which a candidate's average call may be longer than the baselines' are beyond theirs.

On a CPU four calls in ten are those that wake a contender, where calls are long, and those take longer; neighbours
strike one contender and not the other.
"""


@dataclass
class Ledger:
    """Microseconds and number of all calls of a timing, by contender."""

    spent_us: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, spent_us: float, calls: int = 1) -> None:
        """Add calls of a contender."""
        self.spent_us[name] = self.spent_us.get(name, 0.0) + spent_us
        self.calls[name] = self.calls.get(name, 0) + calls

    def excess(self, name: str, time_us: float) -> float:
        """Return by what share of `time_us` the average call took longer than that."""
        return self.spent_us[name] / self.calls[name] / time_us - 1.0

    def deferred_us(self, samples: Mapping[str, Sequence[float]], candidate: str, device: str) -> float:
        """Return the microseconds a call that the candidate's time leaves out, 0.0 where they are within the allowance.

        `samples`: the values of every contender's blocks. Without a baseline there is nothing to compare with: 0.0.
        """
        times = {name: statistics.median(values) for name, values in samples.items()}
        others = [self.excess(name, time) for name, time in times.items() if name != candidate]
        if candidate not in times or not others:
            return 0.0
        beyond = self.excess(candidate, times[candidate]) - max(0.0, statistics.median(others))
        return beyond * times[candidate] if beyond > ALLOWED[device] else 0.0

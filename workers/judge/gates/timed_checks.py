"""Calls that are checked while they are timed: a kernel that is right on checked calls alone must not know them."""

from __future__ import annotations

import random

from warpsmith.workers.judge.clock import timing


class TimedChecks:
    """Which of a timing's calls are checked, drawn at random; and how many of the candidate's were."""

    def __init__(self, plan: timing.Plan, rng: random.Random) -> None:
        self._plan = plan
        self._rng = rng
        self._made = 0

    def calls(self, name: str, count: int, average: int) -> set[int]:
        """Return which calls of a contender's next block, which has `count`, are checked, from 0."""
        if name != "candidate":
            return {self._rng.randrange(count)} if self._rng.random() < self._plan.check_baseline else set()
        chance = self._plan.check_chance(average)
        chosen = {number for number in range(count) if self._rng.random() < chance}
        self._made += len(chosen)
        return chosen

    def burst(self, name: str) -> bool:
        """Check whether a call of a contender's next burst is checked."""
        chance = self._plan.burst_chance() if name == "candidate" else self._plan.check_baseline
        chosen = self._rng.random() < chance
        self._made += chosen and name == "candidate"
        return chosen

    def owed(self) -> int:
        """Return the number of checks to make after the last round.

        A timing that was cut short still owes the checks it missed; and code that counts rounds must not know which is
        the last to be checked.
        """
        return max(1, self._plan.checks - self._made)

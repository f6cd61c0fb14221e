"""The configurations of a candidate with tunables: what one is compiled to, and which are compiled when.

A sweep takes them one after another, in an order in which the first ones of any number differ in every tunable. No more
of them are compiled than it says that it can still time. Where another device is timed than compiles, a few are
compiled ahead, beside the timing, as other jobs' candidates are. On a CPU target a compiler would take the cores that
are timed, so there the sweep waits while as many as there are compilers are compiled at once, and times them then.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from warpsmith.workers.gate.tunables import Configuration
from warpsmith.workers.judge.gates.verdict import Stopped
from warpsmith.workers.judge.machine.host import cores_available
from warpsmith.workers.judge.machine.timing_guard import QUIET

MOST_COMPILERS = 8
"""Configurations of a candidate that are compiled at once, at most; beside timing at most one for two cores."""

COMPILE_S = 120.0
"""Seconds of waiting for compilers after which no further configuration is compiled."""

MOST_REFUSED = 16
"""Configurations without one that compiles after which no further one is tried."""


@dataclass(frozen=True)
class Prepared:
    """A compiled candidate.

    Variables that its runner needs to find the binaries, whether it runs under an interpreter, and the configurations
    of a candidate with tunables that is screened.
    """

    interpreted: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    configurations: Configurations | None = None


@dataclass(frozen=True)
class Variant:
    """One configuration of a candidate with tunables: its source, and how it compiled.

    `refused`: why it has no `prepared`. `compiled`: its compile report. `seconds`: of compiling it.
    """

    values: Configuration
    source: str
    prepared: Prepared | None
    compiled: dict[str, Any] | None
    refused: Stopped | None
    seconds: float = 0.0


def spread(configurations: Sequence[Configuration]) -> tuple[Configuration, ...]:
    """Order configurations so that the first ones of any number try every value of every name about equally often.

    The first stays the first. Each other is the one whose values were taken least, a value of a name with more values
    counting as much more; of several the one that differs in most names from the nearest of those taken; then one by
    chance, the same each time.
    """
    rng = random.Random(len(configurations))  # noqa: S311 - breaks ties, the same way each time
    values = {name: sorted({each[name] for each in configurations}) for name in configurations[0]}
    left = list(configurations[1:])
    rng.shuffle(left)
    ordered = [configurations[0]]
    taken = {(name, value): 0 for name, found in values.items() for value in found}
    nearest = {id(each): len(values) for each in left}

    def rank(each: Configuration) -> tuple[int, int]:
        return sum(taken[name, value] * len(values[name]) for name, value in each.items()), -nearest[id(each)]

    while True:
        last = ordered[-1]
        for name, value in last.items():
            taken[name, value] += 1
        for each in left:
            nearest[id(each)] = min(nearest[id(each)], sum(each[name] != last[name] for name in values))
        if not left:
            return tuple(ordered)
        best = min(left, key=rank)
        left = [each for each in left if each is not best]
        ordered.append(best)


class Configurations:
    """Compiles the configurations of one candidate, no sooner than a sweep can time them."""

    def __init__(
        self, ordered: Sequence[Configuration], compile_one: Callable[[Configuration], Variant], *, beside: bool
    ) -> None:
        """Set up without compiling anything.

        ordered: the default first. compile_one: from any thread; its Stopped, where that is no refusal of the one
        configuration, and its OSError end the job. beside: whether some are compiled while others are timed.
        """
        self.declared = len(ordered)
        self.compiled = 0
        """Configurations whose compilation was begun."""
        self.seconds = 0.0
        """Seconds of those compilations that have ended, added up."""
        self._waiting = deque(ordered)
        self._compile_one = compile_one
        self._beside = beside
        self._width = max(1, min(cores_available() // (2 if beside else 1), MOST_COMPILERS))
        self._pool = ThreadPoolExecutor(self._width, thread_name_prefix="configuration")
        self._under_way: list[Future[Variant]] = []
        self._taken: deque[Variant] = deque()
        self._waited_s = 0.0

    def begin(self, wanted: int) -> Variant:
        """Compile the first `wanted` configurations, or as many as there are compilers; return one that compiled.

        It waits for the default and, where that is refused, until some other is compiled. Raises Stopped with the
        default's refusal where none was found, and what `compile_one` raises.
        """
        tried: list[Variant] = []
        while not tried or (tried[-1].prepared is None and len(tried) < MOST_REFUSED):
            self._fill(max(wanted, 1))
            if not self._under_way:
                break
            tried.append(self._await(self._under_way[:1]))
        self._taken.extend(tried)
        found = next((one for one in tried if one.prepared is not None), None)
        if found is None:
            self.close()
            assert tried[0].refused is not None
            raise tried[0].refused
        return found

    def take(self, wanted: int) -> Variant | None:
        """Return the next configuration, compiled or refused; None where there is none, or no time to compile it.

        wanted: how many can still be timed, that one included: no more are compiled.
        """
        if self._beside:
            self._fill(wanted - len(self._taken))
        if self._taken:
            return self._taken.popleft()
        if not self._under_way:
            self._fill(wanted)
        return self._await(self._under_way) if self._under_way else None

    def is_ready(self) -> bool:
        """Check whether `take` would return without waiting for a compiler."""
        return bool(self._taken) or any(one.done() for one in self._under_way)

    def close(self) -> None:
        """Compile nothing more. What is being compiled is left to its end, where others may compile as well."""
        self._pool.shutdown(wait=not self._beside, cancel_futures=True)
        self._waiting.clear()

    def _fill(self, wanted: int) -> None:
        """Have compilations begun until `wanted` are under way, or as many as there are compilers."""
        while self._waiting and len(self._under_way) < min(wanted, self._width):
            if self.compiled and self._waited_s > COMPILE_S:
                return
            self._under_way.append(self._pool.submit(self._compile, self._waiting.popleft()))
            self.compiled += 1

    def _await(self, these: Sequence[Future[Variant]]) -> Variant:
        """Wait for one of `these`, the first in order where several have ended."""
        began = time.monotonic()
        with QUIET.resting():
            # Nothing may be compiled on a CPU while it is timed: there all under way end first.
            wait(
                these if self._beside else self._under_way,
                return_when=FIRST_COMPLETED if self._beside else "ALL_COMPLETED",
            )
        self._waited_s += time.monotonic() - began
        ended = next(one for one in these if one.done())
        self._under_way.remove(ended)
        found = ended.result()
        self.seconds += found.seconds
        return found

    def _compile(self, values: Configuration) -> Variant:
        with QUIET.assisting():
            return self._compile_one(values)

"""One contender's calls on one workload: checked in full, and timed in interleaved blocks with calls checked at
random.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from kernels_db.job import Failure, ResolvedWorkload
from workers.judge import timing
from workers.judge.baselines import OpRunners, Values, modified_input, own_tolerance, result_positions
from workers.judge.contender import Contender, ContenderFault, Mode
from workers.judge.inputs import InputSource
from workers.judge.verdict import wrong_value

_EMPTY_CALLS = 7


class Wrong(Exception):  # noqa: N818 - named for what happened
    """A candidate's call was not right; `failure` says how."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure["message"])
        self.failure = failure


@contextmanager
def _single_thread() -> Iterator[None]:
    """The referee's copies between timed calls use one core, so that none of its threads is awake when the clock
    starts.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def failure_of(fault: ContenderFault, workload: str | None) -> Failure:
    """A contender's fault as a verdict's failure."""
    failure: Failure = {"kind": fault.kind, "message": str(fault)}
    if workload is not None:
        failure |= {"message": f"workload {workload}: {fault}", "workload": workload}
    for key in ("found", "expected", "log"):
        if fault.details.get(key):
            failure[key] = fault.details[key]
    return failure


@dataclass
class Trial:
    """A workload with its reference runners, the candidate (None when only baselines run) and where values come
    from.
    """

    workload: ResolvedWorkload
    runners: OpRunners
    candidate: Contender | None
    call_s: float
    source: InputSource
    rng: random.Random
    candidate_l2: float | None = None
    exchange_us: float | None = None
    baseline_misses: dict[str, int] = field(default_factory=dict)
    _turn: int = 0

    def check_candidate(self) -> None:
        """One call on new values, checked in full. Raises Wrong, ContenderFault."""
        values = self.source.draw()
        expected = self.runners.expected(self.workload, values)
        self._call_candidate(values, lambda: expected)

    def time(self, baselines: Sequence[Mode], plan: timing.Plan) -> timing.Samples:
        """Time baselines (and the candidate) in interleaved blocks. Raises Wrong, ContenderFault."""
        names: list[str] = [*baselines, *(["candidate"] if self.candidate else [])]
        for mode in baselines:  # compile, map and warm up before the clock counts
            self._baseline_call(mode, self.source.draw())
        first = baselines[0] if baselines else None
        probes = [
            self._baseline_call(first, self.source.draw()) if first else self._call_candidate(self.source.draw())
            for _ in range(3)
        ]
        calls = timing.calls_per_block(float(np.median(probes)) / 1e3)
        if first is not None:
            empty = self.runners.on(first, self.workload)
            self.exchange_us = float(np.median([empty.empty_call(0) for _ in range(_EMPTY_CALLS)])) / 1e3

        rounds = dict.fromkeys(names, 0)
        due = plan.checked_rounds(self.rng)
        checks = 0

        def block(name: str) -> float:
            nonlocal checks
            checking = rounds[name] in due if name == "candidate" else self.rng.random() < plan.check_baseline
            rounds[name] += 1
            checked = self.rng.randrange(calls) if checking else -1
            self._one(name, False)  # wakes the contender's threads and caches after another's block
            spent: list[int] = []
            for number in range(calls):
                spent.append(self._one(name, number == checked))
                if number == checked:
                    self._one(name, False)
            checks += checking and name == "candidate"
            return float(np.median(spent)) / 1e3

        with _single_thread():
            samples = timing.interleave(
                names, block, plan=plan, candidate="candidate" if self.candidate else None, rng=self.rng
            )
            # A timing cut short owes checks; and whoever counts rounds must not know which is the last to be looked at.
            for _ in range(max(1, plan.checks - checks) if self.candidate else 0):
                for _ in range(self.rng.randrange(calls)):
                    self._one("candidate", False)
                self._one("candidate", True)
        return samples

    def _one(self, name: str, checked: bool) -> int:
        values = self.source.draw()
        if name == "candidate":
            return self._call_candidate(
                values, (lambda: self.runners.expected(self.workload, values)) if checked else None
            )
        spent = self._baseline_call(name, values)  # type: ignore[arg-type]  # every other name is a mode
        if checked:
            self._check_baseline(name, values)  # type: ignore[arg-type]
        return spent

    def _next_slot(self, contender: Contender) -> int:
        self._turn += 1
        return self._turn % len(contender.slots)

    def _baseline_call(self, mode: Mode, values: Values) -> int:
        runner = self.runners.on(mode, self.workload)
        slot = self._next_slot(runner)
        runner.fill(slot, values)
        return self.runners.call(mode, self.workload, slot)

    def _check_baseline(self, mode: Mode, values: Values) -> None:
        runner = self.runners.on(mode, self.workload)
        slot = self._turn % len(runner.slots)
        runner.deliver()
        found = [runner.slots[slot].tensor(position).clone() for _, position in result_positions(self.workload)]
        expected = self.runners.expected(self.workload, values)
        if not all(comparison.passed for comparison in self.runners.check(self.workload, found, expected)):
            self.baseline_misses[mode] = self.baseline_misses.get(mode, 0) + 1

    def _call_candidate(self, values: Values, expected: Callable[[], list[torch.Tensor]] | None = None) -> int:
        candidate = self.candidate
        assert candidate is not None
        slot = self._next_slot(candidate)
        candidate.fill(slot, values)
        spent = candidate.call(slot, self.call_s)
        if expected is not None:
            candidate.freeze()
            try:
                self._inspect(candidate, slot, values, expected())
            finally:
                candidate.thaw()
        return spent

    def _inspect(self, candidate: Contender, slot: int, values: Values, expected: Sequence[torch.Tensor]) -> None:
        workload, place = self.workload, self.workload["id"]
        memory = candidate.slots[slot]
        if (name := memory.broken_guard()) is not None:
            message = f"workload {place}: wrote outside of {name}"
            raise Wrong({"kind": "out_of_bounds", "message": message, "workload": place, "tensor": name})
        if (changed := modified_input(candidate, workload, slot, values)) is not None:
            message = f"workload {place}: wrote to its input {changed[0]}, first at {changed[0]}{changed[1]}"
            raise Wrong(
                {
                    "kind": "input_modified",
                    "message": message,
                    "workload": place,
                    "tensor": changed[0],
                    "index": changed[1],
                }
            )
        positions = result_positions(workload)
        found = [memory.tensor(position) for _, position in positions]
        for (name, _), comparison in zip(positions, self.runners.check(workload, found, expected), strict=True):
            self.candidate_l2 = max(self.candidate_l2 or 0.0, comparison.l2)
            if not comparison.passed:
                raise Wrong(wrong_value(comparison, place, name, own_tolerance(workload, name) is not None))

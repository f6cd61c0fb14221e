"""Calls of a candidate and of the baselines on one workload.

They are checked in full, and timed in interleaved blocks with calls checked at random.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch

from warpsmith.kernels_db.job.documents import Failure, ResolvedWorkload
from warpsmith.workers.judge.clock import timing
from warpsmith.workers.judge.clock.burst_clock import BurstClock, Call
from warpsmith.workers.judge.clock.deferral import Ledger
from warpsmith.workers.judge.gates.reading import Reading, choose, is_spoilt
from warpsmith.workers.judge.gates.timed_checks import TimedChecks
from warpsmith.workers.judge.gates.verdict import wrong_value
from warpsmith.workers.judge.gates.wrong import Wrong, refuse_touched
from warpsmith.workers.judge.reference.answers import check_answer
from warpsmith.workers.judge.reference.baselines import OpRunners, modified_input
from warpsmith.workers.judge.reference.input_checks import Question, declared, declared_on
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle
from warpsmith.workers.judge.values.compare import first_difference
from warpsmith.workers.judge.values.error_pattern import described
from warpsmith.workers.judge.values.inputs import InputSource
from warpsmith.workers.judge.values.steps import elsewhere
from warpsmith.workers.judge.values.workload_specs import Values, result_positions

_EMPTY_CALLS = 7

_TIMINGS = 3
"""Timings at most: one in which the candidate seems to defer work, or that the host has spoilt, is made again.

A neighbour that held one long call back looks the same once; who defers work does so every time, or is timed in full.
"""


@contextmanager
def _single_thread() -> Iterator[None]:
    """Let the referee's copies between timed calls use one core.

    So none of its threads is awake when the clock starts.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _held(handles: Sequence[RunnerHandle]) -> Iterator[None]:
    """Keep runners stopped between their calls inside the block."""
    for handle in handles:
        handle.held = True
    try:
        yield
    finally:
        for handle in handles:
            handle.held = False


@dataclass
class WorkloadRun:
    """A workload with its reference runners, its candidate and the source of its values.

    The candidate is None when only baselines run. elsewhere: it is for another device than its reference runs on.
    """

    workload: ResolvedWorkload
    runners: OpRunners
    candidate: RunnerHandle | None
    call_s: float
    source: InputSource
    rng: random.Random
    candidate_l2: float | None = None
    candidate_absolute: float | None = None
    baseline_misses: dict[str, int] = field(default_factory=dict)
    elsewhere: bool = False
    _turn: int = 0

    def question(self) -> Question:
        """New values with what they give, under the workload's own tolerances."""
        return declared(self.runners, self.workload, self.source)

    def check_candidate(
        self,
        question: Question | None = None,
        left: Sequence[torch.Tensor] | None = None,
        right: Sequence[torch.Tensor] | None = None,
    ) -> list[torch.Tensor]:
        """Check one call in full, on new values unless a question is given.

        `left`: results, in the order of `result_positions`, that the outputs hold before the call but for one element:
        a kernel that looks at some and finds its work done leaves that one. `right`: results that were right on this
        question; the same bits are right again.
        Returns what it produced, in the order of `result_positions`, as views that the slot's next use overwrites.
        Raises Wrong, RunnerFault.
        """
        asked = question or self.question()
        self._call_candidate(asked.values, lambda: asked, closing=True, left=left, right=right)
        memory = self.candidate.slots[self._turn % len(self.candidate.slots)]  # type: ignore[union-attr]  # it was called
        return [memory.tensor(position) for _, position in result_positions(self.workload)]

    def produce(self, values: Values) -> list[torch.Tensor]:
        """Call the candidate on values and return copies of what it produced, in the order of `result_positions`.

        Whatever else the call may have touched is looked at. Raises Wrong, RunnerFault.
        """
        self._call_candidate(values)
        candidate = self.candidate
        assert candidate is not None
        outside, changed, found = self._read(candidate, self._turn % len(candidate.slots), values)
        name = self.workload["id"]
        refuse_touched(outside, changed, name, {"kind": "", "message": "", "workload": name})
        return found

    def check_on_one_core(self) -> None:
        """Check one call on a single core in full, on new values. Raises Wrong, RunnerFault."""
        asked = self.question()
        self._call_candidate(asked.values, lambda: asked, one_core=True)

    def check_with_threads(self, threads: int) -> None:
        """Check one call in full, on new values, with so many threads of OpenMP and with inputs closed to writes.

        0: as many threads as ever. With fewer than cores a call has the time that it would take on each of the cores.
        An input that is written and put back looks untouched once the call has ended. Raises Wrong, RunnerFault.
        """
        candidate = self.candidate
        assert candidate is not None
        each = {0: "the usual threads", 1: "one thread"}.get(threads, f"{threads} threads")
        said = f", in a call with inputs that cannot be written and {each} of OpenMP"
        longer = max(1, torch.get_num_threads() // threads) if threads else 1
        candidate.call_in(threads)
        try:
            asked = self.question()
            self._call_candidate(asked.values, lambda: asked, closing=True, longer=longer)
        except Wrong as wrong:
            raise Wrong({**wrong.failure, "message": wrong.failure["message"] + said}) from wrong
        except RunnerFault as fault:
            more = RunnerFault(fault.runner, fault.kind, f"{fault}{said}", external=fault.external, **fault.details)
            raise more from fault
        candidate.call_in(None)

    def call_candidate(self) -> None:
        """Call the candidate once on new values, without a check."""
        self._call_candidate(self.source.draw())

    def time(self, baselines: Sequence[str], plan: timing.Plan) -> Reading:
        """Time baselines (and the candidate) in interleaved blocks, with what the candidate left out.

        A timing that is in doubt is made again, one that the host has spoilt within the plan's time. Raises Wrong,
        RunnerFault.
        """
        for mode in baselines:  # compile, map and warm up before the clock counts
            self._baseline_call(mode, self.source.draw())
        if self.candidate is not None:
            self._call_candidate(self.source.draw())
        read = self._time_bursts if self.runners.device.type == "cuda" else self._time_calls
        readings: list[Reading] = []
        start = time.monotonic()
        with _held([self.runners.on(mode, self.workload) for mode in baselines]):  # as the candidate always is
            while len(readings) < _TIMINGS:
                reading = read(baselines, plan)
                readings.append(reading)
                again = is_spoilt(reading, readings) and time.monotonic() - start < plan.time_s
                if reading.deferred_us == 0.0 and not again:
                    break
        return choose(readings)

    def _time_bursts(self, baselines: Sequence[str], plan: timing.Plan) -> Reading:
        """Time in bursts on a GPU.

        A block is a burst of calls by the device's own clock, checked against the referee's.
        """
        contenders: dict[str, RunnerHandle] = {mode: self.runners.on(mode, self.workload) for mode in baselines}
        if self.candidate is not None:
            contenders["candidate"] = self.candidate
        results = [position for _, position in result_positions(self.workload)]
        bursts = BurstClock(contenders, self.call_s, self.source.draw, self.rng, results)
        exchange_us = bursts.calibrate(next(iter(contenders)), plan.against_wall)
        if not baselines and bursts.first_us is not None and bursts.first_us > plan.hopeless_us:
            return Reading({"candidate": [bursts.first_us]}, hopeless=True)
        checks = TimedChecks(plan, self.rng)

        def block(name: str, checking: bool | None = None) -> float:
            looks = checks.burst(name) if checking is None else checking
            return bursts.block(name, partial(self._inspect_call, name, contenders[name], looks))

        samples = timing.interleave(
            list(contenders), block, plan=plan, candidate="candidate" if self.candidate else None, rng=self.rng
        )
        for _ in range(checks.owed() if self.candidate else 0):
            block("candidate", checking=True)
        experts = [mode for mode in baselines if mode in self.runners.experts]
        return Reading(
            bursts.corrected(samples, {"candidate", *experts}),
            exchange_us,
            bursts.ledger.deferred_us(samples, "candidate", "cuda"),
            bursts.clocks(),
            {name: more for name in experts if (more := bursts.surplus(name))},
            bursts.late_calls(),
            bursts.late_blocks(),
        )

    def _inspect_call(self, name: str, contender: RunnerHandle, checking: bool, call: Call) -> None:
        """Check that a call's results are those that stood as it ended; `checking`: check it in full.

        In full means the call itself, and that calls not made left no trace. Of a baseline only the last call's result
        is still there.
        """
        if name == "candidate" and not call.kept:
            message = f"workload {self.workload['id']}: wrote to the results of a call that had ended"
            raise Wrong({"kind": "late", "message": message, "workload": self.workload["id"]})
        if not checking:
            return
        if name == "candidate":
            for slot, given in call.idle:
                self._untouched(contender, slot, given)
            self._inspect(contender, call.slot, call.values, lambda: self._question(call.values))
        else:
            self._check_baseline(name, call.last_values, call.last_slot)

    def _time_calls(self, baselines: Sequence[str], plan: timing.Plan) -> Reading:
        """On a CPU: every call by the referee's clock around the exchange."""
        names: list[str] = [*baselines, *(["candidate"] if self.candidate else [])]
        first = baselines[0] if baselines else None
        probes = [
            self._baseline_call(first, self.source.draw()) if first else self._call_candidate(self.source.draw())
            for _ in range(3)
        ]
        if first is None and (least_us := min(probes) / 1e3) > plan.hopeless_us:
            return Reading({"candidate": [least_us]}, hopeless=True)
        calls = timing.calls_per_block(float(np.median(probes)) / 1e3)
        exchange_us = None
        if first is not None:
            empty = self.runners.on(first, self.workload)
            exchange_us = float(np.median([empty.empty_call() for _ in range(_EMPTY_CALLS)])) / 1e3
        checks, ledger = TimedChecks(plan, self.rng), Ledger()

        def one(name: str, checked: bool) -> float:
            spent = self._one(name, checked) / 1e3
            ledger.add(name, spent)
            return spent

        def block(name: str) -> float:
            count = timing.block_length(calls, self.rng)
            checked = checks.calls(name, count, calls)
            one(name, False)  # wakes the contender's threads and caches after another's block
            spent: list[float] = []
            for number in range(count):
                spent.append(one(name, number in checked))
                if number in checked:
                    one(name, False)
            return sum(spent) / count

        with _single_thread():
            samples = timing.interleave(
                names, block, plan=plan, candidate="candidate" if self.candidate else None, rng=self.rng
            )
            for _ in range(checks.owed() if self.candidate else 0):
                for _ in range(self.rng.randrange(calls)):
                    one("candidate", False)
                one("candidate", True)
        return Reading(samples, exchange_us, ledger.deferred_us(samples, "candidate", "cpu"))

    def _one(self, name: str, checked: bool) -> int:
        values = self.source.draw()
        if name == "candidate":
            return self._call_candidate(
                values,
                (lambda: self._question(values)) if checked else None,
            )
        spent = self._baseline_call(name, values)
        if checked:
            slot = self._turn % len(self.runners.on(name, self.workload).slots)
            self._check_baseline(name, values, slot)
        return spent

    def _next_slot(self, contender: RunnerHandle) -> int:
        self._turn += 1
        return self._turn % len(contender.slots)

    def _baseline_call(self, mode: str, values: Values) -> int:
        runner = self.runners.on(mode, self.workload)
        slot = self._next_slot(runner)
        runner.fill(slot, values)
        return self.runners.call(mode, self.workload, slot)

    def _check_baseline(self, mode: str, values: Values, slot: int) -> None:
        runner = self.runners.on(mode, self.workload)
        runner.deliver()
        found = [runner.slots[slot].tensor(position).clone() for _, position in result_positions(self.workload)]
        asked = self._question(values)
        expert = mode in self.runners.experts  # judged as a candidate is: it is then no baseline any more
        compared = (
            check_answer(self.runners, self.workload, asked, found)
            if expert
            else self.runners.check(found, asked.expected, asked.limits)
        )
        if not all(comparison.passed for comparison in compared):
            self.baseline_misses[mode] = self.baseline_misses.get(mode, 0) + 1

    def _question(self, values: Values) -> Question:
        return declared_on(self.runners, self.workload, values)

    def _call_candidate(
        self,
        values: Values,
        asked: Callable[[], Question] | None = None,
        *,
        closing: bool = False,
        one_core: bool = False,
        longer: int = 1,
        left: Sequence[torch.Tensor] | None = None,
        right: Sequence[torch.Tensor] | None = None,
    ) -> int:
        candidate = self.candidate
        assert candidate is not None
        slot = self._next_slot(candidate)
        candidate.fill(slot, values)
        if left is not None:
            count = len(self.workload["outputs"])
            for (_, position), result in zip(result_positions(self.workload)[:count], left[:count], strict=True):
                candidate.slots[slot].leave_one(position, result, self.rng)
        if one_core:  # threads that wait by spinning wait for a turn of each of them
            spent = candidate.call_on_one_core(slot, self.call_s * torch.get_num_threads())
        else:
            spent = candidate.call(slot, self.call_s * longer, closing)
        if asked is not None:
            self._inspect(candidate, slot, values, asked, right)
            if not closing and not one_core and self.runners.device.type == "cpu":
                candidate.look_for_state()
        return spent

    def _untouched(self, candidate: RunnerHandle, slot: int, values: Values) -> None:
        """Look at a slot that was filled and not called. Raises Wrong."""
        place, memory = self.workload["id"], candidate.slots[slot]
        for name, position in result_positions(self.workload):
            value = values[position] if position < len(values) else None
            found = memory.tensor(position)
            same = (
                memory.is_poison(position) if value is None else first_difference(found, value.to(found.dtype)) is None
            )
            if not same:
                message = f"workload {place}: wrote to {name} of a call that was not made"
                raise Wrong({"kind": "ahead", "message": message, "workload": place, "tensor": name})

    def _inspect(
        self,
        candidate: RunnerHandle,
        slot: int,
        values: Values,
        ask: Callable[[], Question],
        right: Sequence[torch.Tensor] | None = None,
    ) -> None:
        """Look at everything that a call may have touched. Raises Wrong.

        Everything is read before the question is put: what comes later does not count, and on a GPU the references that
        answer may work in the same slots.
        """
        workload, positions = self.workload, result_positions(self.workload)
        outside, changed, found = self._read(candidate, slot, values)
        asked = ask()
        if self.elsewhere:
            asked = replace(asked, limits=list(map(elsewhere, asked.limits, found)))
        place = asked.place
        where: Failure = {"kind": "", "message": "", "workload": workload["id"]}
        if asked.family is not None:
            where["family"] = asked.family
        refuse_touched(outside, changed, place, where)
        if right is not None and all(first_difference(*pair) is None for pair in zip(found, right, strict=True)):
            return
        compared = check_answer(self.runners, workload, asked, found)
        judged = zip(positions, found, asked.expected, asked.limits, compared, strict=True)
        for (name, _), result, wanted, limit, comparison in judged:
            self.candidate_l2 = max(self.candidate_l2 or 0.0, comparison.l2)
            absolute = math.inf if comparison.largest is None else comparison.largest
            self.candidate_absolute = max(self.candidate_absolute or 0.0, absolute)
            if not comparison.passed:
                own = limit is not None and limit.own is not None
                failure: Failure = {**where, **wrong_value(comparison, place, name, own)}
                raise Wrong(described(failure, result, wanted, limit))

    def _read(
        self, candidate: RunnerHandle, slot: int, values: Values
    ) -> tuple[str | None, tuple[str, list[int]] | None, list[torch.Tensor]]:
        """Read a slot after its call.

        What was written out of bounds, the input that was changed and where, and copies of the results.
        """
        memory = candidate.slots[slot]
        outside, changed = memory.broken_guard(), modified_input(memory, self.workload, values)
        return outside, changed, [memory.tensor(position).clone() for _, position in result_positions(self.workload)]

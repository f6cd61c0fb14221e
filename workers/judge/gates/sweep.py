"""The sweep: times a candidate's configurations on the bench workloads, and goes on with the fastest.

Successive halving (K. Jamieson and A. Talwalkar, "Non-stochastic best arm identification and hyperparameter
optimization", AISTATS 2016): each round times what is left, on twice the calls, and keeps the better half by the mean
over the workloads, and beside it the fastest on each workload. Every timing checks calls in full, so a configuration
that is wrong is out. All that the sweep decides is which configuration is judged: that one passes every gate like any
candidate, on values and under a clock of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.job.means import weight_of
from warpsmith.kernels_db.job.sweep_documents import SWEEP_S, SweptConfiguration, mean_ratio
from warpsmith.workers.judge.clock import timing
from warpsmith.workers.judge.gates.candidates import Variant, refuse_twin
from warpsmith.workers.judge.gates.job_run import JobRun, candidate_at_fault
from warpsmith.workers.judge.gates.verdict import Stopped
from warpsmith.workers.judge.gates.workload_run import WorkloadRun
from warpsmith.workers.judge.machine.timing_guard import QUIET

ROUNDS = 4
FIRST_BLOCKS = 3
"""Blocks of a workload's timing in the first round; each round doubles them."""

LAST = 2
"""Configurations after which nothing more is to be told apart that the verdict's own timing would not."""

LONGEST_FAILURE = 300


@dataclass
class _Entry:
    variant: Variant
    history: list[dict[str, float]] = field(default_factory=list)
    failure: Stopped | None = None

    @property
    def rounds(self) -> int:
        """How many rounds timed it."""
        return len(self.history)

    @property
    def time_us(self) -> dict[str, float]:
        """Its latest times; nothing where it is out."""
        return self.history[-1] if self.history and self.failure is None else {}

    def beside(self, chosen: _Entry) -> dict[str, float]:
        """Return its times as they would be in the chosen one's last round.

        The machine may have been slower in one round than in another, so it is compared within its own last one.
        """
        if not self.time_us:
            return {}
        then, last = chosen.history[self.rounds - 1], chosen.time_us
        return {name: value * last[name] / then[name] for name, value in self.time_us.items()}

    def document(self, chosen: _Entry) -> SweptConfiguration:
        """Write it for the verdict, beside the chosen one."""
        found: SweptConfiguration = {
            "values": dict(self.variant.values),
            "time_us": {name: round(value, 3) for name, value in self.beside(chosen).items()},
            "rounds": self.rounds,
        }
        if self.failure is not None:
            found["failure"] = str(self.failure)[:LONGEST_FAILURE]
        return found


class _Held:
    """The device seconds of one sweep, and the limit that its job sets them."""

    def __init__(self, job_run: JobRun) -> None:
        self._report, self._on_gpu = job_run.report, job_run.on_gpu
        self._limit = job_run.job["limits"].get("sweep_s")
        self._before = self._report.seconds.get("exclusive", 0.0)
        self._start = self._end = 0.0
        self.ended = False
        """Whether the job's limit ended the sweep."""

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count from here on. A GPU is held for all of what is inside, a CPU while a clock runs."""
        self._start = time.monotonic()
        try:
            yield
        finally:
            self._end = time.monotonic()

    @property
    def seconds(self) -> float:
        """Device seconds so far."""
        if not self._on_gpu:
            return self._report.seconds.get("exclusive", 0.0) - self._before
        return (self._end or time.monotonic()) - self._start if self._start else 0.0

    def is_over(self) -> bool:
        """Check whether the job's limit, or that of every sweep, is reached."""
        seconds = self.seconds
        self.ended = self.ended or (self._limit is not None and seconds >= self._limit)
        return self.ended or seconds >= SWEEP_S


def sweep(job_run: JobRun) -> None:
    """Choose the fastest configuration of a candidate that leaves some open; the job goes on with it.

    Raises Stopped where none is right, ForkServerDied.
    """
    variants = () if job_run.prepared is None else job_run.prepared.variants
    workloads = job_run.timed_workloads()
    if not variants or not workloads:
        return
    started = time.monotonic()
    built = [variant for variant in variants if variant.prepared is not None or variant.refused is not None]
    entries = [_Entry(variant, failure=variant.refused) for variant in built]
    weights = {workload["id"]: weight_of(workload) for workload in workloads}
    held = _Held(job_run)
    try:
        with job_run.report.gate("time"), job_run.on_device(), held.counting():
            started = time.monotonic()  # a wait for the device is no part of the sweep
            _halve(job_run, entries, workloads, weights, held)
    finally:
        job_run.report.sweep_seconds = round(held.seconds, 4)
    timed = [entry for entry in entries if entry.failure is None and entry.rounds]
    if not timed:
        raise next(entry.failure for entry in entries if entry.failure is not None)
    last = max(entry.rounds for entry in timed)
    final = [entry for entry in timed if entry.rounds == last]
    chosen = min(final, key=lambda entry: mean_ratio(entry.time_us, final[0].time_us, weights))
    left_out = len(variants) - sum(entry.failure is not None or entry.rounds > 0 for entry in entries)
    known = [entry for entry in entries if entry.failure is not None or entry.rounds]

    def place(entry: _Entry) -> tuple[bool, float]:
        times = entry.beside(chosen)
        return entry is not chosen, mean_ratio(times, chosen.time_us, weights) if times else float("inf")

    known.sort(key=place)
    job_run.report.sweep = {
        "chosen": dict(chosen.variant.values),
        "configurations": [entry.document(chosen) for entry in known],
        "seconds": round(time.monotonic() - started, 3),
    }
    if left_out:
        job_run.report.sweep["left_out"] = left_out
    if held.ended:
        job_run.report.sweep["limit_s"] = job_run.job["limits"]["sweep_s"]
        untimed = f"{left_out} of {len(variants)} configurations not timed" if left_out else "before its last round"
        job_run.note(f"limits.sweep_s: the sweep ended after {held.seconds:.3g} device seconds, {untimed}")
    job_run.choose(chosen.variant)
    refuse_twin(job_run.job, (job_run.report.compile or {}).get("digest"))


def _halve(
    job_run: JobRun,
    entries: Sequence[_Entry],
    workloads: Sequence[ResolvedWorkload],
    weights: dict[str, float],
    held: _Held,
) -> None:
    left = [entry for entry in entries if entry.failure is None]
    for number in range(ROUNDS):
        blocks = FIRST_BLOCKS << number
        plan = timing.Plan(blocks, blocks, job_run.job["limits"]["time_s"], 1, 0.9, 0.0)
        # The default comes first, so that there is always one to go on with; the rest in any order.
        others = left[1:]
        job_run.rng.shuffle(others)
        for entry in [*left[:1], *others]:
            if any(known.rounds for known in entries) and held.is_over():
                return
            _time(job_run, entry, workloads, plan)
        left = [entry for entry in left if entry.failure is None]
        if len(left) <= LAST:
            return
        first = left[0].time_us
        left.sort(key=lambda entry: mean_ratio(entry.time_us, first, weights))
        fastest = {id(min(left, key=lambda entry: entry.time_us[name])) for name in weights}
        half = (len(left) + 1) // 2
        left = left[:half] + [entry for entry in left[half:] if id(entry) in fastest]


def _time(job_run: JobRun, entry: _Entry, workloads: Sequence[ResolvedWorkload], plan: timing.Plan) -> None:
    """Time one configuration on every workload, in a runner of its own; a failure is kept with it."""
    found: dict[str, float] = {}
    try:
        with job_run.variant(entry.variant) as runner:
            for workload in workloads:
                source = job_run.source(workload)
                with job_run.exclusive(), QUIET.timing(), candidate_at_fault("screen", workload):
                    job_run.bind_for_timing(runner, workload)
                    calls = WorkloadRun(
                        workload, job_run.runners, runner, job_run.job["limits"]["call_s"], source, job_run.rng
                    )
                    found[workload["id"]] = float(np.median(calls.time([], plan).samples["candidate"]))
    except Stopped as stopped:
        entry.failure = stopped
        return
    entry.history.append(found)

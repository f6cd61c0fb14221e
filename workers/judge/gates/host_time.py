"""What one call costs the calling thread: of the candidate, of its launch plan, and of the reference in eager mode.

At the smallest verified shape, as an exported package measures itself (`overhead.py`): many calls one after another,
the device waited for outside of the time, by the referee's clock around all of them. In a runner of its own, when all
else is decided: what is measured here decides nothing, and a failure costs the figure alone.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import NamedTuple

from warpsmith.kernels_db.job.documents import HostTime, ResolvedWorkload, tier_of
from warpsmith.kernels_db.runtime.errors import CompileError
from warpsmith.workers.judge.gates.job_run import JobRun
from warpsmith.workers.judge.gates.verdict import Stopped
from warpsmith.workers.judge.machine.buffers import layout_bytes
from warpsmith.workers.judge.machine.timing_guard import QUIET
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle
from warpsmith.workers.judge.sandbox.sandbox import NotConfined
from warpsmith.workers.judge.values.workload_specs import input_specs, result_specs

ROUNDS, ROUND_S = 7, 0.01
MOST_CALLS = {"cpu": 1000, "cuda": 50}
"""Calls of a round: the queue of a GPU takes about a thousand launches, and a full one would be waited for."""
FIRST_CALLS, EMPTY_CALLS = 5, 3
COPIED_BYTES = 64 << 20
"""Of arguments that calls write to: each has its own."""
PLAN_S = 60.0
"""Of making a plan, beside its calls."""


LONGEST_REASON = 500


class _Variant(NamedTuple):
    """Calls of a runner's `run`, or by a launch plan, which needs the extension."""

    runner: RunnerHandle
    extension: Path | None = None


def measure(job_run: JobRun) -> None:
    """Put the host's time of a call on the verdict; where that fails, a note."""
    known = [workload for workload in job_run.workloads if workload["role"] != "holdout"]
    if not known:
        return
    workload = min(known, key=lambda each: each["min_bytes"])
    try:
        with job_run.candidate() as candidate, job_run.report.gate("time"):
            job_run.report.host_us = _measured(job_run, candidate, workload)
    except (Stopped, RunnerFault, NotConfined) as error:
        job_run.note(f"what a call costs the host was not measured: {error}")


def _measured(job_run: JobRun, candidate: RunnerHandle, workload: ResolvedWorkload) -> HostTime:
    """Time the variants in turns. Raises RunnerFault."""
    candidate.bind(input_specs(workload), result_specs(workload), 1)
    eager = job_run.runners.on("eager", workload)
    values = job_run.source(workload).draw()
    for runner in (candidate, eager):
        runner.fill(0, values)
    clock = _Clock(job_run, workload)
    variants = {"run": _Variant(candidate), "eager": _Variant(eager)}
    planned, why = _planned(job_run, clock, candidate)
    if planned is not None:
        variants["plan"] = planned
    rounds: dict[str, list[float]] = {name: [] for name in variants}
    with job_run.exclusive(), QUIET.timing():
        counts = {name: clock.count(variant) for name, variant in variants.items()}
        for _ in range(ROUNDS):
            for name, variant in variants.items():
                rounds[name].append(clock.time(variant, counts[name]))
    found = {name: round(statistics.median(times), 2) for name, times in rounds.items()}
    host: HostTime = {"workload": workload["id"], "run": found["run"], "eager": found["eager"]}
    if planned is None:
        host["unplanned"] = str(why)[:LONGEST_REASON]
    else:
        host["plan"] = found["plan"]
        host["launches"] = clock.launches
    return host


def _planned(job_run: JobRun, clock: _Clock, candidate: RunnerHandle) -> tuple[_Variant | None, str]:
    """Return calls by a launch plan; None, and why there is no plan."""
    assert job_run.job["candidate"] is not None
    if tier_of(job_run.job["candidate"]["language"]) == "sandbox":
        return None, "free Python is not exported"
    try:
        variant = _Variant(candidate, job_run.bench.plan_extension())
    except CompileError as error:
        return None, error.message
    why = clock.ready(variant, 1)
    return (variant, "") if why is None else (None, why)


class _Clock:
    """Readies calls on a workload, and times them. launches: those of the plan that was made last."""

    def __init__(self, job_run: JobRun, workload: ResolvedWorkload) -> None:
        self.launches = 0
        self._call_s = job_run.job["limits"]["call_s"]
        self._mutated = [place for place, item in enumerate(workload["inputs"]) if item["mutated"]]
        self._most = MOST_CALLS[job_run.device.type]
        if self._mutated:
            size = layout_bytes([*input_specs(workload), *result_specs(workload)])
            self._most = max(1, min(self._most, COPIED_BYTES // size))

    def ready(self, variant: _Variant, calls: int) -> str | None:
        """Ready calls; returns why there is no plan for them. Raises RunnerFault."""
        runner, extension = variant
        told = runner.ready_host_calls(0, calls, self._mutated, PLAN_S + calls * self._call_s, extension)
        launches = told.get("launches")
        if extension is None:
            return None
        if not isinstance(launches, int):
            return str(told.get("unplanned"))
        self.launches = launches
        return None

    def count(self, variant: _Variant) -> int:
        """Return how many calls make a round. Raises RunnerFault."""
        few = min(FIRST_CALLS, self._most)
        self.time(variant, few)
        return min(self._most, max(few, int(ROUND_S * 1e6 / max(self.time(variant, few), 0.1))))

    def time(self, variant: _Variant, calls: int) -> float:
        """Return microseconds of one of these calls, less its part of an exchange. Raises RunnerFault."""
        runner = variant.runner
        self.ready(variant, calls)
        empty = statistics.median(runner.empty_call() for _ in range(EMPTY_CALLS))
        return max(0.0, (runner.host_calls(calls * self._call_s) - empty) / calls / 1e3)

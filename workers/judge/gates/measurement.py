"""The gates that look at times.

Baselines and candidate on one workload, and whether the time is to be believed.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from warpsmith.kernels_db.job.documents import Failure, ResolvedWorkload, WorkloadVerdict
from warpsmith.workers.judge.clock import quarantine, timing
from warpsmith.workers.judge.gates.job_run import JobRun, candidate_at_fault
from warpsmith.workers.judge.gates.verdict import Stopped
from warpsmith.workers.judge.gates.workload_run import WorkloadRun
from warpsmith.workers.judge.machine.host import BUSY
from warpsmith.workers.judge.machine.timing_guard import QUIET
from warpsmith.workers.judge.reference.baselines import baseline_modes
from warpsmith.workers.judge.reference.read_shares import least_bytes
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.runner.limits import Mode
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle

RANKED = "a screen times the fastest baseline alone, which a timing of all found"
"""Why a screen leaves a baseline out that runs."""


def measure(
    job_run: JobRun, workload: ResolvedWorkload, candidate: RunnerHandle | None
) -> tuple[list[float], list[float]]:
    """Return samples of the fastest baseline and of the candidate (empty without one)."""
    job, runners = job_run.job, job_run.runners
    job_run.enter("time", workload)
    plan = timing.plan_for(job["level"] == "verify", job_run.device.type, job["limits"]["time_s"])
    modes = baseline_modes(job["op"])
    if job["level"] == "screen":
        modes = runners.to_beat(workload, modes)
    modes = available(job_run, workload, modes)  # compiling needs no clock of its own
    _note_untimed(job_run, workload, modes)
    source = job_run.source(workload)
    moved = _as_moved(job_run, workload)
    with job_run.exclusive(), QUIET.timing(), candidate_at_fault("time", workload):
        job_run.bench.peaks.measure_for(moved, job["op"]["math"], job_run.start_probe)
        if candidate is not None:
            job_run.bind_for_timing(candidate, workload)
        calls = WorkloadRun(workload, runners, candidate, job["limits"]["call_s"], source, job_run.rng)
        try:
            samples = calls.time(modes, plan)
        finally:
            job_run.note_error(workload, calls)
    _enter(job_run, workload, samples, modes)
    job_run.report.exchange_us = calls.exchange_us
    if calls.deferred_us:
        job_run.entry(workload)["deferred_us"] = round(calls.deferred_us, 3)
        share = f"{calls.deferred_us:.3g} us of {workload['id']} counted: calls that decide no time took longer"
        job_run.report.notes.append(share)
    if calls.clocks_us:
        job_run.entry(workload)["clocks_us"] = calls.clocks_us
    best = timing.fastest(samples, modes)
    medians: dict[str, float] = {mode: float(np.median(samples[mode])) for mode in modes}
    runners.note(workload, baseline_modes(job["op"]), medians)
    for mode, misses in calls.baseline_misses.items():
        times = f"in {misses} checked timed calls of {workload['id']}"
        job_run.report.notes.append(f"baseline {mode} was outside the tolerance {times}")
    return samples[best], samples.get("candidate", [])


def believe(job_run: JobRun) -> None:
    """Raise Stopped where a time is too good to be true.

    One workload is enough: a mean over all would hide it.
    """
    for workload in job_run.timed_workloads():
        entry = job_run.entry(workload)
        baseline = min(time for name, time in entry["time_us"].items() if name != "candidate")
        if _doubt(job_run, entry, baseline) is None:
            continue
        # The peak may have been measured in a bad moment, and not all of an input need be read: both are looked at
        # again before the kernel loses its own chance.
        moved = _as_moved(job_run, workload, sampled=True)
        with job_run.exclusive(), QUIET.timing():
            job_run.bench.peaks.measure_for(moved, job_run.job["op"]["math"], job_run.start_probe, again=True)
        _limit(job_run, workload, entry)
        if (doubt := _doubt(job_run, entry, baseline)) is not None:
            reason = f"workload {workload['id']}: {doubt}"
            failure: Failure = {
                "kind": "physics",
                "message": reason,
                "workload": workload["id"],
                "found": entry["time_us"]["candidate"],
                "expected": entry["limit_us"],
            }
            busiest = max(job_run.report.others, default=0.0)
            if busiest > BUSY:  # neighbours slow the probe and the baselines as they slow anything
                reason += f"; others took {busiest:.0%} of this host meanwhile: judge it again when it is quiet"
                raise Stopped("ambiguous", "physics", f"too good to be true, or to be told: {reason}", failure)
            raise Stopped("quarantined", "physics", f"too good to be true: {reason}", failure)


def _as_moved(job_run: JobRun, workload: ResolvedWorkload, *, sampled: bool = False) -> ResolvedWorkload:
    """Return the workload with the bytes that are seen to be needed of it, none more than it says."""
    needed = least_bytes(job_run.runners, workload, partial(job_run.source, workload), sampled=sampled)
    return {**workload, "min_bytes": needed}


def _doubt(job_run: JobRun, entry: WorkloadVerdict, baseline_us: float) -> str | None:
    assert entry["limit_us"] is not None
    assert entry["limit_by"] is not None
    return quarantine.decide(
        time_us=entry["time_us"]["candidate"],
        limit_us=entry["limit_us"],
        limit_by=entry["limit_by"],
        baseline_us=baseline_us,
        device=job_run.device.type,
    )


def available(job_run: JobRun, workload: ResolvedWorkload, wanted: list[Mode]) -> list[Mode]:
    """Return the baselines that run on a workload, compiled.

    Eager always does: the reference gate ran it.
    """
    modes: list[Mode] = []
    values = job_run.source(workload).draw()
    unavailable = job_run.runners.facts(workload).unavailable
    for mode in wanted:
        if mode not in unavailable:
            try:
                job_run.runners.run(mode, workload, values)
                modes.append(mode)
            except RunnerFault as fault:
                if fault.external or mode == "eager":
                    raise
                job_run.runners.drop(mode)
                unavailable[mode] = f"{fault.kind}: {(str(fault).splitlines() or [''])[0][:300]}"
        if mode in unavailable:
            job_run.note(f"baseline {mode} does not run on {workload['id']} ({unavailable[mode]})")
    if not modes and wanted != (every := baseline_modes(job_run.job["op"])):
        return available(job_run, workload, every)  # the one that was fastest once runs no more
    if not modes:
        message = f"no baseline runs on workload {workload['id']}"
        failure: Failure = {
            "kind": "raises",
            "message": message,
            "field": "op.baselines",
            "workload": workload["id"],
        }
        raise Stopped("rejected", "reference", message, failure)
    return modes


def _note_untimed(job_run: JobRun, workload: ResolvedWorkload, modes: list[Mode]) -> None:
    """Enter why each baseline of the op that is not among `modes` is not timed."""
    unavailable = job_run.runners.facts(workload).unavailable
    reasons: dict[str, str] = {
        mode: f"does not run: {unavailable[mode]}" if mode in unavailable else RANKED
        for mode in baseline_modes(job_run.job["op"])
        if mode not in modes
    }
    if reasons:
        job_run.entry(workload)["not_timed"] = reasons


def _enter(job_run: JobRun, workload: ResolvedWorkload, samples: timing.Samples, modes: list[Mode]) -> None:
    entry = job_run.entry(workload)
    entry["samples"] = {name: [round(value, 3) for value in values] for name, values in samples.items()}
    entry["time_us"] = {name: float(np.median(values)) for name, values in samples.items()}
    if "candidate" in samples:
        for mode in modes:
            ratio, interval = timing.ratio_with_interval(
                samples[mode], samples["candidate"], job_run.number(), timing.OFFSET_US[job_run.device.type]
            )
            entry["speedup"][mode] = ratio
            entry["ci95"][mode] = list(interval)
    _limit(job_run, workload, entry)


def _limit(job_run: JobRun, workload: ResolvedWorkload, entry: WorkloadVerdict) -> None:
    moved = _as_moved(job_run, workload)
    limit_us, entry["limit_by"] = job_run.bench.peaks.limit(moved, job_run.job["op"]["math"])
    entry["limit_us"] = limit_us
    judged = entry["time_us"].get("candidate", entry["time_us"].get("eager"))
    entry["limit_fraction"] = limit_us / judged if judged else None

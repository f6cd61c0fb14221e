"""The gates that look at times: baselines and candidate on one workload, and whether the time is to be believed."""

from __future__ import annotations

import numpy as np

from warpsmith.kernels_db.job.documents import Failure, ResolvedWorkload, WorkloadVerdict
from warpsmith.workers.judge.clock import quarantine, timing
from warpsmith.workers.judge.gates.job_run import Case, candidate_at_fault
from warpsmith.workers.judge.gates.verdict import Stopped
from warpsmith.workers.judge.gates.workload_run import Trial
from warpsmith.workers.judge.machine.host import BUSY
from warpsmith.workers.judge.machine.timing_guard import QUIET
from warpsmith.workers.judge.reference.baselines import (
    baseline_modes,
    input_specs,
    result_specs,
    slots_for,
    workload_key,
)
from warpsmith.workers.judge.runner.faults import ContenderFault
from warpsmith.workers.judge.runner.runner_handle import Contender, Mode


def measure(case: Case, workload: ResolvedWorkload, candidate: Contender | None) -> tuple[list[float], list[float]]:
    """Samples of the fastest baseline and of the candidate (empty without one)."""
    job, runners = case.job, case.runners
    plan = timing.plan_for(job["level"] == "verify", case.device.type, job["limits"]["time_s"])
    modes = baseline_modes(job["op"])
    if job["level"] == "screen":
        modes = runners.to_beat(workload, modes)
    modes = available(case, workload, modes)  # compiling needs no clock of its own
    source = case.source(workload)
    with case.exclusive(), QUIET.timing(), candidate_at_fault("time", workload):
        case.peaks.measure_for(workload, job["op"]["math"], case.start_probe)
        if candidate is not None:
            slots = slots_for("candidate", workload, case.device)
            candidate.bind(input_specs(workload), result_specs(workload), slots, runners.bound_to(workload))
        trial = Trial(workload, runners, candidate, job["limits"]["call_s"], source, case.rng)
        try:
            samples = trial.time(modes, plan)
        finally:
            case.note_error(workload, trial)
    _enter(case, workload, samples, modes)
    case.report.exchange_us = trial.exchange_us
    if trial.clocks_us:
        case.entry(workload)["clocks_us"] = trial.clocks_us
    best = timing.fastest(samples, modes)
    medians: dict[str, float] = {mode: float(np.median(samples[mode])) for mode in modes}
    runners.note(workload, baseline_modes(job["op"]), medians)
    for mode, misses in trial.baseline_misses.items():
        times = f"in {misses} checked timed calls of {workload['id']}"
        case.report.notes.append(f"baseline {mode} was outside the tolerance {times}")
    return samples[best], samples.get("candidate", [])


def believe(case: Case) -> None:
    """Raise Stopped where a time is too good to be true. One workload is enough: a mean over all would hide it."""
    for workload in case.bench():
        entry = case.entry(workload)
        baseline = min(time for name, time in entry["time_us"].items() if name != "candidate")
        if _doubt(case, entry, baseline) is None:
            continue
        # The peak may have been measured in a bad moment: it gets another chance before the kernel loses its own.
        with case.exclusive(), QUIET.timing():
            case.peaks.measure_for(workload, case.job["op"]["math"], case.start_probe, again=True)
        _limit(case, workload, entry)
        if (doubt := _doubt(case, entry, baseline)) is not None:
            reason = f"workload {workload['id']}: {doubt}"
            failure: Failure = {
                "kind": "physics",
                "message": reason,
                "workload": workload["id"],
                "found": entry["time_us"]["candidate"],
                "expected": entry["limit_us"],
            }
            busiest = max(case.report.others, default=0.0)
            if busiest > BUSY:  # neighbours slow the probe and the baselines as they slow anything
                reason += f"; others took {busiest:.0%} of this host meanwhile: judge it again when it is quiet"
                raise Stopped("ambiguous", "physics", f"too good to be true, or to be told: {reason}", failure)
            raise Stopped("quarantined", "physics", f"too good to be true: {reason}", failure)


def _doubt(case: Case, entry: WorkloadVerdict, baseline_us: float) -> str | None:
    assert entry["limit_us"] is not None
    assert entry["limit_by"] is not None
    return quarantine.decide(
        time_us=entry["time_us"]["candidate"],
        limit_us=entry["limit_us"],
        limit_by=entry["limit_by"],
        baseline_us=baseline_us,
        device=case.device.type,
    )


def available(case: Case, workload: ResolvedWorkload, wanted: list[Mode]) -> list[Mode]:
    """The baselines that run on a workload, compiled. Eager always does: the reference gate ran it."""
    modes: list[Mode] = []
    values = case.source(workload).draw()
    unavailable = case.runners.unavailable
    for mode in wanted:
        key = (mode, workload_key(workload))
        if key not in unavailable:
            try:
                case.runners.run(mode, workload, values)
                modes.append(mode)
            except ContenderFault as fault:
                if fault.external or mode == "eager":
                    raise
                case.runners.drop(mode)
                unavailable[key] = f"{fault.kind}: {(str(fault).splitlines() or [''])[0][:300]}"
        if key in unavailable:
            case.note(f"baseline {mode} does not run on {workload['id']} ({unavailable[key]})")
    if not modes and wanted != (every := baseline_modes(case.job["op"])):
        return available(case, workload, every)  # the one that was fastest once runs no more
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


def _enter(case: Case, workload: ResolvedWorkload, samples: timing.Samples, modes: list[Mode]) -> None:
    entry = case.entry(workload)
    entry["samples"] = {name: [round(value, 3) for value in values] for name, values in samples.items()}
    entry["time_us"] = {name: float(np.median(values)) for name, values in samples.items()}
    if "candidate" in samples:
        for mode in modes:
            ratio, interval = timing.ratio_with_interval(
                samples[mode], samples["candidate"], case.number(), timing.OFFSET_US[case.device.type]
            )
            entry["speedup"][mode] = ratio
            entry["ci95"][mode] = list(interval)
    _limit(case, workload, entry)


def _limit(case: Case, workload: ResolvedWorkload, entry: WorkloadVerdict) -> None:
    limit_us, entry["limit_by"] = case.peaks.limit(workload, case.job["op"]["math"])
    entry["limit_us"] = limit_us
    judged = entry["time_us"].get("candidate", entry["time_us"].get("eager"))
    entry["limit_fraction"] = limit_us / judged if judged else None

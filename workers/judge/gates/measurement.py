"""The gates that look at times.

Baselines and candidate on one workload, and whether the time is to be believed.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from warpsmith.kernels_db.job.documents import Failure, ResolvedWorkload, WorkloadVerdict
from warpsmith.workers.judge.clock import quarantine, timing
from warpsmith.workers.judge.gates.expert_check import find_wrong
from warpsmith.workers.judge.gates.job_run import JobRun, candidate_at_fault
from warpsmith.workers.judge.gates.reading import Reading
from warpsmith.workers.judge.gates.verdict import Stopped
from warpsmith.workers.judge.gates.workload_run import WorkloadRun
from warpsmith.workers.judge.gates.wrong import Wrong
from warpsmith.workers.judge.machine.host import BUSY
from warpsmith.workers.judge.machine.timing_guard import QUIET
from warpsmith.workers.judge.reference.baselines import WRONG, untimed_reason
from warpsmith.workers.judge.reference.read_shares import least_bytes
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle
from warpsmith.workers.judge.values.workload_specs import Values

RANKED = "a screen times the fastest baseline alone, which a timing of all found"
"""Why a screen leaves a baseline out that runs."""


_MISSING = "ModuleNotFoundError: "


def measure(
    job_run: JobRun, workload: ResolvedWorkload, candidate: RunnerHandle | None
) -> tuple[list[float], list[float]]:
    """Return samples of the fastest baseline and of the candidate (empty without one)."""
    job, runners = job_run.job, job_run.runners
    job_run.enter("time", workload)
    plan = timing.plan_for(job["level"] == "verify", job_run.device.type, job["limits"]["time_s"])
    modes = job["op"]["baselines"]
    if job["level"] == "screen":
        modes = runners.to_beat(workload, modes)
    moved = _as_moved(job_run, workload)
    doubted: set[str] = set()
    while True:
        modes = available(job_run, workload, modes)  # compiling needs no clock of its own
        with job_run.exclusive(), QUIET.timing(), candidate_at_fault("time", workload, carried=job_run.carried):
            job_run.bench.peaks.measure_for(moved, job["op"]["math"], job_run.start_probe)
            timed = _time(job_run, workload, candidate, modes, plan, doubted)
        if timed is not None:
            break
    calls, reading = timed
    samples = reading.samples
    _note_untimed(job_run, workload, modes)
    _enter(job_run, workload, samples, modes)
    job_run.report.exchange_us = reading.exchange_us
    if reading.deferred_us:
        job_run.entry(workload)["deferred_us"] = round(reading.deferred_us, 3)
        share = f"{reading.deferred_us:.3g} us of {workload['id']} counted: calls that decide no time took longer"
        job_run.report.notes.append(share)
    if reading.clocks_us:
        job_run.entry(workload)["clocks_us"] = reading.clocks_us
    _note_late(job_run, workload, reading)
    for name, aside_us in reading.aside_us.items():
        seen = f"{aside_us:.3g} us of {workload['id']} counted: its call does not wait for work on another stream"
        job_run.report.notes.append(f"expert {name}: {seen}")
    best = timing.fastest(samples, modes)
    medians: dict[str, float] = {mode: float(np.median(samples[mode])) for mode in modes}
    runners.note(workload, job["op"]["baselines"], medians)
    for mode, misses in calls.baseline_misses.items():  # none of an expert's
        times = f"in {misses} checked timed calls of {workload['id']}"
        job_run.report.notes.append(f"baseline {mode} was outside the tolerance {times}")
    return samples[best], samples.get("candidate", [])


def _time(
    job_run: JobRun,
    workload: ResolvedWorkload,
    candidate: RunnerHandle | None,
    modes: list[str],
    plan: timing.Plan,
    doubted: set[str],
) -> tuple[WorkloadRun, Reading] | None:
    """Time baselines and candidate together; None where they are to be timed anew.

    That is where an expert failed or was wrong, which is no baseline then: each of the others' rounds had one in it
    that does not count. An expert that is wrong beside the candidate alone may be the victim of its writes, which must
    not rid it of a baseline: it is timed again, and on the second time (`doubted` has those of the first) the candidate
    is at fault. Raises Wrong, RunnerFault.
    """
    experts = job_run.runners.experts
    if candidate is not None:
        job_run.bind_for_timing(candidate, workload)
    calls = _calls(job_run, workload, candidate)
    try:
        reading = calls.time(modes, plan)
        wrong = {name: misses for name, misses in calls.baseline_misses.items() if name in experts}
        for name, misses in wrong.items():
            alone = _misses_alone(job_run, workload, name, plan) if candidate is not None else misses
            if alone:
                _leave_out(job_run, workload, name, f"{WRONG}{alone} of its timed calls that were checked")
            elif name in doubted:
                raise _blame(workload, name)
            else:
                doubted.add(name)
    except RunnerFault as fault:
        if fault.runner not in experts:
            raise
        _leave_out(job_run, workload, fault.runner, _fault_in_words(fault))
        return None
    finally:
        job_run.note_error(workload, calls)
    return None if wrong else (calls, reading)


def _note_late(job_run: JobRun, workload: ResolvedWorkload, reading: Reading) -> None:
    """Say which calls were launched late, and whether the times are unsure for it."""
    if not reading.late_calls:
        return
    entry = job_run.entry(workload)
    entry["late_calls"] = reading.late_calls
    if reading.unsure:
        entry["unsure"] = True
        counts = ", ".join(f"{count} of {name}" for name, count in reading.late_calls.items())
        said = f"times of {workload['id']} are unsure: the host launched calls late ({counts})"
        either = "it was held up, and should be quiet when this is judged again"
        job_run.report.notes.append(f"{said}: {either}, or a call takes it longer than the device waits")


def _calls(job_run: JobRun, workload: ResolvedWorkload, candidate: RunnerHandle | None) -> WorkloadRun:
    limit_s, source = job_run.job["limits"]["call_s"], job_run.source(workload)
    return WorkloadRun(workload, job_run.runners, candidate, limit_s, source, job_run.rng)


def _misses_alone(job_run: JobRun, workload: ResolvedWorkload, name: str, plan: timing.Plan) -> int:
    """Count the checked calls, one in each block, in which an expert is wrong where no candidate is called between."""
    calls = _calls(job_run, workload, None)
    calls.time([name], replace(plan, check_baseline=1.0))  # a block that is not looked at says nothing for it
    return calls.baseline_misses.get(name, 0)


def _blame(workload: ResolvedWorkload, name: str) -> Wrong:
    """Make the refusal of a candidate beside which alone an expert is wrong."""
    place = workload["id"]
    message = (
        f"workload {place}: the expert {name} was wrong in timed calls beside this candidate, twice, and right without "
        "it: the candidate writes to memory that is not its own"
    )
    return Wrong({"kind": "out_of_bounds", "message": message, "workload": place})


def _leave_out(job_run: JobRun, workload: ResolvedWorkload, name: str, why: str) -> None:
    """End an expert that is no baseline on a workload, and keep why."""
    job_run.runners.drop(name)
    job_run.runners.facts(workload).unavailable[name] = why


def _fault_in_words(fault: RunnerFault) -> str:
    said = (str(fault).splitlines() or [""])[0][:300]
    if fault.kind == "raises" and said.startswith(_MISSING):
        return f"not_installed: {said.removeprefix(_MISSING)}"
    return f"{fault.kind}: {said}"


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


def available(job_run: JobRun, workload: ResolvedWorkload, wanted: list[str]) -> list[str]:
    """Return the baselines that run on a workload, compiled, and the experts that are right on it.

    Eager always does: the reference gate ran it.
    """
    modes: list[str] = []
    values = job_run.source(workload).draw()
    unavailable = job_run.runners.facts(workload).unavailable
    for mode in wanted:
        if mode not in unavailable:
            try:
                _try(job_run, workload, mode, values)
            except RunnerFault as fault:
                if mode not in job_run.runners.experts and (fault.external or mode == "eager"):
                    raise
                if fault.runner != mode:
                    raise  # the reference's, as it answered what an expert was asked
                _leave_out(job_run, workload, mode, _fault_in_words(fault))
        if mode in unavailable:
            _say_unavailable(job_run, workload, mode)
        else:
            modes.append(mode)
    if not modes and wanted != (every := job_run.job["op"]["baselines"]):
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


def _try(job_run: JobRun, workload: ResolvedWorkload, mode: str, values: Values) -> None:
    """Run a baseline on a workload, and see once whether an expert is right there. Raises RunnerFault."""
    facts = job_run.runners.facts(workload)
    if mode not in job_run.runners.experts or mode in facts.right:
        job_run.runners.run(mode, workload, values)
    elif (wrong := find_wrong(job_run, workload, mode)) is None:
        facts.right.add(mode)
    else:
        _leave_out(job_run, workload, mode, wrong)


def _say_unavailable(job_run: JobRun, workload: ResolvedWorkload, mode: str) -> None:
    """Have the verdict's reason say why a baseline is none on a workload."""
    reason = untimed_reason(job_run.runners.facts(workload).unavailable[mode])
    job_run.note(f"baseline {mode} {_with_place(reason, workload['id'])}")


def _with_place(reason: str, place: str) -> str:
    """Write where a baseline does not run or is wrong into why: `does not run on prefill (raises: ...)`."""
    what, _, why = reason.partition(": ")
    return f"{what} on {place} ({why})"


def _note_untimed(job_run: JobRun, workload: ResolvedWorkload, modes: list[str]) -> None:
    """Enter why each baseline of the op that is not among `modes` is not timed.

    The verdict's reason has those that do not run or are wrong, also where the store knew so and none was tried here.
    """
    unavailable = job_run.runners.facts(workload).unavailable
    reasons: dict[str, str] = {
        mode: untimed_reason(unavailable[mode]) if mode in unavailable else RANKED
        for mode in job_run.job["op"]["baselines"]
        if mode not in modes
    }
    for mode in reasons:
        if mode in unavailable:
            _say_unavailable(job_run, workload, mode)
    if reasons:
        job_run.entry(workload)["not_timed"] = reasons


def _enter(job_run: JobRun, workload: ResolvedWorkload, samples: timing.Samples, modes: list[str]) -> None:
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

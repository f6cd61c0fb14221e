"""The gates of one job after compiling: reference, admission, screen, verify, time, physics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from warpsmith.kernels_db.job.documents import (
    HOLDOUT_LEFT_OUT,
    Failure,
    Gate,
    ResolvedWorkload,
    VerdictWord,
    WorkloadVerdict,
    tier_of,
)
from warpsmith.kernels_db.job.means import weight_of
from warpsmith.workers.judge.clock import timing
from warpsmith.workers.judge.gates import host_time
from warpsmith.workers.judge.gates.attack import ask_known, attack
from warpsmith.workers.judge.gates.job_run import JobRun
from warpsmith.workers.judge.gates.measurement import available, believe, measure
from warpsmith.workers.judge.gates.sanitizing_cpp import sanitize
from warpsmith.workers.judge.gates.sanitizing_gpu import sanitizing
from warpsmith.workers.judge.gates.sweep import sweep
from warpsmith.workers.judge.gates.verdict import Stopped, wrong_value
from warpsmith.workers.judge.gates.verification import check, name_kernels, verify
from warpsmith.workers.judge.reference import admission
from warpsmith.workers.judge.reference.baselines import OpRunners
from warpsmith.workers.judge.reference.input_checks import declared
from warpsmith.workers.judge.reference.learning import ReferenceFault, learn
from warpsmith.workers.judge.reference.refusals import refusal
from warpsmith.workers.judge.reference.spec_warnings import warnings_of
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle
from warpsmith.workers.judge.values import families
from warpsmith.workers.judge.values.steps import ELSEWHERE
from warpsmith.workers.judge.values.workload_specs import result_positions

SCREEN_SEEDS, VERIFY_SEEDS = 2, 3

NOT_TIMED = "on a GPU the runner's own process arms bursts, flushes the cache and reads events, and free Python owns it"

Outcome = tuple[VerdictWord, Gate, str, Failure | None]


def pass_gates(job_run: JobRun) -> Outcome:
    """Take an open job through its gates, in order. Raises Stopped."""
    check_reference(job_run)
    if job_run.job["candidate"] is None:
        return _examine(job_run)
    outcome = _contest(job_run)
    if outcome[0] == "accepted" and job_run.job["level"] == "verify":
        with job_run.on_device():
            host_time.measure(job_run)
    return outcome


def check_reference(job_run: JobRun) -> None:
    """Check the reference on every workload and derive the tolerances. Raises Stopped."""
    with job_run.report.gate("reference"), job_run.on_device():
        for workload in list(job_run.workloads):
            job_run.enter("reference", workload)
            if workload.get("derived"):
                try:
                    learn(job_run.runners, workload, job_run.sources)
                except ReferenceFault as fault:
                    job_run.workloads.remove(workload)
                    where = ", ".join(f"{name} {size}" for name, size in workload["axes"].items())
                    job_run.report.notes.append(f"hold-out at {where} {HOLDOUT_LEFT_OUT} ({fault})")
                    continue
            with _reference_at_fault(workload):
                learn(job_run.runners, workload, job_run.sources)
            job_run.report.workloads.append(_untimed(workload, job_run.runners))


def _examine(job_run: JobRun) -> Outcome:
    """Examine the op and time its baselines, without a candidate. Raises Stopped."""
    with job_run.on_device():
        _admit(job_run)
        return _timed(job_run, None)


def _contest(job_run: JobRun) -> Outcome:
    """Take the candidate through screen, verify and time. Raises Stopped."""
    verifies, interpreted = job_run.job["level"] == "verify", job_run.interpreted
    sweep(job_run)
    with job_run.candidate() as candidate, job_run.on_device(), sanitizing(job_run) as sanitized:
        screened = job_run.workloads if interpreted else job_run.timed_workloads() or job_run.workloads
        if not screened:
            raise Stopped("ambiguous", "screen", "no workload is left to check the candidate on: nothing was checked")
        with job_run.counting(candidate, "screen"):
            ask_known(job_run, candidate, job_run.workloads)
            check(job_run, candidate, screened, SCREEN_SEEDS, "screen")
        if verifies:
            with job_run.counting(candidate, "verify"):
                check(job_run, candidate, job_run.workloads, VERIFY_SEEDS, "verify")
                verify(job_run, candidate, interpreted)
                attack(job_run, candidate)
                sanitize(job_run, candidate)
            with job_run.report.gate("verify"):
                sanitized()
        if _unclocked(job_run):
            return "ambiguous", "time", f"right on {_checked(job_run)}, not timed: {NOT_TIMED}", None
        with job_run.counting(candidate, "time"):
            outcome = _timed(job_run, candidate)
        if verifies and job_run.on_gpu:
            with job_run.counting(candidate, "verify"):
                name_kernels(job_run, candidate)
        return outcome


def _unclocked(job_run: JobRun) -> bool:
    """Check whether no time of this candidate could be believed."""
    candidate = job_run.job["candidate"]
    return candidate is not None and tier_of(candidate["language"]) == "sandbox" and job_run.device.type == "cuda"


def _checked(job_run: JobRun) -> str:
    """Say what the candidate was checked on."""
    if job_run.job["level"] == "verify":
        return "every workload"
    if job_run.timed_workloads():
        return "the bench workloads"
    names = ", ".join(workload["id"] for workload in job_run.workloads if workload["role"] != "holdout")
    hidden = sum(workload["role"] == "holdout" for workload in job_run.workloads)
    return " and ".join([*([names] if names else []), *([f"{hidden} hold-outs"] if hidden else [])])


def _timed(job_run: JobRun, candidate: RunnerHandle | None) -> Outcome:
    if not job_run.job["target"].startswith(job_run.device.type):
        return "ambiguous", "time", _no_device(job_run), None
    with job_run.report.gate("time"):
        timed = job_run.timed_workloads()
        scored = [measure(job_run, workload, candidate) for workload in timed]
    if candidate is None:
        _keep_generated(job_run)
        return "accepted", "time", "the reference is sound and the baselines are measured", None
    believe(job_run)
    checked = _checked(job_run)
    if not scored:
        return "accepted", "time", f"right on {checked}; no bench workload, so nothing was timed", None
    job_run.report.score, interval = timing.score(
        scored, job_run.number(), timing.OFFSET_US[job_run.device.type], [weight_of(workload) for workload in timed]
    )
    interval = own_interval([job_run.entry(workload) for workload in timed]) or interval
    job_run.report.score_ci95 = list(interval)
    spread = f"{interval[0]:.3g} to {interval[1]:.3g}"
    reason = f"right on {checked}; {job_run.report.score:.3g} times as fast as the fastest baseline ({spread})"
    return "accepted", "time", reason, None


def own_interval(entries: Sequence[WorkloadVerdict]) -> tuple[float, float] | None:
    """Return the interval of a single workload over its fastest baseline; None of several workloads.

    The score is that very ratio then, and other draws of one bootstrap would give another interval.
    """
    if len(entries) != 1:
        return None
    (entry,) = entries
    low, high = entry["ci95"][min(entry["ci95"], key=entry["time_us"].__getitem__)]
    return low, high


def _keep_generated(job_run: JobRun) -> None:
    """Put what torch.compile generated for the largest timed workload on the verdict."""
    if "compile" not in job_run.job["op"]["baselines"]:
        return
    for workload in sorted(job_run.timed_workloads(), key=families.elements, reverse=True):
        found = job_run.runners.facts(workload).generated
        if found is not None:
            job_run.report.generated = found
            return


def _admit(job_run: JobRun) -> None:
    """Check that the spec tells wrong answers from right ones, and accepts PyTorch's own.

    Raises Stopped.
    """
    with job_run.report.gate("admission"):
        job = job_run.job
        job_run.report.admission = admission.examine(
            job["op"], job_run.workloads, job_run.runners, job_run.sources, job_run.rng
        )
        if (failure := refusal(job_run.report.admission)) is not None:
            raise Stopped("rejected", "admission", failure["message"], failure)
        for warning in warnings_of(job_run.workloads, job_run.runners):
            job_run.note(warning)
        if job["target"].startswith(job_run.device.type):
            _compiled_passes(job_run)


def _compiled_passes(job_run: JobRun) -> None:
    """Raise Stopped where compiled PyTorch misses the op's own tolerance: so would most kernels.

    Where it misses a derived tolerance, the report only notes it.
    """
    workload = min(job_run.timed_workloads() or job_run.workloads, key=families.elements)
    own = [mode for mode in job_run.job["op"]["baselines"] if mode not in job_run.runners.experts]
    modes = available(job_run, workload, own)
    question = declared(job_run.runners, workload, job_run.source(workload))
    for mode in modes:
        found = job_run.runners.run(mode, workload, question.values)
        compared = job_run.runners.check(found, question.expected, question.limits)
        for (name, _), limit, one in zip(result_positions(workload), question.limits, compared, strict=True):
            if one.passed:
                continue
            wrong = wrong_value(one, question.place, name, limit is not None and limit.own is not None)
            if limit is None or limit.own is None:
                job_run.note(f"baseline {mode} is outside the tolerance: {wrong['message']}")
                continue
            message = f"PyTorch itself ({mode}) misses the op's own tolerance: {wrong['message']}"
            expected = "a tolerance that PyTorch meets, or none, to have it derived from PyTorch's own error"
            failure: Failure = {**wrong, "kind": "admission", "message": message, "expected": expected}
            raise Stopped("rejected", "admission", message, {**failure, "field": f"outputs.{name}.tolerance"})


@contextmanager
def _reference_at_fault(workload: ResolvedWorkload) -> Iterator[None]:
    """Turn the reference's fault inside into the end of the job."""
    try:
        yield
    except ReferenceFault as fault:
        message = f"reference: {fault} (workload {workload['id']})"
        failure: Failure = {
            "kind": fault.kind,
            "message": message,
            "field": "reference",
            "workload": workload["id"],
            "found": fault.details.get("found"),
            "expected": fault.details.get("expected"),
        }
        if fault.details.get("log"):
            failure["log"] = str(fault.details["log"])
        raise Stopped("rejected", "reference", message, failure) from fault


def _untimed(workload: ResolvedWorkload, runners: OpRunners) -> WorkloadVerdict:
    limits = [limit for limit in runners.limits(workload) if limit is not None]
    untimed: WorkloadVerdict = {
        "id": workload["id"],
        "role": workload["role"],
        "error": {
            "candidate": None,
            "eager": max((limit.eager_l2 for limit in limits), default=0.0),
            "limit": max((limit.l2 for limit in limits if limit.own is None), default=None),
        },
        "time_us": {},
        "speedup": {},
        "ci95": {},
        "limit_us": None,
        "limit_by": None,
        "limit_fraction": None,
        "samples": {},
    }
    if "weight" in workload:
        untimed["weight"] = workload["weight"]
    return untimed


def _no_device(job_run: JobRun) -> str:
    """List what was done without the device of the target. Hold-outs are counted, not named."""
    if job_run.prepared is None:
        return "no CUDA device: the reference was checked on the CPU, nothing was timed"
    arch = job_run.job["target"].partition(":")[2]
    named = [workload["id"] for workload in job_run.workloads if workload["role"] != "holdout"]
    hidden = len(job_run.workloads) - len(named)
    checked = named + ([f"{hidden} hold-out{'s' if hidden > 1 else ''}"] if hidden else [])
    where = f"under Triton's interpreter on {' and '.join(checked)}"
    floats = any(item["dtype"] in ("float32", "float64") for item in job_run.workloads[0]["outputs"])
    wide = f", floats with {ELSEWHERE:g} times the tolerance by this CPU's error" if floats else ""
    return f"no CUDA device: checked {where}{wide}, compiled for {arch}, not timed"

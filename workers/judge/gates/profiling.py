"""Profile a candidate on request: what a few calls on the largest bench workload run.

The profile also tells for how long.

The candidate passes the gates `gate` and `compile`, and is confined as always; its results are not checked and nothing
is timed against anything. All numbers are the runner's word, so the verdict is `ambiguous`: a profile decides nothing.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

from warpsmith.kernels_db.job.documents import Failure, Nsight, ResolvedWorkload, tier_of
from warpsmith.workers.judge.gates import traces
from warpsmith.workers.judge.gates.gates import Outcome
from warpsmith.workers.judge.gates.job_run import JobRun
from warpsmith.workers.judge.gates.verdict import Stopped
from warpsmith.workers.judge.gates.verification import TRACING_S
from warpsmith.workers.judge.values import families

CALLS = 5
"""Profiled calls, after one that wakes threads and code."""

Measure = Callable[[ResolvedWorkload], Nsight]
"""Nsight Compute's metrics of the candidate on a workload, by a process of their own."""

SAID = "profiled; a profile is the runner's own word and decides nothing"


def profile(job_run: JobRun) -> Outcome:
    """Profile the candidate and put the profile on the verdict.

    It includes what Nsight Compute finds. Raises Stopped.
    """
    if job_run.interpreted or not job_run.job["target"].startswith(job_run.device.type):
        raise Stopped("ambiguous", "time", f"no {job_run.job['target']} here: there is nothing to profile")
    nsight = _nsight_of(job_run)
    with job_run.candidate() as candidate:
        workload = max(job_run.timed_workloads() or job_run.workloads, key=families.elements)
        with job_run.on_device(), job_run.bound(candidate, workload, "time"):
            limit_s = job_run.job["limits"]["call_s"]
            candidate.fill(0, job_run.source(workload).draw())
            candidate.call(0, limit_s)
            written = candidate.profile(0, CALLS, CALLS * limit_s + TRACING_S)
        try:
            told = json.loads(read_bounded(written)) if isinstance(written, Path) else written
            events = traces.read(told)
        except (OSError, ValueError, RecursionError) as error:
            reason = error if isinstance(error, traces.BadTrace) else type(error).__name__
            message = f"the runner gave no profile: {reason}"
            failure: Failure = {"kind": "protocol", "message": message, "workload": workload["id"]}
            raise Stopped("ambiguous", "time", message, failure) from error
    job_run.report.profile = {
        "workload": workload["id"],
        "calls": CALLS,
        "rows": traces.table(events),
        "trace": traces.chrome(events),
    }
    if nsight is not None:
        with job_run.on_device():
            job_run.report.profile["nsight"] = nsight(workload)
    return "ambiguous", "time", SAID, None


def _nsight_of(job_run: JobRun) -> Measure | None:
    """Nsight Compute on the candidate; None without it.

    Under ncu a process is held less than a runner, and free Python is held by nothing else: it is not measured.
    """
    candidate, prepared = job_run.job["candidate"], job_run.prepared
    if not job_run.on_gpu or candidate is None or prepared is None or tier_of(candidate["language"]) != "gated":
        return None
    ncu = job_run.bench.profiler()
    return None if ncu is None else ncu.measure_of(job_run.job, prepared.environment)


def read_bounded(path: Path) -> bytes:
    """Read a plain file that a runner wrote.

    Raises OSError for a link and for anything that is no plain file, BadTrace where it is too long.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(22, "it is no plain file")
        raw = file.read(traces.MOST_BYTES + 1)
    if len(raw) > traces.MOST_BYTES:
        raise traces.BadTrace(f"trace: found more than {traces.MOST_BYTES} bytes, expected no more")
    return raw

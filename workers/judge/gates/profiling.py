"""A profile of a candidate, made on request: what a few calls on the largest bench workload run, and for how long.

The candidate passes the gates `gate` and `compile`, and is confined as ever; its results are not checked and nothing is
timed against anything. All numbers are the runner's word, so the verdict is `ambiguous`: a profile decides nothing.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

from warpsmith.kernels_db.job.documents import Failure, Nsight, ResolvedWorkload
from warpsmith.workers.judge.gates import traces
from warpsmith.workers.judge.gates.gates import Outcome
from warpsmith.workers.judge.gates.job_run import Case, candidate_at_fault
from warpsmith.workers.judge.gates.verdict import Stopped
from warpsmith.workers.judge.gates.verification import TRACING_S
from warpsmith.workers.judge.runner.runner_handle import Contender
from warpsmith.workers.judge.values import families

CALLS = 5
"""Profiled calls, after one that wakes threads and code."""

Measure = Callable[[ResolvedWorkload], Nsight]
"""Nsight Compute's metrics of the candidate on a workload, by a process of their own."""

SAID = "profiled; a profile is the runner's own word and decides nothing"


def profile(case: Case, start_candidate: Callable[[], Contender], measure: Measure | None = None) -> Outcome:
    """Profile the candidate; the profile goes on the verdict, with what `measure` finds. Raises Stopped."""
    if case.interpreted or not case.job["target"].startswith(case.device.type):
        raise Stopped("ambiguous", "time", f"no {case.job['target']} here: there is nothing to profile")
    with case.report.gate("screen"), candidate_at_fault("screen", None):
        candidate = start_candidate()
    try:
        workload = max(case.bench() or case.workloads, key=families.elements)
        with case.on_device(), case.bound(candidate, workload, "time"):
            limit_s = case.job["limits"]["call_s"]
            candidate.fill(0, case.source(workload).draw())
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
    finally:
        candidate.close()
    case.report.profile = {
        "workload": workload["id"],
        "calls": CALLS,
        "rows": traces.table(events),
        "trace": traces.chrome(events),
    }
    if measure is not None:
        with case.on_device():
            case.report.profile["nsight"] = measure(workload)
    return "ambiguous", "time", SAID, None


def read_bounded(path: Path) -> bytes:
    """A plain file that a runner wrote. Raises OSError for a link and anything that is no plain file, BadTrace where it
    is too long.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(22, "it is no plain file")
        raw = file.read(traces.MOST_BYTES + 1)
    if len(raw) > traces.MOST_BYTES:
        raise traces.BadTrace(f"trace: found more than {traces.MOST_BYTES} bytes, expected no more")
    return raw

"""Verify the configurations of a candidate that serve some workload better than the one that its sweep chose.

Each is a candidate of its own here: the same file with other numbers, through every gate at level verify. What comes of
it stays beside the verdict; an export may ship those that were accepted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from warpsmith.kernels_db.job.documents import JobLimits, Verdict, VerifiedConfiguration
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.gate.tunables import specialise
from warpsmith.workers.queue.jobs import job_of
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.steps import Work

ROOM = 1.5
"""Time that a further verification must have, in multiples of the first: a judge that is late is killed."""


def verify_configurations(
    here: WorkerProcess, work: Work, verdict: Verdict, limits: JobLimits, check_lease: Callable[[], None], began: float
) -> None:
    """Verify what `work` names, and put it on the verdict of the candidate as it is, where that accepts.

    Device seconds count on the search's, and on those of its sweeps; where none are left no further one is begun, nor
    where the step, which began at `began` (of the monotonic clock), may not have the time. Either is said. Raises
    LeaseLost.
    """
    from warpsmith.workers.judge.protocol.client import JobRefused, JudgeDied, JudgeTimeout  # noqa: PLC0415 - model workers have no judge

    if verdict["verdict"] != "accepted" or not work.configurations:
        return
    left = work.sweep_s
    took_s = ROOM * (time.monotonic() - began)
    found: list[VerifiedConfiguration] = []
    for values in work.configurations:
        source = specialise(work.node.source or "", values)
        one: VerifiedConfiguration = {
            "values": dict(values),
            "source": source,
            "source_digest": normalised_digest(source),
            "reason": "",
        }
        found.append(one)
        left_s = here.settings.judge_job_timeout_s - (time.monotonic() - began)
        if left is not None and left <= 0.0:
            one["reason"] = "not verified: no device seconds are left for sweeps"
            continue
        if left_s < took_s:
            one["reason"] = "not verified: the step has no time left for it"
            continue
        job = job_of(replace(work, node=replace(work.node, source=source)), limits)
        try:
            judged = here.judge_job(job, check_lease, left_s)
        except (JobRefused, JudgeDied, JudgeTimeout) as error:
            one["reason"] = f"not verified: {error}"
            continue
        one["reason"], one["verdict"] = judged["reason"], _without_samples(judged)
        held_s = judged["seconds"].get("exclusive", 0.0)
        left = None if left is None else left - held_s
        for gate, seconds in judged["seconds"].items():  # its gates took that time of this step, the device's too
            verdict["seconds"][gate] = verdict["seconds"].get(gate, 0.0) + seconds
        verdict["sweep_seconds"] = verdict.get("sweep_seconds", 0.0) + held_s
    verdict["configurations"] = found


def _without_samples(verdict: Verdict) -> dict[str, Any]:
    return {**verdict, "workloads": [{**one, "samples": {}} for one in verdict["workloads"]]}

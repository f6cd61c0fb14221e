"""Verify the configurations of a candidate that serve some workload better than the one that its sweep chose.

Each is a candidate of its own here: the same file with other numbers, through every gate at level verify. What comes of
it stays beside the verdict; an export may ship those that were accepted. Workers and the judge of a bundle do it alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from warpsmith.kernels_db.job.documents import Job, Verdict, VerifiedConfiguration
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.gate.tunables import specialise
from warpsmith.workers.judge.protocol.client import JobRefused, JudgeDied, JudgeTimeout

ROOM = 1.5
"""Time that a further verification must have, in multiples of the first: a judge that is late is killed."""


def verify_configurations(
    job: Job,
    verdict: Verdict,
    configurations: Sequence[Mapping[str, int]],
    *,
    device_s: float | None,
    judge: Callable[[Job, float], Verdict],
    timeout_s: float,
    began: float,
) -> None:
    """Verify `configurations` of the candidate of `job`, and put them on its `verdict`, where that accepts.

    device_s: device seconds that they may hold together, None without a limit; where none are left no further one is
    begun, nor where the step, which has `timeout_s` seconds from `began` (of the monotonic clock), may not have the
    time. Either is said. What they held counts on the verdict's device seconds, and on those of its sweep. judge:
    judges a job within so many seconds. Raises what `judge` raises, but for a judge that makes no verdict.
    """
    candidate = job["candidate"]
    if verdict["verdict"] != "accepted" or not configurations or candidate is None:
        return
    took_s = ROOM * (time.monotonic() - began)
    found: list[VerifiedConfiguration] = []
    for values in configurations:
        source = specialise(candidate["source"], values)
        one: VerifiedConfiguration = {
            "values": dict(values),
            "source": source,
            "source_digest": normalised_digest(source),
            "reason": "",
        }
        found.append(one)
        left_s = timeout_s - (time.monotonic() - began)
        if device_s is not None and device_s <= 0.0:
            one["reason"] = "not verified: no device seconds are left for sweeps"
            continue
        if left_s < took_s:
            one["reason"] = "not verified: the step has no time left for it"
            continue
        try:
            judged = judge({**job, "candidate": {**candidate, "source": source}}, left_s)
        except (JobRefused, JudgeDied, JudgeTimeout) as error:
            one["reason"] = f"not verified: {error}"
            continue
        one["reason"], one["verdict"] = judged["reason"], _without_samples(judged)
        held_s = judged["seconds"].get("exclusive", 0.0)
        device_s = None if device_s is None else device_s - held_s
        for gate, seconds in judged["seconds"].items():  # its gates took that time of this step, the device's too
            verdict["seconds"][gate] = verdict["seconds"].get(gate, 0.0) + seconds
        verdict["sweep_seconds"] = verdict.get("sweep_seconds", 0.0) + held_s
    verdict["configurations"] = found


def _without_samples(verdict: Verdict) -> dict[str, Any]:
    return {**verdict, "workloads": [{**one, "samples": {}} for one in verdict["workloads"]]}

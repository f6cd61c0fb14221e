"""The needs of a job: which workloads it can run here, and whether they fit in memory.

Nothing is allocated before this is known.
"""

from __future__ import annotations

import math

from warpsmith.kernels_db.job.documents import Failure, Job, ResolvedWorkload
from warpsmith.kernels_db.job.memory import SHARE, needed_bytes
from warpsmith.workers.judge.gates.verdict import Stopped
from warpsmith.workers.judge.machine.device import Device
from warpsmith.workers.judge.machine.host import available_bytes

LEAST_FOR_RUNNERS = 512 << 20
GPU_RUNNER = 4 << 30
"""Host memory that a process with a CUDA context may always use."""
INTERPRETED_ELEMENTS, INTERPRETED_SECOND = 1 << 20, 1 << 16
"""Most elements for Triton's interpreter: the job's smallest workload, and its second.

All tensors count, whatever their roles. A product of a million elements may take half a minute for a call, so one is
enough.
"""
INTERPRETED_DERIVED = 2
"""Derived hold-outs of at most INTERPRETED_SECOND elements besides, the last first: those are for a candidate's own
numbers.
"""


def select(job: Job, device: Device) -> list[ResolvedWorkload]:
    """Return the workloads that this job runs.

    All of them, or, for a device that is not here, a few that are small enough for an interpreter.

    Raises Stopped where none is small enough.
    """
    if job["target"].startswith(device.kind):
        return job["workloads"]
    small = [workload for workload in job["workloads"] if _elements(workload) <= INTERPRETED_ELEMENTS]
    small.sort(key=_elements)
    if not small:
        least = min(job["workloads"], key=_elements)
        message = (
            f"no CUDA device: compiled, not checked; workload {least['id']} has {_elements(least)} elements, "
            f"the interpreter takes at most {INTERPRETED_ELEMENTS}"
        )
        raise Stopped("ambiguous", "screen", message)
    chosen = small[:1] + [workload for workload in small[1:2] if _elements(workload) <= INTERPRETED_SECOND]
    derived = [
        workload
        for workload in job["workloads"]
        if workload.get("derived") and workload not in chosen and _elements(workload) <= INTERPRETED_SECOND
    ]
    return [*chosen, *derived[-INTERPRETED_DERIVED:]]


def is_crowded(job: Job, workloads: list[ResolvedWorkload], device: Device) -> bool:
    """Check whether a workload lacks room that an empty device would have."""
    limit, ever = _limit(job, device.free_bytes()), _limit(job, device.all_bytes())
    return any(limit < needed_bytes(job["op"], workload, device.kind) <= ever for workload in workloads)


def check_memory(job: Job, workloads: list[ResolvedWorkload], device: Device) -> int:
    """Return the host memory in bytes that each runner may use besides its buffers.

    Raises Stopped where a workload does not fit on the device: rejected where it would not fit on an empty one,
    ambiguous where it would, which no candidate can help.
    """
    limit, ever = _limit(job, device.free_bytes()), _limit(job, device.all_bytes())
    most = 0
    for workload in workloads:
        needed = needed_bytes(job["op"], workload, device.kind)
        most = max(most, needed)
        if limit < needed <= ever:
            message = (
                f"workload {workload['id']} needs {needed} bytes, and {limit} are to be had now ({SHARE:.0%} of what "
                f"is free), of {ever} on an empty device"
            )
            failure: Failure = {
                "kind": "host",
                "message": message,
                "found": needed,
                "expected": f"at most {limit} bytes",
            }
            raise Stopped("ambiguous", "memory", message, failure)
        if needed > limit:
            whose = "limits.memory_bytes" if job["limits"]["memory_bytes"] else f"{SHARE:.0%} of the memory"
            message = f"workload {workload['id']} needs {needed} bytes, expected at most {ever} ({whose})"
            raise Stopped(
                "rejected",
                "memory",
                message,
                {
                    "kind": "memory",
                    "message": message,
                    "field": f"workloads.{workload['id']}",
                    "workload": workload["id"],
                    "found": needed,
                    "expected": f"at most {ever} bytes",
                },
            )
    if device.kind == "cuda":  # the buffers are the GPU's, and a context alone takes more than the least
        return max(GPU_RUNNER, int(SHARE * available_bytes()))
    return max(LEAST_FOR_RUNNERS, limit - most)


def _limit(job: Job, available: int) -> int:
    return job["limits"]["memory_bytes"] or int(SHARE * available)


def _elements(workload: ResolvedWorkload) -> int:
    shapes = [item["shape"] for item in [*workload["inputs"], *workload["outputs"]] if item["shape"] is not None]
    return sum(math.prod(shape) for shape in shapes)

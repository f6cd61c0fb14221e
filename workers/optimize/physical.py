"""The physical limits of specs on this device.

The judge measures the peaks, by its own probe and under its own clock. It is asked through its protocol, with a
tiny op whose workloads declare the bytes and operations of the real ones: a limit follows from those, the arithmetic
and the device.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch

from warpsmith.kernels_db.job.documents import Job, ResolvedInput, ResolvedWorkload, Verdict
from warpsmith.kernels_db.job.peaks import arithmetic_of
from warpsmith.kernels_db.spec.op import Op, Target
from warpsmith.kernels_db.spec.resolve import DEFAULT_LIMITS, resolve_workload
from warpsmith.workers.judge.protocol.client import JudgeClient, JudgeDied, JudgeTimeout

Limit = tuple[float, str]
"""Microseconds, and the peak that binds: "bytes" or "operations"."""
ELEMENTS = 4096
TIMEOUT_S = 300.0
_REFERENCE = "def run(x, y):\n    return x * y + x\n"


class NoLimits(RuntimeError):  # noqa: N818 - named for what happened
    """The judge measured nothing; the message says why."""


def target_of(device: torch.device) -> Target:
    """Return the device as a target."""
    if device.type == "cpu":
        return Target.parse("cpu")
    major, minor = torch.cuda.get_device_capability(device)
    return Target.parse(f"cuda:sm_{major}{minor}")


def limits(ops: Sequence[tuple[Op, str]], target: Target, cache: Path) -> list[Limit]:
    """Return the limits of each op's workload on this machine's `target`.

    `ops` pairs each op with the id of one of its workloads. Peaks that are not known yet are measured, and kept in
    `cache`. Raises NoLimits.
    """
    workloads = [resolve_workload(op, op.workload(target, chosen)) for op, chosen in ops]
    grouped: defaultdict[str, list[int]] = defaultdict(list)
    for number, ((op, _), workload) in enumerate(zip(ops, workloads, strict=True)):
        grouped[arithmetic_of(workload, op.math)].append(number)
    found: dict[int, Limit] = {}
    with JudgeClient(cache=cache) as judge:
        for arithmetic, numbers in grouped.items():
            job = _job(arithmetic, {number: workloads[number] for number in numbers}, target)
            try:
                verdict = judge.judge(job, TIMEOUT_S)
            except (JudgeDied, JudgeTimeout) as error:
                raise NoLimits(f"the judge measured no limits: {error}") from None
            found |= _told(verdict, numbers)
    return [found[number] for number in range(len(workloads))]


def _job(arithmetic: str, workloads: dict[int, ResolvedWorkload], target: Target) -> Job:
    dtype = "float32" if arithmetic == "tf32" else arithmetic
    tensors: list[ResolvedInput] = [
        {
            "name": name,
            "shape": [ELEMENTS],
            "strides": None,
            "dtype": dtype,
            "dist": {"kind": "normal"},
            "value": None,
            "mutated": False,
        }
        for name in ("x", "y")
    ]
    return {
        "id": f"job_{uuid.uuid4().hex}",
        "level": "baseline",
        "op": {
            "name": "limits",
            "digest": "limits",
            "reference": _REFERENCE,
            "math": "tf32" if arithmetic == "tf32" else "ieee",
            "library_calls": [],
            "baselines": ["eager"],
        },
        "target": str(target),
        "workloads": [
            {
                "id": str(number),
                "role": "bench",
                "axes": {},
                "inputs": tensors,
                "outputs": [{"name": "z", "shape": [ELEMENTS], "dtype": dtype, "tolerance": None}],
                "min_bytes": workload["min_bytes"],
                "flops": workload["flops"],
            }
            for number, workload in workloads.items()
        ],
        "candidate": None,
        "limits": {**DEFAULT_LIMITS, "time_s": 0.02},
    }


def _told(verdict: Verdict, numbers: Sequence[int]) -> dict[int, Limit]:
    told: dict[int, Limit] = {
        int(entry["id"]): (entry["limit_us"], entry["limit_by"])
        for entry in verdict["workloads"]
        if entry["limit_us"] is not None and entry["limit_by"] is not None
    }
    if missing := sorted(set(numbers) - told.keys()):
        raise NoLimits(f"the judge measured no limit of {len(missing)} specs: {verdict['gate']}: {verdict['reason']}")
    return told

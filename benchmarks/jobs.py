"""Judge jobs written by hand.

They are plain documents, so that a machine without pydantic or YAML can make them.
"""

from __future__ import annotations

import math
import platform
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from warpsmith.kernels_db.job.documents import (
    CandidateLanguage,
    Job,
    Level,
    ResolvedInput,
    ResolvedOutput,
    ResolvedWorkload,
)

CPU = f"cpu:{platform.machine()}"
Role = Literal["bench", "test", "holdout"]
Language = CandidateLanguage

_BYTES = {"bool": 1, "int8": 1, "uint8": 1, "float16": 2, "bfloat16": 2, "int16": 2, "float64": 8, "int64": 8}
"""Sizes of elements; every other dtype has 4 bytes."""


def tensor(
    name: str,
    shape: Sequence[int],
    *,
    dtype: str = "float32",
    strides: Sequence[int] | None = None,
    mutated: bool = False,
    **dist: Any,
) -> ResolvedInput:
    """Return an input with a distribution: normal unless `kind` and its fields say otherwise."""
    return {
        "name": name,
        "shape": list(shape),
        "strides": None if strides is None else list(strides),
        "dtype": dtype,
        "dist": dist or {"kind": "normal"},
        "value": None,
        "mutated": mutated,
    }


def scalar(name: str, value: float) -> ResolvedInput:
    """Return an input that is a number."""
    return {
        "name": name,
        "shape": None,
        "strides": None,
        "dtype": "float32",
        "dist": {},
        "value": value,
        "mutated": False,
    }


def output(
    name: str, shape: Sequence[int], *, dtype: str = "float32", tolerance: dict[str, float] | None = None
) -> ResolvedOutput:
    """Return an output."""
    return {"name": name, "shape": list(shape), "dtype": dtype, "tolerance": tolerance}


def moved_bytes(inputs: Sequence[ResolvedInput], outputs: Sequence[ResolvedOutput]) -> int:
    """Return the bytes that a kernel has to move at least.

    Each input counts once, each mutated one twice, each output once.
    """
    moved = 0
    for item in inputs:
        if item["shape"] is not None:
            moved += math.prod(item["shape"]) * _BYTES.get(item["dtype"], 4) * (2 if item["mutated"] else 1)
    return moved + sum(math.prod(item["shape"]) * _BYTES.get(item["dtype"], 4) for item in outputs)


def workload(
    name: str,
    role: Role,
    inputs: list[ResolvedInput],
    outputs: list[ResolvedOutput],
    *,
    min_bytes: int | None = None,
    flops: int | None = None,
) -> ResolvedWorkload:
    """Return a workload; `min_bytes` defaults to the bytes that its tensors need moved."""
    return {
        "id": name,
        "role": role,
        "axes": {},
        "inputs": inputs,
        "outputs": outputs,
        "min_bytes": moved_bytes(inputs, outputs) if min_bytes is None else min_bytes,
        "flops": flops,
    }


def job(
    reference: str,
    workloads: list[ResolvedWorkload],
    source: str | None = None,
    *,
    name: str = "small",
    level: Level | None = None,
    language: Language = "cpp",
    target: str = CPU,
    baselines: Sequence[str] = ("eager",),
    experts: Mapping[str, str] | None = None,
    digest: str = "0" * 64,
    call_s: float = 10.0,
    time_s: float = 0.3,
    memory_bytes: int | None = None,
) -> Job:
    """Return a job with short limits.

    `level` is screen with a source and baseline without one, unless named. `experts` are baselines too.
    """
    found: Job = {
        "id": f"job_{uuid.uuid4().hex}",
        "level": level or ("screen" if source else "baseline"),
        "op": {
            "name": name,
            "digest": digest,
            "reference": reference,
            "math": "ieee",
            "library_calls": [],
            "baselines": list(baselines),
        },
        "target": target,
        "workloads": workloads,
        "candidate": None if source is None else {"language": language, "source": source},
        "limits": {"compile_s": 60.0, "call_s": call_s, "time_s": time_s, "memory_bytes": memory_bytes},
    }
    if experts:
        found["op"]["experts"] = dict(experts)
        found["op"]["baselines"] += experts
    return found

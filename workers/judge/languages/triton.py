"""Triton candidates: kernels compiled ahead of time for a named architecture, in a process that has no GPU and needs
none.

Triton compiles a kernel for the arguments of a launch, so the process calls `run` on tensors without storage, once per
workload, and lets each launch compile and go no further. What it compiles is kept in Triton's own cache under
`cache_dir`, where a runner with the same TRITON_CACHE_DIR finds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from kernels_db.job import ResolvedWorkload
from kernels_db.runtime.cache import content_key, find, publish, workspace
from kernels_db.runtime.errors import trim_log
from workers.judge.languages.child import ask
from workers.judge.languages.prepared import CompileLimits, Prepared

_LIBRARIES_BYTES = 24 << 30  # address space that torch and LLVM map without using it
ABI = 1
"""Counts up whenever a report of the same candidate would read differently."""
DEFAULT_ARCH = "sm_90"
"""Compiled for where the target is a CPU, on which Triton candidates are interpreted."""


def triton_cache(cache_dir: Path) -> Path:
    """The directory that a runner is given as TRITON_CACHE_DIR."""
    return cache_dir / "triton"


def prepare(
    source: str,
    *,
    target_arch: str,
    cache_dir: Path,
    limits: CompileLimits,
    workloads: Sequence[ResolvedWorkload] = (),
) -> Prepared:
    """See `Language`. Without workloads the candidate is imported and nothing is compiled.

    `run` itself may fail on tensors without values; that is no compile error, and the log says so.
    """
    request = {"source": source, "arch": architecture(target_arch), "workloads": list(workloads)}
    versions = {name: metadata.version(name) for name in ("torch", "triton")}
    key = content_key({"abi": ABI, **request, **versions})
    found = find(triton_cache(cache_dir), key, ".report")
    if found is not None:
        earlier: Prepared = json.loads(found.path.read_text())
        return {**earlier, "seconds": 0.0, "cached": True}
    answer = ask(
        "workers.judge.languages.triton_child",
        request,
        cache_dir=cache_dir,
        limits=CompileLimits(limits.seconds, limits.memory_bytes + _LIBRARIES_BYTES),
        variables={"TRITON_CACHE_DIR": str(triton_cache(cache_dir)), "TRITON_INTERPRET": "0"},
    )
    prepared: Prepared = {
        "seconds": float(answer["seconds"]),
        "log": trim_log(str(answer["log"])),
        "cached": False,
        "kernels": list(answer["kernels"]),
    }
    with workspace(triton_cache(cache_dir)) as place:
        (place / "prepared").write_text(json.dumps(prepared))
        publish(triton_cache(cache_dir), key, ".report", place / "prepared", log="", seconds=prepared["seconds"])
    return prepared


def architecture(target_arch: str) -> int:
    """The compute capability, 90 for "sm_90" and for a target that is not a GPU."""
    match = re.fullmatch(r"sm_(\d{2,3})[af]?", target_arch) or re.fullmatch(r"sm_(\d{2,3})", DEFAULT_ARCH)
    assert match is not None
    return int(match[1])

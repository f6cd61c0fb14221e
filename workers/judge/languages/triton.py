"""Triton and Gluon candidates: kernels compiled ahead of time for a named architecture.

The compiling process has no GPU and needs none.

Triton compiles a kernel for the arguments of a launch, so the process calls `run` on tensors without storage, once per
workload, and lets each launch compile and go no further. The binaries are kept in Triton's own cache under `cache_dir`,
where a runner with the same TRITON_CACHE_DIR finds them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.runtime.errors import trim_log
from warpsmith.workers.judge.languages.child import ask
from warpsmith.workers.judge.languages.prepared import LIBRARIES_BYTES, CompileLimits, Prepared
from warpsmith.workers.judge.languages.reports import earlier_report, keep_report, report_key

DEFAULT_ARCH = "sm_90"
"""Compiled for where the target is a CPU, on which Triton candidates are interpreted."""


def triton_cache(cache_dir: Path) -> Path:
    """Return the directory that a runner is given as TRITON_CACHE_DIR."""
    return cache_dir / "triton"


def prepare(
    source: str,
    *,
    target_arch: str,
    cache_dir: Path,
    limits: CompileLimits,
    workloads: Sequence[ResolvedWorkload] = (),
    library_calls: Sequence[str] = (),
) -> Prepared:
    """See `Language`. Without workloads the candidate is imported and nothing is compiled.

    Where `run` fails on tensors without values for a reason of torch's own, that is no compile error; the log says so.
    """
    request = {
        "source": source,
        "arch": architecture(target_arch),
        "workloads": list(workloads),
        "library": bool(library_calls),
    }
    directory = triton_cache(cache_dir)
    key = report_key(request, "torch", "triton")
    earlier = earlier_report(directory, key)
    if earlier is not None:
        return earlier
    answer = ask(
        "warpsmith.workers.judge.languages.triton_child",
        request,
        cache_dir=cache_dir,
        limits=CompileLimits(limits.seconds, limits.memory_bytes + LIBRARIES_BYTES),
        variables={"TRITON_CACHE_DIR": str(directory), "TRITON_INTERPRET": "0"},
    )
    prepared: Prepared = {
        "seconds": float(answer["seconds"]),
        "log": trim_log(str(answer["log"])),
        "cached": False,
        "kernels": list(answer["kernels"]),
        "binaries": list(answer["binaries"]),
    }
    keep_report(directory, key, prepared)
    return prepared


def architecture(target_arch: str) -> int:
    """Return the compute capability: 90 for "sm_90" and for a target that is not a GPU."""
    match = re.fullmatch(r"sm_(\d{2,3})[af]?", target_arch) or re.fullmatch(r"sm_(\d{2,3})", DEFAULT_ARCH)
    assert match is not None
    return int(match[1])

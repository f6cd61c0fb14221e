"""CUDA candidates: each source becomes a cubin in the cache. NVRTC cannot be interrupted, so it works in a process of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernels_db.job import ResolvedWorkload
from kernels_db.runtime import CompileError, cuda
from kernels_db.runtime.errors import trim_log
from workers.candidate.sources import kernel_sources
from workers.judge.languages.child import ask
from workers.judge.languages.prepared import CompileLimits, KernelReport, Prepared, ptxas_reports


def prepare(
    source: str,
    *,
    target_arch: str,
    cache_dir: Path,
    limits: CompileLimits,
    workloads: Sequence[ResolvedWorkload] = (),  # a signature says all that CUDA needs
) -> Prepared:
    """See `Language`. Registers, spills and shared memory are those that ptxas reports."""
    entries = [entry for entry in kernel_sources(source) if entry.language == "cuda"]
    if not entries:
        raise CompileError("the candidate compiles nothing: expected `kernels = cuda.compile(<constant source>)`")
    names = [name for entry in entries for name in cuda.signatures(entry.source)]
    answer = ask(
        "workers.judge.languages.cuda_child",
        {"arch": target_arch, "sources": [{"source": entry.source, "flags": entry.flags} for entry in entries]},
        cache_dir=cache_dir,
        limits=limits,
        variables={},
    )
    builds = answer["builds"]
    reports: list[KernelReport] = [report for build in builds for report in ptxas_reports(build["log"])]
    return {
        "seconds": sum(build["seconds"] for build in builds if not build["cached"]),
        "log": trim_log("\n".join(build["log"].strip() for build in builds)),
        "cached": all(build["cached"] for build in builds),
        "kernels": [report for report in reports if report["name"] in names],
    }

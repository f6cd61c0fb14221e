"""CUDA candidates: each source becomes a cubin in the cache; `run` is tried with no device.

NVRTC cannot be interrupted, so it works in a separate process.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.runtime import CompileError, HostError, cuda
from warpsmith.kernels_db.runtime.errors import trim_log
from warpsmith.workers.gate.sources import KernelSource, kernel_sources
from warpsmith.workers.judge.languages.child import ask
from warpsmith.workers.judge.languages.prepared import (
    LIBRARIES_BYTES,
    CompileLimits,
    KernelReport,
    Prepared,
    ptxas_reports,
)
from warpsmith.workers.judge.languages.reports import earlier_report, keep_report, report_key

_LAUNCHES = 64  # of a report


def prepare(
    source: str,
    *,
    target_arch: str,
    cache_dir: Path,
    limits: CompileLimits,
    workloads: Sequence[ResolvedWorkload] = (),
    library_calls: Sequence[str] = (),
) -> Prepared:
    """Prepare a candidate, see `Language`.

    Registers, spills and shared memory are those that ptxas reports. Without workloads nothing of the candidate runs.
    """
    entries = [entry for entry in kernel_sources(source) if entry.language == "cuda"]
    if not entries:
        raise CompileError("the candidate compiles nothing: expected `kernels = cuda.compile(<constant source>)`")
    names = [name for entry in entries for name in _signatures(entry)]
    request = {
        "candidate": source,
        "arch": target_arch,
        "sources": [dataclasses.asdict(entry) for entry in entries],
        "workloads": list(workloads),
        "library": bool(library_calls),
    }
    key = report_key({**request, "toolchain": cuda.toolchain()}, "torch", "cuda-core")
    earlier = earlier_report(cache_dir, key)
    if earlier is not None:
        return earlier
    answer = ask(
        "warpsmith.workers.judge.languages.cuda_child",
        request,
        cache_dir=cache_dir,
        limits=CompileLimits(limits.seconds, limits.memory_bytes + LIBRARIES_BYTES),
        variables={},
    )
    builds = answer["builds"]
    reports: list[KernelReport] = [report for build in builds for report in ptxas_reports(build["log"])]
    logs = [*(build["log"].strip() for build in builds), answer["log"]]
    prepared: Prepared = {
        "seconds": sum(build["seconds"] for build in builds if not build["cached"]),
        "log": trim_log("\n".join(log for log in logs if log)),
        "cached": all(build["cached"] for build in builds),
        "kernels": [report for report in reports if report["name"] in names],
        "binaries": list(answer["binaries"]),
        "launches": answer["launches"][:_LAUNCHES],
    }
    keep_report(cache_dir, key, prepared)
    return prepared


def _signatures(entry: KernelSource) -> list[str]:
    try:
        return list(cuda.signatures(entry.source))
    except HostError:
        raise
    except CompileError as error:
        raise CompileError(entry.located(error.message), error.log) from error

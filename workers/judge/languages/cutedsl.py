"""CuTe DSL candidates: functions compiled ahead of time for a named architecture, for the arguments of each workload.

The compiling process has no GPU and needs none. The DSL compiles inside the process that imports the candidate, which
is a separate one, and what it built lies in the cache, where a runner finds it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.runtime import cutedsl_build
from warpsmith.kernels_db.runtime.cache import content_key
from warpsmith.kernels_db.runtime.errors import trim_log
from warpsmith.workers.judge.languages.child import ask
from warpsmith.workers.judge.languages.prepared import LIBRARIES_BYTES, CompileLimits, Prepared
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

    Without workloads the candidate is imported and nothing is compiled. Registers are the cubin's own; spills are the
    bytes of a thread's local memory, in which arrays may lie as well.
    """
    request = {
        "source": source,
        "arch": target_arch,
        "workloads": list(workloads),
        "library": bool(library_calls),
    }
    return compile_functions("cutedsl", request, cutedsl_build.facts(), cache_dir, limits, cutedsl_build.VARIABLES)


def compile_functions(
    name: str,
    request: dict[str, Any],
    facts: Mapping[str, Any],
    cache_dir: Path,
    limits: CompileLimits,
    variables: Mapping[str, str],
) -> Prepared:
    """Let the child of a language whose functions are called by tensors compile a candidate, once for each request.

    `facts`: what the report depends on beside the request.
    """
    key = report_key({**request, **facts}, "torch", "cuda-bindings")
    earlier = earlier_report(cache_dir, key)
    if earlier is not None:
        return earlier
    answer = ask(
        f"warpsmith.workers.judge.languages.{name}_child",
        request,
        cache_dir=cache_dir,
        limits=CompileLimits(limits.seconds, limits.memory_bytes + LIBRARIES_BYTES),
        variables=variables,
    )
    prepared: Prepared = {
        "seconds": float(answer["seconds"]),
        "log": trim_log(str(answer["log"])),
        "cached": False,
        "kernels": list(answer["kernels"]),
        "binaries": list(answer["binaries"]),
        "launches": list(answer["launches"])[:_LAUNCHES],
        "compiler": content_key(dict(facts)),
    }
    keep_report(cache_dir, key, prepared)
    return prepared

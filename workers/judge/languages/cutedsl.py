"""CuTe DSL candidates: functions compiled ahead of time for a named architecture, for the arguments of each workload.

The compiling process has no GPU and needs none. The DSL compiles inside the process that imports the candidate, which
is a separate one, and what it built lies in the cache, where a runner finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.runtime import cutedsl_build
from warpsmith.workers.judge.languages.launches import compile_launches, make_request
from warpsmith.workers.judge.languages.prepared import CompileLimits, Prepared


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
    return compile_launches(
        "cutedsl",
        make_request(source, target_arch, workloads, library_calls),
        ("torch", "cuda-bindings"),
        cache_dir=cache_dir,
        limits=limits,
        variables=cutedsl_build.VARIABLES,
        facts=cutedsl_build.facts(),
    )

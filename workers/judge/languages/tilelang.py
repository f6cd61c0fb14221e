"""TileLang candidates: functions compiled ahead of time for a named architecture, for the arguments of each workload.

As those of CuTe DSL: TileLang and NVRTC compile in a separate process, which imports the candidate and needs no GPU,
and what it built lies in the cache, where a runner finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.runtime import tilelang_build
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
    """Prepare a candidate, see `Language`. Without workloads it is imported and nothing is compiled."""
    return compile_launches(
        "tilelang",
        make_request(source, target_arch, workloads, library_calls),
        ("torch", "cuda-bindings"),
        cache_dir=cache_dir,
        limits=limits,
        variables=tilelang_build.VARIABLES,
        facts=tilelang_build.facts(),
    )

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
from warpsmith.workers.judge.languages.launches import compile_launches, make_request
from warpsmith.workers.judge.languages.prepared import CompileLimits, Prepared

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
    directory = triton_cache(cache_dir)
    return compile_launches(
        "triton",
        make_request(source, architecture(target_arch), workloads, library_calls),
        ("torch", "triton"),
        cache_dir=cache_dir,
        limits=limits,
        variables={"TRITON_CACHE_DIR": str(directory), "TRITON_INTERPRET": "0"},
        reports=directory,
    )


def architecture(target_arch: str) -> int:
    """Return the compute capability: 90 for "sm_90" and for a target that is not a GPU."""
    match = re.fullmatch(r"sm_(\d{2,3})[af]?", target_arch) or re.fullmatch(r"sm_(\d{2,3})", DEFAULT_ARCH)
    assert match is not None
    return int(match[1])

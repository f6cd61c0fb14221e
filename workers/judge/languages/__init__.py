"""The languages of candidates: each checks and builds a candidate's kernels before any run.

A language is a module with `prepare`. Nothing of the candidate runs in the calling process: compilers and everything
that imports the candidate are separate processes, limited in time and memory, that end with the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.runtime import CompileError, HostError
from warpsmith.workers.judge.languages import cpp, cuda, cutedsl, python, tilelang, triton
from warpsmith.workers.judge.languages.prepared import CompileLimits, KernelReport, Prepared, TrialError

__all__ = [
    "CompileError",
    "CompileLimits",
    "HostError",
    "KernelReport",
    "Language",
    "Prepared",
    "TrialError",
    "prepare",
]


class Language(Protocol):
    """What the judge asks of a language."""

    def __call__(
        self,
        source: str,
        *,
        target_arch: str,
        cache_dir: Path,
        limits: CompileLimits,
        workloads: Sequence[ResolvedWorkload] = (),
        library_calls: Sequence[str] = (),
    ) -> Prepared:
        """Build the kernels of `source` into `cache_dir`, where the runner finds them.

        Args:
            source: a candidate that has passed the gate; free Python, which no gate reads.
            target_arch: "x86_64", "sm_90" ...: the part of the target behind the colon.
            cache_dir: the directory that the runner is given as WARPSMITH_KERNEL_CACHE.
            workloads: what `run` will be called with. For a GPU it is tried without one: Triton compiles a kernel for
                the arguments of a launch, and a launch that fails on any device is refused here.
            library_calls: torch functions that the op lets `run` call; with any, it may launch nothing of its own.

        Raises:
            CompileError: a kernel does not compile, or a parameter fits no argument, or `run` fails before a device is
                asked for anything; the message names the line.
            HostError: nothing can be built on this host, whatever the candidate.
        """
        ...


_LANGUAGES: dict[str, Language] = {  # one for each of `kernels_db.job.languages`
    "cpp": cpp.prepare,
    "cuda": cuda.prepare,
    "triton": triton.prepare,
    "gluon": triton.prepare,
    "cute": cutedsl.prepare,
    "tilelang": tilelang.prepare,
    "python": python.prepare,
}


def prepare(
    source: str,
    language: str,
    *,
    target_arch: str,
    cache_dir: Path,
    limits: CompileLimits,
    workloads: Sequence[ResolvedWorkload] = (),
    library_calls: Sequence[str] = (),
) -> Prepared:
    """`Language` by its name.

    Raises:
        CompileError: see `Language`.
        ValueError: there is no such language.
    """
    if language not in _LANGUAGES:
        raise ValueError(f"language: found {language!r}, expected one of {', '.join(_LANGUAGES)}")
    return _LANGUAGES[language](
        source,
        target_arch=target_arch,
        cache_dir=cache_dir,
        limits=limits,
        workloads=workloads,
        library_calls=library_calls,
    )

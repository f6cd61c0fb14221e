"""C++ candidates: each source is built into the cache, so that the runner only loads it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.runtime import Build, CompileError, HostError, cpp
from warpsmith.workers.gate.sources import KernelSource, kernel_sources
from warpsmith.workers.judge.languages import confined_compiler
from warpsmith.workers.judge.languages.elf import digests
from warpsmith.workers.judge.languages.inspection import inspect
from warpsmith.workers.judge.languages.prepared import CompileLimits, KernelReport, Prepared


def prepare(
    source: str,
    *,
    target_arch: str,  # built for this machine's processor, whatever it is called
    cache_dir: Path,
    limits: CompileLimits,
    workloads: Sequence[ResolvedWorkload] = (),  # a signature says all that C++ needs
    library_calls: Sequence[str] = (),
) -> Prepared:
    """See `Language`. Registers, spills and shared memory are not known of CPU kernels."""
    builds = []
    kernels: list[KernelReport] = []
    for entry in kernel_sources(source):
        if entry.language == "cpp":
            names, built = _build(entry, cache_dir, limits)
            builds.append(built)
            kernels += [{"name": name, "registers": None, "spills": None, "shared": None} for name in names]
    if not builds:
        raise CompileError("the candidate compiles nothing: expected `kernels = cpp.compile(<constant source>)`")
    return {
        "seconds": sum(build.seconds for build in builds if not build.cached),
        "log": "\n".join(build.log for build in builds if build.log),
        "cached": all(build.cached for build in builds),
        "kernels": kernels,
        "binaries": digests(build.path.read_bytes() for build in builds),
    }


def _build(entry: KernelSource, cache_dir: Path, limits: CompileLimits) -> tuple[list[str], Build]:
    try:
        names = list(cpp.signatures(entry.source))
        built = cpp.build(
            entry.source,
            entry.flags,
            cache_dir=cache_dir,
            timeout_s=limits.seconds,
            memory_bytes=limits.memory_bytes,
            run=confined_compiler.run,
        )
        inspect(built.path)
        return names, built
    except HostError:
        raise
    except CompileError as error:
        raise CompileError(entry.located(error.message), error.log, error.cause) from error

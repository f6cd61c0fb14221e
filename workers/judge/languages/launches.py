"""Kernels that are compiled for the arguments of a launch: the candidate is tried on its workloads, without a device.

A child of the language imports the candidate, calls `run` on tensors without storage, and compiles each launch. What
it built lies in the compiler's cache, its report beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.runtime.cache import content_key
from warpsmith.kernels_db.runtime.errors import trim_log
from warpsmith.workers.judge.languages.child import ask
from warpsmith.workers.judge.languages.prepared import LIBRARIES_BYTES, CompileLimits, Prepared
from warpsmith.workers.judge.languages.reports import earlier_report, keep_report, report_key

_LAUNCHES = 64  # of a report


def make_request(
    source: str, arch: str | int, workloads: Sequence[ResolvedWorkload], library_calls: Sequence[str]
) -> dict[str, Any]:
    """Make what the child is asked."""
    return {"source": source, "arch": arch, "workloads": list(workloads), "library": bool(library_calls)}


def compile_launches(
    name: str,
    request: Mapping[str, Any],
    packages: Sequence[str],
    *,
    cache_dir: Path,
    limits: CompileLimits,
    variables: Mapping[str, str],
    reports: Path | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Prepared:
    """Let the child of a language compile a candidate, once for each request.

    `packages`: distributions whose versions the report depends on, `facts`: what else it does. A compiler that is named
    by its facts tells of launches, too. `reports`: where reports are kept; by default in the cache. Raises as
    `child.ask` does.
    """
    key = report_key({**request, **(facts or {})}, *packages)
    directory = cache_dir if reports is None else reports
    earlier = earlier_report(directory, key)
    if earlier is not None:
        return earlier
    answer = ask(
        f"warpsmith.workers.judge.languages.{name}_child",
        dict(request),
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
    }
    if facts is not None:
        prepared["launches"] = list(answer["launches"])[:_LAUNCHES]
        prepared["compiler"] = content_key(dict(facts))
    keep_report(directory, key, prepared)
    return prepared

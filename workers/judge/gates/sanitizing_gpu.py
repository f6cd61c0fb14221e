"""compute-sanitizer at a verification on a GPU: beside the checks, and done before anything is timed."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from warpsmith.kernels_db.job.documents import Failure, ResolvedWorkload, tier_of
from warpsmith.kernels_db.runtime import ctext
from warpsmith.workers.gate import own_kernels
from warpsmith.workers.gate.sources import kernel_sources
from warpsmith.workers.judge.gates.job_run import JobRun
from warpsmith.workers.judge.gates.verdict import Stopped
from warpsmith.workers.judge.sanitizers.report import TOOLS, Finding, Tool
from warpsmith.workers.judge.sanitizers.sanitizer import NAME, Sanitizer, Sanitizing
from warpsmith.workers.judge.values import families

_WARP_BARRIER = re.compile(r"\b__syncwarp\b|\bbar\.warp\.sync\b")


@contextmanager
def sanitizing(job_run: JobRun) -> Iterator[Callable[[], None]]:
    """Have every tool look at the candidate while the block runs; what is yielded waits for what they found.

    It raises Stopped for a finding. Where a tool cannot look, the verdict notes it.
    """
    sanitizer = _wanted(job_run)
    if sanitizer is None:
        yield lambda: None
        return
    assert job_run.prepared is not None
    workloads = looked_at(job_run.workloads)
    try:
        started = sanitizer.start(job_run.job, workloads, job_run.prepared.environment)
    except OSError as error:
        job_run.note(f"{NAME} could not be run: {error}")
        yield lambda: None
        return
    with started:
        yield lambda: _conclude(job_run, sanitizer, workloads, started)


def looked_at(workloads: Sequence[ResolvedWorkload]) -> dict[Tool, ResolvedWorkload]:
    """Return the workload that each tool looks at: a small one, for a call takes a hundred times as long there.

    Bounds and barriers show at the smallest. A race, and memory that nobody wrote, may need more than one warp at work.
    """
    smallest, telling = min(workloads, key=families.elements), families.telling(workloads)
    return {tool: telling if tool in ("racecheck", "initcheck") else smallest for tool in TOOLS}


def _wanted(job_run: JobRun) -> Sanitizer | None:
    """Return the sanitizer where the job has a use for it, on a host that has it."""
    job, candidate = job_run.job, job_run.job["candidate"]
    if not job_run.on_gpu or job["level"] != "verify" or not job["limits"].get("sanitize", True):
        return None
    if candidate is None or tier_of(candidate["language"]) != "gated":
        return None
    sanitizer = job_run.bench.sanitizer()
    if sanitizer is None:
        job_run.note(f"{NAME} is not installed here: memory, races and barriers were not looked at by it")
        return None
    minimum, reached = job["limits"].get("sandbox"), sanitizer.confinement(job)
    if minimum is not None and not reached.reaches(minimum):
        job_run.note(f"not run under {NAME}: limits.sandbox is {minimum}, and {reached.level} is what it allows")
        return None
    return sanitizer


def _conclude(
    job_run: JobRun, sanitizer: Sanitizer, workloads: Mapping[Tool, ResolvedWorkload], started: Sanitizing
) -> None:
    candidate = job_run.job["candidate"]
    assert candidate is not None
    kernels = own_kernels(candidate["source"], candidate["language"])
    for tool, report in started.reports(kernels).items():
        if report.findings:
            lane = None
            if tool == "racecheck":
                lane = _arriving_lane(job_run, sanitizer, workloads[tool], kernels, report.findings)
            if lane is not None:
                job_run.note(
                    f"{NAME} {tool}: copies into shared memory that lane {lane} of each warp released for all of them: "
                    "the tool does not follow __syncwarp, so whether the other lanes had read was not looked at"
                )
                continue
            first, where = report.findings[0], workloads[tool]["id"]
            message = f"workload {where}: {tool}: {first.line}"
            failure: Failure = {"kind": "sanitizer", "message": message, "workload": where, "found": tool}
            failure["log"] = "\n".join(finding.line for finding in report.findings)
            raise Stopped("rejected", "verify", message, failure)
        if report.refused is not None:
            job_run.note(f"{NAME} {tool}: {report.refused}")


def _arriving_lane(
    job_run: JobRun,
    sanitizer: Sanitizer,
    workload: ResolvedWorkload,
    kernels: Collection[str],
    races: Collection[Finding],
) -> int | None:
    """Return the lane that releases shared memory for its warp, where every race found is of the lanes beside it.

    Racecheck runs once more for it, where the source has a barrier of warps at all.
    """
    assert job_run.prepared is not None
    candidate = job_run.job["candidate"]
    assert candidate is not None
    if candidate["language"] != "cuda" or not _has_warp_barrier(candidate["source"]):
        return None
    try:
        again = sanitizer.start(job_run.job, {"racecheck": workload}, job_run.prepared.environment, hazards=True)
    except OSError:
        return None
    with again:
        return again.arriving_lane(kernels, races)


def _has_warp_barrier(source: str) -> bool:
    """Check whether CUDA code of a candidate has a barrier of warps; comments do not count."""
    code = " ".join(ctext.canonical(entry.source) for entry in kernel_sources(source))
    return _WARP_BARRIER.search(code) is not None

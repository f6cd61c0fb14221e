"""The part of verification that runs a C++ candidate's kernels once under sanitizers.

The candidate's runner records the calls that `run` makes on a small workload, and the memory that each is given; a
build with AddressSanitizer and UndefinedBehaviorSanitizer makes the same calls in a process of its own, and where the
source has threads one with ThreadSanitizer. They find what results do not show: an access beyond a tensor or scratch,
a signed overflow, a misaligned pointer, two threads at one element. It is for mistakes: native code that means to hide
from it can.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.job.documents import Failure, ResolvedWorkload
from warpsmith.kernels_db.runtime import CompileError, HostError, cpp
from warpsmith.workers.gate.sources import KernelSource, kernel_sources
from warpsmith.workers.judge.gates.job_run import JobRun
from warpsmith.workers.judge.gates.verdict import Stopped
from warpsmith.workers.judge.languages.prepared import CompileLimits
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle
from warpsmith.workers.judge.sanitizers import build as sanitized
from warpsmith.workers.judge.sanitizers import driver, tools
from warpsmith.workers.judge.sanitizers.build import Report, Unsanitized
from warpsmith.workers.judge.sanitizers.tools import Tool
from warpsmith.workers.judge.values import families

MOST_ELEMENTS = 4 << 20
"""Elements, in all tensors, of the smallest workload, above which nothing is run under sanitizers."""
SMALL_ELEMENTS = 1 << 16
"""The same of a derived hold-out that is run besides."""
SECONDS = 60.0
MEMORY_BYTES = 4 << 30
EXPECTED = "accesses inside of tensors, in an order that is defined, and behaviour that C++ defines"


def sanitize(job_run: JobRun, candidate: RunnerHandle) -> None:
    """Run a C++ candidate under sanitizers on small workloads.

    Raises Stopped for what they find. Where they cannot do their work the verdict notes it.
    """
    asked = job_run.job["candidate"]
    workloads = list(_workloads(job_run))
    if asked is None or asked["language"] != "cpp":
        return
    if not workloads:
        job_run.note(f"no sanitizers: no workload has at most {MOST_ELEMENTS} elements")
        return
    entries = kernel_sources(asked["source"])
    with tempfile.TemporaryDirectory(prefix="warpsmith-sanitized-") as name:
        looks = _Looks(job_run, Path(name))
        try:
            for workload in workloads:
                calls, memory = _trace(job_run, workload, candidate)
                for kernels, entry in sanitized.sources_of([call["kernels"] for call in calls], entries).items():
                    own = [call for call in calls if call["kernels"] == kernels]
                    packed = _packed(entry, own, memory)
                    with job_run.report.gate("verify"):
                        looks.at(workload, kernels, entry, packed)
        except Unsanitized as error:
            job_run.note(f"no sanitizers: {error}")


class _Looks:
    """Builds of a candidate's sources, each made once; a tool that cannot do its work is noted and not asked again."""

    def __init__(self, job_run: JobRun, directory: Path) -> None:
        self._job_run, self._directory = job_run, directory
        self._limits = CompileLimits(seconds=job_run.job["limits"]["compile_s"])
        self._programs: dict[tuple[str, str], Path] = {}
        self._unable: set[str] = set()

    def at(self, workload: ResolvedWorkload, kernels: str, entry: KernelSource, packed: bytes) -> None:
        """Make the calls of a trace under every tool for a source. Raises Stopped for what one finds."""
        for tool in self._tools(entry):
            try:
                report = sanitized.run(
                    tool,
                    entry,
                    self._program(tool, kernels, entry),
                    packed,
                    seconds=SECONDS,
                    memory_bytes=MEMORY_BYTES,
                )
            except (Unsanitized, HostError, CompileError, OSError) as error:
                self._leave_out(tool, str(error))
                continue
            if report is not None:
                raise _refused(workload["id"], entry, report)

    def _tools(self, entry: KernelSource) -> Iterator[Tool]:
        if tools.ADDRESS.name not in self._unable:
            yield tools.ADDRESS
        if tools.has_threads(entry) and tools.THREADS.name not in self._unable:
            unseen = tools.unseen_order(entry)
            if unseen is None:
                yield tools.THREADS
            else:
                self._leave_out(tools.THREADS, f"it does not see what `{unseen}` orders")

    def _program(self, tool: Tool, kernels: str, entry: KernelSource) -> Path:
        key = tool.name, kernels
        if key not in self._programs:
            place = self._directory / f"build-{len(self._programs)}"
            place.mkdir(mode=0o700)
            self._programs[key] = sanitized.build(tool, entry, place, self._limits)
        return self._programs[key]

    def _leave_out(self, tool: Tool, reason: str) -> None:
        self._unable.add(tool.name)
        self._job_run.note(f"no {tool.name}: {reason}")


def _workloads(job_run: JobRun) -> Iterator[ResolvedWorkload]:
    """Yield the smallest workload, and derived hold-outs that are small."""
    smallest = min(job_run.workloads, key=families.elements, default=None)
    if smallest is None or families.elements(smallest) > MOST_ELEMENTS:
        return
    yield smallest
    for workload in job_run.workloads:
        if workload is not smallest and workload.get("derived") and families.elements(workload) <= SMALL_ELEMENTS:
            yield workload


def _trace(
    job_run: JobRun, workload: ResolvedWorkload, candidate: RunnerHandle
) -> tuple[list[Mapping[str, Any]], memoryview]:
    """Have the candidate record its calls on new values. Raises Unsanitized."""
    with job_run.bound(candidate, workload, "verify"):
        candidate.fill(0, job_run.source(workload).draw())
        answer, memory = candidate.trace(0, job_run.job["limits"]["call_s"])
    if "skipped" in answer:
        raise Unsanitized(str(answer["skipped"])[:200])
    calls = answer.get("calls")
    if not isinstance(calls, list) or not all(isinstance(call, dict) and "kernels" in call for call in calls):
        raise Unsanitized("the runner gave no calls")
    return calls, memory


def _packed(entry: KernelSource, calls: list[Mapping[str, Any]], memory: memoryview) -> bytes:
    """Return calls of a source's functions for the driver. Raises Unsanitized where the runner made them up."""
    try:
        return driver.packed(calls, cpp.signatures(entry.source), memory)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise Unsanitized(f"the runner gave calls that cannot be ({error})") from error


def _refused(place: str, entry: KernelSource, report: Report) -> Stopped:
    where, text = "", ""
    if report.line is not None:
        where = f"line {report.line}: "
        lines = entry.source.splitlines()
        number = report.line - entry.line
        text = f", in `{lines[number].strip()[:120]}`" if 0 <= number < len(lines) else ""
    message = f"{where}workload {place}: {report.problem}{text} (found by a sanitizer)"
    failure: Failure = {"kind": "sanitizer", "message": message, "workload": place, "log": report.log}
    failure |= {"found": report.problem, "expected": EXPECTED}
    return Stopped("rejected", "verify", message, failure)

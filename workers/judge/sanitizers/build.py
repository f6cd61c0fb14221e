"""Builds a kernel with its driver under a sanitizer, and runs it on a trace.

Both processes are confined: the compiler as it always is, the program as a runner is, without new processes.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from warpsmith.kernels_db.runtime import cpp
from warpsmith.kernels_db.runtime.errors import trim_log
from warpsmith.workers.gate.sources import KernelSource
from warpsmith.workers.judge.languages import confined_compiler
from warpsmith.workers.judge.languages.prepared import CompileLimits
from warpsmith.workers.judge.preloaded import programs
from warpsmith.workers.judge.preloaded.programs import Program
from warpsmith.workers.judge.sandbox.sandbox import Profile
from warpsmith.workers.judge.sanitizers import driver
from warpsmith.workers.judge.sanitizers.tools import Tool

_FLAGS = ("-O1", "-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", "-w")
_PROGRAM = "program"
_SAYS_WHY = re.compile(r"error|cannot find|undefined reference")
_LINE = re.compile(r"candidate\.cpp:(\d+)")
_UNABLE = re.compile(
    r"out-of-memory|allocation-size-too-big|hard rss limit|failed to allocate|failed to mmap|ReserveShadowMemoryRange"
    r"|interleaves with an existing memory mapping|unexpected memory mapping|CHECK failed"
)
"""Words of a sanitizer that could not do its work."""


class Unsanitized(Exception):  # noqa: N818 - named for what happened
    """A kernel could not be looked at by a sanitizer, which says nothing against it."""


@dataclass(frozen=True)
class Report:
    """What a sanitizer found: its line, the line of the kernel's source where known, and all its words."""

    problem: str
    line: int | None
    log: str


def build(tool: Tool, entry: KernelSource, place: Path, limits: CompileLimits) -> Path:
    """Build a source and its driver under a tool in an empty directory. Raises Unsanitized, HostError."""
    (place / "candidate.cpp").write_text(entry.source + "\n", "utf-8", "replace")
    (place / "headers.hpp").write_text(cpp.headers(entry.source))
    (place / "driver.cpp").write_text(driver.source(cpp.signatures(entry.source)))
    mapped = f"-fdebug-prefix-map={place}=."
    for name, text in tool.beside.items():
        (place / name).write_text(text)
    kernel = [*kernel_flags(tool, entry), mapped, "-include", "headers.hpp", "-c", "candidate.cpp"]
    others = [["-O0", "-w", "-c", name] for name in ("driver.cpp", *tool.beside)]
    objects = [f"{Path(arguments[-1]).stem}.o" for arguments in (kernel, *others)]
    for arguments in (kernel, *others, [*tool.checks, *objects, *tool.libraries, "-o", _PROGRAM]):
        command = [*cpp.compiler(), *arguments]
        finished = confined_compiler.run(command, cwd=place, timeout_s=limits.seconds, memory_bytes=limits.memory_bytes)
        if finished.timed_out or finished.returncode != 0:
            lines = [line for line in finished.log.splitlines() if _SAYS_WHY.search(line)]
            reason = "it takes too long" if finished.timed_out else (lines[0].strip()[:200] if lines else "no message")
            raise Unsanitized(f"the sanitized build fails ({reason})")
    program = place / _PROGRAM
    program.chmod(0o700)  # a confined linker may not
    return program


def kernel_flags(tool: Tool, entry: KernelSource) -> list[str]:
    """Return a source's flags and a tool's, at another level of optimisation, with the macros of the real build.

    A source that finds another (`__PIE__`, `__FAST_MATH__`) could behave where it is sanitized.
    """
    flags = (*cpp.BASE_FLAGS, *entry.flags)
    level = [flag for flag in flags if flag.startswith("-O")][-1]
    chosen = [flag for flag in flags if not flag.startswith("-O")]
    return [*chosen, *(["-ffast-math"] if level == "-Ofast" else []), *_FLAGS, *tool.checks]


def run(
    tool: Tool, entry: KernelSource, program: Path, trace: bytes, *, seconds: float, memory_bytes: int
) -> Report | None:
    """Make the calls of a trace, packed by `driver.packed`; None where nothing was found.

    Raises Unsanitized where the sanitizer could not begin, or the calls did not end.
    """
    place = program.parent
    (place / "trace").write_bytes(trace)
    profile = Profile(
        processes=False,
        gpu=False,
        tasks=0,
        readable=("/proc/self", "/proc/sys/vm", "/sys/devices/system/cpu"),
        writable=(),
        runnable=(*confined_compiler.toolchain_places(), str(place)),
        becomes=True,
    )
    for team in tool.teams:
        environment = {"LC_ALL": "C"} | tool.variables(memory_bytes, team)
        command = Program([str(program), "trace"], environment, profile, tool.address_space, fixed_addresses=True)
        finished = programs.run(command, place, seconds)
        if finished.timed_out:
            raise Unsanitized(f"the sanitized calls take longer than {seconds:g} s")
        report = _report(tool, entry, finished.returncode, finished.log.replace(str(place), "."))
        if report is not None:
            return report
    return None


def _report(tool: Tool, entry: KernelSource, returncode: int, log: str) -> Report | None:
    """Return what one run found; None where it found nothing. Raises Unsanitized."""
    problem = tool.problem(log, entry.place)
    if driver.BEGUN not in log or _UNABLE.search(log):
        raise Unsanitized(f"the sanitizer could not do its work ({_last(log)})")
    if problem is None:
        if returncode != 0:
            raise Unsanitized(f"the sanitized calls ended with {_ended(returncode)} ({_last(log)})")
        return None
    return Report(problem[:300], _line(entry, log), trim_log(log.partition("Shadow bytes around")[0]))


def _line(entry: KernelSource, log: str) -> int | None:
    """Return the line of the candidate's file that a report names first."""
    found = _LINE.search(log)
    return entry.place(int(found[1])) if found else None


def _ended(code: int) -> str:
    return signal.Signals(-code).name if -code in signal.valid_signals() else f"status {code}"


def _last(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no message"


def sources_of(names: Sequence[str], entries: Sequence[KernelSource]) -> dict[str, KernelSource]:
    """Return the C++ source behind each module-level name that calls were made through."""
    by_name = {entry.name: entry for entry in entries if entry.language == "cpp"}
    return {name: by_name[name] for name in dict.fromkeys(names) if name in by_name}

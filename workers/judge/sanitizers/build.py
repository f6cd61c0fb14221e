"""Builds a kernel with its driver under AddressSanitizer and UndefinedBehaviorSanitizer, and runs it on a trace.

Both processes are confined: the compiler as it always is, the program as a runner is, without new processes.
Source: GCC's manual, "Program Instrumentation Options"; the sanitizers' run-time flags.
"""

from __future__ import annotations

import os
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

_CHECKS = ("-fsanitize=address,undefined", "-fno-sanitize=vptr,nonnull-attribute,returns-nonnull-attribute")
"""What is looked for; left out are checks that need RTTI, or are about null pointers to nothing."""
_FLAGS = ("-O1", "-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all", "-w")
_OBJECTS, _PROGRAM = ("candidate.o", "driver.o"), "program"
_EXIT = 99
_ADDRESS_SPACE = 64 << 40  # an AddressSanitizer's shadow takes 16 TiB of it, and uses what memory is used
_OPTIONS = {
    "halt_on_error": 1,
    "exitcode": _EXIT,
    "detect_leaks": 0,  # its walk over other threads is refused to a confined process
    "print_summary": 1,
    "print_stacktrace": 1,
    "allocator_may_return_null": 1,
    "detect_stack_use_after_return": 0,
    "handle_segv": 1,
    "hard_rss_limit_mb": 0,  # set for each run
}
_UNDEFINED = re.compile(r"candidate\.cpp:\d+:\d+: runtime error: (.+)")
_ADDRESS = re.compile(r"ERROR: AddressSanitizer: (.+?)(?: on (?:unknown )?address.*)?$", re.MULTILINE)
_ACCESS = re.compile(r"^((?:READ|WRITE) of size \d+)", re.MULTILINE)
_PLACE = re.compile(r"is located (\d+ bytes .+? of \d+-byte region)")
_LINE = re.compile(r"candidate\.cpp:(\d+)")
_UNABLE = re.compile(
    r"out-of-memory|allocation-size-too-big|hard rss limit|failed to allocate|failed to mmap|ReserveShadowMemoryRange"
    r"|interleaves with an existing memory mapping|CHECK failed"
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


def build(entry: KernelSource, place: Path, limits: CompileLimits) -> Path:
    """Build a source and its driver in an empty directory. Raises Unsanitized, HostError."""
    (place / "candidate.cpp").write_text(entry.source + "\n", "utf-8", "replace")
    (place / "headers.hpp").write_text(cpp.headers(entry.source))
    (place / "driver.cpp").write_text(driver.source(cpp.signatures(entry.source)))
    chosen = [flag for flag in (*cpp.BASE_FLAGS, *entry.flags) if not flag.startswith(("-O", "-fPIC"))]
    mapped = f"-fdebug-prefix-map={place}=."
    kernel = [*chosen, *_FLAGS, *_CHECKS, mapped, "-include", "headers.hpp", "-c", "candidate.cpp"]
    for arguments in (kernel, ["-O0", "-w", "-c", "driver.cpp"], ["-fopenmp", *_CHECKS, *_OBJECTS, "-o", _PROGRAM]):
        command = [*cpp.compiler(), *arguments]
        finished = confined_compiler.run(command, cwd=place, timeout_s=limits.seconds, memory_bytes=limits.memory_bytes)
        if finished.timed_out or finished.returncode != 0:
            lines = [line for line in finished.log.splitlines() if "error" in line or "cannot find" in line]
            reason = "it takes too long" if finished.timed_out else (lines[0].strip()[:200] if lines else "no message")
            raise Unsanitized(f"the sanitized build fails ({reason})")
    program = place / _PROGRAM
    program.chmod(0o700)  # a confined linker may not
    return program


def run(entry: KernelSource, program: Path, trace: bytes, *, seconds: float, memory_bytes: int) -> Report | None:
    """Make the calls of a trace, packed by `driver.packed`; None where nothing was found.

    Raises Unsanitized where the sanitizer could not begin, or the calls did not end.
    """
    place = program.parent
    (place / "trace").write_bytes(trace)
    options = _OPTIONS | {"hard_rss_limit_mb": memory_bytes >> 20}
    text = ":".join(f"{name}={value}" for name, value in options.items())
    environment = {
        "LC_ALL": "C",
        "ASAN_OPTIONS": text,
        "UBSAN_OPTIONS": text,
        "OMP_NUM_THREADS": str(max(2, min(4, len(os.sched_getaffinity(0))))),
        "OMP_STACKSIZE": "64M",
    }
    profile = Profile(
        processes=False,
        gpu=False,
        tasks=0,
        readable=("/proc/self", "/proc/sys/vm", "/sys/devices/system/cpu"),
        writable=(),
        runnable=(*confined_compiler.toolchain_places(), str(place)),
        becomes=True,
    )
    command = Program([str(program), "trace"], environment, profile, _ADDRESS_SPACE, fixed_addresses=True)
    finished = programs.run(command, place, seconds)
    log = finished.log.replace(str(place), ".")
    if finished.timed_out:
        raise Unsanitized(f"the sanitized calls take longer than {seconds:g} s")
    problem = _problem(log)
    if driver.BEGUN not in log or _UNABLE.search(log):
        raise Unsanitized(f"the sanitizer could not do its work ({_last(log)})")
    if problem is None:
        if finished.returncode != 0:
            raise Unsanitized(f"the sanitized calls ended with {_ended(finished.returncode)} ({_last(log)})")
        return None
    return Report(problem[:300], _line(entry, log), trim_log(log.partition("Shadow bytes around")[0]))


def _problem(log: str) -> str | None:
    """Return what a sanitizer found in one line, without addresses; None where it found nothing."""
    undefined, stray = _UNDEFINED.search(log), _ADDRESS.search(log)
    if undefined is not None:
        return re.sub(r"(misaligned|null) address 0x[0-9a-f]+", r"\1 address", undefined[1].strip())
    if stray is None:
        return None
    return ", ".join([stray[1], *(found[1] for pattern in (_ACCESS, _PLACE) if (found := pattern.search(log)))])


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

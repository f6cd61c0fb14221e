"""What GCC's sanitizers are asked for and what they say: AddressSanitizer with UndefinedBehaviorSanitizer, and
ThreadSanitizer. Each needs a build of its own.

Source: GCC's manual, "Program Instrumentation Options"; the sanitizers' run-time flags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from warpsmith.workers.gate.sources import KernelSource
from warpsmith.workers.judge.sanitizers import openmp

EXIT = 99
_COMMON = {
    "halt_on_error": 1,
    "exitcode": EXIT,
    "print_summary": 1,
    "allocator_may_return_null": 1,
}
_UNDEFINED = re.compile(r"candidate\.cpp:\d+:\d+: runtime error: (.+)")
_ADDRESS = re.compile(r"ERROR: AddressSanitizer: (.+?)(?: on (?:unknown )?address.*)?$", re.MULTILINE)
_ACCESS = re.compile(r"^((?:READ|WRITE) of size \d+)", re.MULTILINE)
_PLACE = re.compile(r"is located (\d+ bytes .+? of \d+-byte region)")
_RACE = re.compile(r"WARNING: ThreadSanitizer: (data race|heap-use-after-free)\b")
_ONE = re.compile(r"^  ((?:Atomic )?(?:Read|Write)|(?:Atomic )?(?:read|write)) of size (\d+) at", re.MULTILINE)
_OTHER = re.compile(
    r"^  Previous ((?:atomic )?(?:read|write)) of size (\d+) at .*\n(?:    .*\n)*?    #\d+ .*candidate\.cpp:(\d+)",
    re.MULTILINE,
)
_OPENMP = re.compile(r"\bomp\b")
_UNSEEN = re.compile(
    r"\b(?:atomic_(?:thread|signal)_fence|__sync_synchronize|__asm__|asm|_mm_[lms]fence)\b|\bomp\s+flush\b"
)
"""Order that ThreadSanitizer does not see: it would report races where none are."""


@dataclass(frozen=True)
class Tool:
    """One build: `checks` to compile and link with, `beside` compiled without them, `libraries` to link.

    `teams`: sizes of OpenMP's teams, one run with each.
    `problem`: what it found, in one line, from its words and the place of a line of the compiled file in the
    candidate's; None where it found nothing.
    """

    name: str
    variable: str
    checks: tuple[str, ...]
    libraries: tuple[str, ...]
    address_space: int | None
    problem: Callable[[str, Callable[[int], int]], str | None]
    teams: tuple[int, ...]
    options: Mapping[str, int] = field(default_factory=dict)
    beside: Mapping[str, str] = field(default_factory=dict)

    def variables(self, memory_bytes: int, team: int) -> dict[str, str]:
        """Return the environment that sets the tool up, with one of its `teams`."""
        options = _COMMON | dict(self.options) | {"hard_rss_limit_mb": memory_bytes >> 20}
        text = ":".join(f"{name}={value}" for name, value in options.items())
        return {
            self.variable: text,
            "UBSAN_OPTIONS": f"{text}:print_stacktrace=1",
            "OMP_NUM_THREADS": str(team),
            "OMP_STACKSIZE": "64M",
        }


def _stray(log: str, place: Callable[[int], int]) -> str | None:
    undefined, stray = _UNDEFINED.search(log), _ADDRESS.search(log)
    if undefined is not None:
        return re.sub(r"(misaligned|null) address 0x[0-9a-f]+", r"\1 address", undefined[1].strip())
    if stray is None:
        return None
    return ", ".join([stray[1], *(found[1] for pattern in (_ACCESS, _PLACE) if (found := pattern.search(log)))])


def _race(log: str, place: Callable[[int], int]) -> str | None:
    race, one, other = _RACE.search(log), _ONE.search(log), _OTHER.search(log)
    if race is None or one is None or "candidate.cpp:" not in log:
        return None
    found = f"{race[1]}, {one[1].lower()} of {one[2]} bytes"
    if other is None:
        return found
    where = f"line {place(int(other[3]))}"
    return f"{found}; another thread's {other[1]} of {other[2]} bytes in {where} is not ordered with it"


ADDRESS = Tool(
    "AddressSanitizer",
    "ASAN_OPTIONS",
    # Left out are checks that need RTTI, or are about null pointers to nothing.
    ("-fsanitize=address,undefined", "-fno-sanitize=vptr,nonnull-attribute,returns-nonnull-attribute"),
    ("-fopenmp",),
    64 << 40,  # its shadow takes 16 TiB of it, and uses what memory is used
    _stray,
    (2,),
    {
        "detect_leaks": 0,  # its walk over other threads is refused to a confined process
        "detect_stack_use_after_return": 0,
        "handle_segv": 1,
    },
)
THREADS = Tool(
    "ThreadSanitizer",
    "TSAN_OPTIONS",
    ("-fsanitize=thread",),
    ("-lpthread",),
    None,  # it raises a limit by itself, and ends where it may not
    _race,
    openmp.TEAMS,
    {"detect_deadlocks": 0, "report_thread_leaks": 0},
    {"openmp.cpp": openmp.SOURCE},
)


def has_threads(entry: KernelSource) -> bool:
    """Whether a source has regions of OpenMP: the only threads that a C++ candidate may have."""
    return _OPENMP.search(entry.source) is not None


def unseen_order(entry: KernelSource) -> str | None:
    """Return what orders a source's accesses in a way that ThreadSanitizer does not see; None where nothing does."""
    found = _UNSEEN.search(entry.source)
    return found[0] if found else None

"""The host: available memory, and how much of its processors others use during timing.

A busy host makes times that say little.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

from warpsmith.workers.judge.machine.process_control import family

BUSY = 0.1
"""Share of the host's processor time that others may take before a verdict or a profile mentions it."""


LEAST_ROOM = 1 << 20
"""Free bytes of a disk below which what failed on it says nothing of who failed."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def is_out_of_room(error: BaseException) -> TypeGuard[OSError]:
    """Check whether an error says that a disk is full, its quota used up, or that it takes no writes any more."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def find_full_disk(directories: Iterable[Path]) -> Path | None:
    """Return the first of these directories whose disk is full; None where all have room."""
    for directory in directories:
        with contextlib.suppress(OSError):
            disk = os.statvfs(directory)
            if disk.f_bavail * disk.f_frsize < LEAST_ROOM:
                return directory
    return None


def cores_available() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Usage:
    """Processor time so far, in clock ticks.

    Of the whole host (idle included), its busy part, and the judge's own.
    """

    total: int
    busy: int
    own: int


def usage() -> Usage:
    """Read the processor time used until now; the judge's own covers its whole process family."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    idle = ticks[3] + ticks[4]
    own = sum(_ticks(pid) for pid in family(os.getpid()))
    return Usage(sum(ticks), sum(ticks) - idle, own)


def available_bytes() -> int:
    """Return the memory available without swapping, as the kernel estimates it.

    psutil is not used: the judge also runs where only torch is installed.
    """
    return _memory("MemAvailable")


def total_bytes() -> int:
    """Return this host's memory in bytes."""
    return _memory("MemTotal")


def _memory(name: str) -> int:
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return 1024 * int(line.split()[1])
    raise OSError(f"/proc/meminfo: found no {name}, expected Linux 3.14 or newer")


def share_of_others(before: Usage, after: Usage) -> float:
    """Return the share of the host's processor time that others used between two readings.

    It was neither idle nor the judge's.
    """
    total = after.total - before.total
    if total <= 0:
        return 0.0
    others = (after.busy - before.busy) - (after.own - before.own)
    return min(1.0, max(0.0, others / total))


def busy_note(share: float) -> str | None:
    """Say what others took during a timing; None where it is too little to mention."""
    if share <= BUSY:
        return None
    return f"other processes took {share:.0%} of this host's processor time during the timing"


def _ticks(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
        return sum(int(field) for field in fields[11:15])  # user and system time, its dead children's too
    return 0

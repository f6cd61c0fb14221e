"""A look at who waits for a device's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warpsmith.workers.judge.machine.clock_lease import PROCESSOR

if TYPE_CHECKING:
    from pathlib import Path


def is_awaited(cache: Path, device: str = PROCESSOR) -> bool:
    """Whether some process waits for the clock with the turn in hand, as the system lists it: `1: -> FLOCK ...`."""
    inode = (cache / f"timing-{device}.lock").stat().st_ino
    with open("/proc/locks") as listed:
        return any("->" in line and line.split()[6].endswith(f":{inode}") for line in listed)

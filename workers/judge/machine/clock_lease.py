"""A device's clock among the judges of one host: files in the cache that they share. Standard library only.

One judge times at a time. What only compiles goes on beside others of its kind and beside whatever is not timed, but
never beside a timing of the processor: its compilers would take the cores that are timed.

There are two locks. Who wants the clock, for either, first takes the turn and gives it back with the clock in hand. So
a judge that times workload after workload lets in what waits to compile, and the other way round.

A sweep times for some hundredths of a second at once, a compilation takes seconds, so that with turns alone every
timing would wait for one. So the first timing after a share keeps others out for HELD_S: what is timed in these seconds
waits for none, and a share waits for them and for the timing in hand, no more. When they end is in the file of the
turn, so a judge that dies leaves nothing behind that lasts.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TextIO

from warpsmith.workers.judge.machine.timing_guard import QUIET

PROCESSOR = "cpu"
"""The processor's name among a host's devices."""

HELD_S = 5.0
"""Seconds of a share in a clock after which a timing that waits goes first, and of timings after which a share does."""


class ClockLease:
    """The clock of one device. Thread-safe: each block has open files of its own."""

    def __init__(self, cache: Path, device: str) -> None:
        """`cache`: the directory that the host's judges share. `device`: its name there (`Device.lease`)."""
        self._clock = cache / f"timing-{device}.lock"
        self._turn = cache / f"timing-{device}.turn"

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Hold the clock alone inside the block."""
        with self._clock.open("w") as clock:
            _take(self._turn, clock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def beside(self) -> Iterator[Share]:
        """Keep timings out of the block; others beside may go on."""
        with self._clock.open("w") as clock:
            share = Share(self._turn, clock)
            share.take()
            yield share


class Share:
    """A share in a clock while nothing is timed by it."""

    def __init__(self, turn: Path, clock: TextIO) -> None:
        self._turn = turn
        self._clock = clock
        self._since = 0.0

    def take(self) -> None:
        """Wait until nothing is timed, and take the share."""
        _take(self._turn, self._clock, fcntl.LOCK_SH)
        self._since = time.monotonic()

    def give_way(self) -> None:
        """Let a timing that waits go first; call it between two pieces of work.

        Not before it was held for HELD_S: what is over by then waits for one timing and not for several.
        """
        if time.monotonic() - self._since >= HELD_S:
            fcntl.flock(self._clock, fcntl.LOCK_UN)
            self.take()


def _take(turn: Path, clock: TextIO, kind: int) -> None:
    # A thread that waits here holds up no timing of its own process.
    with QUIET.resting(), turn.open("ab+", buffering=0) as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        while kind == fcntl.LOCK_SH and (wait_s := _seconds_kept(taken)) > 0.0:
            fcntl.flock(taken, fcntl.LOCK_UN)
            time.sleep(wait_s)
            fcntl.flock(taken, fcntl.LOCK_EX)
        fcntl.flock(clock, kind)
        if kind == fcntl.LOCK_SH:
            taken.truncate(0)
        elif os.fstat(taken.fileno()).st_size == 0:  # the first timing after a share
            with suppress(OSError):  # on a full disk turns alone have to do
                taken.write(str(time.monotonic() + HELD_S).encode())


def _seconds_kept(taken: BinaryIO) -> float:
    """Return for how long timings still keep shares out, by the file of the turn, which is in hand."""
    taken.seek(0)
    try:
        left = float(taken.read() or b"0") - time.monotonic()
    except ValueError:  # its writer died
        return 0.0
    return left if left <= HELD_S else 0.0  # more is of before the host's start

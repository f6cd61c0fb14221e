"""When the referee's threads may work: none does while the clock runs.

Candidates are prepared by threads beside the one that judges. Two things of theirs would reach the clock: a thread that
holds Python's lock delays the judging thread when a contender has answered, and on a CPU target a compiler takes the
very cores that are timed. So a thread beside stops before its next piece of work while something is timed; what it has
started in another process runs on, unless the CPU itself is the target: then nothing at all goes on beside.

There is one `Quiet` in a process, `QUIET`, as there is one interpreter's lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Quiet:
    """Decides whose turn it is. Thread-safe.

    `timing` and `alone` are for the one judging thread, `beside`, `assisting` and `moment` for every other.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting = 0  # threads that wait to begin a job beside
        self._beside = 0  # jobs that threads beside have in hand
        self._working = 0  # those that are not waiting for another process
        self._timing = 0
        self._alone = 0
        self._mine = threading.local()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Let a thread work on one job, from start to end.

        It begins when nothing is timed and no thread is alone.
        """
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._timing and not self._alone)
            self._waiting -= 1
            self._beside += 1
            self._working += 1
            self._changed.notify_all()
        self._mine.beside = True
        try:
            yield
        finally:
            self._mine.beside = False
            with self._changed:
                self._beside -= 1
                self._working -= 1
                self._changed.notify_all()

    @contextmanager
    def assisting(self) -> Iterator[None]:
        """Let a thread work on a part of a job that another thread has in hand.

        It begins when nothing is timed. A thread beside that waits for its assistants rests meanwhile.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._timing)
            self._beside += 1
            self._working += 1
        self._mine.beside = True
        try:
            yield
        finally:
            self._mine.beside = False
            with self._changed:
                self._beside -= 1
                self._working -= 1
                self._changed.notify_all()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Pause a thread's work beside while it only waits for another process.

        Afterwards it goes on when nothing is timed. For any other thread it does nothing.
        """
        if not getattr(self._mine, "beside", False):
            yield
            return
        with self._changed:
            self._working -= 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._changed.wait_for(lambda: not self._timing)
                self._working += 1

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Let a thread do milliseconds of work that belong to no job's preparation."""
        with self._changed:
            self._changed.wait_for(lambda: not self._timing)
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Keep the threads beside from working inside the block.

        It waits until the last one rests or has ended.
        """
        with self._changed:
            self._timing += 1
            self._changed.wait_for(lambda: self._working == 0)
        try:
            yield
        finally:
            with self._changed:
                self._timing -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep all jobs beside out of the block.

        Those that wait already go first, or a row of jobs alone would keep them waiting. It waits until the last one
        has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting)
            self._alone += 1
            self._changed.wait_for(lambda: self._beside == 0)
        try:
            yield
        finally:
            with self._changed:
                self._alone -= 1
                self._changed.notify_all()


QUIET = Quiet()

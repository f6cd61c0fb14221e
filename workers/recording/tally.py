"""Counts calls in a running process, within bounds, and keeps their file up to date. Standard library only."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warpsmith.workers.recording.calls import Call, Calls, file_of_process, write_calls

MOST_KINDS = 8192
"""Kinds of calls that are kept: of any further one only how often its name was called."""

MOST_NAMES = 1024
MOST_NOTES = 16
WRITE_EVERY_S = 5.0


Seen = tuple[Any, tuple[Any, ...], tuple[tuple[str, Any], ...], tuple[tuple[str, Any], ...] | None]
"""A call as it is counted: what is called, and what was seen of arguments, keywords and the module's parameters."""


class Tally:
    """Counts of kinds of calls; threads may add at once. `read` writes a kind out, when the counts are read.

    Nothing but `calls` raises.
    """

    def __init__(self, read: Callable[[Seen], Call], most: int = MOST_KINDS) -> None:
        self._read, self._most = read, most
        self.clear()

    def add(self, seen: Seen) -> None:
        """Count one call."""
        with self._lock:
            self.changes += 1
            counts = self._counts
            if seen in counts:
                counts[seen] += 1
            elif len(counts) < self._most:
                counts[seen] = 1
            else:
                self._count(self._dropped, seen[0], MOST_NAMES)

    def note(self, text: str) -> None:
        """Keep a note, and how often it came."""
        with self._lock:
            self.changes += 1
            self._count(self._notes, text, MOST_NOTES)

    def clear(self) -> None:
        """Forget everything, in a forked child: its parent has the counts. The lock is a new one."""
        self._lock = threading.Lock()
        self._counts: dict[Seen, int] = {}
        self._dropped: dict[Any, int] = {}
        self._notes: dict[str, int] = {}
        self.changes = 0

    def calls(self) -> Calls:
        """Return what was counted so far, written out."""
        with self._lock:
            counts, dropped, notes = dict(self._counts), dict(self._dropped), dict(self._notes)
        calls = Calls(notes=notes)
        for seen, count in counts.items():
            calls.add(Calls({self._read(seen): count}))
        for called, count in dropped.items():
            calls.add(Calls(dropped={self._read((called, (), (), ())).name: count}))
        return calls

    @staticmethod
    def _count(held: dict[Any, int], key: Any, most: int) -> None:
        if key in held or len(held) < most:
            held[key] = held.get(key, 0) + 1


class ProcessFile:
    """The file of this process: written every few seconds where something changed, and at the end.

    A worker that is killed loses the last seconds. A forked child begins with nothing, in a file of its own.
    """

    def __init__(self, tally: Tally, base: Path) -> None:
        self._tally, self._base = tally, base
        self._written = 0
        self._begin()
        atexit.register(self.write)
        mine = weakref.ref(self)  # the hook stays for good: it must not keep the object
        os.register_at_fork(after_in_child=lambda: _restart(mine()))

    def _begin(self) -> None:
        self.path = file_of_process(self._base)
        self._writing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def restart(self) -> None:
        """Begin anew in a forked child."""
        self._tally.clear()
        self._written = 0
        self._begin()

    def watch(self) -> None:
        """Start the thread that writes, where this process has none yet."""
        if self._thread is None and not self._stopped.is_set():
            self._thread = threading.Thread(target=self._run, name="warpsmith-record", daemon=True)
            self._thread.start()
            # Children of multiprocessing leave without running what atexit has.
            multiprocessing: Any = sys.modules.get("multiprocessing.util")
            if multiprocessing is not None:
                multiprocessing.Finalize(None, self.write, exitpriority=0)

    def write(self) -> None:
        """Write the file, where something changed since. An error is noted."""
        with self._writing:
            changes = self._tally.changes
            if changes == self._written:
                return
            try:
                write_calls(self._tally.calls(), self.path)
                self._written = changes
            except Exception as error:  # noqa: BLE001 - a recording never breaks its process
                self._tally.note(f"not written: {type(error).__name__}")

    def stop(self) -> None:
        """Write a last time and stop writing."""
        self._stopped.set()
        self.write()
        atexit.unregister(self.write)

    def _run(self) -> None:
        stopped = self._stopped
        while not stopped.wait(WRITE_EVERY_S):
            self.write()


def _restart(file: ProcessFile | None) -> None:
    if file is not None:
        file.restart()

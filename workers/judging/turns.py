"""Whose turn at a judge it is, and since when.

A judge judges one job at a time. So of all jobs that are on their way only the first in the line can be what keeps it,
and its time counts from when it became the first: one that waits behind a slow one loses nothing of its own.
On a GPU the order may differ, since candidates are prepared beside each other. There the first in the line may be
cut off although another keeps the judge; it goes to the end of the line, and the next is first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Line:
    """The jobs on their way to one judge, in the order in which they were sent. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Condition()
        self._sent: dict[object, float] = {}  # by ticket, in order
        self._moved = clock()

    def enter(self) -> object:
        """Take the last place; returns the ticket."""
        ticket = object()
        with self._lock:
            self._sent[ticket] = self._clock()
        return ticket

    def leave(self, ticket: object, *, moved: bool) -> None:
        """Give a place up; `moved`: the judge has done with the job, and turns to the next."""
        with self._lock:
            del self._sent[ticket]
            if moved:
                self._moved = self._clock()
            self._lock.notify_all()

    def overdue(self, ticket: object, seconds: float) -> bool:
        """Check whether it is this job's turn, and has been for so long."""
        with self._lock:
            first = next(iter(self._sent))
            return first is ticket and self._clock() - max(self._sent[ticket], self._moved) >= seconds

    def wait_until_empty(self, seconds: float) -> bool:
        """Wait until every job has left, so long at most; returns whether they have."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._sent, seconds)

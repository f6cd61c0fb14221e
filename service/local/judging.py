"""Judging on this machine, for the command line and MCP."""

from __future__ import annotations

import threading
from collections.abc import Callable

from warpsmith.kernels_db.job.documents import Job, Progress, Verdict
from warpsmith.service.client.errors import FAILED, CommandError
from warpsmith.workers.judging.judge import Judge

IDLE_S = 600.0
"""Seconds without a job after which a kept judge ends: it holds memory, and on a GPU a context."""


def judge_once(job: Job, progress: Callable[[Progress], None] | None = None) -> Verdict:
    """Judge one job in a judge of its own; `progress` gets where it is. CommandError where there is no verdict."""
    with Judge(progress=progress) as judge:
        return _judge(judge, job)


class KeptJudge:
    """A judge for one job after another, which starts with the first: most of a short job is that start. Thread-safe.

    It takes one job at a time, and ends after IDLE_S seconds without any, and with the program.
    """

    def __init__(self, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._lock = threading.Lock()
        self._judge: Judge | None = None
        self._timer: threading.Timer | None = None

    def judge(self, job: Job) -> Verdict:
        """Judge one job; CommandError where there is no verdict."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if self._judge is None:
                self._judge = Judge()
            try:
                return _judge(self._judge, job)
            finally:
                self._timer = threading.Timer(self._idle_s, self.close)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """End the judge; the next job starts another."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            judge, self._judge, self._timer = self._judge, None, None
            if judge is not None:
                judge.close()


def _judge(judge: Judge, job: Job) -> Verdict:
    found = judge.submit(job)
    if found.document is None:
        raise CommandError(f"the judge gave no verdict: {found.reason}", FAILED)
    return found.document

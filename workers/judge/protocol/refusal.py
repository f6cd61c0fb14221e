"""What answers in place of a referee while the judge's cache directory cannot be made.

Its reader is told for each job, as of a disk that is full: a judge that ended would say no more than that it ended, and
its jobs would be tried again at once, and given up.
"""

from __future__ import annotations

from collections.abc import Callable

from warpsmith.kernels_db.job.documents import Job, Progress, Verdict
from warpsmith.workers.judge.gates.referee import Ready
from warpsmith.workers.judge.gates.verdict import Report, Unfit
from warpsmith.workers.judge.protocol.pipeline import TEMPORARY_FAILURE


class Refusal:
    """Finds every job unfit for this host; a `pipeline.Judge`."""

    def __init__(self, find_obstacle: Callable[[], str | None]) -> None:
        """`find_obstacle` tries again, for each job, what could not be done; it returns why it cannot, or None."""
        self._find_obstacle = find_obstacle
        self.must_restart = False
        self.tell: Callable[[str, Progress], None] | None = None

    def prepare(self, job: Job) -> Ready:
        """Do nothing: `judge` refuses."""
        return Ready(job, Report(job), None, None)

    def compiled(self, ready: Ready) -> Verdict | None:
        """Return None: `judge` refuses these, too."""
        return None

    def judge(self, ready: Ready) -> Verdict:
        """Raise Unfit with the obstacle; end the process where there is none any more, for a fresh one to judge."""
        if (obstacle := self._find_obstacle()) is None:
            raise SystemExit(TEMPORARY_FAILURE)
        raise Unfit("disk", obstacle)

    def end_idle(self) -> None:
        """Nothing is kept."""

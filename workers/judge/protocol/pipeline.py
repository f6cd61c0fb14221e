"""Many jobs on their way through one referee.

    reader thread      lines -> jobs; stops reading while too many wait
    preparing threads  gate and compile, several jobs at once
    the main thread    judges prepared jobs one after another, in the order in which they become ready

Every line gets exactly one answer, but a job that is cancelled gets none: {"cancel": id} is answered at once by {"id",
"cancel": "dropped" | "judging" | "unknown"}, and only a job that was still waiting is dropped. Where progress was asked
for, {"id", "progress": Progress} comes before a job's answer, as often as the job gets further.
"""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from warpsmith.kernels_db.job.documents import Job, Progress, Verdict
from warpsmith.workers.judge.gates.referee import Ready
from warpsmith.workers.judge.gates.verdict import Report, Stopped, Unfit
from warpsmith.workers.judge.machine.timing_guard import Quiet
from warpsmith.workers.judge.protocol.lines import BrokenJob, Cancel, parse_line

IDLE_S = 10.0
_AT_ONCE = 512
"""Characters of a line that is read even during a timing: a cancellation must not wait."""
TEMPORARY_FAILURE = 75
"""The exit status EX_TEMPFAIL (sysexits.h): unanswered jobs may go to a fresh judge."""


class Judge(Protocol):
    """What a pipeline needs of a referee: `prepare` and `compiled` from any thread, the rest from one."""

    must_restart: bool
    """Set when this process can judge no more, for example because it lost its device."""

    tell: Callable[[str, Progress], None] | None
    """Gets a job's id and where it is; None where nobody asked."""

    def prepare(self, job: Job) -> Ready: ...
    def compiled(self, ready: Ready) -> Verdict | None: ...
    def judge(self, ready: Ready) -> Verdict: ...
    def end_idle(self) -> None: ...


def prepared_beside(job: Job) -> bool:
    """Check whether a job's candidate is prepared while others are judged.

    Not for a CPU target, whose clock compilers would disturb. There the judging thread prepares each job just before it
    judges it, and nothing goes on beside. A job that only compiles is prepared between those.
    """
    return job["level"] == "compile" or not job["target"].startswith("cpu")


@dataclass(frozen=True)
class _Item:
    """What the main thread takes: a job, prepared or not, or a line that was none."""

    job: Job | None = None
    ready: Ready | None = None
    broken: BrokenJob | None = None


class Pipeline:
    """One run over lines, as the module describes.

    `answer` is called with documents, from two threads, never at once.
    """

    def __init__(
        self,
        judge: Judge,
        answer: Callable[[Any], None],
        *,
        quiet: Quiet,
        width: int,
        room: int,
        idle_s: float = IDLE_S,
        progress: bool = False,
    ) -> None:
        """Set up a run.

        `width`: jobs that are prepared at once; `room`: jobs that are read and not answered, at most; `progress`: say
        where a job is, too.
        """
        if progress:
            judge.tell = lambda job, where: self._answer({"id": job, "progress": where})
        self._judge = judge
        self._write = answer
        self._quiet = quiet
        self._width = width
        self._room = threading.BoundedSemaphore(room)
        self._idle_s = idle_s
        self._unprepared: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._items: queue.SimpleQueue[_Item | BaseException | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._open = 0  # read and not answered
        self._ended = False
        self._waiting: set[str] = set()
        self._dropped: set[str] = set()
        self._judging: str | None = None

    def run(self, lines: Iterable[str]) -> int:
        """Answer all lines; returns the exit status.

        The calling thread judges; the others end with the process.
        """
        threading.Thread(target=self._read, args=(lines,), name="reader", daemon=True).start()
        for number in range(self._width):
            threading.Thread(target=self._prepare, name=f"prepare-{number}", daemon=True).start()
        while not self._finished():
            try:
                item = self._items.get(timeout=self._idle_s)
            except queue.Empty:
                self._judge.end_idle()
                continue
            if isinstance(item, BaseException):
                raise item
            if item is not None and not self._handle(item):
                return TEMPORARY_FAILURE
        return 0

    # The main thread

    def _finished(self) -> bool:
        with self._lock:
            return self._ended and self._open == 0

    def _handle(self, item: _Item) -> bool:
        """Answer one item; False where this process must end."""
        if item.broken is not None:
            broken = item.broken
            error = {"field": broken.field, "found": broken.found, "expected": broken.expected}
            self._answer({"id": broken.id, "error": error})
        elif item.job is not None and self._begin(item.job["id"]):
            try:
                document: Any = self._judged(item.job, item.ready)
            except Unfit as unfit:
                document = {"id": item.job["id"], "unfit": {"part": unfit.part, "reason": str(unfit)}}
            except Exception:  # noqa: BLE001 - a fault of ours: one job suffers, and this process is not trusted further
                text = traceback.format_exc()
                self._answer({"id": item.job["id"], "fault": text})
                return False
            self._answer(document)
            self._judging = None
        with self._lock:
            self._open -= 1
        self._room.release()
        return not self._judge.must_restart

    def _begin(self, job: str, *, judging: bool = True) -> bool:
        """Take a job for judging, or for its answer alone; False where it was dropped."""
        with self._lock:
            if job in self._dropped:
                if judging:
                    self._dropped.remove(job)
                return False
            self._waiting.discard(job)
            if judging:
                self._judging = job
            return True

    def _judged(self, job: Job, ready: Ready | None) -> Verdict:
        if ready is not None:
            return self._judge.judge(ready)
        with self._quiet.alone():
            return self._judge.judge(self._prepared(job))

    # Other threads

    def _read(self, lines: Iterable[str]) -> None:
        try:
            for line in lines:
                self._take(line)
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._items.put(error)
            return
        with self._lock:
            self._ended = True
        self._items.put(None)  # wakes the main thread

    def _take(self, line: str) -> None:
        try:
            with self._quiet.moment() if len(line) > _AT_ONCE else nullcontext():
                parsed = parse_line(line)
        except BrokenJob as broken:
            self._enter()
            self._items.put(_Item(broken=broken))
            return
        if isinstance(parsed, Cancel):
            self._answer({"id": parsed.id, "cancel": self._cancel(parsed.id)})
            return
        self._enter()
        with self._lock:
            self._waiting.add(parsed["id"])
        if prepared_beside(parsed):
            self._unprepared.put(parsed)
        else:
            self._items.put(_Item(parsed))

    def _enter(self) -> None:
        self._room.acquire()
        with self._lock:
            self._open += 1

    def _cancel(self, job: str) -> str:
        with self._lock:
            if job in self._waiting:
                self._waiting.remove(job)
                self._dropped.add(job)
                return "dropped"
            return "judging" if job == self._judging else "unknown"

    def _prepare(self) -> None:
        while True:
            job = self._unprepared.get()
            with self._lock:
                dropped = job["id"] in self._dropped
            ready = None
            if not dropped:
                with self._quiet.beside():
                    ready = self._prepared(job)
                if self._answered(job, ready):
                    continue
            self._items.put(_Item(job, ready))

    def _answered(self, job: Job, ready: Ready) -> bool:
        """Answer a job that only compiles, at once: it does not wait for the device behind others."""
        if (verdict := self._judge.compiled(ready)) is None or not self._begin(job["id"], judging=False):
            return False
        self._answer(verdict)
        with self._lock:
            self._open -= 1
        self._room.release()
        self._items.put(None)  # the main thread looks whether this was the last
        return True

    def _prepared(self, job: Job) -> Ready:
        """Prepare the job.

        Where that fails by a fault of ours or of the host, the job ends with it.
        """
        try:
            return self._judge.prepare(job)
        except Exception as error:  # noqa: BLE001 - a fault of ours, or the host's: this job's alone
            traceback.print_exc()
            reason = f"the judge could not prepare the candidate: {type(error).__name__}: {error}"
            return Ready(job, Report(job), None, Stopped("ambiguous", "compile", reason, {
                "kind": "host", "message": reason,
            }))  # fmt: skip

    def _answer(self, document: Any) -> None:
        with self._writing:
            self._write(document)

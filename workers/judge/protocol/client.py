"""A judge process with a client, for Celery workers and the command line.

Standard library only.

    with JudgeClient(cache=Path(...), log=logger.info) as judge:
        verdict = judge.judge(job, timeout_s=600)

Many threads may ask at once: their jobs share one judge, which prepares several while it judges one. The process gets a
clean environment, so no key or password of the caller reaches it, and a session of its own. It is killed when this
process ends, and until then by `close` alone: a thread of the client's own starts it, since Linux's death signal comes
with the end of the thread that started a process.
"""

from __future__ import annotations

import itertools
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from warpsmith import IMPORT_ROOT
from warpsmith.kernels_db.job.documents import Job, Progress, Verdict
from warpsmith.workers.judge.nsight import access
from warpsmith.workers.judge.protocol.connection import Connection, Waiting

_WAIT_S = 1.0
_CLOSE_S = 15.0
_TAKE_BACK_S = 1.0

MOST_SENDS = 4
"""Judges that a job is sent to, one after another, while others than itself end them."""

_PASSED_ON = (
    *("PATH", "LANG", "CXX", "OMP_NUM_THREADS", "TMPDIR"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH"),
)


class JudgeError(Exception):
    """Base of what a client raises."""


class JudgeDied(JudgeError):  # noqa: N818 - the contract's name
    """The judge ended without answering, or failed at this job.

    The message carries the end of its diagnostics. The next job starts a new one. `cut_off`: only others than this job
    ended judges, MOST_SENDS of them.
    """

    cut_off = False


class JudgeUnfit(JudgeDied):
    """The judge's host cannot judge now, for no fault of this job: another host may, or this one later.

    `part`: "disk" (full, it takes no writes, or the cache directory cannot be made) or "device" (lost).
    """

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f"the judge's host cannot judge, {part}: {reason}")
        self.part = part


class JudgeTimeout(JudgeError):  # noqa: N818 - the contract's name
    """No verdict came in time.

    The job was taken back, and where the judge was at work on it (`at_work`), or did not say, the judge was killed.
    """

    at_work = False


class JobRefused(JudgeError):  # noqa: N818 - the contract's name
    """The judge could not read the job."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        super().__init__(f"{field}: found {found!r}, expected {expected}")
        self.field, self.found, self.expected = field, found, expected


def judge_environment(cache: Path, home: Path, ncu: str | None = None, visible: str | None = None) -> dict[str, str]:
    """Return the whole environment of a judge process. `visible`: its CUDA_VISIBLE_DEVICES; None: this process's."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    if visible is not None:
        passed["CUDA_VISIBLE_DEVICES"] = visible
    if ncu is not None:
        passed[access.VARIABLE] = ncu
    return {
        "PATH": os.defpath,
        "LANG": "C.UTF-8",
        **passed,
        "HOME": str(home),
        "PYTHONPATH": str(IMPORT_ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "WARPSMITH_JUDGE_CACHE": str(cache),
        "WARPSMITH_KERNEL_CACHE": str(cache / "kernels"),
    }


class JudgeClient:
    """Keeps one judge process. Thread-safe.

    It starts with the first job and again after its death.
    """

    def __init__(
        self,
        *,
        cache: Path,
        log: Callable[[str], None] | None = None,
        ncu: str | None = None,
        progress: Callable[[str, Progress], None] | None = None,
        visible: str | None = None,
    ) -> None:
        """Set up a client; the judge starts with the first job.

        `cache` holds binaries and device peaks; `log` gets the judge's diagnostics, line by line, and `progress` a
        job's id and where it is, each from a thread; `ncu` is where Nsight Compute is (`nsight.access.find`);
        `visible` is the GPU that it judges on, as CUDA_VISIBLE_DEVICES takes it, by default the caller's first.
        """
        self._visible = visible
        self._progress = progress
        self._cache = cache
        self._ncu = ncu
        self._log = log
        self._lock = threading.Lock()
        self._keeper: _Keeper | None = None
        self._connection: Connection | None = None
        self._numbers = itertools.count()
        self._compilers = False

    @property
    def pid(self) -> int | None:
        """Process id of the judge while there is one; also its session."""
        connection = self._connection
        return connection.pid if connection else None

    def start(self, *, compilers: bool = False) -> None:
        """Start the process unless it runs, without waiting for it.

        Its start takes seconds and can overlap with other work. `compilers`: it starts what compiles for GPUs, too.
        """
        self._compilers = compilers
        self._running()

    def judge(self, job: Job, timeout_s: float, on_wait: Callable[[], None] | None = None) -> Verdict:
        """Return the verdict on one job. From any thread.

        A job that another job's end by force took with it is sent to the next judge, at most MOST_SENDS times in all.

        Args:
            job: a resolved job (`warpsmith.kernels_db.spec.resolve.build_job`).
            timeout_s: seconds for the whole job, with its wait for others; past it the job is taken back, and where the
                judge is at work on it, the judge and everything under it is killed.
            on_wait: called about once a second while waiting; what it raises ends the job as a timeout does and is
                raised on.

        Raises:
            JudgeDied: the process ended, or gave this job up by a fault of its own; JudgeUnfit: its host cannot judge;
            JudgeTimeout: no answer in time; JobRefused: the job is not one.
        """
        if not isinstance(job.get("id"), str):
            raise JobRefused("id", job.get("id"), "a string")
        deadline = time.monotonic() + timeout_s
        self._compilers = str(job.get("target")).startswith("cuda")  # of a judge that this job starts
        for number in range(1, MOST_SENDS + 1):
            connection = self._running()
            waiting = connection.ask({**job, "id": f"{job['id']}~{next(self._numbers)}"})
            try:
                _wait(waiting, deadline, on_wait)
            except BaseException as error:
                at_work = not connection.take_back(waiting, _TAKE_BACK_S)
                if at_work:
                    connection.kill()
                if isinstance(error, JudgeTimeout):
                    error.at_work = at_work
                raise
            if waiting.document is not None:
                return _verdict(waiting.document, job)
            assert waiting.end is not None
            if number == MOST_SENDS or not waiting.end.send_again:
                died = JudgeDied(waiting.end.text)
                died.cut_off = waiting.end.send_again
                raise died
        raise AssertionError("the last send raises or returns")

    def close(self) -> None:
        """End the judge by end of input, which lets it answer what it was asked.

        It ends by force where it does not end in time.
        """
        with self._lock:
            connection, self._connection = self._connection, None
            keeper, self._keeper = self._keeper, None
        if connection is not None:
            connection.finish(_CLOSE_S)
        if keeper is not None:
            keeper.end()

    def __enter__(self) -> JudgeClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _running(self) -> Connection:
        """Return the judge, started where there is none."""
        with self._lock:
            if self._connection is None or not self._connection.running:
                if self._keeper is None:
                    self._keeper = _Keeper()
                self._connection = self._keeper.call(self._connect)
            return self._connection

    def _connect(self) -> Connection:
        command = [sys.executable, "-P", "-m", "warpsmith.workers.judge", "--die-with-parent", str(os.getpid())]
        command += ["--compilers"] if self._compilers else []
        command += ["--progress"] if self._progress is not None else []
        environment = partial(judge_environment, self._cache, ncu=self._ncu, visible=self._visible)
        return Connection(command, environment, self._log, None if self._progress is None else self._tell)

    def _tell(self, ticket: str, where: Any) -> None:
        assert self._progress is not None
        self._progress(ticket.rpartition("~")[0], where)


class _Keeper:
    """The thread that starts judges, and lives as long as they may.

    A daemon, unlike the threads of a pool: those end before what `atexit` calls, so a judge that is closed there would
    have been killed already.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Connection], Future[Connection]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="judge-keeper", daemon=True)
        self._thread.start()

    def call(self, work: Callable[[], Connection]) -> Connection:
        """Call `work` in the thread; returns its result, raises what it raises."""
        result: Future[Connection] = Future()
        self._calls.put((work, result))
        return result.result()

    def end(self) -> None:
        """End the thread."""
        self._calls.put(None)
        self._thread.join()

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            work, result = call
            try:
                result.set_result(work())
            except BaseException as error:  # noqa: BLE001 - the caller raises it
                result.set_exception(error)


def _wait(waiting: Waiting, deadline: float, on_wait: Callable[[], None] | None) -> None:
    """Until the job is answered. Raises JudgeTimeout, and what `on_wait` raises."""
    while not waiting.done.wait(max(0.0, min(_WAIT_S, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            raise JudgeTimeout("no verdict in time")
        if on_wait is not None:
            on_wait()


def _verdict(document: dict[str, Any], job: Job) -> Verdict:
    """Return the judge's answer to a job. Raises JobRefused, JudgeDied, JudgeUnfit."""
    if "error" in document:
        error = document["error"]
        raise JobRefused(str(error["field"]), error["found"], str(error["expected"]))
    if "unfit" in document:
        raise JudgeUnfit(str(document["unfit"]["part"]), str(document["unfit"]["reason"]))
    if "fault" in document:
        raise JudgeDied(f"the judge failed at this job:\n{document['fault']}")
    return cast("Verdict", {**document, "id": job["id"]})

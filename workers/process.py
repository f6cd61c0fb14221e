"""What a worker's child process keeps between steps: its database, its judge, its heartbeat. Everything is made after
the fork."""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import sys
from typing import TYPE_CHECKING

from billiard import current_process

from kernels_db.db import Database
from workers import log
from workers.heartbeat import Heartbeat, Worker
from workers.settings import Settings

if TYPE_CHECKING:
    from workers.judge.client import JudgeClient

PR_SET_PDEATHSIG = 1

worker = Worker("worker", "model")
"""The worker that this process belongs to; Celery's parent process sets it before it forks."""


class WorkerProcess:
    """One child process of a Celery worker."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.db = Database(settings.database)
        self._judge: JudgeClient | None = None
        self._heartbeat: Heartbeat | None = None

    def start_heartbeat(self) -> None:
        """Report in for the worker. One child does it for all: a thread in the parent would be running whenever it
        forks."""
        self._heartbeat = Heartbeat(self.db, worker)
        self._heartbeat.start()

    def claim_token(self) -> str:
        """Who claims, different for each claim: worker, pid, and a random part."""
        return f"{worker.name[:90]}:{os.getpid()}:{secrets.token_hex(6)}"

    def judge(self) -> JudgeClient:
        """The judge of this process, started with the first job."""
        if self._judge is None:
            # Model workers have no judge: they never import it.
            from workers.judge.client import JudgeClient  # noqa: PLC0415

            judge_log = log.get("workers.judge")
            self._judge = JudgeClient(cache=self.settings.judge_cache_dir, log=judge_log.info)
        return self._judge

    def close(self) -> None:
        """End the heartbeat and the judge, and close the database."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._judge is not None:
            self._judge.close()
        self.db.dispose()


_current: WorkerProcess | None = None


def open_process(settings: Settings) -> WorkerProcess:
    """Set up this child process."""
    global _current  # noqa: PLW0603 - one per process, as Celery's hooks are
    die_with_parent()
    _current = WorkerProcess(settings)
    if current_process().index == 0:
        _current.start_heartbeat()
    return _current


def current() -> WorkerProcess:
    """This child process, as `open_process` set it up."""
    assert _current is not None, "steps run in the prefork pool alone"
    return _current


def close_process() -> None:
    """Undo `open_process`."""
    global _current  # noqa: PLW0603
    if _current is not None:
        _current.close()
        _current = None


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies, so that a killed worker leaves no orphan. Linux only;
    elsewhere nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

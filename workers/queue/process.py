"""The state that a process keeps between its steps: its database, its judge, its heartbeat.

Steps are done by the children of a prefork pool, one at a time, or by the threads of a worker that serves a GPU, which
share one judge: so their candidates compile while another's is timed. A child makes everything after the fork.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from billiard import current_process

from warpsmith.kernels_db.store.db import Database
from warpsmith.workers import log
from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.machine.host import find_full_disk
from warpsmith.workers.judging.machine import describe_compilers, describe_device
from warpsmith.workers.queue.heartbeat import Heartbeat, Worker
from warpsmith.workers.queue.schema import SchemaGuard
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps.compiling import LONGEST_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery.worker.consumer import Consumer

    from warpsmith.kernels_db.job.documents import Job, Verdict
    from warpsmith.workers.judge.protocol.client import JudgeClient

logger = log.get(__name__)

consumer: Consumer | None = None
"""What takes this process's messages, where this process is the worker's own; Celery sets it."""

worker = Worker("worker", "model")
"""The worker that this process belongs to; Celery's parent process sets it before it forks."""


class WorkerProcess:
    """One process that does steps, in one thread or in several."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.db = Database(settings.database)
        self.schema = SchemaGuard(self.db)
        self.ill: str | None = None
        self._judge: JudgeClient | None = None
        self._judge_lock = threading.Lock()
        self._heartbeat: Heartbeat | None = None
        self._device_bytes: int | None = None
        self._asked_driver = False

    def start_heartbeat(self) -> None:
        """Start the heartbeat of the worker.

        Of a prefork pool one child does it for all: a thread in the parent would be running whenever it forks.
        """
        self._heartbeat = Heartbeat(self.db, worker, on_drain=end_worker)
        self._heartbeat.start()

    def claim_token(self) -> str:
        """Make the owner's name of a claim, new each time: worker, pid, and a random part."""
        return f"{worker.name[:LONGEST_NAME]}:{os.getpid()}:{secrets.token_hex(6)}"

    def judge(self) -> JudgeClient:
        """Return this process's judge, shared by its threads; it starts with its first job at the latest."""
        with self._judge_lock:
            if self._judge is None:
                # Model workers have no judge: they never import its client.
                from warpsmith.workers.judge.protocol.client import JudgeClient  # noqa: PLC0415

                judge_log = log.get("warpsmith.workers.judge")
                self._judge = JudgeClient(
                    cache=self.settings.judge_cache_dir, log=judge_log.info, ncu=self.settings.ncu
                )
            return self._judge

    def start_judge(self) -> None:
        """Start the judge before its first job, without waiting for it: most of a short job is that start.

        What compiles for GPUs starts with it, where a language of theirs can be compiled here and is judged here.
        """
        assert worker.target is not None, "model workers have no judge"
        told = describe_compilers(worker.target)
        wanted = worker.compiles or worker.target.startswith("cuda:")
        compilers = wanted and any(not missing for missing in told.get("cuda", told[worker.target]).values())
        self.judge().start(compilers=compilers)

    def judge_job(self, job: Job, on_wait: Callable[[], None] | None = None, timeout_s: float | None = None) -> Verdict:
        """Return the judge's verdict on a job, within the time that the settings give it, or within `timeout_s`.

        Raises what `JudgeClient.judge` raises. A lost device makes this process ill, and JudgeUnfit is raised for a
        verdict, too, where another of this process's jobs lost the device meanwhile: it was made without.
        """
        from warpsmith.workers.judge.protocol.client import JudgeUnfit  # noqa: PLC0415 - as in `judge`

        try:
            verdict = self.judge().judge(job, timeout_s or self.settings.judge_job_timeout_s, on_wait=on_wait)
            if self.ill is not None:
                raise JudgeUnfit("device", self.ill)
        except JudgeUnfit as unfit:
            if unfit.part == "device":
                self.mark_ill(str(unfit))
            raise
        return verdict

    def device_bytes(self) -> int | None:
        """Return the memory of the GPU that this worker judges on; None where it has none, or the driver says nothing.

        As the driver says, until the judge found less (`correct_device`).
        """
        if worker.target is None or not worker.target.startswith("cuda:"):
            return None
        with self._judge_lock:
            if not self._asked_driver:
                device = describe_device(worker.target)
                self._device_bytes = None if device is None else device["memory_bytes"]
                self._asked_driver = True
            return self._device_bytes

    def correct_device(self, found: int) -> None:
        """Go by the memory that the judge found, here and in what this worker reports.

        A MIG slice has less than its name says, and every GPU less than its driver says.
        """
        with self._judge_lock:
            self._device_bytes, self._asked_driver = found, True
        if self._heartbeat is not None:
            self._heartbeat.correct_memory(found)

    def find_full_disk(self) -> Path | None:
        """Return a directory of the judge's whose disk has no room left; None where all have some."""
        return find_full_disk((self.settings.judge_cache_dir, Path(tempfile.gettempdir())))

    def mark_ill(self, reason: str) -> None:
        """Take no more steps: this process's device is lost, and what it would say of a candidate is not so.

        The worker's row says why, and is not renewed: the service counts it as gone until it is started again.
        """
        if self.ill is not None:
            return
        self.ill = reason
        logger.error("the device is lost; this worker takes no more steps until it is started again", reason=reason)
        if self._heartbeat is not None:
            self._heartbeat.end_with(reason)
        if consumer is None:
            end_worker()
            return
        for queue in list(consumer.app.amqp.queues.consume_from):
            consumer.call_soon(consumer.cancel_task_queue, queue)

    def close(self) -> None:
        """End the heartbeat and the judge, and close the database."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._judge is not None:
            self._judge.close()
        self.db.dispose()


def end_worker() -> None:
    """Begin Celery's warm shutdown of the worker: it waits for the steps in hand and takes no more messages."""
    os.kill(worker.pid, signal.SIGTERM)


_current: WorkerProcess | None = None


def open_child(settings: Settings) -> WorkerProcess:
    """Set up this child of a prefork pool."""
    if sys.platform == "linux":
        process_control.die_with_parent(os.getppid())  # a killed worker leaves no orphan
    here = _open(settings)
    if current_process().index == 0:
        here.start_heartbeat()
    return here


def open_worker(settings: Settings) -> WorkerProcess:
    """Set up this worker, whose threads do its steps."""
    here = _open(settings)
    here.start_heartbeat()
    return here


def _open(settings: Settings) -> WorkerProcess:
    global _current  # noqa: PLW0603 - one per process, as Celery's hooks are
    _current = WorkerProcess(settings)
    if worker.target is not None and settings.judge_at_start:
        _current.start_judge()
    return _current


def current() -> WorkerProcess:
    """Return this process, as it was set up."""
    assert _current is not None, "steps run in a prefork child or in a worker's threads"
    return _current


def close_process() -> None:
    """Undo `open_child` or `open_worker`; nothing where neither was called."""
    global _current  # noqa: PLW0603
    if _current is not None:
        _current.close()
        _current = None

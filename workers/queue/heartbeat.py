"""Workers report in: a row each, whose `seen_at` says that the process lives."""

from __future__ import annotations

import os
import platform
import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from warpsmith.kernels_db.store.db import Database, StorageFull
from warpsmith.kernels_db.store.tables import WorkerRow
from warpsmith.workers import log
from warpsmith.workers.settings import HEARTBEAT_S

PACKAGES = ("warpsmith", "celery", "sqlalchemy")

logger = log.get(__name__)


@dataclass(frozen=True)
class Worker:
    """The worker that reports.

    `role`: model, judge, reconciler or beat; `target` for judges alone.
    """

    name: str
    role: str
    target: str | None = None


def facts() -> dict[str, Any]:
    """Return the facts about this process: host, pid, versions."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def beat(db: Database, worker: Worker, started_at: float, now: float, ill: str | None = None) -> None:
    """Write the worker's row; `ill`: why it takes no more steps."""
    with db.writing() as session:
        session.merge(
            WorkerRow(
                name=worker.name,
                role=worker.role,
                target=worker.target,
                facts=facts() | ({} if ill is None else {"ill": ill}),
                started_at=started_at,
                seen_at=now,
            )
        )


class Heartbeat:
    """A thread that writes the worker's row every few seconds until `stop`.

    A database outage is logged once and waited out.
    """

    def __init__(self, db: Database, worker: Worker, interval_s: float = HEARTBEAT_S) -> None:
        self._db = db
        self._worker = worker
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._ill: str | None = None
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread; the first beat is at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; returns when it has ended."""
        self._stopped.set()
        self._thread.join()

    def end_with(self, ill: str) -> None:
        """End after one more beat, which says why the worker takes no more steps."""
        self._ill = ill
        self._stopped.set()

    def _run(self) -> None:
        started_at: float | None = None
        silent = False
        while True:
            try:
                now = self._db.now()
                started_at = now if started_at is None else started_at
                beat(self._db, self._worker, started_at, now, self._ill)
                silent = False
            except (SQLAlchemyError, StorageFull) as error:
                if not silent:
                    logger.warning("the worker could not report in", error=str(error).splitlines()[0])
                silent = True
            if self._stopped.wait(self._interval_s):
                break
        if self._ill is not None and started_at is not None:
            with suppress(SQLAlchemyError, StorageFull):
                beat(self._db, self._worker, started_at, self._db.now(), self._ill)

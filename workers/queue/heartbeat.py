"""Workers report in: a row each, whose `seen_at` says that the process lives."""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.db import Database, StorageFull
from warpsmith.kernels_db.store.tables import WorkerRow
from warpsmith.workers import log
from warpsmith.workers.judging.machine import describe_compilers, describe_device
from warpsmith.workers.settings import HEARTBEAT_S

PACKAGES = ("warpsmith", "celery", "sqlalchemy")
DRAINABLE = ("judge", "compile", "model")
"""Roles of the workers that do steps."""

logger = log.get(__name__)


@dataclass(frozen=True)
class Worker:
    """The worker that reports.

    `role`: model, judge, compile, reconciler or beat; `target` of those with a judge alone. `pid` and `started_at` are
    those of the process that makes this, which forks the others. `slots`: steps that it has in hand at once.
    `compiles`: it takes tries at level compile.
    """

    name: str
    role: str
    target: str | None = None
    pid: int = field(default_factory=os.getpid)
    started_at: float = field(default_factory=time.time)
    slots: int = 1
    compiles: bool = False


def collect_facts(worker: Worker) -> dict[str, Any]:
    """Collect the facts about this process: host, pid, versions; of a judge its device and what it compiles."""
    found = {
        "host": worker.name.rpartition("@")[2],
        "pid": os.getpid(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }
    if worker.target is None:
        return found
    found |= {"slots": worker.slots, "compiles": describe_compilers(worker.target) if worker.compiles else {}}
    device = describe_device(worker.target)
    return found if device is None else found | {"device": device}


def beat(db: Database, worker: Worker, facts: dict[str, Any], now: float, ill: str | None = None) -> bool:
    """Write the worker's row; return whether the worker is to drain. `ill`: why it takes no more steps.

    What an earlier worker of its name was told does not count.
    """
    with db.writing() as session:
        before = session.get(WorkerRow, worker.name)
        told = before.draining_since if before is not None and before.started_at == worker.started_at else None
        session.merge(
            WorkerRow(
                name=worker.name,
                role=worker.role,
                target=worker.target,
                facts=facts | ({} if ill is None else {"ill": ill}),
                started_at=worker.started_at,
                seen_at=now,
                draining_since=told,
            )
        )
    return told is not None


def drain(session: Session, name: str, alive_since: float, now: float) -> list[str]:
    """Tell the live workers with this name, or of the host with this name, to drain; return their names.

    Each learns of it with its next beat, ends what it has in hand and takes nothing more.
    """
    rows = session.scalars(
        select(WorkerRow)
        .where(WorkerRow.role.in_(DRAINABLE), WorkerRow.seen_at >= alive_since)
        .where(or_(WorkerRow.name == name, WorkerRow.name.endswith(f"@{name}", autoescape=True)))
        .order_by(WorkerRow.name)
    ).all()
    for row in rows:
        row.draining_since = row.draining_since or now
    return [row.name for row in rows]


class Heartbeat:
    """A thread that writes the worker's row every few seconds until `stop`.

    A database outage is logged once and waited out. `on_drain` is called once, when the worker is told to drain.
    """

    def __init__(
        self,
        db: Database,
        worker: Worker,
        interval_s: float = HEARTBEAT_S,
        on_drain: Callable[[], None] = lambda: None,
    ) -> None:
        self._db = db
        self._worker = worker
        self._interval_s = interval_s
        self._on_drain = on_drain
        self._stopped = threading.Event()
        self._ill: str | None = None
        self._memory_bytes: int | None = None
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

    def correct_memory(self, found: int) -> None:
        """Report so many bytes as the device's memory from the next beat on."""
        self._memory_bytes = found

    def _correct(self, facts: dict[str, Any]) -> dict[str, Any]:
        if self._memory_bytes is None or "device" not in facts:
            return facts
        return facts | {"device": facts["device"] | {"memory_bytes": self._memory_bytes}}

    def _run(self) -> None:
        collected = collect_facts(self._worker)
        silent = draining = False
        while True:
            facts = self._correct(collected)
            try:
                told = beat(self._db, self._worker, facts, self._db.now(), self._ill)
                if told and not draining:
                    logger.info("the worker drains: it ends what it has in hand and takes nothing more")
                    self._on_drain()
                silent, draining = False, told
            except (SQLAlchemyError, StorageFull) as error:
                if not silent:
                    logger.warning("the worker could not report in", error=str(error).splitlines()[0])
                silent = True
            if self._stopped.wait(self._interval_s):
                break
        if self._ill is not None:
            with suppress(SQLAlchemyError, StorageFull):
                beat(self._db, self._worker, facts, self._db.now(), self._ill)

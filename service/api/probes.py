"""Whether a dependency answers: checks in threads of their own, each with a time limit.

A check that hangs keeps its one thread and no request: callers wait for a check that begins after they ask, all for the
same one, and no longer than the limit.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from celery import Celery
from sqlalchemy.exc import SQLAlchemyError

from warpsmith.kernels_db.store.db import Database, is_newer
from warpsmith.service.documents.field_error import FieldError
from warpsmith.workers import log
from warpsmith.workers.queue.broker import reach_broker

LEFT_AT_END_S = 2.0
"""Seconds that closing waits for a check under way."""

logger = log.get(__name__)


@dataclass(frozen=True)
class Outcome:
    """The outcome of a check: what was found, and the fault where there is one."""

    detail: str
    fault: FieldError | None = None


class Probe:
    """Checks one dependency whenever it is asked, and every `interval_s` once `start` was called."""

    def __init__(self, field: str, check: Callable[[], Outcome], timeout_s: float, interval_s: float = 2.0) -> None:
        self._field = field
        self._check = check
        self._timeout_s = timeout_s
        self._interval_s = interval_s
        self._changed = threading.Condition()
        self._waiting: list[Future[Outcome]] = []
        self._thread: threading.Thread | None = None
        self._began: float | None = None
        self._latest: tuple[float, Outcome] | None = None
        self._regular = False
        self._closed = False

    @property
    def hangs(self) -> bool:
        """Whether a check has been under way for longer than the limit: the circuit breaker is open."""
        began = self._began
        return began is not None and time.monotonic() - began > self._timeout_s

    def start(self) -> None:
        """Begin to check regularly."""
        with self._changed:
            self._regular = True
            self._ensure_thread()
            self._changed.notify()

    def close(self) -> None:
        """End the thread; wait for its check, which holds a connection, but no longer than LEFT_AT_END_S."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(LEFT_AT_END_S)

    async def ask(self) -> Outcome:
        """Wait for a check that begins now or later, at most as long as the limit."""
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._request()), self._timeout_s)
        except TimeoutError:
            return self._hanging()

    def ask_and_wait(self, within_s: float = 0.0) -> Outcome:
        """Do as `ask` does, in a thread; the outcome of a check that began within the last seconds will do."""
        latest = self._latest
        if latest is not None and time.monotonic() - latest[0] < within_s and not self.hangs:
            return latest[1]
        try:
            return self._request().result(self._timeout_s)
        except TimeoutError:
            return self._hanging()

    def _request(self) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        if self.hangs:
            future.set_result(self._hanging())
            return future
        with self._changed:
            self._waiting.append(future)
            self._ensure_thread()
            self._changed.notify()
        return future

    def _ensure_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"probe-{self._field}", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._waiting or self._closed, self._interval_s if self._regular else None
                )
                if self._closed:
                    return
                asked, self._waiting = self._waiting, []
            began = self._began = time.monotonic()
            try:
                outcome = self._check()
            except Exception as error:  # whatever a driver raises is a fault of the dependency
                logger.exception("probe.failed", dependency=self._field)
                outcome = self._failing(error)
            self._latest, self._began = (began, outcome), None
            for future in asked:
                if future.set_running_or_notify_cancel():
                    future.set_result(outcome)

    def _hanging(self) -> Outcome:
        found = f"no answer in {self._timeout_s:g} s"
        return Outcome("", FieldError(field=self._field, found=found, expected=f"a {self._field} that answers"))

    def _failing(self, error: Exception) -> Outcome:
        expected = f"a {self._field} that can be reached"
        return Outcome("", FieldError(field=self._field, found=extract_message(error), expected=expected))


def make_database_probe(db: Database, timeout_s: float) -> Probe:
    """Make the probe of the database; its detail is the revision."""

    def check() -> Outcome:
        try:
            found, expected = db.revision()
        except SQLAlchemyError as error:
            fault = FieldError(
                field="database", found=extract_message(error), expected="a database that can be reached"
            )
            return Outcome("", fault)
        if found == expected:
            return Outcome(found)
        remedy = "upgrade this program" if is_newer(found, expected) else "run: warpsmith db upgrade"
        wanted = f"revision {expected} ({remedy})"
        shown = f"revision {found}" if found else "no schema"
        return Outcome(str(found), FieldError(field="database", found=shown, expected=wanted))

    return Probe("database", check, timeout_s)


def make_broker_probe(app: Celery, timeout_s: float) -> Probe:
    """Make the probe of the broker; its detail is its addresses, with passwords masked."""

    def check() -> Outcome:
        name, error = reach_broker(app, timeout_s)
        if error is not None:
            found = f"{name}: {extract_message(error)}"
            return Outcome(name, FieldError(field="broker", found=found, expected="a broker that can be reached"))
        return Outcome(name)

    return Probe("broker", check, timeout_s)


def extract_message(error: Exception) -> str:
    """Return the first line of what went wrong."""
    text = str(error.__cause__ or error).strip().partition("\n")[0]
    return text[:200] or type(error).__name__

"""Hands messages to the broker from a thread of its own, so that no request waits for the broker.

A message is a hint: its step is pending in the database, and the reconciler sends it again. So the outbox forgets
messages while the broker does not answer, and what the API stores meanwhile goes on once it does.
"""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from celery import Celery

from warpsmith.workers import log, tracing
from warpsmith.workers.queue import dispatch

MOST_WAITING = 10_000
PAUSE_S = 5.0
"""Seconds without an attempt after one that failed."""

LEFT_AT_END_S = 2.0
"""Seconds that closing waits for what was handed over before."""

logger = log.get(__name__)


class Outbox:
    """The messages that wait to go out; its thread starts with the first."""

    def __init__(self, app: Celery) -> None:
        self._app = app
        self._waiting: queue.Queue[Callable[[], bool] | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._paused_until = 0.0

    def send(self, messages: Iterable[dispatch.Message]) -> None:
        """Hand over the messages of steps."""
        found = list(messages)
        self._put(found, lambda: dispatch.send(self._app, found) == len(found))

    def send_reverifications(self, messages: Iterable[dispatch.Message]) -> None:
        """Hand over the messages of re-verifications."""
        found = list(messages)
        self._put(found, lambda: dispatch.send_reverifications(self._app, found) == len(found))

    def send_import(self, message: dispatch.Message) -> None:
        """Hand over the message of an import."""
        self._put([message], lambda: dispatch.send_imports(self._app, [message]) == 1)

    def send_tries(self, messages: Iterable[dispatch.Message]) -> None:
        """Hand over the messages of tries."""
        found = list(messages)
        self._put(found, lambda: dispatch.send_tries(self._app, found) == len(found))

    def send_profile(self, profile_id: str, queue_name: str) -> None:
        """Hand over the announcement of a requested profile."""
        self._put([profile_id], lambda: dispatch.send_profile(self._app, profile_id, queue_name))

    def close(self) -> None:
        """Send what still waits, as far as the broker takes it at once."""
        if self._thread is not None:
            self._enqueue(None)
            self._thread.join(LEFT_AT_END_S)

    def _put(self, found: Sequence[object], send: Callable[[], bool]) -> None:
        if not found:
            return
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="outbox", daemon=True)
                self._thread.start()
        # The message belongs to the trace of the request, which this thread knows and the other does not.
        self._enqueue(partial(contextvars.copy_context().run, send) if tracing.is_on() else send)

    def _enqueue(self, item: Callable[[], bool] | None) -> None:
        try:
            self._waiting.put_nowait(item)
        except queue.Full:
            logger.warning("too many messages wait for the broker; the reconciler will send the steps again")

    def _run(self) -> None:
        while (send := self._waiting.get()) is not None:
            if time.monotonic() < self._paused_until:
                continue
            try:
                sent = send()
            except Exception as error:  # the thread outlives whatever a broker's client raises
                logger.exception("outbox.failed", error=str(error))
                sent = False
            if not sent:
                self._paused_until = time.monotonic() + PAUSE_S

"""`python -m warpsmith.workers.queue.reconciler`: brings back steps that crashes lost.

Every round it returns expired leases to the queue, sends again the messages of steps, tries, re-verifications and
imports that stay pending, and advances searches that make no progress. Every hour it deletes old entries of the audit
log and imports that ended long ago, and prunes old searches. It holds no state, so it may be killed and started again
at any moment, and two of them do no harm.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from dataclasses import asdict
from types import FrameType

from celery import Celery
from sqlalchemy.exc import SQLAlchemyError

from warpsmith.kernels_db.store import audit, tallies
from warpsmith.kernels_db.store.db import Database, StorageFull
from warpsmith.workers import imports, log, reverification, steps, tracing
from warpsmith.workers.queue import dispatch
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.queue.heartbeat import Heartbeat, Worker
from warpsmith.workers.queue.schema import SchemaGuard
from warpsmith.workers.settings import Settings, get_settings
from warpsmith.workers.steps import trying
from warpsmith.workers.steps.pruning import MOST_SEARCHES

LONGEST_DELAY_S = 30.0
PRUNE_EVERY_S = 3600.0
DAY_S = 86_400.0
IMPORTS_KEPT_S = 7 * DAY_S
"""Seconds after its end for which an import can be read, as long as an Idempotency-Key brings its answer again."""

logger = log.get(__name__)


class Reconciler:
    """The loop; `stop` ends it from a signal handler or another thread."""

    def __init__(self, settings: Settings, db: Database, app: Celery) -> None:
        self._settings = settings
        self._db = db
        self._app = app
        self._stopped = threading.Event()
        self._schema = SchemaGuard(db)
        self._told: str | None = None
        self._pruned_at = -PRUNE_EVERY_S

    def stop(self) -> None:
        """End the loop after the round that is under way."""
        self._stopped.set()

    def run(self) -> None:
        """Reconcile every `reconcile_interval_s` until stopped.

        A database that cannot be reached is waited for, ever longer.
        """
        delay = self._settings.reconcile_interval_s
        while not self._stopped.is_set():
            try:
                self.round()
                delay = self._settings.reconcile_interval_s
            except (SQLAlchemyError, StorageFull) as error:
                delay = min(2 * delay, LONGEST_DELAY_S)
                logger.warning(
                    "the database cannot be used; trying again", error=str(error).splitlines()[0], in_s=delay
                )
            self._stopped.wait(delay)

    def round(self) -> int:
        """Reconcile once; returns how many messages went out.

        Does nothing on a schema that is not this program's own, and says so once.
        """
        fault = self._schema.fault()
        if fault is not None:
            if fault != self._told:
                logger.error("nothing is reconciled", reason=fault)
            self._told = fault
            return 0
        self._told = None
        messages = steps.reconcile(self._db, self._db.now(), self._settings)
        sent = dispatch.send(self._app, messages)
        again = reverification.reconcile(self._db, self._db.now(), self._settings)
        sent += dispatch.send_reverifications(self._app, again)
        sent += dispatch.send_imports(self._app, imports.reconcile(self._db, self._db.now(), self._settings))
        lost = trying.reconcile_tries(self._db, self._db.now(), self._settings)
        sent += dispatch.send_tries(self._app, lost)
        if sent:
            logger.info("steps were sent again", steps=sent)
        with self._db.reading() as session:
            is_long = tallies.is_long(session)
        if is_long:
            with self._db.writing() as session:
                tallies.fold(session)
        if time.monotonic() - self._pruned_at >= PRUNE_EVERY_S:
            self._prune()
        return sent

    def _prune(self) -> None:
        """Delete what has outlived its setting.

        Where more searches are due than one call takes, the next round goes on.
        """
        now, settings, pruned = self._db.now(), self._settings, steps.Pruned()
        with self._db.writing() as session:
            imports.prune(session, now - IMPORTS_KEPT_S)
        if settings.audit_days > 0:
            with self._db.writing() as session:
                audit.prune(session, now - settings.audit_days * DAY_S)
        if settings.retention_days > 0:
            pruned = steps.prune(self._db, now - settings.retention_days * DAY_S, now)
        if pruned.searches:
            logger.info("old searches were pruned", **asdict(pruned))
        if pruned.searches < MOST_SEARCHES:
            self._pruned_at = time.monotonic()


def main() -> int:
    """Run until SIGTERM or SIGINT."""
    settings = get_settings()
    log.configure(settings)
    tracing.start(settings, "reconciler")
    db = Database(settings.database)
    reconciler = Reconciler(settings, db, make_app(settings))

    def end(_signal: int, _frame: FrameType | None) -> None:
        reconciler.stop()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    heartbeat = Heartbeat(db, Worker(f"reconciler@{socket.gethostname()}", "reconciler"))
    heartbeat.start()
    logger.info("the reconciler runs", interval_s=settings.reconcile_interval_s, lease_s=settings.lease_s)
    try:
        reconciler.run()
    finally:
        heartbeat.stop()
        db.dispose()
        tracing.stop()
    logger.info("the reconciler ended")
    return 0


if __name__ == "__main__":
    sys.exit(main())

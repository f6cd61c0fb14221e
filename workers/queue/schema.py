"""The schema that a worker finds: it does no step on one that is not its own.

During a rolling upgrade the database is migrated while older workers run. What they would read and write is then of
another version, so such a worker gives its message back and ends; started again, it waits for its own schema and takes
nothing meanwhile.
"""

from __future__ import annotations

import time

from sqlalchemy.exc import SQLAlchemyError

from warpsmith.kernels_db.store.db import Database, describe_mismatch
from warpsmith.workers import log

KNOWN_FOR_S = 5.0
"""Seconds for which a revision counts as known."""
LOOK_EVERY_S = 2.0

logger = log.get(__name__)


class SchemaGuard:
    """Compares the database's schema with this program's, at most every `KNOWN_FOR_S`."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._looked_at = -KNOWN_FOR_S
        self._fault: str | None = None

    def fault(self) -> str | None:
        """Say how the schema differs; None where it is this program's own. Raises SQLAlchemyError."""
        now = time.monotonic()
        if self._fault is not None or now - self._looked_at >= KNOWN_FOR_S:
            self._fault = describe_mismatch(*self._db.revision())
            self._looked_at = now
        return self._fault


def await_schema(db: Database) -> None:
    """Return when the schema is this program's own, or when the database cannot be asked.

    A worker waits for a database that is away as it does for its broker: its steps fail, and are done again.
    """
    guard, told = SchemaGuard(db), False
    while True:
        try:
            fault = guard.fault()
        except SQLAlchemyError:
            return
        if fault is None:
            return
        if not told:
            logger.error("no step is taken", reason=fault)
            told = True
        time.sleep(LOOK_EVERY_S)

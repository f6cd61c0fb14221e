"""Read a claimed import and store what it holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from warpsmith.kernels_db.formats.op_import import import_op
from warpsmith.kernels_db.job.documents import SandboxLevel
from warpsmith.kernels_db.job.file_analysis import Analyse, Analysis
from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors
from warpsmith.kernels_db.store import records
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.pool_file import PoolError, parse_pool_stepwise
from warpsmith.workers.imports.files import decode_files
from warpsmith.workers.imports.rows import ImportWork, Stage, fail, finish, record_progress
from warpsmith.workers.judge.analysis.client import Analyser
from warpsmith.workers.judging import machine
from warpsmith.workers.settings import Settings

LEAST_CONFINEMENT: SandboxLevel = "confined"
"""Least sandbox of an imported file, even where judges take less: it must not read the service's files."""

REPORTED_EVERY_S = 0.5
"""Seconds between two reports of progress, each of which is a transaction."""

Store = Callable[[Session], dict[str, Any]]
"""Stores what was read and returns the import's result."""

Check = Callable[[], None]
"""Raises where the import is no longer this worker's."""

T = TypeVar("T")


class _LeaseLost(Exception):  # noqa: N818 - undoes the transaction
    """Another worker has the import, or it was ended."""


def carry_out(db: Database, work: ImportWork, settings: Settings, now: Callable[[], float], check: Check) -> bool:
    """Read the import, store what it holds and end it; False where the lease was lost, and nothing was stored.

    A body that is wrong ends the import with its errors. Raises what `check` raises, and the database's errors: the
    import is then taken again.
    """
    try:
        store = _read_pool(db, work, check) if work.kind == "pool" else _read_op(db, work, settings, check)
    except PoolError as error:
        wrong = SpecError(f"line {error.line}, {error.field}", error.found, error.expected)
        return fail(db, work, "invalid-pool", str(wrong), now(), [wrong])
    except SpecErrors as error:
        return fail(db, work, "invalid-spec", str(error.errors[0]), now(), error.errors)
    record_progress(db, work, "storing", 0, None)
    try:
        with db.writing() as session:
            result = store(session)
            if not finish(session, work, result, now()):
                raise _LeaseLost
    except _LeaseLost:
        return False
    return True


class _Progress:
    """Counts the items of a stage, and reports them now and then."""

    def __init__(self, db: Database, work: ImportWork, stage: Stage, total: int | None, check: Check) -> None:
        self._db, self._work, self._stage, self._total, self._check = db, work, stage, total, check
        self._done = 0
        self._reported_at = time.monotonic()

    def run(self, work: Generator[None, None, T]) -> T:
        """Run a generator that yields after each item, and return its result."""
        while True:
            try:
                next(work)
            except StopIteration as stop:
                result: T = stop.value
                return result
            self._done += 1
            if time.monotonic() - self._reported_at >= REPORTED_EVERY_S:
                self._check()
                record_progress(self._db, self._work, self._stage, self._done, self._total)
                self._reported_at = time.monotonic()


def _read_pool(db: Database, work: ImportWork, check: Check) -> Store:
    text = work.body.decode("utf-8")
    lines = text.count("\n")
    record_progress(db, work, "reading", 0, lines)
    pool = _Progress(db, work, "reading", lines, check).run(parse_pool_stepwise(text))
    _ = pool.digest  # kept in it: worked out before the transaction, which holds up other writers on SQLite

    def store(session: Session) -> dict[str, Any]:
        row, created = records.add_pool(session, pool, team=work.team)
        return {"pool_id": row.id, "created": created}

    return store


def _read_op(db: Database, work: ImportWork, settings: Settings, check: Check) -> Store:
    files, format_name = decode_files(work.body)
    with _analysing(db, work, settings.sandbox_minimum, check) as analyse:
        found = import_op(files, format_name, analyse)

    def store(session: Session) -> dict[str, Any]:
        row, created = records.add_op(session, found.op, team=work.team)
        source = {"format": found.format, "notes": found.notes, "sandbox": found.sandbox}
        return {"op_id": row.id, "created": created, **source}

    return store


@contextmanager
def _analysing(db: Database, work: ImportWork, minimum: SandboxLevel | None, check: Check) -> Iterator[Analyse | None]:
    """Yield the function that runs a file in a sandbox, at least confined; None without torch."""
    if not machine.installed("torch"):
        yield None
        return
    with Analyser("isolated" if minimum == "isolated" else LEAST_CONFINEMENT) as run:

        def analyse(request: dict[str, Any]) -> Analysis:
            check()
            record_progress(db, work, "running", 0, None)
            found = run(request)
            check()
            return found

        yield analyse

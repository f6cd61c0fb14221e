"""The states of an import: sent, taken under a lease, done or failed.

This is the only code that changes an import. Each function makes one write transaction, but for those that take a
session. Time comes in as `now`, epoch seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import delete, exists, func, select, update
from sqlalchemy.orm import Session, aliased, undefer

from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import ImportRow, TeamRow
from warpsmith.workers.queue_names import MODEL_QUEUE
from warpsmith.workers.steps.rows import plain
from warpsmith.workers.steps.values import Message

ImportKind = Literal["pool", "op"]
Stage = Literal["reading", "running", "storing"]
Fault = Literal["invalid-pool", "invalid-spec", "import-lost", "internal-error"]
"""Kinds of problems that end an import, as the API names them."""


MOST_LOST = 10
"""Claims in a row that one call loses to other workers before it leaves the rest to them."""


class TooManyOpen(Exception):  # noqa: N818 - named for what it is
    """The team has as many open imports as it may have."""

    def __init__(self, team: str, found: int) -> None:
        super().__init__(f"team {team}: {found} imports wait or run")
        self.team = team
        self.found = found


@dataclass(frozen=True)
class ImportWork:
    """A claimed import with all that reading it needs; `owner` holds its lease."""

    id: str
    owner: str
    kind: ImportKind
    team: str
    body: bytes
    tries: int


def message(row: ImportRow) -> Message:
    """Return the message that announces it; model workers need no device."""
    return Message(row.id, MODEL_QUEUE)


def open_import(
    session: Session, kind: ImportKind, body: bytes, now: float, *, team: str, by: str | None, most_open: int
) -> ImportRow:
    """Add an import of `body`, to be announced after the commit. Raises TooManyOpen.

    `by`: the name of the API key that sent it.
    """
    session.get(TeamRow, team, with_for_update=True)  # of two at once the second counts the first
    of_team = (
        select(func.count()).select_from(ImportRow).where(ImportRow.team == team, ImportRow.state.in_(leases.OPEN))
    )
    found = session.scalar(of_team) or 0
    if found >= most_open:
        raise TooManyOpen(team, found)
    row = ImportRow(
        id=new_id("im"),
        kind=kind,
        team=team,
        asked_by=by,
        size=len(body),
        body=body,
        state="pending",
        sent_at=now,
        created_at=now,
    )
    session.add(row)
    session.flush()
    return row


def find_next(session: Session) -> ImportRow | None:
    """Return the oldest import that may be taken: its team has none that runs."""
    other = aliased(ImportRow)
    busy = exists().where(other.team == ImportRow.team, other.state == "running")
    waiting = select(ImportRow).where(ImportRow.state == "pending", ~busy)
    return session.scalar(waiting.order_by(ImportRow.created_at, ImportRow.id).limit(1))


def take(db: Database, owner: str, lease_s: float, now: float) -> ImportWork | None:
    """Take the import whose turn it is for `lease_s` seconds; None where none may be taken.

    `owner` must differ between claims, so that a worker that lost its lease cannot pass for the one that has it now.
    """
    for _ in range(MOST_LOST):
        with db.writing() as session:
            found = find_next(session)
            if found is None:
                return None
            work = _claim(session, found, owner, lease_s, now)
        if work is not None:
            return work
    return None


def _claim(session: Session, found: ImportRow, owner: str, lease_s: float, now: float) -> ImportWork | None:
    """Take this import; None where another worker took it, or another of its team."""
    # One claim of a team at a time: the second sees what the first took.
    session.get(TeamRow, found.team, with_for_update=True)
    other = aliased(ImportRow)
    alone = ~exists().where(other.team == found.team, other.state == "running")
    if not leases.claim(session, ImportRow, found.id, owner, lease_s, now, alone, stage="reading", done=0):
        return None
    fresh = select(ImportRow).where(ImportRow.id == found.id).options(undefer(ImportRow.body))
    row = session.scalars(fresh.execution_options(populate_existing=True)).one()
    kind: ImportKind = "pool" if row.kind == "pool" else "op"
    return ImportWork(row.id, owner, kind, row.team, row.body or b"", row.tries)


def renew(db: Database, work: ImportWork, lease_s: float, now: float) -> bool:
    """Hold the lease for another `lease_s` seconds; False: it was lost, stop."""
    with db.writing() as session:
        return leases.renew(session, ImportRow, work.id, work.owner, lease_s, now)


def record_progress(db: Database, work: ImportWork, stage: Stage, done: int, total: int | None) -> None:
    """Say how far the import came; nothing where the lease was lost."""
    with db.writing() as session:
        session.execute(
            update(ImportRow)
            .where(ImportRow.id == work.id, ImportRow.state == "running", ImportRow.owner == work.owner)
            .values(stage=stage, done=done, total=total)
        )


def finish(session: Session, work: ImportWork, result: dict[str, Any], now: float) -> bool:
    """End the import in the transaction that stored `result`; False where the lease was lost: undo it all."""
    row = leases.held(session, ImportRow, work.id, work.owner)
    if row is None:
        return False
    _end(row, "done", now)
    row.result = result
    return True


def fail(
    db: Database, work: ImportWork, fault: Fault, detail: str, now: float, errors: Sequence[SpecError] = ()
) -> bool:
    """End the import with the reason; False where the lease was lost."""
    with db.writing() as session:
        row = leases.held(session, ImportRow, work.id, work.owner)
        if row is None:
            return False
        end_with_fault(row, fault, detail, now, errors)
        return True


def end_with_fault(row: ImportRow, fault: Fault, detail: str, now: float, errors: Sequence[SpecError] = ()) -> None:
    """End a row that the caller holds in its transaction."""
    _end(row, "failed", now)
    told = [{"field": each.field, "found": each.found, "expected": each.expected} for each in errors]
    row.problem = plain({"fault": fault, "detail": detail, "errors": told})


def prune(session: Session, before: float) -> None:
    """Delete imports that ended before `before`; what they stored stays."""
    session.execute(delete(ImportRow).where(ImportRow.state.not_in(leases.OPEN), ImportRow.finished_at < before))


def _end(row: ImportRow, state: Literal["done", "failed"], now: float) -> None:
    leases.finish(row, state, now)
    row.body = None

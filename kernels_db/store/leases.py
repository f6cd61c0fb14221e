"""Hold a row for a limited time: an attempt, a try, an import, a re-verification or a profile.

Their columns for it are the same (`tables.Leased`), and so are the ways:

    pending -> running -> a state of its end        running -> pending: given back, or the lease ran out

`claim` and `renew` are one conditional UPDATE each, so of two workers one gets the row. `finish`, `put_back`, `lend`
and `return_expired` change a row that the caller holds in its transaction: by `held`, or by the lock that its kind has
(the search's, the kernel's). Time comes in as `now`, epoch seconds.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

from sqlalchemy import BindParameter, ColumnElement, CursorResult, Update, and_, or_, select, update
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.table_base import Leased

Row = TypeVar("Row", bound=Leased)

OPEN = ("pending", "running")
"""States of a row that has not ended."""

LONGEST_RESEND = 6
"""Longest pause between two sends of a message, in units of `resend_after_s`.

Pauses grow up to this: a busy judge leaves steps waiting in its queue, and every message sent again lies there beside
the first.
"""


def claim(
    session: Session,
    table: type[Leased],
    row_id: str,
    owner: str,
    lease_s: float,
    now: float,
    *conditions: ColumnElement[bool],
    **also: Any,
) -> bool:
    """Take a pending row for `lease_s` seconds; False where it is taken, ended or unknown.

    `owner` must differ between claims, so that a worker that lost its lease cannot pass for the one that has it now.
    `conditions`: what else must be true of the row; `also`: other columns to set with it.
    """
    return changed_one(session.execute(taking(table, row_id, owner, now + lease_s, now, *conditions, **also)))


def taking(
    table: type[Leased],
    row_id: str | BindParameter[str],
    owner: str | BindParameter[str],
    until: float | BindParameter[float],
    now: float | BindParameter[float],
    *conditions: ColumnElement[bool],
    **also: Any,
) -> Update:
    """Return the statement of `claim`, of values or of parameters: a step's is built once."""
    return (
        update(table)
        .where(table.id == row_id, table.state == "pending", *conditions)
        .values(
            state="running",
            owner=owner,
            lease_expires_at=until,
            tries=table.tries + 1,
            started_at=now,
            **also,
        )
    )


def renew(session: Session, table: type[Leased], row_id: str, owner: str, lease_s: float, now: float) -> bool:
    """Hold the lease for another `lease_s` seconds; False: it was lost, stop."""
    renewed = session.execute(
        update(table).where(table.id == row_id, held_by(table, owner)).values(lease_expires_at=now + lease_s)
    )
    return changed_one(renewed)


def held(session: Session, table: type[Row], row_id: str, owner: str) -> Row | None:
    """Lock the row that `owner` still holds, until the transaction ends.

    Returns None where the lease was lost.
    """
    mine = select(table).where(table.id == row_id, held_by(table, owner))
    return session.scalar(mine.with_for_update().execution_options(populate_existing=True))


def held_by(table: type[Leased], owner: str | ColumnElement[str]) -> ColumnElement[bool]:
    """Select the rows that `owner` holds."""
    return and_(table.state == "running", table.owner == owner)


def finish(row: Leased, state: str, now: float) -> None:
    """End the row; its last owner is kept."""
    row.state = state
    row.lease_expires_at = None
    row.finished_at = now


def finish_all(session: Session, table: type[Leased], state: str, now: float, *conditions: ColumnElement[bool]) -> None:
    """End every row of which `conditions` are true."""
    session.execute(update(table).where(*conditions).values(state=state, lease_expires_at=None, finished_at=now))


def put_back(row: Leased, *, tries: int = 0) -> None:
    """Make the row pending again, its message still to be sent.

    `tries`: what counts against it; nothing, where a live worker gives it back.
    """
    row.state = "pending"
    row.owner = None
    row.lease_expires_at = None
    row.sent_at = None
    row.tries = tries


def lend(row: Leased, owner: str, now: float) -> None:
    """Give a pending row to `owner` without a time limit; it counts as no try."""
    row.state = "running"
    row.owner = owner
    row.lease_expires_at = None
    row.started_at = now


def return_expired(row: Leased, max_tries: int) -> bool:
    """Make a row whose lease ran out pending again; False where it was tried too often.

    After `max_tries` tries it stays as it is, and the caller ends it.
    """
    if row.tries >= max_tries:
        return False
    put_back(row, tries=row.tries)
    return True


def expired(table: type[Leased], now: float) -> ColumnElement[bool]:
    """Select the held rows whose lease ran out."""
    return and_(table.state == "running", table.lease_expires_at < now)


def unsent(table: type[Leased], now: float, resend_after_s: float) -> ColumnElement[bool]:
    """Select the pending rows whose message was never sent or counts as lost.

    It does when it is older than half the row's age, within limits.
    """
    since = now - table.sent_at
    lost = and_(
        since >= resend_after_s,
        or_(since >= LONGEST_RESEND * resend_after_s, 2 * since >= now - table.created_at),
    )
    return and_(table.state == "pending", or_(table.sent_at.is_(None), lost))


def changed_one(result: object) -> bool:
    """Check whether an UPDATE found its row."""
    return cast("CursorResult[object]", result).rowcount == 1

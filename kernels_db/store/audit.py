"""The audit log: who changed what, written in the transaction of the change.

Code that acts for a caller enters `acting`; the next write transaction of the database (`Database.writing`) then holds
the entry as well, once. What changed nothing, and what was refused, is written by `write` alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, delete, insert, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import AuditRow


@dataclass
class Entry:
    """An entry in the making; without an `action` it is of a caller who changes nothing, and is not written.

    `answered_before`: the request is a repetition, so no transaction is to write it as a change.
    """

    source: str
    action: str | None = None
    object_id: str | None = None
    team: str | None = None
    key_prefix: str | None = None
    key_name: str | None = None
    answered_before: bool = False
    written: bool = False


_INSERT = insert(AuditRow).inline()  # nobody asks for the new row's id

_ADDED = "audit_entry"
"""Key of a session's `info` for the entry that is among the rows which it writes."""

_current: ContextVar[Entry | None] = ContextVar("audit_entry", default=None)


@contextmanager
def acting(entry: Entry) -> Iterator[None]:
    """Act for the caller of `entry`: threads and tasks that start inside share it."""
    token = _current.set(entry)
    try:
        yield
    finally:
        _current.reset(token)


def current() -> Entry | None:
    """Return the entry of the caller who is acted for."""
    return _current.get()


def note_object(object_id: str) -> None:
    """Name the row that the change is about, where only the change itself makes it."""
    entry = _current.get()
    if entry is not None:
        entry.object_id = object_id


def note_repetition(object_id: str | None) -> None:
    """Say that the request changes nothing, as it was answered before; `object_id` is the row of that answer.

    An id that the request noted itself may be of a row that was rolled back.
    """
    entry = _current.get()
    if entry is not None:
        entry.answered_before = True
        entry.object_id = object_id or entry.object_id


def add_due(session: Session) -> None:
    """Add the caller's entry to the rows that the transaction is to write; what it names must be known by now."""
    entry = _find_due(session)
    if entry is not None:
        session.add(AuditRow(**_describe(entry, "done")))
        session.info[_ADDED] = entry


def write_due(session: Session) -> Entry | None:
    """Write the caller's entry into the transaction of the change; returns it where it was due."""
    entry = _find_due(session)
    if entry is not None:
        write(session, entry, "done")
        return entry
    added: Entry | None = session.info.get(_ADDED)
    return added


def _find_due(session: Session) -> Entry | None:
    """Return the caller's entry where it is to be written, and is not among the session's rows."""
    entry = _current.get()
    if entry is None or entry.action is None or entry.written or entry.answered_before or _ADDED in session.info:
        return None
    return entry


def write(session: Session, entry: Entry, result: str) -> None:
    """Write an entry with its result."""
    session.connection().execute(_INSERT, _describe(entry, result))


def _describe(entry: Entry, result: str) -> dict[str, Any]:
    return {
        "created_at": time.time(),
        "team": entry.team,
        "key_prefix": entry.key_prefix,
        "key_name": entry.key_name,
        "action": entry.action or "",
        "object_id": entry.object_id,
        "source": entry.source[:64],
        "result": result,
    }


def list_entries(
    session: Session, *, limit: int, before: int | None = None, **wanted: str | None
) -> Sequence[AuditRow]:
    """List entries, newest first, from below the id `before`; `wanted` are values of columns."""
    filters: list[ColumnElement[bool]] = [
        getattr(AuditRow, name) == value for name, value in wanted.items() if value is not None
    ]
    if before is not None:
        filters.append(AuditRow.id < before)
    return session.scalars(select(AuditRow).where(*filters).order_by(AuditRow.id.desc()).limit(limit)).all()


def prune(session: Session, before: float) -> None:
    """Delete the entries from before that time."""
    session.execute(delete(AuditRow).where(AuditRow.created_at < before))

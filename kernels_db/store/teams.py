"""Teams: which rows each may read and change, and which ops and pools it submitted.

`team` None, in a function that filters, stands for everybody: an administrator, or a service without keys.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, delete, exists, literal, or_, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import InstrumentedAttribute, Session

from warpsmith.kernels_db.store.table_base import Base
from warpsmith.kernels_db.store.tables import SHIPPED, HoldingRow, SearchRow, TeamRow


def insert_for(session: Session, table: type[Base]) -> Any:
    """Return an INSERT of the session's database, on which both have `on_conflict_do_nothing` and `..._update`."""
    return insert_of(session.get_bind().dialect.name, table)


def insert_of(dialect: str, table: type[Base]) -> Any:
    """Do what `insert_for` does, for a statement that is built once: `dialect` is the database's name."""
    return (sqlite if dialect == "sqlite" else postgresql).insert(table)


def is_readable(column: InstrumentedAttribute[str], team: str | None) -> list[ColumnElement[bool]]:
    """Return the conditions on a row's team under which `team` may read the row; none for everybody."""
    if team is None:
        return []
    shared = select(TeamRow.name).where(TeamRow.visibility == "shared")
    return [or_(column.in_((team, SHIPPED)), column.in_(shared))]


def is_of_readable_search(column: InstrumentedAttribute[Any], team: str | None) -> list[ColumnElement[bool]]:
    """Return the same conditions for a row that names its search in `column`."""
    conditions = is_readable(SearchRow.team, team)
    return [exists().where(SearchRow.id == column, *conditions)] if conditions else []


def is_held_readably(column: InstrumentedAttribute[str], team: str | None) -> list[ColumnElement[bool]]:
    """Return the same conditions for an op or a pool, whose id is in `column`."""
    conditions = is_readable(HoldingRow.team, team)
    if not conditions:
        return []
    held = HoldingRow.object_id == column
    return [or_(~exists().where(held), exists().where(held, *conditions))]


def may_read(session: Session, owners: list[str], team: str | None) -> bool:
    """Check whether `team` may read what belongs to any of `owners`."""
    if team is None or team in owners or SHIPPED in owners:
        return True
    shared = select(TeamRow.name).where(TeamRow.name.in_(owners), TeamRow.visibility == "shared").limit(1)
    return session.scalar(shared) is not None


def may_read_held(session: Session, object_id: str, team: str | None) -> bool:
    """Check whether `team` may read the op or pool with this id."""
    owners = list(session.scalars(select(HoldingRow.team).where(HoldingRow.object_id == object_id)))
    return not owners or may_read(session, owners, team)


def is_held_by(object_id: ColumnElement[str] | InstrumentedAttribute[str], team: ColumnElement[str]) -> Any:
    """Return the condition that `team` submitted an op or a pool, or nobody did and it is everyone's."""
    holders = exists().where(HoldingRow.object_id == object_id)
    return or_(~holders, holders.where(HoldingRow.team == team))


def hold(session: Session, object_id: str, team: str | None, *, new: bool) -> bool:
    """Note that `team` submitted an op or a pool; return whether it is the first time.

    `new`: nobody submitted it before.

    What is stored for no team (`team` None) is everyone's from then on, also where teams submitted it before.
    """
    if team is None:
        session.execute(delete(HoldingRow).where(HoldingRow.object_id == object_id))
        return new
    if not new and session.scalar(select(is_held_by(literal(object_id), literal(team)))):
        return False
    row = insert_for(session, HoldingRow).values(object_id=object_id, team=team).on_conflict_do_nothing()
    # What it returns is counted: psycopg's count of inserted rows is gone once SQLAlchemy has closed the cursor.
    return session.scalar(row.returning(HoldingRow.team)) is not None

"""The base of every table: JSON documents, named constraints, rows that a worker holds for a while."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

from sqlalchemy import JSON, Insert, MetaData, String, Table, insert, inspect
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, make_transient_to_detached, mapped_column
from sqlalchemy.sql.schema import ScalarElementColumnDefault

Document = JSON().with_variant(JSONB(), "postgresql")
"""A JSON document; binary JSON on PostgreSQL."""


class Base(DeclarativeBase):
    # Named constraints, so that Alembic can drop them on either database.
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class Leased(Base):
    """A row that one worker at a time holds: `pending`, `running`, then states of its own."""

    __abstract__ = True
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    state: Mapped[str] = mapped_column(String(16))
    owner: Mapped[str | None] = mapped_column(String(128))
    lease_expires_at: Mapped[float | None]  # None of a held one: it is out in a bundle, and no time brings it back
    tries: Mapped[int] = mapped_column(default=0)  # claims since a worker last gave it back alive
    sent_at: Mapped[float | None]  # when its message last went to the broker
    created_at: Mapped[float]
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]


def fill_defaults(row: Base) -> None:
    """Give a new row the values that its INSERT would: so it reads as a stored one before it is stored."""
    for name, value in _defaults(type(row)):
        if getattr(row, name) is None:
            setattr(row, name, value)


@cache
def _defaults(table: type[Base]) -> tuple[tuple[str, Any], ...]:
    columns = ((column.key, column.default) for column in table.__mapper__.columns)
    return tuple(
        (str(name), default.arg) for name, default in columns if isinstance(default, ScalarElementColumnDefault)
    )


def insert_new(session: Session) -> None:
    """Write the session's new rows by plain inserts, tables that others refer to first.

    It costs half of a flush, which finds the order of rows one by one. What is a row's key before it is written stays
    in the session as a stored row; others leave it.
    """
    values: dict[tuple[type[Base], tuple[str, ...]], list[dict[str, Any]]] = {}
    rows = cast("list[Base]", list(session.new))
    for row in rows:
        given = {name: value for name, value in vars(row).items() if name != "_sa_instance_state"}
        # A column that was not given is left to its default, which for a document is not the same as None.
        values.setdefault((type(row), tuple(given)), []).append(given)
    connection = session.connection()
    for (table, _), found in sorted(values.items(), key=lambda item: _rank(item[0][0])):
        connection.execute(_insert(table), found)
    for row in rows:
        session.expunge(row)
        if None not in inspect(row).mapper.primary_key_from_instance(row):
            make_transient_to_detached(row)
            session.add(row)


@cache
def _insert(table: type[Base]) -> Insert:
    return insert(cast("Table", table.__table__))


@cache
def _rank(table: type[Base]) -> int:
    return Base.metadata.sorted_tables.index(cast("Table", table.__table__))

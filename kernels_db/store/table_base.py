"""The base of every table: JSON documents, named constraints, rows that a worker holds for a while."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import Any, TypeAlias, cast

from sqlalchemy import JSON, Connection, Insert, MetaData, String, Table, insert, inspect
from sqlalchemy.dialects import postgresql
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


Rows: TypeAlias = Iterable[tuple[type[Base], dict[str, Any]]]
"""Rows of tables, as values by column."""


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
    given = vars(row)  # plain values: to read an attribute that was not given runs SQLAlchemy's code
    for name, value in _defaults(type(row)):
        if given.get(name) is None:
            setattr(row, name, value)


@cache
def _defaults(table: type[Base]) -> tuple[tuple[str, Any], ...]:
    columns = ((column.key, column.default) for column in table.__mapper__.columns)
    return tuple(
        (str(name), default.arg) for name, default in columns if isinstance(default, ScalarElementColumnDefault)
    )


def insert_new(session: Session, more: Rows = ()) -> None:
    """Write the session's new rows by plain inserts, tables that others refer to first; `more` with them.

    It costs half of a flush, which finds the order of rows one by one. What is a row's key before it is written stays
    in the session as a stored row; others leave it.
    """
    values: dict[tuple[type[Base], tuple[str, ...]], list[dict[str, Any]]] = {}
    rows = cast("list[Base]", list(session.new))
    given = [(type(row), {key: item for key, item in vars(row).items() if key != "_sa_instance_state"}) for row in rows]
    for table, one in (*given, *more):
        # A column that was not given is left to its default, which for a document is not the same as None.
        values.setdefault((table, tuple(one)), []).append(one)
    groups = [(table, found) for (table, _), found in sorted(values.items(), key=lambda item: _rank(item[0][0]))]
    _insert_groups(session.connection(), groups)
    for row in rows:
        session.expunge(row)
        if None not in inspect(row).mapper.primary_key_from_instance(row):
            make_transient_to_detached(row)
            session.add(row)


_Group: TypeAlias = tuple[type[Base], list[dict[str, Any]]]
"""Rows of one table with the same columns."""


def _insert_groups(connection: Connection, groups: Sequence[_Group]) -> None:
    """Insert rows of several tables; on PostgreSQL by one statement.

    References among them are checked at its end. A statement costs the client and the server more than its rows do,
    and a parameter of it more than a value in a document; so each table's rows are one document.
    """
    if connection.dialect.name != "postgresql" or not _go_together(groups):
        for table, rows in groups:
            connection.execute(_insert(table), rows)
        return
    statement = _write_inserts(tuple((table, tuple(rows[0])) for table, rows in groups))
    documents = [json.dumps([dict(_defaults(table)) | row for row in rows]) for table, rows in groups]
    connection.exec_driver_sql(statement, tuple(documents))


def _go_together(groups: Sequence[_Group]) -> bool:
    """Check that one statement writes these rows as several would.

    Its parts run in no order, so rows that the database numbers must be one part; in a document the null of JSON is
    that of SQL; and a default that SQLAlchemy computes is not known to it.
    """
    numbered = [table for table, _ in groups if cast("Table", table.__table__).autoincrement_column is not None]
    nulls = (row.get(name, "") is None for table, rows in groups for name in _documents(table) for row in rows)
    computed = (name not in row for table, rows in groups for name in _computed(table) for row in rows)
    return len(groups) > 0 and len(set(numbered)) == len(numbered) and not any(nulls) and not any(computed)


@lru_cache(maxsize=256)
def _write_inserts(groups: tuple[tuple[type[Base], tuple[str, ...]], ...]) -> str:
    """Write the statement that inserts rows with these columns and the tables' defaults, in PostgreSQL's words."""
    quote = postgresql.dialect().identifier_preparer.quote  # type: ignore[no-untyped-call]
    parts = []
    for table, given in groups:
        name = quote(table.__tablename__)
        columns = ", ".join(map(quote, {**dict(_defaults(table)), **dict.fromkeys(given)}))
        rows = f"jsonb_populate_recordset(NULL::{name}, %s::jsonb)"
        parts.append(f"INSERT INTO {name} ({columns}) SELECT {columns} FROM {rows}")  # noqa: S608 - names of our tables
    *before, last = parts
    named = ", ".join(f"part_{number} AS ({part})" for number, part in enumerate(before))
    return f"WITH {named} {last}" if named else last


@cache
def _insert(table: type[Base]) -> Insert:
    return insert(cast("Table", table.__table__))


@cache
def _documents(table: type[Base]) -> tuple[str, ...]:
    return tuple(str(column.key) for column in table.__mapper__.columns if isinstance(column.type, JSON))


@cache
def _computed(table: type[Base]) -> tuple[str, ...]:
    """Return the columns whose default is made for each row: it is no value that `_defaults` could give."""
    columns = ((column.key, column.default) for column in table.__mapper__.columns)
    return tuple(str(name) for name, default in columns if default is not None and not default.is_scalar)


@cache
def _rank(table: type[Base]) -> int:
    return Base.metadata.sorted_tables.index(cast("Table", table.__table__))

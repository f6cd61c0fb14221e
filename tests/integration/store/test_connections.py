"""Connections to PostgreSQL that a process keeps: those that rested are asked first whether they still hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import InternalError, OperationalError

from warpsmith.kernels_db.store import db as store
from warpsmith.kernels_db.store.db import Database

PID = text("SELECT pg_backend_pid()")


@pytest.fixture
def database(postgres_url: str) -> Iterator[Database]:
    """A database on PostgreSQL, with a connection in its pool."""
    found = Database(postgres_url)
    ask(found)
    yield found
    found.dispose()


def ask(database: Database) -> int:
    """The process that serves the database's connection."""
    with database.reading() as session:
        return session.scalars(PID).one()


def test_a_rested_connection_that_the_server_closed_is_replaced(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PING_AFTER_S", 0.0)
    closed = ask(database)
    other = Database(database.url.render_as_string(hide_password=False))
    with other.writing() as session:
        assert session.scalar(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": closed})
    other.dispose()
    assert ask(database) != closed


@pytest.mark.parametrize(("after_s", "pings"), [(0.0, 3), (3600.0, 0)])
def test_a_connection_is_asked_only_after_a_rest(
    database: Database, monkeypatch: pytest.MonkeyPatch, after_s: float, pings: int
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(store, "PING_AFTER_S", after_s)
    monkeypatch.setattr(database.engine.dialect, "do_ping", lambda connection: asked.append(connection) or True)
    for _ in range(3):
        ask(database)
    assert len(asked) == pings


def test_a_server_that_takes_no_writes_any_more_is_left(postgres_url: str) -> None:
    database = Database(postgres_url)
    with database.writing() as session:
        kept = session.scalars(PID).one()
        session.execute(text("SET default_transaction_read_only = on"))
    with pytest.raises(OperationalError, match="read-only"), database.writing() as session:
        session.execute(text("CREATE TABLE t (x int)"))
    with database.writing() as session:
        session.execute(text("CREATE TABLE t (x int)"))
        assert session.scalars(PID).one() != kept
    database.dispose()


def test_a_write_in_a_read_is_a_fault_of_ours(database: Database) -> None:
    kept = ask(database)
    with pytest.raises(InternalError, match="read-only"), database.reading() as session:
        session.execute(text("CREATE TABLE t (x int)"))
    assert ask(database) == kept

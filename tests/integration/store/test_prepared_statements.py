"""PostgreSQL plans a statement that is executed often once for a connection, not at each execution."""

from __future__ import annotations

from sqlalchemy import bindparam, select, text

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import SearchRow

OFTEN = 12
"""Executions after which psycopg has prepared a statement; it does so at the sixth."""

QUERY = select(SearchRow.id).where(SearchRow.id == bindparam("search_id"))


def count_prepared(db: Database) -> int:
    """Count the prepared statements of the pool's connection that read searches."""
    with db.writing() as session:
        found = session.scalar(
            text("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%searches.id =%'")
        )
    return int(found or 0)


def test_reading_keeps_what_is_prepared(migrated_postgres_url: str) -> None:
    db = Database(migrated_postgres_url)
    for _ in range(OFTEN):
        with db.reading() as session:
            assert session.connection().execute(QUERY, {"search_id": "sr_none"}).all() == []
    assert count_prepared(db) == 1
    db.revision()
    db._clock = None
    db.now()
    assert count_prepared(db) == 1, "the schema's revision and the clock are asked every few seconds"
    db.dispose()

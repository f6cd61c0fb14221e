"""Fixtures that integration tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.services import DATABASES, migrate, postgres_database
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import DEFAULT_TEAM, METADATA, TeamRow
from warpsmith.workers.judge.analysis.client import Analyser
from warpsmith.workers.judge.protocol.client import JudgeClient


@pytest.fixture(scope="session")
def judge(judge_cache: Path) -> Iterator[JudgeClient]:
    """One judge for all who send it jobs and do nothing else to it: to start one takes longer than most jobs."""
    with JudgeClient(cache=judge_cache) as found:
        yield found


@pytest.fixture(scope="session")
def analyse() -> Iterator[Analyser]:
    """One process for all files that are analysed: it starts as long as a judge does, and each file has its sandbox."""
    with Analyser(None) as found:
        yield found


@pytest.fixture(scope="session")
def _postgresql() -> Iterator[Database]:
    """One migrated database on PostgreSQL; whoever uses it empties it."""
    with postgres_database() as url:
        database = Database(url)
        migrate(database)
        yield database
        database.dispose()


@pytest.fixture(params=DATABASES)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A migrated, empty database of either kind."""
    if request.param == "postgresql":
        database: Database = request.getfixturevalue("_postgresql")
        yield database
        tables = ", ".join(table.name for table in METADATA.sorted_tables)
        with database.writing() as session:
            session.execute(text(f"TRUNCATE {tables}"))
            session.add(TeamRow(name=DEFAULT_TEAM, visibility="shared", created_at=0.0))
        return
    database = Database(f"sqlite:///{tmp_path / 'test.db'}")
    migrate(database)
    yield database
    database.dispose()

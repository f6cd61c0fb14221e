"""Databases for tests: copies of a migrated one, and what killed runs leave behind."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from tests import services
from warpsmith.kernels_db.store.db import Database


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_copy_is_migrated_and_can_be_written(kind: str, request: pytest.FixtureRequest) -> None:
    database = Database(request.getfixturevalue(f"migrated_{kind}_url"))
    found, expected = database.revision()
    assert found == expected
    with database.writing() as session:
        session.connection().exec_driver_sql("DELETE FROM searches")
    database.dispose()


def test_migrate_copies_or_upgrades(tmp_path: Path) -> None:
    new, old = Database(f"sqlite:///{tmp_path / 'new.db'}"), Database(f"sqlite:///{tmp_path / 'old.db'}")
    old.upgrade("0001")
    for database in (new, old):
        services.migrate(database)
        found, expected = database.revision()
        assert found == expected
        database.dispose()


def test_leftovers_are_dropped_by_age(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    del postgres_url  # where PostgreSQL is absent, that says so
    prefix = f"warpsmith_sweep_{uuid.uuid4().hex[:8]}_"  # no other run's are at risk
    monkeypatch.setattr(services, "OWN_DATABASES", prefix)
    with services.postgres_database() as url:
        assert services.drop_leftovers(older_than_s=3600) == []
        assert services.drop_leftovers(older_than_s=-1) == [url.rpartition("/")[2]]

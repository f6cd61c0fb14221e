"""A real worker on a real broker, and two teams: 200 searches of one do not hold up the other's first."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select

from tests.services import RedisServer, migrate
from tests.support.fleet import Fleet
from tests.support.steps_support import create, verdict
from tests.support.waiting import wait_until
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AskRow, SearchRow, TeamRow
from warpsmith.workers import steps
from warpsmith.workers.queue import dispatch
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.settings import Settings


def begun(db: Database, team: str) -> steps.Message:
    """The message of the first model step of a new search, whose baselines are measured."""
    search_id = create(db, 1000.0, team=team)
    (baseline,) = steps.advance(db, search_id, 1000.0)
    assert steps.claim(db, baseline.attempt_id, "by hand", 30.0, 1000.0) is not None
    assert steps.complete_judge(db, baseline.attempt_id, "by hand", verdict("baseline"), 1000.0)
    (message,) = steps.advance(db, search_id, 1000.0)
    return message


@pytest.mark.nightly
def test_200_searches_of_one_team_do_not_hold_up_anothers_first(tmp_path: Path, redis_server: RedisServer) -> None:
    db = Database(f"sqlite:///{tmp_path / 'warpsmith.db'}")
    migrate(db)
    with db.writing() as session:
        session.add_all(TeamRow(name=name, visibility="private", created_at=0.0) for name in ("a", "b"))
    messages = [begun(db, team) for team in ["a"] * 200 + ["b"]]
    assert dispatch.send(make_app(Settings(broker_url=redis_server.url)), messages) == 201

    def asked() -> list[str]:
        """The teams whose searches ask, in order."""
        query = select(SearchRow.team).join(AskRow, AskRow.search_id == SearchRow.id).order_by(AskRow.id)
        with db.reading() as session:
            return list(session.scalars(query))

    with Fleet(tmp_path / "home", redis_server.url, str(db.url)) as fleet:
        fleet.start("model")
        wait_until(lambda: len(asked()) >= 5, 60, f"the first asks\n{fleet.logs(['model'])}")
        assert "b" in asked()[:3]
        wait_until(lambda: len(asked()) == 201, 120, f"all asks\n{fleet.logs(['model'])}")
    assert asked().count("b") == 1
    db.dispose()

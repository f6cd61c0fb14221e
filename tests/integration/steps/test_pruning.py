"""Retention: a search that ended long ago loses what only its watchers needed, once, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from celery import Celery
from sqlalchemy import select

from tests.support.api_support import application, command_line, settings_for
from tests.support.steps_support import Driver, create
from warpsmith.kernels_db.store import audit, records
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import KernelRow, ModelCallRow, SearchRow, VerdictRow
from warpsmith.service.story import tell
from warpsmith.service.story.gather import gather
from warpsmith.workers import steps
from warpsmith.workers.queue.reconciler import Reconciler
from warpsmith.workers.settings import ALIVE_AFTER_S
from warpsmith.workers.steps.pruning import DETAILS, Pruned

LATER = 1e9


@pytest.fixture
def ended(db: Database) -> Driver:
    """A search that was played to its end."""
    driver = Driver(db, create(db))
    assert driver.run().state == "finished"
    return driver


def texts(db: Database) -> list[int]:
    """How many messages each model call keeps."""
    with db.reading() as session:
        return [len(messages) for messages in session.scalars(select(ModelCallRow.messages))]


def evidence(driver: Driver) -> tuple[object, ...]:
    """What others are told of a search: its story and pool, the verdicts and kernels, its attempts and nodes."""
    with driver.db.reading() as session:
        search = session.get_one(SearchRow, driver.search_id)
        return (
            tell(gather(session, search, ALIVE_AFTER_S)),
            records.export_pool(session, driver.search_id),
            session.scalars(select(VerdictRow.document).order_by(VerdictRow.id)).all(),
            session.execute(select(KernelRow.source, KernelRow.evidence, KernelRow.lineage)).all(),
            [(attempt.id, attempt.state) for attempt in driver.attempts()],
            [(node.id, node.state, node.reason, node.source) for node in driver.nodes()],
        )


def test_pruning_keeps_what_others_are_told(ended: Driver) -> None:
    before, told = evidence(ended), ended.events()
    assert set(texts(ended.db)) == {1}
    deleted = [kind for kind in told if kind in DETAILS]
    found = steps.prune(ended.db, LATER, LATER)
    assert found == Pruned(searches=1, events=len(deleted), prompts=len(texts(ended.db)))
    assert deleted
    assert ended.events() == [kind for kind in told if kind not in DETAILS]
    assert set(texts(ended.db)) == {0}
    assert evidence(ended) == before


def test_a_search_is_pruned_once_and_no_sooner(ended: Driver) -> None:
    assert steps.prune(ended.db, ended.search().updated_at, LATER) == Pruned()
    assert steps.prune(ended.db, LATER, LATER).searches == 1
    assert steps.prune(ended.db, LATER, LATER) == Pruned()
    assert ended.search().pruned_at == LATER


def test_a_search_that_can_go_on_is_not_pruned(db: Database) -> None:
    driver = Driver(db, create(db))
    driver.until("code")
    assert steps.prune(db, LATER, LATER) == Pruned()
    steps.pause(db, driver.search_id, "on request", driver.now)
    assert steps.prune(db, LATER, LATER) == Pruned()
    steps.cancel(db, driver.search_id, driver.now)
    assert steps.prune(db, LATER, LATER).searches == 1


def test_pruning_takes_a_bounded_number_the_oldest_first(db: Database) -> None:
    ids = [create(db, now=now) for now in (30.0, 10.0, 20.0)]
    for search_id, now in zip(ids, (30.0, 10.0, 20.0), strict=True):
        steps.cancel(db, search_id, now)
    assert steps.prune(db, LATER, LATER, most=2).searches == 2
    with db.reading() as session:
        assert session.scalars(select(SearchRow.id).where(SearchRow.pruned_at.is_(None))).all() == [ids[0]]


@pytest.mark.parametrize(("days", "pruned"), [(0.0, False), (1.0, True)])
def test_the_reconciler_prunes_where_the_setting_says_so(ended: Driver, days: float, pruned: bool) -> None:
    Reconciler(settings_for(Path("/nowhere"), retention_days=days), ended.db, Celery("nowhere")).round()
    assert (ended.search().pruned_at is not None) == pruned


def test_the_command_prunes_and_is_in_the_audit_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = application(settings_for(tmp_path))
    db: Database = app.state.service.db
    assert Driver(db, create(db)).run().state == "finished"
    monkeypatch.setenv("WARPSMITH_DATABASE_URL", str(db.url))
    with command_line(app, capsys, monkeypatch) as said:
        code, _, problem = said("prune")
        assert (code, "WARPSMITH_RETENTION_DAYS" in problem) == (2, True)
        code, out, told = said("prune", "--days", "7")
        assert code == 0, told
        assert "searches pruned: 1" in out + told
    with db.reading() as session:
        assert [row.action for row in audit.list_entries(session, limit=9)] == ["prune"]

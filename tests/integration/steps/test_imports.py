"""Imports on both databases: taken in turn, one of a team at a time, ended once, brought back where a worker died."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.services import RedisServer, migrate, on_both_databases
from tests.support import scenario
from tests.support.fleet import Fleet
from tests.support.waiting import wait_until
from warpsmith.kernels_db.formats.shared.files import RawFile
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.pool_file import dump_pool
from warpsmith.kernels_db.store.tables import ImportRow, PoolReplyRow, PoolRow, TeamRow
from warpsmith.workers import imports
from warpsmith.workers.imports.rows import record_progress
from warpsmith.workers.queue import dispatch
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.settings import Settings

SETTINGS = Settings(lease_s=30.0, resend_after_s=10.0, max_tries=2)
POOL = dump_pool(scenario.pool()).encode()


def sent(db: Database, now: float, body: bytes = POOL, *, team: str = "default", most: int = 16) -> str:
    with db.writing() as session:
        if session.get(TeamRow, team) is None:
            session.add(TeamRow(name=team, visibility="shared", created_at=0.0))
            session.flush()
        return imports.open_import(session, "pool", body, now, team=team, by="me", most_open=most).id


def row_of(db: Database, row_id: str) -> ImportRow:
    with db.reading() as session:
        return session.get_one(ImportRow, row_id)


def carried_out(db: Database, work: imports.ImportWork) -> bool:
    return imports.carry_out(db, work, SETTINGS, lambda: 50.0, lambda: None)


def never() -> None:
    raise AssertionError("the lease is not asked for")


@on_both_databases("db")
def test_teams_take_turns_and_of_one_team_one_runs(db: Database) -> None:
    first, second = sent(db, 1.0), sent(db, 2.0)
    other = sent(db, 3.0, team="others")
    work = imports.take(db, "a", 30.0, 10.0)
    assert work is not None
    assert (work.id, work.kind, work.body, work.tries) == (first, "pool", POOL, 1)
    others_work = imports.take(db, "b", 30.0, 10.0)
    assert others_work is not None
    assert others_work.id == other
    assert imports.take(db, "c", 30.0, 10.0) is None, "the team's second waits for its first"
    assert carried_out(db, work)
    with db.reading() as session:
        following = imports.find_next(session)
        assert following is not None
        assert following.id == second


@on_both_databases("db")
def test_of_many_workers_at_once_one_gets_a_teams_import(db: Database) -> None:
    sent(db, 1.0)
    sent(db, 2.0)
    start, taken = threading.Barrier(6), []

    def take(number: int) -> None:
        start.wait()
        taken.append(imports.take(db, f"worker {number}", 30.0, 10.0))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([work for work in taken if work is not None]) == 1


@on_both_databases("db")
def test_each_of_many_workers_gets_an_import_of_another_team(db: Database) -> None:
    wanted = {sent(db, float(number), team=f"team {number}") for number in range(4)}
    start, taken = threading.Barrier(4), []

    def take(number: int) -> None:
        start.wait()
        taken.append(imports.take(db, f"worker {number}", 30.0, 10.0))

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {work.id for work in taken if work is not None} == wanted


@on_both_databases("db")
def test_a_pool_is_stored_with_the_end_of_its_import(db: Database) -> None:
    row_id = sent(db, 1.0)
    work = imports.take(db, "a", 30.0, 10.0)
    assert work is not None
    record_progress(db, work, "reading", 3, 9)
    assert (row_of(db, row_id).stage, row_of(db, row_id).done, row_of(db, row_id).total) == ("reading", 3, 9)
    assert carried_out(db, work)
    with db.reading() as session:
        row = session.get_one(ImportRow, row_id)
        assert (row.state, row.finished_at, row.body, row.size) == ("done", 50.0, None, len(POOL))
        assert row.result == {"pool_id": session.scalar(select(PoolRow.id)), "created": True}
        assert len(session.scalars(select(PoolReplyRow)).all()) == len(scenario.pool().replies)
    assert not carried_out(db, work), "it is done once"


@on_both_databases("db")
def test_a_worker_that_lost_its_lease_stores_nothing(db: Database) -> None:
    row_id = sent(db, 1.0)
    lost = imports.take(db, "a", 30.0, 10.0)
    assert lost is not None
    assert imports.reconcile(db, 39.0, SETTINGS) == []
    assert [message.attempt_id for message in imports.reconcile(db, 41.0, SETTINGS)] == [row_id]
    assert not imports.renew(db, lost, 30.0, 41.0)
    record_progress(db, lost, "reading", 3, 9)
    assert row_of(db, row_id).done == 0
    assert not carried_out(db, lost)
    with db.reading() as session:
        assert session.scalar(select(PoolRow.id)) is None
    again = imports.take(db, "b", 30.0, 42.0)
    assert again is not None
    assert (again.tries, again.body) == (2, POOL)
    assert imports.renew(db, again, 30.0, 43.0)
    assert carried_out(db, again)


@on_both_databases("db")
def test_one_that_its_workers_die_of_fails_and_says_so(db: Database) -> None:
    row_id = sent(db, 1.0)
    for now in (10.0, 100.0):
        assert imports.take(db, f"at {now}", 30.0, now) is not None
        messages = imports.reconcile(db, now + 31.0, SETTINGS)
    assert messages == []
    row = row_of(db, row_id)
    assert (row.state, row.result) == ("failed", None)
    assert row.problem is not None
    assert row.problem["fault"] == "import-lost"
    assert row.problem["detail"].startswith("gave up after 2 tries")
    assert imports.take(db, "another", 30.0, 200.0) is None


@on_both_databases("db")
def test_messages_that_were_lost_are_sent_again(db: Database) -> None:
    row_id = sent(db, 1.0)
    assert imports.reconcile(db, 5.0, SETTINGS) == []
    assert [message.attempt_id for message in imports.reconcile(db, 20.0, SETTINGS)] == [row_id]
    assert imports.reconcile(db, 21.0, SETTINGS) == []


@on_both_databases("db")
def test_errors_that_no_database_stores_are_told_all_the_same(db: Database) -> None:
    line = json.dumps({"format": "warpsmith-pool", "version": "\ud800\0"})
    row_id = sent(db, 1.0, line.encode())
    work = imports.take(db, "a", 30.0, 10.0)
    assert work is not None
    assert carried_out(db, work)
    problem = row_of(db, row_id).problem
    assert problem is not None
    assert problem["errors"][0]["field"] == "line 1, version"


@on_both_databases("db")
def test_a_team_has_so_many_open_and_old_ones_go(db: Database) -> None:
    first = sent(db, 1.0, most=1)
    with pytest.raises(imports.TooManyOpen):
        sent(db, 2.0, most=1)
    other = sent(db, 2.0, team="others", most=1)
    work = imports.take(db, "a", 30.0, 10.0)
    assert work is not None
    assert carried_out(db, work)
    second = sent(db, 3.0, most=1)
    with db.writing() as session:
        imports.prune(session, 50.0)
        assert session.get(ImportRow, first) is not None
        imports.prune(session, 51.0)
    with db.reading() as session:
        assert set(session.scalars(select(ImportRow.id))) == {other, second}


def test_a_body_of_files_comes_back_as_it_was() -> None:
    files = [RawFile("a/b.py", b"x = 1\n"), RawFile("c.bin", bytes(range(256)))]
    assert imports.decode_files(imports.encode_files(files, None)) == (files, None)
    assert imports.decode_files(imports.encode_files(files[:1], "kernelbench")) == (files[:1], "kernelbench")


@pytest.mark.nightly
@pytest.mark.timeout(360)
def test_a_kill_amid_the_reading_loses_nothing(tmp_path: Path, redis_server: RedisServer) -> None:
    url = f"sqlite:///{tmp_path / 'imports.db'}"
    db = Database(url)
    migrate(db)
    pool = scenario.pool()
    replies = tuple(replace(pool.replies[0], request=f"{number:064x}") for number in range(60_000))
    row_id = sent(db, db.now(), dump_pool(replace(pool, replies=replies)).encode())

    def state() -> str:
        return row_of(db, row_id).state

    with Fleet(tmp_path / "home", redis_server.url, url) as fleet:
        with db.reading() as session:
            message = imports.message(session.get_one(ImportRow, row_id))
        assert dispatch.send_imports(make_app(Settings(broker_url=redis_server.url)), [message]) == 1
        fleet.start("model", "reconciler")
        wait_until(lambda: state() == "running", 150, "the pool to be taken")
        with db.writing():  # nobody else writes meanwhile: so the import cannot end before its worker does
            assert state() == "running"
            fleet.kill("model")
        fleet.start("model")
        wait_until(lambda: state() == "done", 150, "the import")
        assert row_of(db, row_id).tries >= 2
        with db.reading() as session:
            assert session.scalar(select(PoolRow.replies)) == len(replies)
    db.dispose()

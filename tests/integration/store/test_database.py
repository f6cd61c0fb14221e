"""The database contract, held by both databases: transactions, migrations, concurrency, a full disk."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import select, text
from sqlalchemy.exc import IntegrityError

from tests.services import MIGRATED
from warpsmith.kernels_db.store.db import Database, StorageFull
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import METADATA, AskRow, NodeRow, OpRow, SearchRow, WorkerRow, WorkloadRow


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'directory that does not exist yet' / 'test.db'}"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=list(MIGRATED))
def db(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A migrated database of either kind."""
    database = Database(str(request.getfixturevalue(MIGRATED[request.param])))
    yield database
    database.dispose()


def _worker(name: str, seen_at: float = 0.0) -> WorkerRow:
    return WorkerRow(name=name, role="model", target=None, facts={"pid": 1}, started_at=0.0, seen_at=seen_at)


def test_revision_tells_an_empty_database_from_a_migrated_one(url: str) -> None:
    database = Database(url)
    found, expected = database.revision()
    assert found is None
    database.upgrade()
    assert database.revision() == (expected, expected)
    database.dispose()


def test_models_and_migrations_agree(db: Database) -> None:
    with db.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, METADATA) == []


def _upgrade(url: str, barrier: multiprocessing.synchronize.Barrier, failures: multiprocessing.Queue[str]) -> None:
    database = Database(url)
    try:
        barrier.wait(30)
        database.upgrade()
        found, expected = database.revision()
        if found != expected:
            failures.put(f"found {found}")
    except Exception as error:
        failures.put(repr(error))
    finally:
        database.dispose()


def test_several_processes_upgrade_at_once(url: str) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, failures = context.Barrier(3), context.Queue()
    processes = [context.Process(target=_upgrade, args=(url, barrier, failures)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert failures.empty(), failures.get()


def test_an_upgrade_that_fails_leaves_nothing(url: str) -> None:
    database = Database(url)
    with database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE verdicts (id INTEGER)"))
    with pytest.raises(Exception, match="verdicts"):
        database.upgrade()
    assert database.revision()[0] is None
    with database.engine.begin() as connection:
        connection.execute(text("DROP TABLE verdicts"))
    database.upgrade()
    database.dispose()


def test_an_upgrade_keeps_what_the_first_schema_holds(url: str) -> None:
    """On SQLite the nodes are copied to another table, to which asks, attempts and verdicts refer."""
    database = Database(url)
    database.upgrade("0001")
    rows = [
        "INSERT INTO ops (id, name, digest, spec, created_at) VALUES ('op', 'o', 'd', '{}', 0)",
        "INSERT INTO searches (id, op_id, target, language, policy, budget, model, state, round, next_seq, candidates,"
        " model_calls, tokens, cost_usd, active_s, created_at, updated_at)"
        " VALUES ('sr', 'op', 'cpu:x86_64', 'cpp', '{}', '{}', '{}', 'running', 0, 1, 0, 0, 0, 0, 0, 0, 0)",
        "INSERT INTO nodes (id, search_id, seq, round, state, repairs, ideation, ideated, verification, variant,"
        " created_at, updated_at, source) VALUES ('nd', 'sr', 0, 0, 'coded', 0, 'none', 0, 'none', 0, 0, 0, 'text')",
        "INSERT INTO attempts (id, search_id, node_id, kind, ordinal, params, state, tries, deferrals, not_before,"
        " created_at) VALUES ('at', 'sr', 'nd', 'judge', 0, '{}', 'waiting', 0, 0, 0, 0)",
        "INSERT INTO asks (id, search_id, node_id, attempt_id, kind, request, ordinal, messages, state, created_at)"
        " VALUES ('as', 'sr', 'nd', 'at', 'code', 'r', 0, '[]', 'open', 0)",
        *(
            "INSERT INTO model_calls (id, search_id, node_id, attempt_id, kind, request, ordinal, provider, messages,"
            f" reply, cost_usd, created_at) VALUES ('mc{number}', 'sr', 'nd', 'at', 'code', 'r', 0, {call}, 0)"
            for number, call in enumerate(
                ["'openai', '[]', 'text', NULL", "'openai', '[]', 'text', 0.5", "'openai', '[]', NULL, NULL"]
            )
        ),
    ]
    with database.engine.begin() as connection:
        for row in rows:
            connection.execute(text(row))
    database.upgrade()
    with database.reading() as session:
        node, ask = session.get_one(NodeRow, "nd"), session.get_one(AskRow, "as")
        assert (node.source, node.mark, node.origin) == ("text", None, "model")
        assert (ask.node_id, ask.issue, ask.expires_at) == ("nd", 0, None)
        search = session.get_one(SearchRow, "sr")
        assert (search.gpu_seconds, search.unpriced_calls) == (0.0, 1)
    with pytest.raises(IntegrityError), database.engine.begin() as connection:
        connection.execute(text("DELETE FROM searches"))  # references are looked after again
    database.dispose()


def test_writing_commits_or_rolls_back_whole(db: Database) -> None:
    with db.writing() as session:
        session.add(_worker("kept"))

    def fail_half_way() -> None:
        with db.writing() as session:
            session.add(_worker("lost"))
            session.flush()
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        fail_half_way()
    with db.reading() as session:
        assert session.scalars(select(WorkerRow.name)).all() == ["kept"]


def test_reading_sees_one_state_and_cannot_hold_up_a_writer(db: Database) -> None:
    with db.reading() as reader:
        assert reader.scalars(select(WorkerRow.name)).all() == []
        with db.writing() as writer:
            writer.add(_worker("new"))
        assert reader.scalars(select(WorkerRow.name)).all() == []
    with db.reading() as reader:
        assert reader.scalars(select(WorkerRow.name)).all() == ["new"]


def test_foreign_keys_hold(db: Database) -> None:
    with pytest.raises(IntegrityError), db.writing() as session:
        session.add(WorkloadRow(id="wl_1", op_id="op_none", device="cpu", name="w", role="bench", axes={}))


def test_documents_come_back_as_they_went(db: Database) -> None:
    spec = {"name": "ünï", "nested": [1, 2.5, None, True, {"a": "\n"}]}
    with db.writing() as session:
        session.add(OpRow(id="op_1", name="ünï", digest="d", spec=spec, created_at=1.25))
    with db.reading() as session:
        row = session.scalars(select(OpRow)).one()
    assert row.spec == spec
    assert row.created_at == 1.25


def test_many_writers_wait_for_each_other(db: Database) -> None:
    with db.writing() as session:
        session.add(_worker("counter"))
    failures: list[BaseException] = []

    def count() -> None:
        try:
            for _ in range(20):
                with db.writing() as session:
                    row = session.get_one(WorkerRow, "counter", with_for_update=True)
                    row.seen_at += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with db.reading() as session:
        assert session.get_one(WorkerRow, "counter").seen_at == 160


def test_a_full_disk_is_a_clear_error_and_loses_nothing_else(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'small.db'}")
    database.upgrade()
    with database.writing() as session:
        session.add(_worker("before"))
        pages = session.execute(text("PRAGMA page_count")).scalar_one()
    # The limit belongs to a connection: one connection only, and not its pool's other ones.
    database.dispose()
    with database.engine.connect() as connection:
        connection.execute(text(f"PRAGMA max_page_count = {pages + 4}"))

    def fill() -> None:
        with database.writing() as session:
            for number in range(100):
                session.add(
                    OpRow(id=f"op_{number}", name="n", digest=str(number), spec={"x": "y" * 4000}, created_at=0)
                )
                session.flush()

    with pytest.raises(StorageFull, match=r"small\.db is full"):
        fill()
    with database.reading() as session:
        assert session.scalars(select(OpRow.id)).all() == []
        assert session.scalars(select(WorkerRow.name)).all() == ["before"]
    with database.engine.connect() as connection:
        connection.execute(text("PRAGMA max_page_count = 1000000"))
    fill()
    with database.reading() as session:
        assert len(session.scalars(select(OpRow.id)).all()) == 100
    database.dispose()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sqlite://", "expected a SQLite file"),
        ("sqlite:///:memory:", "expected a SQLite file"),
        ("mysql://host/db", "expected sqlite or postgresql"),
    ],
)
def test_a_url_that_cannot_serve_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Database(url)


def test_ids_rise_and_fit_their_column() -> None:
    ids = [new_id("sr") for _ in range(10_000)]
    assert ids == sorted(set(ids))
    assert {len(i) for i in ids} == {29}

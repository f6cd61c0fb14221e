"""Counts that triggers keep: they agree with the tables whatever was done to those, and commit with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.orm import Session

from benchmarks.op import OP, TARGET
from tests.services import migrate, on_both_databases
from tests.support.api_support import settings_for
from tests.support.waiting import wait_until
from warpsmith.kernels_db.store import tallies
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import (
    AskRow,
    AttemptRow,
    KernelRow,
    NodeRow,
    ReverificationRow,
    SearchRow,
    TallyRow,
)
from warpsmith.workers import steps
from warpsmith.workers.queue.reconciler import Reconciler
from warpsmith.workers.search.idea_beam import IdeaBeam
from warpsmith.workers.search.policy import policy_document

STATES = ("planned", "coding", "judged")
VERDICTS = (None, "accepted", "rejected")


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'test.db'}"
    return str(request.getfixturevalue("migrated_postgres_url"))


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    """A migrated database of either kind that holds one search with its root."""
    database = Database(url)
    migrate(database)
    steps.create_search(
        database,
        OP,
        TARGET,
        language="cpp",
        policy=policy_document(IdeaBeam()),
        budget={},
        model={"provider": "agent"},
        now=0.0,
    )
    yield database
    database.dispose()


def count_tables(session: Session) -> tallies.Tallies:
    """What the tallies must say, counted from the tables."""
    counts = {
        name: {
            tuple(value or "" for value in values): count
            for *values, count in session.execute(select(*labels, func.count()).group_by(*labels))
        }
        for name, labels in tallies.COUNTED.items()
    }
    spend = {unit: float(session.scalar(select(func.sum(column))) or 0) for unit, column in tallies.SPENT.items()}
    return tallies.Tallies(counts, spend)


def expect_right(session: Session) -> None:
    """The tallies agree with the tables."""
    kept, counted = tallies.read_tallies(session), count_tables(session)
    assert kept.counts == counted.counts
    assert kept.spend == pytest.approx(counted.spend)


def node(search_id: str, seq: int, **values: Any) -> dict[str, Any]:
    """A node of the search."""
    usual = {"id": new_id("nd"), "search_id": search_id, "seq": seq, "round": 1, "state": "planned"}
    return {**usual, "created_at": 0.0, "updated_at": 0.0, **values}


def find_search(session: Session) -> SearchRow:
    """The one search."""
    return session.scalars(select(SearchRow)).one()


@on_both_databases("url")
def test_each_counted_table_is_counted_as_rows_come_change_and_go(url: str, db: Database) -> None:
    with db.writing() as session:
        search = find_search(session)
        search.state, search.model_calls, search.tokens, search.cost_usd = "running", 3, 4000, 0.25
        root = session.scalars(select(NodeRow)).one()
        attempt = AttemptRow(
            id="at_1", search_id=search.id, node_id=root.id, kind="judge", ordinal=0, params={}, state="pending"
        )
        attempt.created_at = 0.0
        kernel = KernelRow(id="kn_1", op_id=search.op_id, target="cpu", language="cpp", source="", source_digest="")
        kernel.score = kernel.ci_low = kernel.ci_high = 1.0
        kernel.envelope, kernel.evidence, kernel.lineage, kernel.created_at = {}, {}, [], 0.0
        session.add_all([attempt, kernel])
        session.flush()
        ask = AskRow(id="as_1", search_id=search.id, node_id=root.id, attempt_id="at_1", kind="code", request="r")
        ask.messages, ask.state, ask.created_at = [], "open", 0.0
        again = ReverificationRow(id="rv_1", kernel_id="kn_1", ordinal=0, target="cpu", cause="asked", state="pending")
        again.created_at = 0.0
        session.add_all([ask, again])
        session.flush()
        kept = tallies.read_tallies(session)
        assert kept.counts == {
            "searches": {("running",): 1},
            "nodes": {("coded", ""): 1},
            "attempts": {("judge", "pending"): 1},
            "asks": {("open",): 1},
            "kernels": {("cpu", "verified"): 1},
            "reverifications": {("pending", ""): 1},
        }
        assert kept.spend == {"calls": 3.0, "tokens": 4000.0, "usd": 0.25}
        root.state, root.verdict = "judged", "accepted"
        attempt.state, ask.state, kernel.standing = "running", "answered", "holds"
        again.state, again.outcome = "done", "holds"
        search.cost_usd = 0.5
    with db.writing() as session:
        expect_right(session)
        for table in (AskRow, AttemptRow, ReverificationRow):
            session.execute(delete(table))
    with db.reading() as session:
        expect_right(session)
        assert tallies.read_tallies(session).counts["attempts"] == {}


@on_both_databases("url")
def test_a_change_that_is_rolled_back_is_not_counted(url: str, db: Database) -> None:
    with db.engine.connect() as connection, Session(connection) as session:
        search = find_search(session)
        session.execute(insert(NodeRow), [node(search.id, seq) for seq in range(1, 9)])
        assert tallies.read_tallies(session).counts["nodes"] == {("coded", ""): 1, ("planned", ""): 8}
        session.rollback()  # as the database does where the worker dies here
    with db.reading() as session:
        assert tallies.read_tallies(session).counts["nodes"] == {("coded", ""): 1}


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 4), st.sampled_from(STATES), st.sampled_from(VERDICTS)),
        st.tuples(st.just("change"), st.sampled_from(STATES), st.sampled_from(STATES), st.sampled_from(VERDICTS)),
        st.tuples(st.just("delete"), st.sampled_from(STATES)),
        st.tuples(st.just("spend"), st.floats(0, 10)),
        st.tuples(st.just("fold")),
        st.tuples(st.just("undo")),
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=CHANGES)
@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)], indirect=True)
def test_tallies_agree_with_the_tables_after_any_changes(url: str, db: Database, changes: list[Any]) -> None:
    with db.engine.connect() as connection, Session(connection, join_transaction_mode="create_savepoint") as session:
        search = find_search(session)
        first = 1
        for change in changes:
            match change:
                case "add", count, state, verdict:
                    rows = [node(search.id, first + more, state=state, verdict=verdict) for more in range(count)]
                    session.execute(insert(NodeRow), rows)
                    first += count
                case "change", before, state, verdict:
                    values = {"state": state, "verdict": verdict, "updated_at": 1.0}
                    session.execute(update(NodeRow).where(NodeRow.state == before).values(values))
                case "delete", state:
                    session.execute(delete(NodeRow).where(NodeRow.state == state))
                case "spend", cost:
                    search.cost_usd += cost
                    search.model_calls += 1
                    session.flush()
                case ("fold",):
                    assert tallies.fold(session) > 0
                case ("undo",):
                    with session.begin_nested() as point:
                        session.execute(update(NodeRow).values(state="closed"))
                        point.rollback()
            expect_right(session)


def _nothing() -> dict[str, Any]:
    return {"counted": "nodes", "label_1": "judged", "label_2": "", "change": 0.0}


@on_both_databases("url")
def test_many_changes_are_folded_into_one_row_a_count(url: str, db: Database) -> None:
    with db.writing() as session:
        search = find_search(session)
        assert not tallies.is_long(session)  # a few rows are left as they are
        session.execute(insert(NodeRow), [node(search.id, seq) for seq in range(1, tallies.FOLD_AT + 1)])
        assert tallies.is_long(session)
        assert tallies.fold(session) >= tallies.FOLD_AT
        expect_right(session)
        rows = session.execute(select(TallyRow.counted, TallyRow.label_1, TallyRow.change)).tuples().all()
        assert sorted(rows) == [
            ("nodes", "coded", 1.0),
            ("nodes", "planned", float(tallies.FOLD_AT)),
            ("searches", "queued", 1.0),
        ]


@on_both_databases("url")
def test_the_reconciler_folds(url: str, db: Database) -> None:
    reconciler = Reconciler(settings_for(Path("/nowhere")), db, Celery("nowhere"))
    with db.writing() as session:
        search_id = find_search(session).id
        session.execute(update(SearchRow).values(state="paused"))
        session.execute(insert(NodeRow), [node(search_id, seq) for seq in range(1, tallies.FOLD_AT)])
    for _ in range(2):
        reconciler.round()
        with db.reading() as session:
            assert not tallies.is_long(session)
            expect_right(session)


@pytest.mark.parametrize("url", ["postgresql"], indirect=True)
def test_changes_that_others_make_while_one_folds_are_kept(url: str, db: Database) -> None:
    with db.writing() as session:
        search_id = find_search(session).id
        session.execute(insert(NodeRow), [node(search_id, seq) for seq in range(1, tallies.FOLD_AT + 1)])
    folded: list[int] = []

    def fold() -> None:
        with db.writing() as session:
            folded.append(tallies.fold(session))

    with db.writing() as session:
        assert tallies.fold(session) >= tallies.FOLD_AT
        other = threading.Thread(target=fold)  # finds the same rows, and waits for this transaction
        other.start()
        with db.writing() as beside:
            beside.execute(insert(NodeRow), [node(search_id, tallies.FOLD_AT + 1)])
        waiting = text(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        wait_until(lambda: session.scalar(waiting) == 1)
    other.join(30)
    assert folded == [0] or folded == [1]  # what was added beside, and nothing that was folded
    with db.reading() as session:
        expect_right(session)
        assert tallies.read_tallies(session).counts["nodes"] == {("coded", ""): 1, ("planned", ""): tallies.FOLD_AT + 1}


@on_both_databases("url")
def test_a_recount_mends_what_was_missed_and_changes_nothing_that_is_right(url: str, db: Database) -> None:
    with db.writing() as session:
        search = find_search(session)
        search.cost_usd = 0.1
        session.execute(insert(NodeRow), [node(search.id, seq) for seq in range(1, 5)])
    with db.writing() as session:
        assert tallies.recount(session) == 0
        session.execute(delete(TallyRow))  # as after a restore without triggers
        assert tallies.read_tallies(session).counts["nodes"] == {}
        assert tallies.recount(session) == 4  # two of nodes, one of searches, the cost
        expect_right(session)
        session.execute(insert(TallyRow), [{**_nothing(), "label_1": "lost", "change": 7.0}])
        assert tallies.recount(session) == 1
        expect_right(session)


@on_both_databases("url")
def test_migrations_count_what_is_there_and_find_the_best(
    url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    fresh = (
        f"sqlite:///{tmp_path / 'old.db'}" if url.startswith("sqlite") else str(request.getfixturevalue("postgres_url"))
    )
    old = Database(fresh)
    old.upgrade("0011")
    with old.writing() as session:
        session.execute(text("INSERT INTO ops (id, name, digest, spec, created_at) VALUES ('op_1', 'o', 'd', '{}', 0)"))
        session.execute(
            text(
                "INSERT INTO searches (id, op_id, target, language, policy, budget, model, state, round, next_seq,"
                " candidates, model_calls, tokens, cost_usd, active_s, created_at, updated_at, best_node_id) VALUES"
                " ('sr_1', 'op_1', 'cpu', 'cpp', '{}', '{}', '{}', 'running', 0, 1, 0, 2, 30, 0.5, 0, 0, 0, 'nd_1')"
            )
        )
        session.execute(
            text(
                "INSERT INTO nodes (id, search_id, seq, round, state, score, repairs, ideation, ideated, verification,"
                " variant, created_at, updated_at) VALUES ('nd_1', 'sr_1', 0, 0, 'judged', 1.5, 0, 'none', 0, 'none',"
                " 0, 0, 0)"
            )
        )
    old.upgrade()
    with old.reading() as session:
        kept = tallies.read_tallies(session)
        assert kept.counts["searches"] == {("running",): 1}
        assert kept.counts["nodes"] == {("judged", ""): 1}
        assert kept.spend == {"calls": 2.0, "tokens": 30.0, "usd": 0.5}
        search = find_search(session)
        assert (search.best_score, search.best_limit) == (1.5, -1.0)
        expect_right(session)
    old.dispose()

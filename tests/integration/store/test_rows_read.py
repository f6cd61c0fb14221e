"""What reads of a large database look at: rows counted by PostgreSQL itself, with the plans that it chose."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from benchmarks.scale.filling import Filled, fill
from tests.services import postgres_database
from warpsmith.kernels_db.store import listing, recent
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.reverification_due import presents
from warpsmith.kernels_db.store.tables import KernelRow, NodeRow, SearchRow
from warpsmith.kernels_db.store.tallies import read_tallies
from warpsmith.service.api.metrics import _measure_queues
from warpsmith.service.views import system
from warpsmith.service.views.nodes import make_node_document
from warpsmith.service.views.watch import make_tree_rows

NODES = 6_000
WAITING = 60
FEW = 250

Store = tuple[Database, Filled]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """A filled database, where searches for the GPU of some kernels wait for their first judge."""
    with postgres_database() as url:
        db = Database(url)
        db.upgrade()
        filled = fill(db, NODES)
        with db.writing() as session:
            session.execute(
                text(
                    "INSERT INTO searches (id, op_id, target, language, policy, budget, model, state, round, next_seq,"
                    " candidates, model_calls, tokens, cost_usd, active_s, created_at, updated_at)"
                    " SELECT 'sr_z' || n, op_id, 'cuda:sm_75', 'cuda', policy, budget, model, 'queued', 0, 1,"
                    " 0, 0, 0, 0, 0, created_at + n, updated_at + n FROM (SELECT * FROM searches LIMIT 1) AS one,"
                    " generate_series(1, :count) AS n"
                ),
                {"count": WAITING},
            )
            session.execute(text("ANALYZE"))
        yield db, filled
        db.dispose()


@contextmanager
def reading(db: Database) -> Iterator[tuple[Session, dict[str, int]]]:
    """A read transaction, and the rows of each table that it looked at, known at its end."""
    rows: dict[str, int] = {}
    counts = text("SELECT relname, seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables")
    with db.reading() as session:
        before = dict(session.execute(counts).tuples().all())
        yield session, rows
        rows.update({name: count - before[name] for name, count in session.execute(counts).tuples()})


def test_counts_read_no_row_of_what_they_count(store: Store) -> None:
    db, filled = store
    with reading(db) as (session, rows):
        counts = read_tallies(session).counts
        queues = _measure_queues(session, time.time(), 0.0)
    assert sum(counts["nodes"].values()) == filled.nodes
    assert counts["searches"]["queued",] == WAITING
    still_open = counts["attempts"]["judge", "pending"]
    assert queues["judge.cpu-x86_64"].waiting == still_open
    assert rows["nodes"] == rows["kernels"] == 0
    assert rows["attempts"] == still_open


def test_a_target_without_a_verdict_reads_no_verdict(store: Store) -> None:
    db, _ = store
    with reading(db) as (session, rows):
        assert recent.list_recent_verdicts(session, "cuda:sm_75") == []
    assert rows["verdicts"] == 0
    with reading(db) as (session, rows):
        known = presents(session)
        system.list_devices(session)
    assert list(known) == ["cpu:x86_64"]
    assert 0 < rows["verdicts"] < FEW


def test_the_newest_verdicts_of_a_target_are_found(store: Store) -> None:
    db, filled = store
    with db.reading() as session:
        found = recent.list_recent_verdicts(session, "cpu:x86_64")
        assert found == sorted(found, reverse=True)
        assert found[0] == session.scalar(text("SELECT max(id) FROM verdicts"))
        of_large = text("SELECT max(id) FROM verdicts WHERE search_id = :id")
        assert session.scalar(of_large, {"id": filled.large_search}) in found
        assert recent.list_values(session, SearchRow.target) == ["cpu:x86_64", "cuda:sm_75"]
        assert recent.list_values(session, KernelRow.target) == ["cpu:x86_64", "cuda:sm_75"]


def test_lists_by_score_read_their_page(store: Store) -> None:
    db, _ = store
    with reading(db) as (session, rows):
        page = listing.list_searches(session, limit=3, sort="score")
        assert len(page.items) == 3
        scores = [session.get_one(NodeRow, search.best_node_id).score or 0.0 for search in page.items]
        assert scores == sorted(scores, reverse=True)
        assert [search.best_score for search in page.items] == scores
    assert rows["nodes"] == 3
    with reading(db) as (session, rows):
        session.execute(text("SET LOCAL enable_seqscan = off"))  # of a table this small PostgreSQL reads all at once
        listing.list_searches(session, limit=3, sort="score")
    assert rows["searches"] == 4


def test_a_page_of_a_tree_and_a_node_read_what_they_show(store: Store) -> None:
    db, filled = store
    with reading(db) as (session, rows):
        search = session.get_one(SearchRow, filled.large_search)
        shown = make_tree_rows(session, search, -1, 100, None)
    assert shown.best_path == [f"nd_{0:026d}", f"nd_{2:026d}"]
    assert rows["nodes"] < FEW
    with reading(db) as (session, rows):
        document = make_node_document(session, session.get_one(NodeRow, filled.node), None)
    assert len(document.children) == 4
    assert rows["nodes"] < FEW

"""Large trees on PostgreSQL are read by what changed: the policy sees the same tree as if all of it were read."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from sqlalchemy import Select, select, text, update
from sqlalchemy.orm import Session

from benchmarks.trees import plant
from tests.support.steps_support import Driver, create, small_policy
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import NodeRow
from warpsmith.workers import steps
from warpsmith.workers.search.tree import NodeView
from warpsmith.workers.steps import lifecycle, steering, tree_reading
from warpsmith.workers.steps.rows import lock_search
from warpsmith.workers.steps.tree_reading import read_nodes

pytestmark = pytest.mark.parametrize("db", ["postgresql"], indirect=True)
SIZE = 1_350  # so many nodes of the last round are open that it does not close
CHANGED = 60


class Reads:
    """Counts the rows of nodes that are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[int] = []
        fetch = tree_reading._fetch

        def counted(session: Session, query: Select[Any], **values: str) -> Iterable[tuple[Any, ...]]:
            rows = list(fetch(session, query, **values))
            self.rows.append(len(rows))
            return rows

        monkeypatch.setattr(tree_reading, "_fetch", counted)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """A count of what is read."""
    return Reads(monkeypatch)


@pytest.fixture
def beside(db: Database) -> Iterator[Database]:
    """Another process on the same database."""
    database = Database(db.url.render_as_string(hide_password=False))
    yield database
    database.dispose()


def read(db: Database, search_id: str, *, whole: bool = False) -> list[NodeView]:
    """The tree as `advance` reads it."""
    with db.writing() as session:
        return read_nodes(session, lock_search(session, search_id), whole=whole)


def change(db: Database, search_id: str, seq: int, **values: Any) -> None:
    """A change of a node under the search's lock."""
    with db.writing() as session:
        lock_search(session, search_id)
        session.execute(update(NodeRow).where(NodeRow.search_id == search_id, NodeRow.seq == seq).values(**values))


def test_a_step_reads_the_nodes_that_changed_since_the_last_one(db: Database, reads: Reads) -> None:
    search_id, ready = plant(db, SIZE)
    reads.rows.clear()
    for node_id in ready[:5]:
        with db.writing() as session:
            lock_search(session, search_id)
            session.execute(update(NodeRow).where(NodeRow.id == node_id).values(state="coded"))
        assert len(steps.advance(db, search_id, 2000.0)) == 1
    assert reads.rows == [SIZE, 2, 2, 2, 2]  # the node that became ready, and the one that was opened before


def test_what_other_processes_change_is_read(db: Database, beside: Database, reads: Reads) -> None:
    search_id, _ = plant(db, SIZE)
    luck = random.Random(7)
    for _ in range(CHANGED):
        one, other = luck.sample([db, beside], 2)
        for _ in range(luck.randrange(3)):
            state = luck.choice(["coded", "judged", "closed"])
            change(one, search_id, luck.randrange(1, SIZE), state=state, score=luck.random())
        assert read(other, search_id) == read(other, search_id, whole=True)
    assert sum(rows < CHANGED for rows in reads.rows) >= CHANGED - 2


def test_a_change_that_is_rolled_back_is_not_remembered(db: Database, beside: Database) -> None:
    search_id, _ = plant(db, SIZE)
    before = read(db, search_id)
    with db.engine.connect() as connection, Session(connection) as session:
        search = lock_search(session, search_id)
        session.execute(update(NodeRow).where(NodeRow.search_id == search_id, NodeRow.seq == 5).values(state="closed"))
        assert read_nodes(session, search)[5].state == "closed"
        session.rollback()
    assert read(db, search_id) == before
    with db.writing() as session:
        search = lock_search(session, search_id)
        with session.begin_nested() as point:
            session.execute(update(NodeRow).where(NodeRow.search_id == search_id).values(state="closed"))
            assert read_nodes(session, search)[5].state == "closed"
            point.rollback()
    assert read(db, search_id) == before
    change(beside, search_id, 6, state="closed")
    assert read(db, search_id) == read(db, search_id, whole=True)


def test_new_nodes_are_read_and_a_tree_with_a_gap_is_read_whole(db: Database, reads: Reads) -> None:
    search_id, _ = plant(db, SIZE)
    steering.add_idea(db, search_id, {"technique": "fusion", "title": "new", "mechanism": "m"}, 3000.0)
    assert read(db, search_id)[-1].origin == "person"
    with db.writing() as session:
        search = lock_search(session, search_id)
        search.next_seq += 1  # as nothing does: a number without a node
    reads.rows.clear()
    nodes = read(db, search_id)
    assert len(nodes) == SIZE + 1
    assert reads.rows == [0, SIZE + 1, SIZE + 1]
    assert nodes == read(db, search_id, whole=True)


def test_a_tree_is_read_whole_again_after_a_time(db: Database, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    search_id, _ = plant(db, SIZE)
    read(db, search_id)
    reads.rows.clear()
    monkeypatch.setattr(tree_reading, "MOST_AGE_S", -1.0)
    read(db, search_id)
    assert reads.rows == [SIZE]


def test_no_more_is_remembered_than_allowed(db: Database, reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_reading, "MOST_REMEMBERED", 2 * SIZE)
    searches = [plant(db, SIZE)[0] for _ in range(3)]
    for search_id in searches:
        read(db, search_id)
    reads.rows.clear()
    read(db, searches[2])
    read(db, searches[0])
    assert reads.rows == [0, SIZE]


def test_nodes_that_the_database_lost_are_not_in_the_tree(db: Database, reads: Reads) -> None:
    search_id, _ = plant(db, SIZE)
    before = read(db, search_id)
    with db.writing() as session:  # as if a failover behind a proxy had lost the last node
        lock_search(session, search_id)
        nodes = session.connection().info["trees"][search_id].nodes
        nodes.append(nodes[-1]._replace(id="nd_lost", seq=SIZE))
    reads.rows.clear()
    assert read(db, search_id) == before
    assert reads.rows == [0, SIZE]


def test_searches_come_out_the_same_node_for_node(
    db: Database, beside: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    trees = []
    for least in (10**9, 1):  # read whole, then by what changed
        monkeypatch.setattr(tree_reading, "LARGE", least)
        driver = Driver(db, create(db), decide=small_policy(codes=2, ideas=3, rounds=2))
        turns = iter(range(10**6))
        advance = lifecycle.advance

        def either(_db: Database, *more: Any, turns: Iterator[int] = turns, advance: Any = advance) -> Any:
            return advance((db, beside)[next(turns) % 2], *more)

        monkeypatch.setattr(steps, "advance", either)
        driver.run()
        monkeypatch.setattr(steps, "advance", advance)
        trees.append(
            [(node.seq, node.round, node.state, node.verdict, node.score, node.verification) for node in driver.nodes()]
        )
        assert driver.search().state == "finished"
    assert trees[0] == trees[1]
    assert len(trees[0]) > 12


def test_each_change_of_a_node_takes_the_next_revision(db: Database) -> None:
    search_id, _ = plant(db, 10)
    with db.writing() as session:
        revisions = select(NodeRow.revision).where(NodeRow.search_id == search_id).order_by(NodeRow.seq)
        before = list(session.scalars(revisions))
        assert len(set(before)) == len(before)
        session.execute(text("UPDATE nodes SET mark = 'pinned' WHERE search_id = :id AND seq = 3"), {"id": search_id})
        after = list(session.scalars(revisions))
    assert after[3] > max(before)
    assert after[:3] + after[4:] == before[:3] + before[4:]

"""The store on both databases: one row per record, lists that page by key, and the pool that replays a search."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import event, select, update

from tests.services import on_both_databases
from tests.support.steps_support import OP, Driver, call, create
from warpsmith.kernels_db.spec.op import parse_op
from warpsmith.kernels_db.store import listing, records
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.pool_file import Pool, PoolHeader, PoolReply, dump_pool, parse_pool
from warpsmith.kernels_db.store.tables import KernelRow, NodeRow, OpRow, PoolReplyRow, SearchRow, WorkloadRow
from warpsmith.workers import steps


def pool(*requests: str) -> Pool:
    """A pool with one reply to each request."""
    header = PoolHeader("add_relu", "0" * 64, "cpu:x86_64", "cpp", "a person", 1.0, "0.1.0", {"name": "idea_beam"}, {})
    replies = [
        PoolReply(request * 64, 0, "code", "summary", "reply", "stop", None, None, None, 1.5) for request in requests
    ]
    return Pool(header, tuple(replies))


@on_both_databases("db")
def test_an_op_is_stored_once_with_its_workloads(db: Database) -> None:
    with db.writing() as session:
        row, created = records.add_op(session, OP, 5.0)
        again, created_again = records.add_op(session, OP, 6.0)
    assert (created, created_again) == (True, False)
    assert row.id == again.id
    assert parse_op(row.spec).digest == OP.digest
    with db.reading() as session:
        rows = session.execute(select(WorkloadRow.device, WorkloadRow.name, WorkloadRow.role)).tuples().all()
    assert sorted(rows) == [
        (device, name, role) for device in ("cpu", "cuda") for name, role in (("large", "bench"), ("ragged", "test"))
    ]


@on_both_databases("db")
def test_two_that_store_the_same_op_at_once_get_the_same_row(db: Database) -> None:
    barrier, found, failures = threading.Barrier(4), set[str](), list[BaseException]()

    def add() -> None:
        try:
            barrier.wait()
            with db.writing() as session:
                found.add(records.add_op(session, OP)[0].id)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(found) == 1


@on_both_databases("db")
def test_a_pool_is_stored_once_with_its_replies(db: Database) -> None:
    with db.writing() as session:
        row, created = records.add_pool(session, pool("a", "b"))
        again, created_again = records.add_pool(session, pool("a", "b"))
        other, _ = records.add_pool(session, pool("a"))
    assert (created, created_again, row.id == again.id, row.id == other.id) == (True, False, True, False)
    with db.reading() as session:
        reply = session.get_one(PoolReplyRow, (row.id, "b" * 64, 0)).reply
        assert reply == pool("b").replies[0].document()
        assert [item.id for item in listing.list_pools(session, limit=9, op="add_relu").items] == [other.id, row.id]
        assert listing.list_pools(session, limit=9, op="gelu").items == []


@on_both_databases("db")
def test_lists_page_by_key_whatever_arrives_meanwhile(db: Database) -> None:
    # Equal times: the id decides.
    ids = [create(db, now=1000.0 + number // 3) for number in range(7)]
    seen: list[str] = []
    cursor: str | None = None
    while True:
        with db.reading() as session:
            page = listing.list_searches(session, limit=3, after=cursor)
        assert len(page.items) <= 3
        seen += [row.id for row in page.items]
        create(db, now=5000.0)
        cursor = page.next
        if cursor is None:
            break
    assert seen == list(reversed(ids))


@on_both_databases("db")
def test_lists_filter(db: Database) -> None:
    first, second = create(db, now=1.0), create(db, now=2.0)
    steps.cancel(db, first, 3.0)
    with db.reading() as session:
        op_id = session.scalars(select(OpRow.id)).one()

        def found(**filters: Any) -> list[str]:
            return [row.id for row in listing.list_searches(session, limit=9, **filters).items]

        assert found(state=("cancelled",)) == [first]
        assert found(state=("cancelled", "queued")) == [second, first]
        assert found(state=("queued",), op="add_relu") == [second]
        assert found(text="RELU") == [second, first]
        assert found(text=first[4:]) == [first]
        assert found(text="On Request") == [first]
        assert found(text="%") == found(text="add_relu_") == []
        assert found(op=op_id) == [second, first]
        assert found(op="gelu") == []
        assert found(target="cpu:x86_64") == [second, first]
        assert found(target="cuda:sm_90") == []
        assert [row.id for row in listing.list_ops(session, limit=9, name="add_relu").items] == [op_id]
        assert listing.list_ops(session, limit=9, name="gelu").items == []


@on_both_databases("db")
def test_names_of_ops_come_once_each_and_without_their_specs(db: Database) -> None:
    with db.writing() as session:
        for number, name in enumerate(("gelu", "relu", "gelu", "tanh")):
            session.add(OpRow(id=f"op_{number}", name=name, digest=str(number), spec={}, created_at=float(number)))
    asked: list[str] = []
    event.listen(db.engine, "before_cursor_execute", lambda *arguments: asked.append(arguments[2]))
    with db.reading() as session:
        assert listing.list_op_names(session, limit=9) == ["tanh", "gelu", "relu"]
        assert listing.list_op_names(session, limit=2) == ["tanh", "gelu"]
        for having in ("searches", "archived", "kernels"):
            assert listing.list_op_names(session, limit=9, having=having) == []
    assert len([statement for statement in asked if "FROM ops" in statement]) == 5
    assert not any("ops.spec" in statement for statement in asked)


@on_both_databases("db")
def test_names_of_ops_with_searches_or_kernels_are_asked_for(db: Database) -> None:
    archived = create(db, now=1.0)
    Driver(db, archived).run()
    with db.writing() as session:
        session.add(OpRow(id="op_idle", name="idle", digest="idle", spec={}, created_at=0.0))

    def found(**filters: Any) -> list[list[str]]:
        with db.reading() as session:
            return [
                listing.list_op_names(session, limit=9, having=having, **filters)
                for having in ("searches", "archived", "kernels")
            ]

    assert found() == [["add_relu"], [], ["add_relu"]]
    with db.writing() as session:
        session.get_one(SearchRow, archived).archived_at = 9.0
        for table in (SearchRow, KernelRow):
            session.execute(update(table).values(team="theirs"))
    assert found() == [[], ["add_relu"], ["add_relu"]]
    assert found(team="ours") == [[], [], []]


@on_both_databases("db")
def test_kernels_are_listed_by_op_and_target(db: Database) -> None:
    Driver(db, create(db)).run()
    with db.reading() as session:
        [kernel] = listing.list_kernels(session, limit=9, op="add_relu", target="cpu:x86_64").items
        assert kernel.op_id == session.scalars(select(OpRow.id)).one()
        assert listing.list_kernels(session, limit=9, op="gelu").items == []
        assert listing.list_kernels(session, limit=9, target="cuda:sm_90").items == []


@on_both_databases("db")
@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("sort", ["created", "updated", "score", "limit", "cost", "candidates"])
def test_lists_sort_and_page_by_any_value(db: Database, sort: listing.SearchSort, order: listing.Order) -> None:
    ids = [create(db, now=1000.0 + number) for number in range(6)]
    values = dict(zip(ids, [3.0, None, 1.0, 2.0, 2.0, None], strict=True))
    with db.writing() as session:
        for search_id, value in values.items():
            search = session.get_one(SearchRow, search_id)
            best = session.scalars(select(NodeRow).where(NodeRow.search_id == search_id)).one()
            search.best_node_id = best.id if value is not None else None
            search.updated_at = search.created_at = search.cost_usd = value or 0.5
            search.candidates = int(value or 0)
            search.unpriced_calls = int(value is None)
            best.score = best.limit_fraction = value
    ascending = order == "asc"
    absent = {"created": 0.5, "updated": 0.5, "candidates": 0.0}.get(sort, 1e9 if ascending else -1.0)
    expected = sorted(ids, key=lambda name: (absent if values[name] is None else values[name], name))
    found: list[str] = []
    cursor: str | None = None
    with db.reading() as session:
        while True:
            page = listing.list_searches(session, limit=2, after=cursor, sort=sort, order=order)
            found += [row.id for row in page.items]
            cursor = page.next
            if cursor is None:
                break
    assert found == (expected if ascending else expected[::-1])


@on_both_databases("db")
def test_a_searchs_row_has_the_score_of_its_best_node(db: Database) -> None:
    driver = Driver(db, create(db))
    driver.run()

    def read() -> tuple[tuple[float, float], tuple[float | None, float | None]]:
        with db.reading() as session:
            search = session.get_one(SearchRow, driver.search_id)
            best = session.get_one(NodeRow, search.best_node_id)
            return (search.best_score, search.best_limit), (best.score, best.limit_fraction)

    kept, of_node = read()
    assert kept == of_node
    assert kept[0] > 0.0
    best_id = driver.search().best_node_id
    with db.writing() as session:
        for node in session.scalars(select(NodeRow)).all():
            node.score, node.limit_fraction = node.seq + 1.0, None
    kept, of_node = read()
    assert kept == (of_node[0], -1.0)
    with db.writing() as session:
        session.get_one(SearchRow, driver.search_id).best_node_id = None
    assert (driver.search().best_score, driver.search().best_limit) == (-1.0, -1.0)
    with db.writing() as session:
        session.get_one(SearchRow, driver.search_id).best_node_id = best_id
    assert read() == (kept, of_node)


@on_both_databases("db")
@pytest.mark.parametrize("cursor", ["", "x", "é", "bnVsbA", "WzEsMl0", "W05hTiwgInNyXzEiXQ", "W10" * 2000, "[1.0,"])
def test_a_cursor_that_no_page_gave_is_refused(db: Database, cursor: str) -> None:
    with db.reading() as session, pytest.raises(listing.BadCursor, match="expected the `next` of a page"):
        listing.list_searches(session, limit=3, after=cursor)


@on_both_databases("db")
def test_a_search_gives_the_pool_that_replays_it(db: Database) -> None:
    driver = Driver(db, create(db))
    work = driver.until("code")
    calls = [call(7, reply=None, error="timeout"), call(7, reply="bad", error="no code block"), call(8)]
    assert steps.close_branch(db, work.attempt_id, "me", "no code", calls, driver.now)
    with db.reading() as session:
        found = records.export_pool(session, driver.search_id)
    assert found.header.op_digest == OP.semantic_digest
    assert (found.header.target, found.header.language, found.header.answered_by) == ("cpu:x86_64", "cpp", "agent")
    replies = {reply.request: reply for reply in found.replies}
    assert replies[f"{7:064x}"].reply == "bad"
    assert replies[f"{8:064x}"].reply == "reply"
    assert replies[f"{8:064x}"].summary == "code 'idea 100' (fusion), variant 0"
    assert len(found.replies) == len(replies)
    assert parse_pool(dump_pool(found)) == found


@on_both_databases("db")
def test_the_last_of_two_replies_to_one_request_counts(db: Database) -> None:
    driver = Driver(db, create(db))
    work = driver.until("code")
    calls = [call(7, reply="first", error="no code block"), call(7, reply="second")]
    assert steps.complete_code(db, work.attempt_id, "me", "def run(): ...", "cpp", calls, driver.now)
    with db.reading() as session:
        found = records.export_pool(session, driver.search_id)
    assert [reply.reply for reply in found.replies if reply.request == f"{7:064x}"] == ["second"]

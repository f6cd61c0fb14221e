"""Rows that are written by plain inserts are those that the session's own flush writes."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from tests.support.steps_support import OP, create
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.records import add_op
from warpsmith.kernels_db.store.table_base import insert_new
from warpsmith.kernels_db.store.tables import EventRow, KernelRow, NodeRow, SearchRow, SearchTagRow

pytestmark = pytest.mark.parametrize("db", ["sqlite", "postgresql"], indirect=True)
"""On both every day: PostgreSQL has a statement of its own."""

AWKWARD = {"a": [None, "é\u2028\\", True], "b": 1e300, "c": 0.1, "d": 2**53 + 1, "%s": {}}


def add_rows(session: Session, op_id: str, search_id: str, **idea: Any) -> tuple[SearchRow, NodeRow]:
    """Add a search with nodes, tags and events; what refers to others comes first. `idea` is the second node's."""
    plain: dict[str, Any] = {"policy": {"name": "idea_beam"}, "budget": {}, "model": {}, "target": "cpu:x86_64"}
    times = {"created_at": 1.0, "updated_at": 1.0}
    session.add(EventRow(search_id=search_id, type="search.created", payload=AWKWARD, created_at=1.0))
    session.add(SearchTagRow(search_id=search_id, tag="one"))
    root = NodeRow(id=f"nd_{search_id}", search_id=search_id, seq=0, round=0, state="coded", **times)
    bare = NodeRow(id=f"nd_{search_id}b", search_id=search_id, seq=1, round=1, state="planned", **idea, **times)
    search = SearchRow(id=search_id, op_id=op_id, language="cpp", state="queued", reason=None, **plain, **times)
    session.add_all([root, bare, search])
    session.add(EventRow(search_id=search_id, node_id=root.id, type="node.created", payload={"seq": 0}, created_at=2.0))
    return search, root


def read_rows(session: Session, search_id: str) -> list[list[tuple[Any, ...]]]:
    """Every column of the search's rows but their ids; documents as text, which tells null from nothing."""
    found = []
    for table in (SearchRow, NodeRow, SearchTagRow, EventRow):
        columns = table.__table__.columns
        owner = columns.id if table is SearchRow else columns.search_id
        told = [column for column in columns if column.name not in ("id", "search_id", "node_id", "revision")]
        rows = session.execute(select(*told).where(owner == search_id).order_by(*columns.values()[:1])).all()
        missing = [column.is_(None) for column in told]
        gaps = session.execute(select(*missing).where(owner == search_id).order_by(*columns.values()[:1])).all()
        found += [[tuple(row) for row in rows], [tuple(map(bool, gap)) for gap in gaps]]
    return found


@pytest.mark.parametrize("idea", [{}, {"idea": None}, {"idea": {"title": "t"}}], ids=["not given", "null", "given"])
def test_they_are_the_rows_of_a_flush(db: Database, idea: dict[str, Any]) -> None:
    with db.writing() as session:
        op_id = add_op(session, OP, 1.0)[0].id
        search, _ = add_rows(session, op_id, "sr_flushed", **idea)
        rest = [row for row in session.new if row is not search]
        for row in rest:  # the flush knows no order of rows whose tables have no relationship
            session.expunge(row)
        session.flush()
        session.add_all(rest)
    with db.writing() as session:
        add_rows(session, op_id, "sr_inserted", **idea)
        insert_new(session)
        assert not session.new
    with db.reading() as session:
        assert read_rows(session, "sr_inserted") == read_rows(session, "sr_flushed")


def test_a_default_that_is_computed_is_that_of_a_flush(db: Database) -> None:
    with db.writing() as session:
        figures = {"score": 2.0, "ci_low": 1.9, "ci_high": 2.1, "envelope": {}, "evidence": {}, "lineage": []}
        names = {"op_id": add_op(session, OP, 1.0)[0].id, "target": "cpu:x86_64", "language": "cpp", "source": "s"}
        session.add(KernelRow(id="kn_1", source_digest="d", created_at=7.0, **names, **figures))
        insert_new(session)
    with db.reading() as session:
        assert session.get_one(KernelRow, "kn_1").verified_at == 7.0


def test_what_is_changed_afterwards_is_written_as_well(db: Database) -> None:
    with db.writing() as session:
        op_id = add_op(session, OP, 1.0)[0].id
        search, root = add_rows(session, op_id, "sr_changed")
        insert_new(session)
        assert search.best_score == -1.0, "a default of the database is read back"
        search.round, root.state = 3, "judging"
    with db.reading() as session:
        assert session.get_one(SearchRow, "sr_changed").round == 3
        assert session.get_one(NodeRow, "nd_sr_changed").state == "judging"


def test_a_row_that_cannot_be_written_undoes_all(db: Database) -> None:
    create(db)
    with db.reading() as session:
        op_id = session.scalars(select(SearchRow.op_id)).one()

    def write() -> None:
        with db.writing() as session:
            _, root = add_rows(session, op_id, "sr_twice")
            root.seq = 1  # that of another
            insert_new(session)

    with pytest.raises(IntegrityError):
        write()
    with db.reading() as session:
        assert session.get(SearchRow, "sr_twice") is None

"""How many statements and transactions one step takes: counted, not timed, so that none comes in unnoticed."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy.orm import Session

from tests.support.statements import counting
from tests.support.steps_support import LEASE_S, OP, TARGET, Driver, create, small_policy
from warpsmith.kernels_db.spec.op import Op, parse_op
from warpsmith.kernels_db.store import audit, records
from warpsmith.kernels_db.store.db import Database
from warpsmith.workers import steps

STATEMENTS = {"code": 20, "judge": 16}
"""Statements of the whole step: taken, checked against its team's quotas, committed, the search advanced."""
TRANSACTIONS = 3
SUBMISSION = {"sqlite": 6, "postgresql": 2}
"""What it has to know, and its rows: on SQLite the tables one by one."""
WIDE = 40


def waiting(driver: Driver, kind: str) -> steps.Message:
    """Play until a step of this kind is sent; returns its message."""
    messages = driver.advance()
    for _ in range(100):
        message = messages.pop(0)
        attempt = driver.attempt(message.attempt_id)
        if attempt.kind == kind and driver.search().candidates > 0:
            return message
        assert driver.step(message)
        messages += driver.advance()
    raise AssertionError(f"no {kind} step came")


@pytest.mark.parametrize("kind", ["code", "judge"])
def test_a_step_takes_a_fixed_number_of_statements(db: Database, kind: str) -> None:
    driver = Driver(db, create(db), decide=small_policy(codes=2, ideas=4))
    message = waiting(driver, kind)
    with counting(db) as found:
        work = steps.take(db, message.attempt_id, "me", LEASE_S, driver.now)
        assert work is not None
        assert work.kind == kind
        assert work.reached is None
        following = steps.Following(driver.decide)
        assert driver.complete(work, also=following)
    assert following.messages is not None
    assert found.pop("transactions") == TRANSACTIONS
    found.pop("BEGIN", None)  # SQLite's own, counted above
    assert found.total() <= STATEMENTS[kind], found


def test_opening_many_steps_updates_their_nodes_together(db: Database) -> None:
    driver = Driver(db, create(db), decide=small_policy(codes=1, ideas=WIDE))
    work = driver.until("ideate")
    assert driver.complete(work)
    with counting(db) as found:
        assert len(driver.advance()) == WIDE
    assert found["UPDATE"] <= 3, found
    assert {node.state for node in driver.nodes()[1:]} == {"coding"}


def test_a_stored_op_is_parsed_once_for_all_searches_that_look_for_seeds(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    Driver(db, create(db)).run()
    records._PARSED.clear()
    parsed: list[str] = []

    def count(document: Any) -> Op:
        parsed.append(document["name"])
        return parse_op(document)

    monkeypatch.setattr("warpsmith.kernels_db.store.records.parse_op", count)
    offered = []
    for _ in range(3):
        with db.reading() as session:
            offered.append(len(records.similar_kernels(session, OP, TARGET, "cpp", 3)))
    assert offered == [1, 1, 1]
    assert len(parsed) == 1


def test_a_submission_takes_a_fixed_number_of_statements(db: Database) -> None:
    def submit(entry: audit.Entry) -> steps.Following:
        following = steps.Following()
        with audit.acting(entry):
            # As the API does: with its entry in the audit log among the rows.
            create(db, following=following, also=lambda session, _new: audit.add_due(session), seeds=3)
        return following

    submit(audit.Entry(source="first", action="create_search"))  # stores the op
    entry = audit.Entry(source="second", action="create_search", object_id="sr_second")
    with counting(db) as found:
        following = submit(entry)
    assert following.messages
    assert entry.written
    assert found.pop("transactions") == 1
    found.pop("BEGIN", None)
    assert found.total() <= SUBMISSION[db.url.get_backend_name()], found
    with db.reading() as session:
        told = [(row.source, row.action, row.result, row.object_id) for row in audit.list_entries(session, limit=9)]
    assert told == [
        ("second", "create_search", "done", "sr_second"),
        ("first", "create_search", "done", None),
    ]


def test_what_fails_leaves_no_audit_entry_and_may_be_tried_again(db: Database) -> None:
    create(db)
    entry = audit.Entry(source="here", action="create_search")

    def fail(session: Session, _new: object) -> None:
        audit.add_due(session)
        raise ValueError("after the entry was added")

    with audit.acting(entry):
        with pytest.raises(ValueError, match="after the entry"):
            create(db, also=fail)
        assert not entry.written
        create(db)
    assert entry.written
    with db.reading() as session:
        assert [row.result for row in audit.list_entries(session, limit=9)] == ["done"]

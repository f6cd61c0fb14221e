"""What follows a step is opened in the transaction that ends it: all of it is committed, or nothing."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.support.steps_support import Driver, call, create, small_policy, source
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, EventRow, NodeRow, SearchRow
from warpsmith.workers import steps
from warpsmith.workers.search.policy import next_steps
from warpsmith.workers.search.tree import Step

POLICIES = {
    "small": ({"name": "idea_beam"}, small_policy(codes=2, ideas=3, rounds=2)),
    "idea_beam": ({"name": "idea_beam", "ideas": 2, "codes": 2, "rounds": 2, "max_rounds": 2}, next_steps),
    "puct": ({"name": "puct"}, next_steps),
}
ITS_OWN = ("id", "search_id", "parent_id", "revision")
NODE = [column.key for column in NodeRow.__table__.columns if column.key not in ITS_OWN]


def play(driver: Driver, *, at_once: bool) -> None:
    """Play a search to its end; with `at_once` each step's end opens what follows."""
    waiting = driver.advance()
    while waiting:
        work = driver.claim(waiting.pop(0).attempt_id)
        following = steps.Following(driver.decide) if at_once else None
        assert driver.complete(work, also=following)
        if following is None:
            waiting += driver.advance()
        else:
            assert following.messages is not None
            waiting += following.messages
        driver.check()


def history(db: Database, search_id: str) -> dict[str, Any]:
    """Return all that a search left, without ids."""
    with db.reading() as session:
        nodes = session.scalars(select(NodeRow).where(NodeRow.search_id == search_id).order_by(NodeRow.seq)).all()
        seqs = {node.id: node.seq for node in nodes} | {None: None}
        attempts = session.scalars(
            select(AttemptRow).where(AttemptRow.search_id == search_id).order_by(AttemptRow.created_at, AttemptRow.id)
        )
        events = session.scalars(select(EventRow).where(EventRow.search_id == search_id).order_by(EventRow.id))
        search = session.get_one(SearchRow, search_id)
        return {
            "search": (search.state, search.reason, search.round, search.candidates, seqs[search.best_node_id]),
            "nodes": [[seqs[node.parent_id], *(getattr(node, name) for name in NODE)] for node in nodes],
            "attempts": [
                (seqs[one.node_id], one.kind, one.ordinal, one.params, one.state, one.finished_at) for one in attempts
            ],
            "events": [(event.type, seqs[event.node_id], event.created_at) for event in events],
        }


@pytest.mark.parametrize("policy", POLICIES)
def test_it_is_the_same_tree_as_when_the_search_is_advanced_afterwards(db: Database, policy: str) -> None:
    document, decide = POLICIES[policy]
    found = []
    for at_once in (False, True):
        search_id = create(db, policy=document, budget={"candidates": 14})
        play(Driver(db, search_id, decide), at_once=at_once)
        found.append(history(db, search_id))
    assert found[0]["search"][0] == "finished"
    assert len(found[0]["nodes"]) > 8
    for part in found[0]:
        assert found[1][part] == found[0][part], part


def fail(*_: object) -> list[Step]:
    """A policy that raises."""
    raise KeyError("gate")


def test_a_policy_that_fails_ends_the_search_and_the_result_stays(db: Database) -> None:
    driver = Driver(db, create(db))
    work = driver.until("code")
    following = steps.Following(fail)
    assert steps.complete_code(db, work.attempt_id, "me", source(1), "cpp", [call()], driver.now, following)
    assert following.messages == []
    assert (driver.search().state, driver.attempt(work.attempt_id).state) == ("failed", "succeeded")
    assert driver.nodes()[work.node.seq].source == source(1)


def test_a_fault_in_what_follows_leaves_the_step_to_be_done_again(db: Database) -> None:
    driver = Driver(db, create(db))
    work = driver.until("code")

    def broken(session: Session, search: SearchRow, now: float) -> None:
        steps.Following(driver.decide)(session, search, now)
        raise KeyError("gate")

    with pytest.raises(KeyError):
        steps.complete_code(db, work.attempt_id, "me", source(1), "cpp", [call()], driver.now, broken)
    assert driver.attempt(work.attempt_id).state == "running"
    assert driver.nodes()[work.node.seq].source is None
    driver.check()
    assert steps.complete_code(db, work.attempt_id, "me", source(1), "cpp", [call()], driver.now)
    driver.check()


def test_of_a_step_whose_lease_was_lost_nothing_follows(db: Database) -> None:
    driver = Driver(db, create(db))
    work = driver.until("code")
    following = steps.Following(driver.decide)
    assert not steps.complete_code(db, work.attempt_id, "other", source(1), "cpp", [], driver.now, following)
    assert following.messages is None

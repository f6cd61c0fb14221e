"""What a step does under its search's lock does not grow with the search: counted, not timed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import insert
from sqlalchemy.orm import Session

from tests.services import on_both_databases
from tests.support.steps_support import Driver, create, idea
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import NodeRow, SearchRow
from warpsmith.workers import steps
from warpsmith.workers.steps import planting, steering

NODES = 5000
FEW = 50
"""Documents that a step may read under the lock: those of its own rows, not those of the tree."""


class Counter:
    """Counts what is parsed while a write transaction, and so the search's lock, is open."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = False
        self.digests = {True: 0, False: 0}
        self.documents = {True: 0, False: 0}
        writing, digest, decode = Database.writing, planting.digest_of, json.JSONDecoder.decode

        @contextmanager
        def watched(db: Database) -> Iterator[Session]:
            with writing(db) as session:
                self.open = True
                try:
                    yield session
                finally:
                    self.open = False

        def digest_of(found: Any) -> str:
            self.digests[self.open] += 1
            return digest(found)

        def parse(decoder: json.JSONDecoder, text: str, *more: Any) -> Any:
            self.documents[self.open] += 1
            return decode(decoder, text, *more)

        monkeypatch.setattr(Database, "writing", watched)
        monkeypatch.setattr(planting, "digest_of", digest_of)
        monkeypatch.setattr(json.JSONDecoder, "decode", parse)


def large(db: Database) -> Driver:
    """A search of NODES closed nodes, each with an idea of its own, whose root is asked for ideas."""
    driver = Driver(db, create(db))
    work = driver.until("ideate")
    with db.writing() as session:
        search = session.get_one(SearchRow, driver.search_id)
        rows = [
            {
                "id": new_id("nd"),
                "search_id": search.id,
                "seq": search.next_seq + number,
                "parent_id": work.node.id,
                "round": 1,
                "idea": idea(10_000 + number),
                "state": "closed",
                "created_at": 1.0,
                "updated_at": 1.0,
            }
            for number in range(NODES)
        ]
        session.execute(insert(NodeRow), rows)
        search.next_seq += NODES
    driver.attempt_id = work.attempt_id  # type: ignore[attr-defined] # for the test
    return driver


def test_a_models_ideas_are_compared_with_thousands_outside_the_lock(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = large(db)
    counter = Counter(monkeypatch)
    attempt_id = driver.attempt_id  # type: ignore[attr-defined]
    brought = [idea(12_345), idea(1)]
    assert steps.complete_ideate(db, attempt_id, "me", brought, [], driver.now)
    assert counter.digests[False] == NODES
    assert counter.digests[True] == 0
    assert counter.documents[True] < FEW
    nodes = driver.nodes()[NODES + 1 :]
    twin = next(node for node in driver.nodes() if node.idea == idea(12_345))
    assert (nodes[0].state, nodes[0].reason) == ("closed", f"the same idea as node #{twin.seq}")
    assert {node.state for node in nodes[1:]} == {"planned"}


def test_a_persons_idea_is_compared_with_thousands_outside_the_lock(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = large(db)
    counter = Counter(monkeypatch)
    with pytest.raises(steps.WrongState, match="the same idea as node"):
        steering.add_idea(db, driver.search_id, idea(14_999), driver.now)
    steering.add_idea(db, driver.search_id, idea(2), driver.now)
    assert counter.digests == {False: 2 * NODES, True: 0}
    assert counter.documents[True] < FEW


@on_both_databases("db")
def test_an_idea_that_came_between_the_look_and_the_lock_is_seen(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(db, create(db))
    driver.until("ideate")
    writing = Database.writing
    came: list[str] = []

    @contextmanager
    def late(found: Database) -> Iterator[Session]:
        if not came:
            came.append("")
            came.extend(steering.add_idea(db, driver.search_id, idea(7), driver.now))
        with writing(found) as session:
            yield session

    monkeypatch.setattr(Database, "writing", late)
    with pytest.raises(steps.WrongState, match="the same idea as node #1"):
        steering.add_idea(db, driver.search_id, idea(7), driver.now)
    assert len(came) == 2

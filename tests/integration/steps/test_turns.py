"""Turns between teams: one team's hundreds of steps do not hold up another's first."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from celery import Celery
from sqlalchemy import select, update

from tests.services import migrate
from tests.support.steps_support import LEASE_S, Driver, create
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, SearchRow, TeamRow, TurnRow
from warpsmith.workers import steps
from warpsmith.workers.queue import process, tasks
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.settings import Settings

NOW = 1000.0


def begin(db: Database, team: str, now: float = NOW) -> steps.Message:
    """The message of the first step of a new search."""
    with db.writing() as session:
        session.merge(TeamRow(name=team, visibility="private", created_at=0.0))
    (message,) = steps.advance(db, create(db, now, team=team), now)
    return message


def team_of(db: Database, work: steps.Work | None) -> str | None:
    if work is None:
        return None
    with db.reading() as session:
        return session.get_one(SearchRow, work.search_id).team


def served(db: Database, messages: list[steps.Message]) -> list[str | None]:
    """The teams whose steps the messages bring, in the order of the messages."""
    return [
        team_of(db, steps.take(db, message.attempt_id, f"w{number}", LEASE_S, NOW + number))
        for number, message in enumerate(messages)
    ]


def test_200_searches_of_one_team_do_not_hold_up_anothers_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the task that a message starts, in the order in which a broker gives messages."""
    here = WorkerProcess(Settings(home=tmp_path))
    migrate(here.db)
    monkeypatch.setattr(process, "_current", here)
    messages = [begin(here.db, team, time.time()) for team in ["a"] * 200 + ["b"]]
    order: list[str | None] = []

    def do(_: WorkerProcess, work: steps.Work, owner: str, following: steps.Following) -> bool:
        order.append(team_of(here.db, work))
        return steps.give_up(here.db, work.attempt_id, owner, "the test has seen it", time.time(), following)

    for message in messages[:3]:
        tasks.perform(Celery("nowhere"), message.attempt_id, do)
    here.close()
    assert sorted(order[:2], key=str) == ["a", "b"]
    assert order[2] == "a"


def test_teams_take_turns_and_every_step_is_taken_once(db: Database) -> None:
    messages = [begin(db, team) for team in ["a"] * 6 + ["b"] * 3 + ["c"]]
    order = served(db, messages)
    assert Counter(order) == {"a": 6, "b": 3, "c": 1}
    assert set(order[:3]) == {"a", "b", "c"}
    assert order[3:7] in (["a", "b", "a", "b"], ["b", "a", "b", "a"])
    assert served(db, messages) == [None] * len(messages), "messages that come twice find nothing"
    with db.reading() as session:
        assert set(session.scalars(select(AttemptRow.state))) == {"running"}


def test_a_team_alone_keeps_the_order_of_its_messages(db: Database) -> None:
    messages = [begin(db, "a") for _ in range(3)]
    taken = [steps.take(db, message.attempt_id, f"w{message.attempt_id}", LEASE_S, NOW) for message in messages[::-1]]
    assert [work and work.attempt_id for work in taken] == [message.attempt_id for message in messages[::-1]]
    with db.reading() as session:
        assert session.scalars(select(TurnRow)).all() == []


def test_what_may_not_run_has_no_turn(db: Database) -> None:
    paused, late, other, mine = (begin(db, team) for team in ("b", "c", "d", "a"))
    with db.writing() as session:
        search_id = session.get_one(AttemptRow, paused.attempt_id).search_id
        session.get_one(AttemptRow, late.attempt_id).not_before = NOW + 60
        elsewhere = session.get_one(AttemptRow, other.attempt_id).search_id
        session.execute(update(SearchRow).where(SearchRow.id == elsewhere).values(target="cuda:sm_90"))
    steps.pause(db, search_id, "by hand", NOW)
    assert served(db, [mine, mine, paused, late]) == ["a", None, None, None]
    assert steps.take(db, "at_unknown", "w", LEASE_S, NOW) is None
    assert served(db, [other]) == ["d"]


def test_model_steps_and_judge_steps_are_queues_of_their_own(db: Database) -> None:
    first = begin(db, "a")
    with db.reading() as session:
        driver = Driver(db, session.get_one(AttemptRow, first.attempt_id).search_id)
    baseline = driver.claim(first.attempt_id)
    assert driver.complete(baseline)
    (ideate,) = driver.advance()
    begin(db, "b")
    work = steps.take(db, ideate.attempt_id, "w", LEASE_S, driver.now)
    assert work is not None
    assert (work.kind, team_of(db, work)) == ("ideate", "a")


def test_workers_at_once_take_each_step_once(db: Database) -> None:
    messages = [begin(db, team) for team in ["a"] * 12 + ["b"] * 4]
    taken: list[str] = []

    def work(number: int) -> None:
        for message in messages[number::4]:
            found = steps.take(db, message.attempt_id, f"{number}{message.attempt_id}", LEASE_S, NOW)
            taken.append("none" if found is None else found.attempt_id)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(taken) == sorted(message.attempt_id for message in messages)

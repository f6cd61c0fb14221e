"""A reflection before the request for ideas: one attempt, calls in order, nothing lost where it comes to nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from sqlalchemy import select

from tests.support.steps_support import SETTINGS, Driver, create, small_policy
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AskRow, ModelCallRow
from warpsmith.workers import steps
from warpsmith.workers.llm.base import ModelReply, ModelRequest, ModelUnavailable, PoolMiss
from warpsmith.workers.llm.providers.agent_model import AgentModel
from warpsmith.workers.queue.model_step import ModelStep
from warpsmith.workers.search.tree import Step

LESSONS = json.dumps([{"lesson": "Stores bind.", "evidence": "#1 over #2"}])
IDEAS = json.dumps([{"technique": "compute", "title": f"New {n}", "mechanism": f"m {n}"} for n in range(2)])


def reflecting(**params: int) -> Callable[..., list[Step]]:
    """Two rounds on the root; the requests for ideas of both are to begin with a reflection."""
    decide = small_policy(rounds=2, repairs=0)

    def steps_with_reflection(*tree: Any) -> list[Step]:
        return [
            replace(step, params={**step.params, "round": step.ordinal, "reflect": 1, **params})
            if step.kind == "ideate"
            else step
            for step in decide(*tree)
        ]

    return steps_with_reflection


@dataclass
class Scripted:
    """A model that gives the next answer of its kind, or raises it, and keeps what it was asked."""

    answers: dict[str, list[str | Exception]]
    finish_reason: str = "stop"
    asked: list[ModelRequest] = field(default_factory=list)
    provider = "scripted"

    def complete(self, request: ModelRequest) -> ModelReply:
        """The next answer."""
        self.asked.append(request)
        answer = self.answers[request.kind].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ModelReply(answer, "m", self.finish_reason, 10, 5, 0.5, 0.1)


def second_round(db: Database, **params: int) -> tuple[Driver, steps.Work]:
    """The request for ideas of round 2, claimed."""
    driver = Driver(db, create(db), reflecting(**params))
    waiting = driver.advance()
    while (work := driver.claim(waiting.pop(0).attempt_id)).kind != "ideate" or work.ordinal != 2:
        assert driver.complete(work)
        waiting += driver.advance()
    return driver, work


def run(driver: Driver, work: steps.Work, model: Any) -> bool:
    return ModelStep(driver.db, SETTINGS, work, "me", lambda: driver.now).run(model)


def calls(driver: Driver, work: steps.Work) -> list[tuple[str, int, str | None]]:
    with driver.db.reading() as session:
        query = select(ModelCallRow).where(ModelCallRow.attempt_id == work.attempt_id).order_by(ModelCallRow.id)
        return [(row.kind, row.ordinal, row.error) for row in session.scalars(query)]


def test_lessons_come_first_and_are_told_with_the_request_for_ideas(db: Database) -> None:
    driver, work = second_round(db)
    model = Scripted({"reflect": [LESSONS], "ideate": [IDEAS]})
    assert run(driver, work, model)
    assert calls(driver, work) == [("reflect", 0, None), ("ideate", 0, None)]
    assert "> - Stores bind. (#1 over #2)" in model.asked[1].messages[1]["content"]
    assert [request.follows for request in model.asked] == [False, True], "a busy endpoint must not cost it its lessons"
    assert [node.idea["title"] for node in driver.nodes()[5:] if node.idea] == ["New 0", "New 0", "New 1", "New 1"]
    driver.check()


def test_there_is_no_reflection_on_nothing(db: Database) -> None:
    driver = Driver(db, create(db), reflecting())
    work = driver.until("ideate")
    assert run(driver, work, Scripted({"ideate": [IDEAS]}))
    assert calls(driver, work) == [("ideate", 0, None)]


@pytest.mark.parametrize(
    ("answer", "recorded"),
    [
        (PoolMiss("the pool has no reply"), []),
        ("Nothing was learned.", [("reflect", 0, "There is no JSON list of lessons")]),
        ("", [("reflect", 0, "The reply is empty.")]),
    ],
)
def test_a_reflection_that_comes_to_nothing_costs_the_lessons_alone(
    db: Database, answer: str | Exception, recorded: list[tuple[str, int, str]]
) -> None:
    driver, work = second_round(db)
    model = Scripted({"reflect": [answer], "ideate": [IDEAS]})
    assert run(driver, work, model)
    found = calls(driver, work)
    assert found[-1] == ("ideate", 0, None)
    assert [(kind, ordinal) for kind, ordinal, _ in found[:-1]] == [(kind, ordinal) for kind, ordinal, _ in recorded]
    assert all(said in (error or "") for (_, _, error), (_, _, said) in zip(found[:-1], recorded, strict=True))
    assert "rounds so far taught" not in model.asked[1].messages[1]["content"]
    assert len(driver.nodes()) == 9


def test_a_reflection_counts_against_the_calls_of_its_step(db: Database) -> None:
    driver, work = second_round(db, calls=2)
    model = Scripted({"reflect": [LESSONS], "ideate": ["No.", "No."]})
    assert run(driver, work, model)
    assert [request.kind for request in model.asked] == ["reflect", "ideate"]
    assert driver.attempt(work.attempt_id).error == (
        "no readable reply in 2 calls: There is no JSON list of ideas in the reply, which begins: 'No.'"
    )


def test_a_last_call_is_for_the_ideas(db: Database) -> None:
    driver, work = second_round(db, calls=1)
    assert run(driver, work, Scripted({"ideate": [IDEAS]}))
    assert calls(driver, work) == [("ideate", 0, None)]


def test_a_re_ask_for_ideas_still_tells_the_lessons(db: Database) -> None:
    driver, work = second_round(db)
    model = Scripted({"reflect": [LESSONS], "ideate": ["Hm.", IDEAS]})
    assert run(driver, work, model)
    assert [(kind, ordinal) for kind, ordinal, _ in calls(driver, work)] == [
        ("reflect", 0),
        ("ideate", 0),
        ("ideate", 1),
    ]
    assert model.asked[2].messages[:2] == model.asked[1].messages


def test_an_outage_during_the_reflection_puts_the_step_off(db: Database) -> None:
    driver, work = second_round(db)
    assert run(driver, work, Scripted({"reflect": [ModelUnavailable("it is down")]}))
    assert driver.attempt(work.attempt_id).state == "pending"
    assert calls(driver, work) == [("reflect", 0, "it is down")]


def test_an_agent_answers_the_reflection_and_then_the_request_for_ideas(db: Database) -> None:
    driver, work = second_round(db)
    for answer in (LESSONS, IDEAS):
        assert run(driver, work, AgentModel(db))
        with db.reading() as session:
            [ask] = session.scalars(select(AskRow).where(AskRow.state == "open"))
        assert [message.attempt_id for message in steps.tell(db, ask.id, answer, "ada", driver.now)] == [
            work.attempt_id
        ]
        work = driver.claim(work.attempt_id)
    assert run(driver, work, AgentModel(db))
    with db.reading() as session:
        asks = list(session.scalars(select(AskRow).order_by(AskRow.created_at, AskRow.id)))
    assert {ask.kind for ask in asks} == {"reflect", "ideate"}
    told = next(ask for ask in asks if ask.kind == "ideate")
    assert "Stores bind." in told.messages[1]["content"]
    assert calls(driver, work) == [("reflect", 0, None), ("ideate", 0, None)]
    driver.check()


def test_ideas_of_a_reply_that_was_cut_off_count_where_no_other_is_to_be_had(db: Database) -> None:
    driver, work = second_round(db)
    cut = Scripted({"reflect": [LESSONS], "ideate": [IDEAS[:-40], PoolMiss("the pool has no reply")]}, "length")
    assert run(driver, work, cut)
    assert [(kind, ordinal) for kind, ordinal, _ in calls(driver, work)] == [("reflect", 0), ("ideate", 0)]
    assert [node.idea["title"] for node in driver.nodes()[5:] if node.idea] == ["New 0", "New 0"]

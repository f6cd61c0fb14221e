"""A search without ideas: nodes are planted by growth itself, and whatever reads a node's idea bears that there is
none."""

from __future__ import annotations

import random

from tests.support.steps_support import Driver, create
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, KernelRow
from warpsmith.workers import steps
from warpsmith.workers.queue.model_step import request_context
from warpsmith.workers.search.policy import Policy, next_steps
from warpsmith.workers.search.tree import Budget, Spend, Step, Tree

POLICY = {"name": "prose_first", "prose": False, "bank": 1, "ideas": 2, "codes": 1, "rounds": 3, "repairs": 1}


class AlwaysWrong(random.Random):
    """No candidate is accepted."""

    def random(self) -> float:
        """The outcome that the driver takes for a rejection."""
        return 0.0


def test_a_search_without_ideas_runs_to_its_end(db: Database) -> None:
    driver = Driver(db, create(db, policy=POLICY), next_steps)
    search = driver.run()
    driver.check()
    assert (search.state, search.round) == ("finished", 3), search.reason
    nodes = driver.nodes()[1:]
    assert [(node.idea, node.technique, node.round) for node in nodes] == [
        (None, None, number) for number in (1, 1, 2, 2, 3, 3)
    ]
    assert {attempt.kind for attempt in driver.attempts()} <= {"code", "judge", "verify"}
    assert driver.events().count("round.started") == 3
    with db.reading() as session:
        kernel = session.query(KernelRow).one()
        assert [step["idea"] for step in kernel.lineage] == [None] * len(kernel.lineage)


def test_variants_of_one_parent_are_numbered_through_all_rounds(db: Database) -> None:
    """No two requests are the same, so a pool answers each by a reply of its own."""
    driver = Driver(db, create(db, policy=POLICY | {"repairs": 0}), next_steps)
    driver.luck = AlwaysWrong()
    assert driver.run().state == "finished"
    assert [(node.variant, node.round) for node in driver.nodes()[1:]] == [
        (0, 1),
        (1, 1),
        (2, 2),
        (3, 2),
        (4, 3),
        (5, 3),
    ]


def test_a_code_step_without_an_idea_says_how_many_there_are(db: Database) -> None:
    driver = Driver(db, create(db, policy=POLICY), next_steps)
    work = driver.until("code")
    assert (work.node.idea, work.node.variant, work.variants) == (None, 0, 2)
    assert request_context(work).idea is None


def test_what_was_planted_is_not_planted_again(db: Database) -> None:
    driver = Driver(db, create(db, policy=POLICY), next_steps)
    driver.step(driver.advance()[0])
    assert len(driver.advance()) == 2
    for _ in range(3):
        assert driver.advance() == []
    assert len(driver.nodes()) == 3
    with db.reading() as session:
        assert session.query(AttemptRow).filter_by(kind="plant").count() == 0


def test_what_the_budget_cannot_code_is_not_planted(db: Database) -> None:
    driver = Driver(db, create(db, policy=POLICY | {"ideas": 8}, budget={"candidates": 3}), next_steps)
    search = driver.run()
    assert search.candidates == 3
    assert len(driver.nodes()) <= 4
    assert (search.reason or "").startswith("the budget is used up: candidates 3 of 3")


def test_a_policy_that_plants_for_ever_fails(db: Database) -> None:
    def plants(tree: Tree, _policy: Policy, _budget: Budget, _spend: Spend) -> list[Step]:
        return [Step("plant", tree.nodes[0].id, 1, {"codes": 1, "round": 1})]

    search_id = create(db)
    assert steps.advance(db, search_id, 1000.0, plants) == []
    driver = Driver(db, search_id)
    assert driver.search().state == "failed"
    assert driver.search().reason == "the policy failed: it asked for nodes again before it opened those that it had"


def test_planting_on_a_node_that_is_not_there_fails(db: Database) -> None:
    search_id = create(db)
    steps.advance(db, search_id, 1000.0, lambda *_: [Step("plant", "nd_none", 1, {"codes": 1, "round": 1})])
    assert Driver(db, search_id).search().reason == (
        "the policy failed: it asked for plant on node nd_none, which is not in the tree"
    )

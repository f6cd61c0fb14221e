"""PUCT."""

from __future__ import annotations

import math

import pytest

from tests.unit.search.policy_play import accepted, root, steps_of
from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.workers.search.budget import allowance
from warpsmith.workers.search.policy import parse_policy
from warpsmith.workers.search.policy_base import look
from warpsmith.workers.search.puct import Puct, Statistics
from warpsmith.workers.search.tree import Budget, NodeView, Spend, Step, Tree


def statistics(*nodes: NodeView, exploration: float = 1.0) -> Statistics:
    """What the tree says."""
    tree = Tree(list(nodes))
    return Statistics.of(look(tree, allowance(tree, Budget(), Spend()), 3), exploration)


def chosen(*nodes: NodeView, **parameters: float) -> list[tuple[str | None, int]]:
    """Nodes and numbers of the expansions that are opened."""
    steps = steps_of(*nodes, policy=Puct(**parameters))  # type: ignore[arg-type] # counts and numbers
    return [(step.node_id, step.ordinal) for step in steps if step.kind == "ideate"]


TREE = [
    root(ideated=4),
    accepted(1, 2.0, round=1, ideated=2, verification="passed"),
    accepted(2, 1.0, round=2, parent_id="n1"),
    accepted(3, 1.5, round=3),
    accepted(4, 1.0, round=4, state="closed", verdict=None),
]
"""The root was expanded in rounds 1, 3 and 4, its child n1 in round 2."""


def test_visits_count_expansions_of_a_node_and_of_its_descendants() -> None:
    found = statistics(*TREE)
    assert found.visits == {"n0": 4, "n1": 1, "n2": 0, "n3": 0, "n4": 0}
    assert found.total == 4


def test_the_value_is_the_formula_of_the_docstring() -> None:
    found = statistics(*TREE)
    assert found.ranks == {"n1": 1.0, "n3": 0.75, "n2": 0.5, "n0": 0.25}
    nodes = {node.id: node for node in TREE}
    weight = math.sqrt(1 + 4) / 2.5
    assert found.value(nodes["n0"]) == pytest.approx(1.0 + 0.25 * weight / 5)  # its best child is n1
    assert found.value(nodes["n1"]) == pytest.approx(0.5 + 1.0 * weight / 2)  # its only child is n2
    assert found.value(nodes["n3"]) == pytest.approx(0.75 + 0.75 * weight)  # never expanded: its own rank
    barren = [*TREE, accepted(5, 1.0, round=5, parent_id="n3", state="closed", verdict=None)]
    assert statistics(*barren).value(barren[3]) == pytest.approx(0.0 + 0.75 * math.sqrt(1 + 5) / 2.5 / 2)


def test_a_person_adds_no_visit() -> None:
    theirs = accepted(5, 1.2, round=4, parent_id="n3", origin="person")
    assert statistics(*TREE, theirs).visits["n3"] == 0


def test_an_expansion_under_way_keeps_the_others_away() -> None:
    """Its visit counts at once, while what it brings is unknown."""
    opened = [*TREE[:3], TREE[3]._replace(ideation="open", ideated=5), TREE[4]]
    assert chosen(*TREE, parallel=1) == [("n3", 5)]
    assert chosen(*opened, parallel=1) == []
    assert chosen(*opened, parallel=2)[0] != ("n3", 6)
    assert statistics(*opened).visits["n3"] == 1


def test_as_many_expansions_are_opened_as_may_be_under_way() -> None:
    assert [number for _, number in chosen(*TREE, parallel=3)] == [5, 6, 7]
    assert len({node for node, _ in chosen(*TREE, parallel=3)}) == 3
    coding = accepted(5, 1.0, round=5, parent_id="n3", state="coding", verdict=None)
    assert [number for _, number in chosen(*TREE, coding, parallel=3)] == [6, 7]
    assert [number for _, number in chosen(*TREE, parallel=3, rounds=6)] == [5, 6]


def test_without_exploration_the_best_is_taken_and_with_much_the_least_visited() -> None:
    fresh = [root(ideated=2), *[accepted(seq, seq / 2, round=1, verification="passed") for seq in (1, 2, 3)]]
    assert chosen(*fresh, parallel=1, exploration=0.0) == [("n3", 3)]
    worn = [fresh[0], *fresh[1:3], fresh[3]._replace(ideated=2)]
    assert chosen(*worn, parallel=1, exploration=100.0) == [("n2", 3)]


def test_whoever_leads_is_verified_and_meanwhile_not_built_on() -> None:
    best = accepted(1, 2.0)
    steps = steps_of(root(ideated=1), best, policy=Puct(parallel=4))
    assert steps[0] == Step("verify", "n1")
    assert [step.node_id for step in steps[1:]] == ["n0"]
    assert steps_of(root(ideated=1), best, policy=Puct(parallel=1)) == [Step("verify", "n1")]
    assert steps_of(root(ideated=1), best._replace(verification="open"), policy=Puct(parallel=1)) == []


def test_every_second_expansion_goes_to_a_pinned_node() -> None:
    worst = accepted(5, 0.1, round=4, mark="pinned")
    assert ("n5", 6) in chosen(*TREE, worst, parallel=2)
    assert chosen(*TREE, worst, parallel=1, exploration=0.0) != [("n5", 5)]


def test_the_search_ends_after_its_rounds_once_nothing_is_under_way() -> None:
    coding = accepted(5, 1.0, round=4, parent_id="n3", state="coding", verdict=None)
    assert steps_of(*TREE, coding, policy=Puct(rounds=4)) == []
    (step,) = steps_of(*TREE, policy=Puct(rounds=4))
    assert step.reason == "4 rounds were played"


def test_bad_parameters_are_named() -> None:
    with pytest.raises(SpecError, match=r"policy.exploration: found -0.5, expected a number from 0 to 100"):
        parse_policy({"name": "puct", "exploration": -0.5})

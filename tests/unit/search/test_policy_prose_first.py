"""The prose-first method, and its ablation."""

from __future__ import annotations

import pytest

from tests.unit.search.policy_play import accepted, root, steps_of
from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.workers.search.policy import parse_policy
from warpsmith.workers.search.prose_first import ProseFirst
from warpsmith.workers.search.tree import Budget, Step

NODES = [accepted(seq, 3.0 - seq / 10, round=1, verification="passed") for seq in range(1, 7)]
NODES.append(accepted(7, 1.0, technique="algorithm"))


def test_a_round_builds_on_the_best_whatever_their_technique() -> None:
    steps = steps_of(root(ideated=1), *NODES, policy=ProseFirst(bank=3, ideas=5, codes=6))
    assert [(step.kind, step.node_id) for step in steps] == [("ideate", "n1"), ("ideate", "n2"), ("ideate", "n3")]
    assert steps[0].params == {"ideas": 5, "codes": 6, "round": 2, "calls": 3}


def test_flat_rounds_change_nothing() -> None:
    flat = [node._replace(round=seq) for seq, node in enumerate(NODES[:4], start=1)]
    assert [step.node_id for step in steps_of(root(ideated=1), *flat, policy=ProseFirst())] == ["n1", "n2", "n3", "n4"]
    (step,) = steps_of(root(ideated=1), *flat, policy=ProseFirst(rounds=4))
    assert step.reason == "4 rounds were played"


def test_without_prose_as_many_candidates_are_planted_as_there_would_have_been() -> None:
    policy = ProseFirst(bank=2, ideas=3, codes=2, prose=False)
    assert steps_of(root(), policy=policy) == [Step("plant", "n0", 1, {"codes": 6, "round": 1})]
    steps = steps_of(root(), *NODES, policy=policy)
    assert steps == [Step("plant", node, 2, {"codes": 6, "round": 2}) for node in ("n1", "n2")]


def test_no_more_is_planted_than_may_be_written() -> None:
    policy = ProseFirst(bank=2, ideas=3, codes=2, prose=False)
    steps = steps_of(root(), *NODES, policy=policy, budget=Budget(candidates=8))
    assert [step.params["codes"] for step in steps] == [6, 2]
    steps = steps_of(root(), *NODES, policy=policy, budget=Budget(model_calls=4))
    assert [step.params["codes"] for step in steps] == [2]


def test_bad_parameters_are_named() -> None:
    with pytest.raises(SpecError, match=r"policy.prose: found 'off', expected true or false"):
        parse_policy({"name": "prose_first", "prose": "off"})

"""The greedy chain."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.search.policy_play import Play, accepted, policies, root, steps_of
from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.workers.search.greedy import Greedy
from warpsmith.workers.search.policy import parse_policy
from warpsmith.workers.search.tree import Budget, Step

POLICY = Greedy(rounds=5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(policy=policies("greedy"), seed=st.integers(0, 2**32))
def test_a_chain_has_one_idea_a_round(policy: Greedy, seed: int) -> None:
    play = Play(policy, Budget(), random.Random(seed))
    play.run(4_000)
    assert len(play.parents) <= policy.rounds
    assert all(len(parents) == 1 for parents in play.parents.values())
    assert len(play.nodes) - 1 <= len(play.parents)


def test_the_best_so_far_is_built_on() -> None:
    nodes = [accepted(1, 2.0, round=1), accepted(2, 3.0, round=2, verification="passed"), accepted(3, 1.0, round=3)]
    (step,) = steps_of(root(ideated=1), *nodes, policy=POLICY)
    assert (step.kind, step.node_id, step.ordinal) == ("ideate", "n2", 4)
    assert step.params == {"ideas": 1, "codes": 1, "round": 4, "calls": 3}


def test_nothing_is_built_on_before_it_is_verified() -> None:
    assert steps_of(root(ideated=1), accepted(1, 2.0), policy=POLICY) == [Step("verify", "n1")]


def test_without_an_accepted_candidate_the_root_is_asked_again() -> None:
    (step,) = steps_of(root(ideated=1), accepted(1, 1.0, state="closed", verdict=None), policy=POLICY)
    assert (step.node_id, step.ordinal) == ("n0", 2)


def test_a_pinned_node_is_built_on_beside_the_best() -> None:
    nodes = [accepted(1, 2.0, mark="pinned"), accepted(2, 3.0, verification="passed")]
    assert [step.node_id for step in steps_of(root(ideated=1), *nodes, policy=POLICY)] == ["n2", "n1"]


def test_the_chain_ends_at_its_length_or_at_the_limit() -> None:
    (step,) = steps_of(root(ideated=1), accepted(1, 2.0, round=5, verification="passed"), policy=POLICY)
    assert step.reason == "5 rounds were played"
    (step,) = steps_of(root(ideated=1), accepted(1, 2.0, verification="passed", limit_fraction=0.97), policy=POLICY)
    assert step.reason == "the champion reaches 97% of the physical limit"


def test_bad_parameters_are_named() -> None:
    with pytest.raises(SpecError, match=r"policy.beam: found 2, expected one of rounds, repairs, stop_fraction"):
        parse_policy({"name": "greedy", "beam": 2})

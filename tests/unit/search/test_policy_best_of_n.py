"""Best of N."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.search.policy_play import Play, accepted, policies, root, steps_of
from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.workers.search.best_of_n import BestOfN
from warpsmith.workers.search.policy import parse_policy
from warpsmith.workers.search.tree import Budget, Step


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(policy=policies("best_of_n"), seed=st.integers(0, 2**32))
def test_every_idea_is_on_the_root_and_there_are_never_more_than_n(policy: BestOfN, seed: int) -> None:
    play = Play(policy, Budget(), random.Random(seed))
    reason = play.run(4_000)
    assert {parent for parents in play.parents.values() for parent in parents} == {"n0"}
    assert len(play.nodes) - 1 <= policy.n
    assert (reason == f"{policy.n} ideas were tried") == (len(play.nodes) - 1 == policy.n)


def test_ideas_are_asked_for_while_others_are_judged() -> None:
    policy = BestOfN(n=6, batch=4)
    judging = [accepted(seq, 1.0, state="judging", verdict=None) for seq in range(1, 5)]
    (step,) = steps_of(root(ideated=1, ideation="done"), *judging, policy=policy)
    assert (step.kind, step.node_id, step.ordinal) == ("ideate", "n0", 2)
    assert step.params == {"ideas": 2, "codes": 1, "round": 2, "calls": 3}
    assert steps_of(root(ideated=2, ideation="open"), *judging, policy=policy) == []


def test_the_best_is_verified_when_all_were_tried() -> None:
    policy = BestOfN(n=2, batch=2)
    nodes = [accepted(1, 2.0, mark="pinned"), accepted(2, 3.0)]
    assert steps_of(root(ideated=1), *nodes, policy=policy) == [Step("verify", "n2")]
    nodes[1] = nodes[1]._replace(verification="passed")
    (step,) = steps_of(root(ideated=1), *nodes, policy=policy)
    assert step.reason == "2 ideas were tried"


def test_a_model_without_ideas_ends_the_search() -> None:
    policy = BestOfN(n=10, batch=4)
    assert steps_of(root(ideated=5), policy=policy)[0].kind == "ideate"
    (step,) = steps_of(root(ideated=6), accepted(1, 1.0, verification="passed"), policy=policy)
    assert step.reason == "6 requests brought 1 ideas of 10"


def test_a_persons_ideas_are_beside_the_count() -> None:
    nodes = [accepted(1, 1.0, origin="person", verification="passed"), accepted(2, 1.0, origin="stored", round=0)]
    (step,) = steps_of(root(ideated=1), *nodes, policy=BestOfN(n=2, batch=2))
    assert step.params["ideas"] == 2


def test_bad_parameters_are_named() -> None:
    with pytest.raises(SpecError, match=r"policy.n: found 0, expected a whole number from 1 to 10000"):
        parse_policy({"name": "best_of_n", "n": 0})
    with pytest.raises(SpecError, match=r"policy.beam: found 2, expected one of n, batch, repairs"):
        parse_policy({"name": "best_of_n", "beam": 2})

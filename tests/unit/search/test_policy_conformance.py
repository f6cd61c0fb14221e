"""The guarantees of every policy (`policy_base.TreePolicy`), held against each of them with any outcomes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.search.policy_play import Play, accepted, budgets, policies, root, steps_of
from warpsmith.workers.search.policy import POLICIES, next_steps, parse_policy, policy_document
from warpsmith.workers.search.ranking import ranked, ties
from warpsmith.workers.search.tree import Budget, NodeView, Spend, Step, Tree

EVERY = sorted(POLICIES)
LONGEST = 4_000


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), budget=budgets, seed=st.integers(0, 2**32), reasked=st.booleans(), seeds=st.integers(0, 3))
def test_every_search_ends_within_its_budget(
    name: str, data: st.DataObject, budget: Budget, seed: int, reasked: bool, seeds: int
) -> None:
    policy = data.draw(policies(name))
    play = Play(policy, budget, random.Random(seed), reasked, seeds=seeds)
    play.run(LONGEST)
    assert all(node.repairs <= policy.repairs for node in play.nodes)
    assert sorted(play.parents) == list(range(1, len(play.parents) + 1))
    assert all(len(set(parents)) == len(parents) for parents in play.parents.values())


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), budget=budgets, seed=st.integers(0, 2**32), seeds=st.integers(0, 3))
def test_no_person_can_make_a_search_hang_or_exceed_its_budget(
    name: str, data: st.DataObject, budget: Budget, seed: int, seeds: int
) -> None:
    Play(data.draw(policies(name)), budget, random.Random(seed), meddling=20, seeds=seeds).run(LONGEST)


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_the_champion_is_verified_at_the_end(name: str, data: st.DataObject, seed: int) -> None:
    play = Play(data.draw(policies(name)), Budget(candidates=12), random.Random(seed))
    play.run(LONGEST)
    contenders = ranked(play.nodes[1:])
    if contenders:
        verified = [node for node in contenders if node.verification == "passed"]
        assert contenders[0].verification == "passed" or any(ties(contenders[0], node) for node in verified)


@pytest.mark.parametrize("name", EVERY)
def test_the_baselines_come_first(name: str) -> None:
    policy = POLICIES[name]()
    assert steps_of(root(state="planned", verdict=None), policy=policy) == [Step("judge", "n0")]
    assert steps_of(root(state="judging", verdict=None), policy=policy) == []
    (step,) = steps_of(root(verdict="rejected", gate="reference"), policy=policy)
    assert step == Step("stop", reason="the op was not admitted: rejected at reference")


@pytest.mark.parametrize("name", EVERY)
def test_the_first_steps_are_on_the_root(name: str) -> None:
    steps = steps_of(root(), policy=POLICIES[name]())
    assert steps
    assert {(step.kind, step.node_id, step.ordinal, step.params["round"]) for step in steps} == {("ideate", "n0", 1, 1)}


def waiting(seq: int, state: str, **changes: object) -> NodeView:
    """A node without a verdict."""
    return accepted(seq, 1.0, state=state, verdict=None, score=None, **changes)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("origin", ["stored", "branch", "person"])
@pytest.mark.parametrize("opened", [0, 1])
def test_nodes_from_elsewhere_are_carried_on(name: str, origin: str, opened: int) -> None:
    nodes = [waiting(1, "coded", origin=origin, round=opened), waiting(2, "planned", origin=origin, round=opened)]
    steps = steps_of(root(), *nodes, policy=POLICIES[name]())
    assert steps[:2] == [Step("judge", "n1"), Step("code", "n2", params={"calls": 3})]


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("state", ["planned", "coded", "judged"])
def test_a_banned_node_is_left_alone(name: str, state: str) -> None:
    node = accepted(1, 9.0, state=state, mark="banned", verdict="accepted" if state == "judged" else None)
    assert not [step for step in steps_of(root(ideated=1), node, policy=POLICIES[name]()) if step.node_id == "n1"]


@pytest.mark.parametrize("name", EVERY)
def test_what_is_written_and_has_no_place_in_the_budget_is_not_judged(name: str) -> None:
    """Its place was given away while it was banned, or a person brought it."""
    nodes = [waiting(1, "judging"), waiting(2, "coded"), waiting(3, "coded")]
    steps = steps_of(root(ideated=1), *nodes, policy=POLICIES[name](), budget=Budget(candidates=2))
    assert steps == [Step("judge", "n2")]
    (step,) = steps_of(
        root(ideated=1), *nodes[1:], policy=POLICIES[name](), budget=Budget(candidates=2), spend=Spend(candidates=2)
    )
    assert step == Step("stop", reason="the budget is used up: candidates 2 of 2")


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("limit", ["wall_clock_s", "gpu_seconds"])
def test_out_of_time_only_the_champion_is_still_verified(name: str, limit: str) -> None:
    late = {"budget": Budget(**{limit: 60}), "spend": Spend(candidates=2, **{limit: 61.0})}
    coded, policy = waiting(2, "coded"), POLICIES[name]()
    assert steps_of(root(ideated=1), accepted(1, 2.0), coded, policy=policy, **late) == [Step("verify", "n1")]
    (step,) = steps_of(root(ideated=1), accepted(1, 2.0, verification="passed"), coded, policy=policy, **late)
    assert step == Step("stop", reason=f"the budget is used up: {limit} 61 of 60")


@pytest.mark.parametrize("name", EVERY)
def test_judge_steps_are_opened_as_far_as_the_gpu_seconds_go(name: str) -> None:
    policy, coded = POLICIES[name](), [waiting(seq, "coded") for seq in (1, 2, 3)]
    budget, spend = Budget(gpu_seconds=100), Spend(candidates=8, gpu_seconds=80.0)
    assert [step.node_id for step in steps_of(root(ideated=1), *coded, policy=policy, budget=budget, spend=spend)] == [
        "n1",
        "n2",
    ]
    open_ones = [waiting(seq, "judging") for seq in (1, 2)]
    assert steps_of(root(ideated=1), *open_ones, coded[2], policy=policy, budget=budget, spend=spend) == []
    nearly = Spend(candidates=8, gpu_seconds=99.0)
    steps = steps_of(root(ideated=1), *coded, policy=policy, budget=budget, spend=nearly)
    assert steps == [Step("judge", "n1")], "one always, while anything is left"


@pytest.mark.parametrize("name", EVERY)
def test_the_document_of_a_policy_reads_back(name: str) -> None:
    policy = parse_policy({"name": name})
    assert policy == POLICIES[name]()
    assert parse_policy(policy_document(policy)) == policy


def away(*nodes: NodeView, policy: str, budget: Budget | None = None) -> list[Step]:
    """What the policy asks for while the baselines travel in a bundle."""
    tree = Tree([root(state="judging", verdict=None), *nodes], baselines_away=True)
    return next_steps(tree, POLICIES[policy](), budget or Budget(), Spend())


@pytest.mark.parametrize("name", EVERY)
def test_the_first_round_is_asked_for_while_the_baselines_travel(name: str) -> None:
    first = away(policy=name)
    assert [replace(step, params={}) for step in first] == [Step("ideate", "n0", ordinal=1)]
    assert away(policy=name) == first
    assert away(policy=name, budget=Budget(model_calls=1))[0].params["calls"] == 1


@pytest.mark.parametrize("origin", ["stored", "branch"])
def test_seeds_are_judged_before_the_first_round_also_while_the_baselines_travel(origin: str) -> None:
    seed = waiting(1, "coded")._replace(origin=origin, round=0)
    assert away(seed, policy="idea_beam") == [Step("judge", "n1")]
    assert away(seed._replace(state="judging"), policy="idea_beam") == []
    first = away(accepted(1, 2.0, round=0, origin=origin), policy="idea_beam")
    assert [(step.kind, step.node_id, step.ordinal) for step in first] == [("ideate", "n0", 1), ("ideate", "n1", 1)]


@pytest.mark.parametrize("name", EVERY)
def test_no_later_round_no_verification_and_no_end_comes_before_the_baselines(name: str) -> None:
    asked = root(state="judging", verdict=None, ideated=1, ideation="done")
    nodes = [
        accepted(1, 3.0),
        waiting(2, "planned"),
        waiting(3, "coded"),
        accepted(4, 0, verdict="rejected", score=None),
    ]
    tree = Tree([asked, *nodes], baselines_away=True)
    kinds = {(step.kind, step.node_id) for step in next_steps(tree, POLICIES[name](), Budget(), Spend())}
    assert kinds == {("code", "n2"), ("judge", "n3"), ("code", "n4")}
    assert next_steps(Tree([asked, nodes[0]], baselines_away=True), POLICIES[name](), Budget(), Spend()) == []
    assert next_steps(replace(tree, baselines_away=False), POLICIES[name](), Budget(), Spend()) == []
    banned = replace(tree, nodes=[node._replace(mark="banned") if node.seq == 2 else node for node in tree.nodes])
    assert ("code", "n2") not in {
        (step.kind, step.node_id) for step in next_steps(banned, POLICIES[name](), Budget(), Spend())
    }

"""The idea beam, and the documents of policies. What holds for every policy is in test_policy_conformance.py."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.search.policy_play import BEAM, Play, accepted, budgets, policies, root, steps_of
from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.workers.search.idea_beam import IdeaBeam
from warpsmith.workers.search.policy import POLICIES, parse_policy
from warpsmith.workers.search.tree import Budget, NodeView, Spend, Step

NAMES = ", ".join(sorted(POLICIES))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(policy=policies("idea_beam"), budget=budgets, seed=st.integers(0, 2**32))
def test_rounds_parents_and_restarts_stay_within_their_bounds(policy: IdeaBeam, budget: Budget, seed: int) -> None:
    play = Play(policy, budget, random.Random(seed))
    play.run(4_000)
    assert max(play.parents, default=0) <= policy.max_rounds
    assert all(len(parents) <= policy.beam for parents in play.parents.values())
    assert play.restarts <= 1


def test_the_first_round_asks_on_the_root() -> None:
    (step,) = steps_of(root())
    assert (step.kind, step.node_id, step.ordinal) == ("ideate", "n0", 1)
    assert step.params == {"ideas": 16, "codes": 2, "round": 1, "calls": 3}, "as many as a whole beam"
    (step,) = steps_of(root(), policy=IdeaBeam(beam=64, ideas=32))
    assert step.params["ideas"] == 32, "no request asks for more"


def test_the_default_plays_many_narrow_rounds() -> None:
    (step,) = steps_of(root(), policy=IdeaBeam())
    assert step.params == {"ideas": 4, "codes": 1, "round": 1, "calls": 3}
    nodes = [accepted(i, 3.0 - i / 10, verification="passed") for i in range(1, 5)]
    steps = steps_of(root(ideated=1), *nodes, accepted(5, 1.0, technique="algorithm"), policy=IdeaBeam())
    assert [(step.node_id, step.params["ideas"]) for step in steps] == [("n1", 2), ("n5", 2)]


def asked(seq: int, speed: float, opened: int) -> NodeView:
    """A verified candidate whose latest request for ideas, in round `opened`, is over."""
    return accepted(seq, speed, ideated=opened, ideation="done", verification="passed")


def test_a_parent_whose_latest_request_brought_nothing_makes_room() -> None:
    repeated = accepted(7, 1.0, round=2, parent_id="n1", state="closed", verdict=None, score=None)
    child = accepted(8, 1.0, round=2, parent_id="n2")
    others = [accepted(i, 4.0 - i / 2) for i in (3, 4, 5)]
    steps = steps_of(root(ideated=1), asked(1, 4.0, 2), asked(2, 3.0, 2), *others, repeated, child)
    assert [step.node_id for step in steps] == ["n2", "n3", "n4", "n5"]
    later = accepted(9, 1.0, round=2, parent_id="n1", verdict="rejected", score=None, repairs=3)
    steps = steps_of(root(ideated=1), asked(1, 4.0, 2), asked(2, 3.0, 2), *others, repeated, child, later)
    assert [step.node_id for step in steps] == ["n1", "n2", "n3", "n4"], "a wrong candidate is more than none"
    steps = steps_of(root(ideated=1), asked(1, 4.0, 1), asked(2, 3.0, 2), *others, child, later)
    assert "n1" not in {step.node_id for step in steps}, "what an earlier request brought is over"


def test_where_every_parent_brought_nothing_the_root_is_asked_and_then_whoever_is_best() -> None:
    nodes = [asked(1, 2.0, 2), asked(2, 1.0, 2)]
    (step,) = steps_of(root(ideated=1, ideation="done"), *nodes)
    assert (step.node_id, step.ordinal, step.params["ideas"]) == ("n0", 3, 16)
    assert "technique_not_in" not in step.params
    steps = steps_of(root(ideated=3, ideation="done"), *nodes)
    assert [(step.node_id, step.ordinal) for step in steps] == [("n1", 4), ("n2", 4)]


def test_a_round_that_brought_nothing_says_nothing_of_progress_but_many_in_a_row_do() -> None:
    policy = replace(BEAM, restart=False)
    slower = accepted(2, 1.0, round=3, parent_id="n1")
    step = steps_of(root(ideated=1), asked(1, 2.0, 3), slower, policy=policy)[0]
    assert (step.kind, step.ordinal) == ("ideate", 4), "flat, after one that was empty"
    slowest = accepted(3, 1.0, round=4, parent_id="n1")
    (step,) = steps_of(root(ideated=1), asked(1, 2.0, 4), slower, slowest, policy=policy)
    assert step.reason == "no improvement of more than 2% in 2 rounds"
    (step,) = steps_of(root(ideated=1), asked(1, 2.0, 3), policy=policy)
    assert step.reason == "no improvement of more than 2% in 2 rounds"


def test_the_beam_holds_the_fastest_and_the_best_of_another_technique() -> None:
    nodes = [accepted(i, 3.0 - i / 10) for i in range(1, 7)]
    nodes[0] = nodes[0]._replace(verification="passed")
    steps = steps_of(root(ideated=1), *nodes, accepted(7, 1.1, technique="algorithm"))
    assert [step.node_id for step in steps] == ["n1", "n2", "n3", "n7"]
    assert {step.params["round"] for step in steps} == {2}


def test_without_another_technique_the_next_fastest_fills_the_beam() -> None:
    nodes = [accepted(i, 3.0 - i / 10, verification="passed") for i in range(1, 7)]
    assert [step.node_id for step in steps_of(root(ideated=1), *nodes)] == ["n1", "n2", "n3", "n4"]


def test_a_tie_with_the_champion_is_not_verified() -> None:
    verified = accepted(1, 2.0, ci_low=1.8, ci_high=2.3, verification="passed")
    tied, faster = accepted(2, 2.2, ci_low=1.9, ci_high=2.5), accepted(3, 2.6, ci_low=2.4, ci_high=2.9)
    assert steps_of(root(ideated=1), verified, tied)[0].kind == "ideate"
    assert steps_of(root(ideated=1), verified, tied, faster) == [Step("verify", "n3")]


def test_contenders_that_tie_with_a_best_that_is_verified_are_verified_with_it() -> None:
    wide = {"ci_low": 1.8, "ci_high": 2.3}
    nodes = [accepted(1, 2.0, **wide), accepted(2, 2.1, **wide), accepted(3, 1.9, **wide), accepted(4, 1.0)]
    both = [Step("verify", "n2"), Step("verify", "n1")]
    assert steps_of(root(ideated=1), *nodes) == both
    assert steps_of(root(ideated=1), *nodes, policy=replace(BEAM, tied=3)) == [*both, Step("verify", "n3")]
    assert steps_of(root(ideated=1), *nodes, policy=replace(BEAM, tied=1)) == both[:1]
    # Of what is left of the device's time: nothing, or one judge step's.
    late = Budget(gpu_seconds=100.0), Spend(gpu_seconds=100.0, candidates=4)
    assert steps_of(root(ideated=1), *nodes, budget=late[0], spend=late[1]) == both[:1]
    nearly = replace(late[1], gpu_seconds=90.0)
    assert steps_of(root(ideated=1), *nodes, budget=late[0], spend=nearly) == both[:1]
    # While they are verified nothing is opened; then the better one leads, and the other tie is left as it is.
    under_way = [nodes[0]._replace(verification="open"), nodes[1]._replace(verification="passed"), *nodes[2:]]
    assert steps_of(root(ideated=1), *under_way) == []
    done = [nodes[0]._replace(verification="passed"), *under_way[1:]]
    assert {step.kind for step in steps_of(root(ideated=1), *done)} == {"ideate"}


def test_a_failed_verification_takes_the_next_best() -> None:
    first, second = accepted(1, 3.0, verification="failed"), accepted(2, 2.0)
    assert steps_of(root(ideated=1), first, second) == [Step("verify", "n2")]


def test_a_rejected_candidate_is_repaired_up_to_the_limit() -> None:
    broken = accepted(1, 1.0, verdict="rejected", score=None, repairs=2)
    assert steps_of(root(ideated=1), broken) == [Step("code", "n1", ordinal=3, params={"calls": 3})]
    (step,) = steps_of(root(ideated=1), broken._replace(repairs=3))
    assert (step.kind, step.node_id) == ("ideate", "n0")


def test_other_verdicts_are_not_repaired() -> None:
    for verdict in ("quarantined", "ambiguous"):
        steps = steps_of(root(ideated=1), accepted(1, 1.0, verdict=verdict))
        assert [step.kind for step in steps] == ["ideate"]


def test_a_round_waits_for_its_open_steps() -> None:
    done = accepted(1, 2.0, verification="passed")
    assert steps_of(root(ideated=1, ideation="open"), done) == []
    assert steps_of(root(ideated=1), done, accepted(2, 1.0, state="judging")) == []
    assert steps_of(root(ideated=1), done, accepted(2, 1.0, verification="open")) == []


def champions(*scores: float) -> list[NodeView]:
    """One verified node per round."""
    return [accepted(i, score, round=i, verification="passed") for i, score in enumerate(scores, start=1)]


def test_rounds_go_on_past_the_plan_only_while_the_best_improves() -> None:
    assert steps_of(root(ideated=1), *champions(1, 2, 3, 4, 5))[0].kind == "ideate"
    (step,) = steps_of(root(ideated=1), *champions(1, 2, 3, 4, 4.05))
    assert step.reason == "5 rounds were played, the last improved by 2% or less"
    (step,) = steps_of(root(ideated=1), *champions(1, 2, 3, 4, 5, 6, 7, 8))
    assert step.reason == "8 rounds were played"


def test_an_improvement_within_the_noise_is_none() -> None:
    noisy = {"ci_low": 3.0, "ci_high": 6.0}
    nodes = [
        *champions(1, 2, 3),
        accepted(4, 4.0, round=4, **noisy),
        accepted(5, 4.5, round=5, verification="passed", **noisy),
    ]
    (step,) = steps_of(root(ideated=1), *nodes)
    assert step.kind == "stop"


def test_two_flat_rounds_restart_once_in_unused_techniques() -> None:
    flat = champions(2, 1, 1)
    (step,) = steps_of(root(ideated=1), *flat)
    assert (step.kind, step.node_id, step.ordinal) == ("ideate", "n0", 4)
    assert step.params["technique_not_in"] == "fusion"
    played = accepted(4, 1.0, round=4, technique="algorithm")
    assert {s.kind for s in steps_of(root(ideated=4), *flat, played)} == {"ideate"}
    (step,) = steps_of(root(ideated=4), *flat, played, accepted(5, 1.0, round=5))
    assert step.reason == "no improvement of more than 2% in 2 rounds"


def test_without_restart_flat_rounds_end_the_search() -> None:
    (step,) = steps_of(root(ideated=1), *champions(2, 1, 1), policy=replace(BEAM, restart=False))
    assert step.reason == "no improvement of more than 2% in 2 rounds"


def test_rounds_without_any_reply_count_and_end() -> None:
    assert steps_of(root(ideation="done", ideated=2))[0].params["round"] == 3
    assert steps_of(root(ideation="done", ideated=8))[0].kind == "stop"


def test_the_physical_limit_ends_the_search_once_verified() -> None:
    fast = accepted(1, 3.0, limit_fraction=0.96)
    assert steps_of(root(ideated=1), fast) == [Step("verify", "n1")]
    (step,) = steps_of(root(ideated=1), fast._replace(verification="passed"))
    assert step.reason == "the champion reaches 96% of the physical limit"


def test_a_limit_that_is_surpassed_by_far_is_no_limit() -> None:
    impossible = accepted(1, 3.0, limit_fraction=4.57, verification="passed")
    assert [step.kind for step in steps_of(root(ideated=1), impossible)] == ["ideate"]


def test_open_steps_count_against_the_budget() -> None:
    coding = accepted(1, 1.0, state="coding", verdict=None)
    planned = [accepted(i, 1.0, state="planned", verdict=None) for i in (2, 3, 4)]
    steps = steps_of(root(ideated=1), coding, *planned, budget=Budget(candidates=3))
    assert [step.node_id for step in steps] == ["n2", "n3"]
    steps = steps_of(root(ideated=1), coding, *planned, budget=Budget(model_calls=7))
    assert [step.params["calls"] for step in steps] == [3, 1]


def test_an_exhausted_budget_finishes_what_is_written_and_verifies_the_champion() -> None:
    budget, spend = Budget(cost_usd=1.0), Spend(cost_usd=1.5)
    coded = accepted(1, 1.0, state="coded", verdict=None, score=None)
    planned = accepted(2, 1.0, state="planned", verdict=None, score=None)
    assert steps_of(root(ideated=1), coded, planned, budget=budget, spend=spend) == [Step("judge", "n1")]
    assert steps_of(root(ideated=1), accepted(1, 2.0), planned, budget=budget, spend=spend) == [Step("verify", "n1")]
    (step,) = steps_of(root(ideated=1), accepted(1, 2.0, verification="passed"), planned, budget=budget, spend=spend)
    assert step == Step("stop", reason="the budget is used up: cost_usd 1.5 of 1")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("idea_beam", "policy: found 'idea_beam', expected an object such as {'name': 'idea_beam'}"),
        ({}, f"policy.name: found nothing, expected one of {NAMES}"),
        ({"name": "beam"}, f"policy.name: found 'beam', expected one of {NAMES}"),
        ({"name": ["idea_beam"]}, f"policy.name: found '[\"idea_beam\"]', expected one of {NAMES}"),
        ({"name": "idea_beam", "width": 3}, "policy.width: found 3, expected one of beam, diverse, ideas, codes"),
        ({"name": "idea_beam", "beam": 0}, "policy.beam: found 0, expected a whole number from 1 to 64"),
        ({"name": "idea_beam", "beam": 2.5}, "policy.beam: found 2.5, expected a whole number"),
        ({"name": "idea_beam", "beam": True}, "policy.beam: found True, expected a whole number"),
        (
            {"name": "idea_beam", "stop_fraction": 0},
            "policy.stop_fraction: found 0, expected a number above 0 and at most 1",
        ),
        (
            {"name": "idea_beam", "improvement": float("nan")},
            "policy.improvement: found 'nan', expected a number from 0 to 1",
        ),
        (
            {"name": "idea_beam", "round_share": 0.4},
            "policy.round_share: found 0.4, expected a number from 0.5 to 1",
        ),
        (
            {"name": "puct", "rounds": 10**400},
            "policy.rounds: found 'an integer of 1329 bits', expected a whole number",
        ),
        ({"name": "idea_beam", "restart": 1}, "policy.restart: found 1, expected true or false"),
        (
            {"name": "idea_beam", "beam": 2, "diverse": 2},
            "policy.diverse: found 2, expected less than beam, which is 2",
        ),
        ({"name": "idea_beam", "max_rounds": 3}, "policy.max_rounds: found 3, expected at least rounds, which is 40"),
    ],
)
def test_a_bad_policy_names_field_found_and_expected(document: object, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_policy(document)
    assert str(caught.value).startswith(message)


def test_attempt_keys_stay_unique_over_a_long_search() -> None:
    play = Play(replace(BEAM, rounds=8), Budget(), random.Random(7))
    play.run(limit=20_000)
    assert Counter(play.asked).most_common(1)[0][1] == 1
    assert len(play.nodes) > 40


def test_every_policy_has_its_own_name_and_the_default_comes_first() -> None:
    assert next(iter(POLICIES)) == "idea_beam"
    assert all(kind.name == name for name, kind in POLICIES.items())


def round_of(count: int, under_way: int) -> list[NodeView]:
    """A first round of `count` nodes, of which the last `under_way` are still being judged."""
    done = [accepted(i, 1.0 + i / 10, verification="passed") for i in range(1, count - under_way + 1)]
    return done + [accepted(i, 1.0, state="judging", verdict=None) for i in range(count - under_way + 1, count + 1)]


def test_a_round_closes_when_nearly_all_have_ended() -> None:
    assert steps_of(root(ideated=1), *round_of(9, 1)) == []
    assert steps_of(root(ideated=1), *round_of(10, 2)) == []
    steps = steps_of(root(ideated=1), *round_of(10, 1))
    assert [(step.kind, step.ordinal) for step in steps] == [("ideate", 2)] * 4
    assert steps_of(root(ideated=1), *round_of(10, 1), policy=replace(BEAM, round_share=1.0)) == []


def test_a_request_for_ideas_that_is_open_stands_for_all_that_it_may_bring() -> None:
    nodes = [node._replace(parent_id="n1", round=2) for node in round_of(20, 0)[1:]]
    first = accepted(1, 1.0, ideated=2, verification="passed")
    assert steps_of(root(ideated=1), first._replace(ideation="open"), *nodes) == []
    assert steps_of(root(ideated=1), first._replace(ideation="done"), *nodes)[0].kind == "ideate"


def test_the_champion_is_verified_beside_stragglers_and_the_next_round_waits_for_it() -> None:
    nodes = round_of(10, 1)
    nodes[8] = nodes[8]._replace(verification="none", score=5.0, ci_low=4.9, ci_high=5.1)
    assert steps_of(root(ideated=1), *nodes) == [Step("verify", "n9")]
    nodes[8] = nodes[8]._replace(verification="open")
    assert steps_of(root(ideated=1), *nodes) == []


def test_a_straggler_goes_on_and_holds_up_the_end() -> None:
    nodes = [node._replace(round=8) for node in round_of(10, 1)]
    assert steps_of(root(ideated=1), *nodes) == []
    broken = accepted(10, 1.0, verdict="rejected", score=None, round=8)
    (step,) = steps_of(root(ideated=1), *nodes[:9], broken)
    assert (step.kind, step.node_id) == ("code", "n10")


def test_a_straggler_does_not_undo_a_restart() -> None:
    """It improves its own round after the restart was opened: the restart stays the only one."""
    flat = champions(2, 1, 1)
    late = accepted(4, 3.0, round=3, verification="passed")
    after = [accepted(seq, 1.0, round=seq - 1) for seq in (5, 6)]
    (step,) = steps_of(root(ideated=4), *flat, late, *after)
    assert step.reason == "no improvement of more than 2% in 2 rounds"


def test_at_the_limit_nothing_new_is_opened() -> None:
    fast = accepted(1, 3.0, limit_fraction=0.96, verification="passed")
    coded = accepted(2, 1.0, state="coded", verdict=None)
    assert steps_of(root(ideated=1), fast, coded, accepted(3, 1.0, state="judging", verdict=None)) == []
    (step,) = steps_of(root(ideated=1), fast, coded)
    assert step.reason == "the champion reaches 96% of the physical limit"
    faster = accepted(3, 4.0)
    assert steps_of(root(ideated=1), fast, coded, faster) == [Step("verify", "n3")]


def test_reflection_is_asked_for_from_the_second_round_on() -> None:
    policy = replace(BEAM, reflect=True)
    assert "reflect" not in steps_of(root(), policy=policy)[0].params
    done = accepted(1, 2.0, verification="passed")
    assert steps_of(root(ideated=1), done, policy=policy)[0].params["reflect"] == 1
    assert "reflect" not in steps_of(root(ideated=1), done)[0].params


def test_seeds_are_parents_of_the_first_round_beside_the_root() -> None:
    seeds = [
        accepted(1, 2.0, round=0, origin="stored", verification="passed"),
        accepted(2, 1.5, round=0, origin="branch"),
        accepted(3, 1.0, round=0, origin="stored", verdict="rejected", repairs=3),
    ]
    assert [(step.node_id, step.ordinal) for step in steps_of(root(), *seeds)] == [("n0", 1), ("n1", 1), ("n2", 1)]
    assert [step.node_id for step in steps_of(root(ideated=1), *seeds)] == ["n1", "n2"]


def test_pinned_nodes_are_parents_beyond_the_beam() -> None:
    nodes = [accepted(i, 3.0 - i / 10, verification="passed") for i in range(1, 7)]
    slow = [accepted(i, 1.0 - i / 100, mark="pinned") for i in range(7, 17)]
    wrong = accepted(17, 1.0, mark="pinned", verdict="rejected", repairs=3)
    steps = steps_of(root(ideated=1), *nodes, *slow, wrong, policy=replace(BEAM, diverse=0))
    assert [step.node_id for step in steps] == ["n1", "n2", "n3", "n4", *(f"n{i}" for i in range(7, 15))]
    nodes[0] = nodes[0]._replace(mark="pinned")
    assert [step.node_id for step in steps_of(root(ideated=1), *nodes)] == ["n1", "n2", "n3", "n4"]


def test_a_restart_asks_pinned_nodes_too_but_for_any_technique() -> None:
    flat = champions(2, 1, 1)
    flat[2] = flat[2]._replace(mark="pinned")
    steps = steps_of(root(ideated=1), *flat)
    assert [(step.node_id, step.params.get("technique_not_in")) for step in steps] == [("n0", "fusion"), ("n3", None)]


def test_a_banned_champion_makes_room() -> None:
    banned = accepted(1, 9.0, verification="passed", limit_fraction=0.99, mark="banned")
    assert steps_of(root(ideated=1), banned, accepted(2, 1.0)) == [Step("verify", "n2")]
    (step,) = steps_of(root(ideated=1), banned, accepted(2, 1.0, verification="passed"))
    assert (step.kind, step.node_id) == ("ideate", "n2")

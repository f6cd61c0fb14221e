"""Which contenders are joined, and what becomes of a join."""

from __future__ import annotations

import json

import pytest

from tests.unit.search.policy_play import accepted, root, steps_of
from warpsmith.kernels_db.store.lineage import JOINED
from warpsmith.workers.search.idea_beam import IdeaBeam
from warpsmith.workers.search.joining import (
    Standing,
    find_join,
    read_parts,
    winners,
    write_parts,
    write_speedups,
)
from warpsmith.workers.search.tree import Budget, NodeView, Spend

JOINING = IdeaBeam(beam=2, ideas=2, rounds=5, max_rounds=8, flat_rounds=2, joins=True)


def standing(speedup: float, weight: float = 1.0, half: float = 0.01) -> Standing:
    """A speed-up with an interval of 1 % on either side."""
    return Standing(speedup, speedup * (1.0 - half), speedup * (1.0 + half), weight)


def leaning(seq: int, /, *, weight: float = 1.0, **by_workload: float) -> NodeView:
    """An accepted candidate with these speed-ups; its score is their mean."""
    score = 1.0
    for speedup in by_workload.values():
        score *= speedup ** (1.0 / len(by_workload))
    speedups = json.dumps({name: standing(speedup, weight) for name, speedup in by_workload.items()})
    return accepted(seq, score, verification="passed", speedups=speedups)


WIDE, NARROW, BOTH = (
    leaning(3, wide=2.0, narrow=1.0),
    leaning(7, wide=1.0, narrow=1.8),
    leaning(9, wide=1.2, narrow=1.1),
)


def asked_root() -> NodeView:
    """The root after the first round."""
    return root(ideation="done", ideated=1)


def test_two_that_win_on_different_workloads_are_joined() -> None:
    found = find_join([WIDE, NARROW, BOTH], 0.02)
    assert found is not None
    assert [part.seq for part in found.parts] == [3, 7]
    assert found.promised == pytest.approx((2.0 * 1.8) ** 0.5)
    assert found.key == "3,7"
    assert winners(found.parts) == {"wide": 3, "narrow": 7}


def test_three_are_joined_where_each_adds_enough_and_no_more() -> None:
    third, fourth = leaning(11, a=1.0, b=1.0, c=1.7), leaning(12, a=1.0, b=1.0, c=1.75)
    nodes = [leaning(1, a=2.0, b=1.0, c=1.0), leaning(2, a=1.0, b=1.9, c=1.0), third, fourth]
    found = find_join(nodes, 0.02)
    assert found is not None
    assert [part.seq for part in found.parts] == [1, 2, 12]
    assert found.key == "1,2,12"
    assert read_parts(found.key) == (1, 2, 12)


def test_a_lead_within_noise_is_none() -> None:
    assert find_join([leaning(1, a=1.00, b=1.00), leaning(2, a=1.04, b=0.9)], 0.0) is None
    loose = {"a": standing(1.5, half=0.2), "b": standing(0.9)}
    flattered = accepted(2, 1.16, speedups=json.dumps(loose))
    assert find_join([leaning(1, a=1.25, b=1.25), flattered], 0.0) is None, "their intervals overlap"


def test_a_join_has_to_beat_the_best_there_is() -> None:
    joined = leaning(20, wide=2.0, narrow=1.79)._replace(origin=JOINED, joins="3,7")
    assert find_join([joined, WIDE, NARROW], 0.02) is None
    better = leaning(21, wide=2.4, narrow=0.9)
    found = find_join([joined, better, WIDE, NARROW], 0.02)
    assert found is not None
    assert [part.seq for part in found.parts] == [21, 7], "parts are never joins themselves"


def test_nothing_is_joined_where_speed_ups_by_workload_are_not_known_or_are_of_others() -> None:
    assert find_join([], 0.02) is None
    assert find_join([accepted(1, 2.0), accepted(2, 1.9)], 0.02) is None
    assert find_join([WIDE, leaning(8, narrow=9.0)._replace(score=1.0)], 0.02) is None


def test_a_workload_that_counts_more_decides() -> None:
    heavy = [
        accepted(1, 1.5, speedups=json.dumps({"a": standing(1.5, 9.0), "b": standing(1.5)})),
        accepted(2, 1.1, speedups=json.dumps({"a": standing(1.0, 9.0), "b": standing(1.8)})),
    ]
    assert find_join(heavy, 0.02) is None, "20 % on a tenth of the score is below 2 %"
    found = find_join(heavy, 0.01)
    assert found is not None
    assert found.promised == pytest.approx(1.5 * (1.8 / 1.5) ** 0.1)


def test_speed_ups_are_those_over_the_fastest_baseline_of_bench_workloads() -> None:
    ends = {"eager": [2.9, 3.1], "compile": [1.4, 1.6]}
    bench = {"id": "wide", "role": "bench", "weight": 2.0, "speedup": {"eager": 3.0, "compile": 1.5}, "ci95": ends}
    test = {"id": "ragged", "role": "test", "speedup": {}}
    assert json.loads(write_speedups([bench, test]) or "") == {"wide": [1.5, 1.4, 1.6, 2.0]}
    assert write_speedups([bench | {"speedup": {}}]) is None
    assert write_speedups([bench | {"ci95": {}}]) is None
    assert write_speedups([test]) is None


def test_the_parent_comes_first_among_parts() -> None:
    assert write_parts([7, 9, 3]) == "7,3,9"


def test_a_settled_round_joins_before_it_verifies_and_grows() -> None:
    (step,) = steps_of(asked_root(), *filled(WIDE, NARROW), policy=JOINING)
    assert (step.kind, step.node_id, step.ordinal) == ("join", "n3", 1)
    assert step.params == {"parts": "3,7", "round": 1}


def filled(*nodes: NodeView) -> list[NodeView]:
    """These nodes at their numbers, closed ones between them."""
    found = {node.seq: node for node in nodes}
    return [found.get(seq) or accepted(seq, 1.0, state="closed", verdict=None) for seq in range(1, max(found) + 1)]


def test_what_was_joined_is_judged_and_not_joined_again() -> None:
    joined = accepted(8, 1.0, origin=JOINED, joins="3,7", state="coded", verdict=None, score=None)
    (step,) = steps_of(asked_root(), *filled(WIDE, NARROW, joined), policy=JOINING)
    assert (step.kind, step.node_id) == ("judge", "n8")
    judged = joined._replace(state="judged", verdict="accepted", score=1.9)
    kinds = {step.kind for step in steps_of(asked_root(), *filled(WIDE, NARROW, judged), policy=JOINING)}
    assert kinds == {"verify"}


def test_a_join_that_failed_is_neither_repaired_nor_tried_again() -> None:
    failed = accepted(8, 1.0, origin=JOINED, joins="3,7", verdict="rejected", score=None)
    steps = steps_of(asked_root(), *filled(WIDE, NARROW, failed), policy=JOINING)
    assert {step.kind for step in steps} == {"ideate"}


def test_ideas_go_to_the_parts_of_a_join() -> None:
    joined = accepted(8, 1.9, origin=JOINED, joins="3,7", verification="passed")
    steps = steps_of(asked_root(), *filled(WIDE, NARROW, joined), policy=JOINING)
    assert {step.node_id for step in steps} == {"n3", "n7"}


def test_a_join_counts_as_no_fruit_of_its_parent() -> None:
    """Its parent was asked in vain, and makes room, whatever was joined under it."""
    asked = WIDE._replace(ideation="done", ideated=2)
    other = NARROW._replace(ideation="done", ideated=2)
    child = accepted(8, 1.1, round=2, parent_id="n7", verification="passed", technique="compute")
    joined = accepted(9, 1.9, round=2, parent_id="n3", origin=JOINED, joins="3,7", verification="passed")
    steps = steps_of(asked_root(), *filled(asked, other, child, joined), policy=JOINING)
    assert "n3" not in {step.node_id for step in steps}


@pytest.mark.parametrize(
    ("budget", "spend"),
    [(Budget(candidates=4), Spend(candidates=4)), (Budget(gpu_seconds=10.0), Spend(gpu_seconds=10.0, candidates=2))],
)
def test_nothing_is_joined_that_could_not_be_screened(budget: Budget, spend: Spend) -> None:
    steps = steps_of(asked_root(), *filled(WIDE, NARROW), policy=JOINING, budget=budget, spend=spend)
    assert {step.kind for step in steps} == {"stop"}


def test_a_join_needs_no_calls() -> None:
    spent = steps_of(
        asked_root(), *filled(WIDE, NARROW), policy=JOINING, budget=Budget(model_calls=5), spend=Spend(model_calls=5)
    )
    assert [step.kind for step in spent] == ["join"]


def test_nothing_is_joined_unless_it_is_asked_for() -> None:
    off = IdeaBeam(beam=2, ideas=2, rounds=5, max_rounds=8, flat_rounds=2)
    assert {step.kind for step in steps_of(asked_root(), *filled(WIDE, NARROW), policy=off)} == {"ideate"}
    assert off.most_growth(0).joins == 0
    assert JOINING.most_growth(0).joins == 8


def test_one_join_a_round() -> None:
    joined = accepted(8, 1.9, origin=JOINED, joins="3,7", verification="passed")
    better = leaning(9, wide=4.0, narrow=0.6)
    steps = steps_of(asked_root(), *filled(WIDE, NARROW, joined, better), policy=JOINING)
    assert {step.kind for step in steps} == {"ideate"}
    later = better._replace(round=2)
    parent = WIDE._replace(ideation="done", ideated=2)
    assert [step.kind for step in steps_of(asked_root(), *filled(parent, NARROW, joined, later), policy=JOINING)] == [
        "join"
    ]


def test_a_banned_candidate_is_no_part() -> None:
    banned = NARROW._replace(mark="banned")
    assert "join" not in {step.kind for step in steps_of(asked_root(), *filled(WIDE, banned), policy=JOINING)}


def test_a_part_that_is_led_everywhere_is_left_out() -> None:
    nodes = [leaning(1, a=1.5, b=1.5), leaning(2, a=2.0, b=1.0), leaning(3, a=1.0, b=2.0)]
    found = find_join(nodes, 0.02)
    assert found is not None
    assert [part.seq for part in found.parts] == [2, 3]
    assert winners(found.parts) == {"a": 2, "b": 3}


def test_the_same_parts_are_not_joined_again_under_another_parent() -> None:
    failed = accepted(8, 1.0, origin=JOINED, joins="7,3", verdict="rejected", score=None)
    steps = steps_of(asked_root(), *filled(WIDE, NARROW, failed), policy=JOINING)
    assert "join" not in {step.kind for step in steps}


def test_a_restart_may_play_the_technique_of_a_join() -> None:
    joined = accepted(8, 1.0, origin=JOINED, joins="3,7", state="closed", verdict=None, technique="control_flow")
    flat = IdeaBeam(beam=2, ideas=2, rounds=5, max_rounds=8, flat_rounds=1)
    parents = [node._replace(ideation="done", ideated=2, technique="tiling") for node in (WIDE, NARROW)]
    later = [accepted(seq, 1.0, round=2, parent_id="n3", technique="fusion") for seq in (9, 10)]
    steps = steps_of(asked_root(), *filled(*parents, joined, *later), policy=flat)
    [avoided] = {step.params["technique_not_in"] for step in steps if "technique_not_in" in step.params}
    assert "control_flow" not in str(avoided)
    assert "tiling" in str(avoided)

"""The policy benchmark: what a recording can answer, plays at equal cost, and the statistics that are quoted."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from benchmarks.policies import recording
from benchmarks.policies.outcomes import Outcome
from benchmarks.policies.play import Play
from benchmarks.policies.recording import Recording
from benchmarks.policies.replay import Replay
from benchmarks.policies.simulator import Simulator, fit
from benchmarks.policies.statistics import geomean, ratio_interval
from tests import REPOSITORY
from warpsmith.kernels_db.store.pool_file import parse_pool
from warpsmith.workers.search.policy import Policy, parse_policy

POOLS = sorted((REPOSITORY / "examples" / "pools").glob("*.jsonl"))


def measured(pool: Path, seed: int = 1) -> Recording:
    """A pool's recording with outcomes that the seed draws: four in five accepted."""
    found, luck = recording.load(pool, None), random.Random(seed)
    for candidate in found.candidates.values():
        score = luck.uniform(0.5, 2.0)
        accepted = Outcome("accepted", "time", score, score * 0.98, score * 1.02, score * 0.3)
        candidate.outcome = accepted if luck.random() < 0.8 else Outcome("rejected", "screen")
    return found


def ends(value: float) -> tuple[float, float, float]:
    """A value with an interval of 1 % on either side."""
    return value, value * 0.99, value * 1.01


def played(policy: Policy, found: Recording, money: float, seed: int) -> tuple[str, list[float], list[float]]:
    play = Play(policy, Replay(found, random.Random(seed)), money, random.Random(seed))
    end = play.run()
    return end.reason, [point.cost_usd for point in end.curve], [point.best for point in end.curve]


@pytest.mark.parametrize("pool", POOLS, ids=lambda pool: pool.stem)
def test_every_recorded_reply_has_its_place_in_the_tree(pool: Path) -> None:
    found = recording.load(pool, None)
    places = [found.root, *found.candidates.values()]
    ideas = [idea for place in places for asked in place.asked for idea in asked.ideas]
    codes = sum(len(idea.codes) for idea in ideas) + sum(len(place.plain) for place in places)
    repairs = sum(place.repair is not None for place in places)
    requests = {reply.request for reply in parse_pool(pool.read_text(encoding="utf-8")).replies}
    assert sum(len(place.asked) for place in places) + codes + repairs == len(requests)


def test_a_play_is_the_same_for_the_same_seed_and_never_spends_more_than_one_call_too_much() -> None:
    found, policy = measured(POOLS[0]), parse_policy({"name": "idea_beam"})
    whole = recording.cost_usd(found)
    for share in (0.2, 0.5, 1.0):
        first = played(policy, found, whole * share, seed=3)
        assert first == played(policy, found, whole * share, seed=3)
        assert max(first[1], default=0.0) <= whole * share + 0.1
    assert any(played(policy, found, whole, seed) != played(policy, found, whole, 3) for seed in range(5))


def test_no_recorded_answer_is_given_twice() -> None:
    found = measured(POOLS[0])
    world = Replay(found, random.Random(5))
    given = []
    while (answer := world.ideas(None, 2, [])) is not None:
        given += [proposal.digest for proposal in answer.content or []]
    assert len(given) == len(set(given)) == sum(len(asked.ideas) for asked in found.root.asked)
    codes = {code.candidate.digest for asked in found.root.asked for idea in asked.ideas for code in idea.codes if code.candidate}  # fmt: skip # noqa: E501
    proposal = (Replay(found, random.Random(5)).ideas(None, 1, []) or pytest.fail("nothing recorded")).content
    assert proposal is not None
    drawn = [world.code(None, proposal[0], variant) for variant in range(5)]
    known = [world.digest(answer.content) for answer in drawn if answer is not None and answer.content is not None]
    assert set(known) <= codes
    assert drawn[-1] is None, "more variants than were recorded"


def test_ideas_of_techniques_that_are_ruled_out_stay_for_later() -> None:
    found = measured(POOLS[0])
    world = Replay(found, random.Random(7))
    techniques = sorted({idea.idea["technique"] for asked in found.root.asked for idea in asked.ideas})
    answer = world.ideas(None, 32, techniques[1:])
    assert answer is not None
    assert {proposal.technique for proposal in answer.content or []} == {techniques[0]}
    rest = world.ideas(None, 32, [])
    assert rest is None or techniques[0] not in {proposal.technique for proposal in rest.content or []}


def test_the_champion_counts_with_its_true_worth_not_with_the_luck_of_its_screening() -> None:
    found = measured(POOLS[0])
    for candidate in found.candidates.values():
        if candidate.outcome and candidate.outcome.score:
            candidate.outcome = Outcome("accepted", "time", 1.2, 0.6, 2.4, 0.3)  # a screening may say 2
    play = Play(
        parse_policy({"name": "idea_beam"}),
        Replay(found, random.Random(1)),
        recording.cost_usd(found),
        random.Random(1),
    )
    assert {point.best for point in play.run().curve} == {1.2}
    assert max(node.score or 0.0 for node in play.nodes) > 1.3


def test_the_simulation_needs_enough_and_stays_under_its_ceiling() -> None:
    found = measured(POOLS[0])
    fitted = fit(found)
    play = Play(parse_policy({"name": "idea_beam"}), Simulator(fitted, random.Random(2)), 2.0, random.Random(2))
    end = play.run()
    assert end.unanswered == 0
    assert max(point.best for point in end.curve) <= np.exp(fitted.ceiling) * (1 + 1e-9)
    for candidate in found.candidates.values():
        candidate.outcome = None
    with pytest.raises(ValueError, match="0 accepted candidates, expected at least 10"):
        fit(found)


def test_what_is_joined_has_the_true_worth_of_its_parts_and_costs_no_money() -> None:
    found, luck = measured(POOLS[0]), random.Random(9)
    for candidate in found.candidates.values():
        score = luck.uniform(0.8, 1.2)
        lean = luck.choice([0.5, 2.0])
        workloads = {name: ends(value) for name, value in (("a", score * lean), ("b", score / lean))}
        candidate.outcome = Outcome("accepted", "time", score, score * 0.99, score * 1.01, 0.3, workloads)
    money = recording.cost_usd(found)
    plays = {}
    for joins in (True, False):
        policy = parse_policy({"name": "idea_beam", "joins": joins})
        plays[joins] = Play(policy, Replay(found, random.Random(1)), money, random.Random(1))
        plays[joins].run()
    joined = [node for node in plays[True].nodes if node.joins]
    assert joined
    assert not [node for node in plays[False].nodes if node.joins]
    assert 1.6 < max(plays[True].world.outcome(plays[True].candidates[node.id]).score or 0.0 for node in joined) < 2.4
    assert plays[True].played.curve[-1].best > 1.3 * plays[False].played.curve[-1].best
    asked = [plays[joins].played.asked for joins in (True, False)]
    assert asked[0] <= asked[1], "no request is made for a join"


def test_a_simulation_of_workloads_joins_what_leans() -> None:
    found, luck = measured(POOLS[0]), random.Random(9)
    for candidate in found.candidates.values():
        score, lean = luck.uniform(0.8, 1.2), luck.choice([0.5, 2.0])
        workloads = {name: ends(value) for name, value in (("a", score * lean), ("b", score / lean))}
        candidate.outcome = Outcome("accepted", "time", score, score * 0.99, score * 1.01, 0.3, workloads)
    fitted = fit(found)
    assert fitted.workloads == ("a", "b")
    assert abs(fitted.kept) < 0.5, "leans were drawn without regard to parents"
    world = Simulator(fitted, random.Random(2))
    play = Play(parse_policy({"name": "idea_beam", "joins": True}), world, 1.0, random.Random(2))
    play.run()
    joined = [play.candidates[node.id] for node in play.nodes if node.joins]
    assert joined
    outcome = world.outcome(joined[0])
    assert outcome.score == pytest.approx((outcome.workloads["a"][0] * outcome.workloads["b"][0]) ** 0.5)


def test_a_paired_interval_finds_a_planted_difference_and_none_where_there_is_none() -> None:
    luck = np.random.default_rng(4)
    base = {op: list(np.exp(luck.normal(level, 0.2, 40))) for op, level in (("a", 0.3), ("b", 0.8), ("c", 0.1))}
    better = {op: [value * 1.1 * float(np.exp(luck.normal(0, 0.02))) for value in those] for op, those in base.items()}
    middle, low, high = ratio_interval(better, base)
    assert low > 1.0
    assert middle == pytest.approx(1.1, rel=0.02)
    assert low < 1.1 < high
    assert ratio_interval(base, base) == (1.0, 1.0, 1.0)
    assert geomean({"a": [1.0, 4.0], "b": [2.0, 2.0]}) == pytest.approx(2.0)

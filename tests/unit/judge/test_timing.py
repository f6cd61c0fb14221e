"""Ratios and their intervals, the plan of rounds, and the turn-taking of blocks. No speed is asserted."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.workers.judge.clock import timing

SAMPLES = st.lists(st.floats(1.0, 1e6), min_size=5, max_size=30)


@given(SAMPLES, st.integers(0, 2**32))
def test_a_contender_against_itself_is_exactly_as_fast(samples: list[float], seed: int) -> None:
    """Pairs are resampled together, so what hits both sides alike leaves no spread."""
    assert timing.ratio_with_interval(samples, samples, seed) == (1.0, (1.0, 1.0))


@given(SAMPLES, st.floats(0.1, 10.0), st.integers(0, 2**32))
def test_a_constant_factor_is_found_without_spread(samples: list[float], factor: float, seed: int) -> None:
    ratio, (low, high) = timing.ratio_with_interval([value * factor for value in samples], samples, seed)
    assert ratio == pytest.approx(factor)
    assert low == pytest.approx(factor)
    assert high == pytest.approx(factor)


def test_the_interval_is_the_same_for_the_same_seed_and_holds_the_truth() -> None:
    generator = np.random.default_rng(1)
    baseline = list(200 + 10 * generator.standard_normal(30))
    candidate = list(100 + 5 * generator.standard_normal(30))
    first = timing.ratio_with_interval(baseline, candidate, seed=5)
    assert first == timing.ratio_with_interval(baseline, candidate, seed=5)
    low, high = first[1]
    assert low < 2.0 < high
    assert high - low < 0.2


def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(2)
    covered = 0
    for trial in range(100):
        drift = 1 + 0.3 * generator.random(20)
        baseline = list(2.0 * drift * (1 + 0.05 * generator.standard_normal(20)))
        candidate = list(drift * (1 + 0.05 * generator.standard_normal(20)))
        low, high = timing.ratio_with_interval(baseline, candidate, seed=trial)[1]
        covered += low <= 2.0 <= high
    assert covered >= 85


def test_unpaired_rounds_are_refused() -> None:
    with pytest.raises(ValueError, match="rounds do not pair: 3 and 2"):
        timing.bootstrap_ratios([1.0, 2.0, 3.0], [1.0, 2.0], seed=0)


def test_the_score_is_the_geometric_mean() -> None:
    score, (low, high) = timing.score([([200.0] * 6, [100.0] * 6), ([800.0] * 6, [100.0] * 6)], seed=0)
    assert score == pytest.approx(4.0)
    assert [low, high] == pytest.approx([4.0, 4.0])


def test_a_weight_is_how_often_a_workload_counts() -> None:
    twice, eightfold = ([200.0] * 6, [100.0] * 6), ([800.0] * 6, [100.0] * 6)
    score, (low, high) = timing.score([twice, eightfold], seed=0, weights=[3.0, 1.0])
    assert score == pytest.approx(timing.score([twice, twice, twice, eightfold], seed=0)[0])
    assert [score, low, high] == pytest.approx([2.0 ** (6 / 4)] * 3)
    assert timing.score([twice, eightfold], seed=0, weights=[7.0, 7.0])[0] == pytest.approx(4.0)


def test_the_fastest_baseline_is_the_smallest_median() -> None:
    samples = {"eager": [3.0, 3.0, 9.0], "compile": [2.0, 2.0, 50.0], "candidate": [1.0, 1.0, 1.0]}
    assert timing.fastest(samples, ["eager", "compile", "max_autotune"]) == "compile"


@pytest.mark.parametrize(("call_us", "calls"), [(0.5, 10), (100.0, 10), (500.0, 4), (1500.0, 1), (1e6, 1)])
def test_blocks_have_two_milliseconds_of_calls_within_bounds(call_us: float, calls: int) -> None:
    assert timing.calls_per_block(call_us) == calls


@pytest.mark.parametrize("calls", [1, 2, 3, 10])
def test_a_blocks_length_cannot_be_told_and_is_the_average(calls: int) -> None:
    rng = random.Random(4)
    lengths = [timing.block_length(calls, rng) for _ in range(2_000)]
    assert min(lengths) >= 1
    assert len(set(lengths)) >= 2
    assert sum(lengths) / 2_000 == pytest.approx(calls, abs=0.55)


def _plan(fewest: int, most: int) -> timing.Plan:
    return timing.Plan(fewest, most, 60.0, 1, 0.0, 0.0)


def test_timing_stops_early_once_every_ratio_is_known() -> None:
    samples = timing.interleave(
        ["eager", "compile", "candidate"],
        lambda name: {"eager": 30.0, "compile": 20.0, "candidate": 10.0}[name],
        plan=_plan(5, 30),
        candidate="candidate",
        rng=random.Random(0),
    )
    assert [len(values) for values in samples.values()] == [5, 5, 5]


def test_timing_goes_on_while_a_ratio_is_uncertain() -> None:
    noise = random.Random(3)
    samples = timing.interleave(
        ["eager", "candidate"], lambda name: noise.uniform(1, 10), plan=_plan(5, 12), candidate="candidate", rng=noise
    )
    assert len(samples["eager"]) == 12


def test_every_round_runs_every_contender_once_in_changing_order() -> None:
    calls: list[str] = []

    def block(name: str) -> float:
        calls.append(name)
        return 1.0

    timing.interleave(["a", "b", "c"], block, plan=_plan(20, 20), candidate=None, rng=random.Random(1))
    rounds = [tuple(calls[start : start + 3]) for start in range(0, 60, 3)]
    assert all(sorted(order) == ["a", "b", "c"] for order in rounds)
    assert len(set(rounds)) > 1


def test_time_ends_timing_after_the_fewest_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(float(second) for second in range(1000))
    monkeypatch.setattr("warpsmith.workers.judge.clock.timing.time.monotonic", lambda: next(clock))
    plan = timing.Plan(5, 30, 2.0, 1, 0.0, 0.0)
    samples = timing.interleave(["a"], lambda name: 1.0, plan=plan, candidate=None, rng=random.Random(0))
    assert len(samples["a"]) == 5


PLANS = [timing.plan_for(verifies, device, 1.0) for verifies in (False, True) for device in ("cpu", "cuda")]


def _escapes(plan: timing.Plan, calls: int, rng: random.Random) -> bool:
    """Whether nobody looks at a candidate that cheats in just as many calls as decide its time."""
    for _ in range(plan.fewest_rounds // 2 + 1):
        if any(rng.random() < plan.check_chance(calls) for _ in range(calls // 2 + 1)):
            return False
    return True


@pytest.mark.parametrize("calls", [3, 8, 30])
@pytest.mark.parametrize("plan", PLANS)
def test_who_cheats_enough_to_be_fast_is_looked_at(plan: timing.Plan, calls: int) -> None:
    rng = random.Random(1)
    escaped = sum(_escapes(plan, calls, rng) for _ in range(4000)) / 4000
    assert escaped == pytest.approx(plan.escape, abs=4 * (plan.escape / 4000) ** 0.5)


@pytest.mark.parametrize("plan", [timing.plan_for(verifies, "cuda", 1.0) for verifies in (False, True)])
def test_a_burst_is_looked_at_often_enough_for_half_of_its_calls(plan: timing.Plan) -> None:
    deciding = plan.fewest_rounds // 2 + 1
    assert (1 - plan.burst_chance() / 2) ** deciding <= plan.escape * 1.001
    assert 0 < plan.burst_chance() <= 1

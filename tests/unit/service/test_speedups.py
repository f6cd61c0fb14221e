"""Speed-ups over several workloads, and the interval of a median, against what they must be by definition."""

from __future__ import annotations

import math
import random

import pytest

from warpsmith.service.documents.speedups import compute_mean_intervals, compute_mean_speedups, compute_median_interval
from warpsmith.service.documents.workloads import WorkloadTimes


def workload(name: str, role: str = "bench", **ratios: tuple[float, ...]) -> WorkloadTimes:
    """A workload with its speed-up over each baseline and, where three numbers are given, the interval."""
    return WorkloadTimes(
        id=name,
        role=role,
        time_us={},
        speedup={baseline: numbers[0] for baseline, numbers in ratios.items()},
        ci95={baseline: list(numbers[1:]) for baseline, numbers in ratios.items() if len(numbers) == 3},
    )


def test_a_mean_is_geometric_and_over_the_bench_workloads() -> None:
    found = compute_mean_speedups(
        [workload("a", eager=(2.0,)), workload("b", eager=(8.0,)), workload("c", "test", eager=(99.0,))]
    )
    assert found == {"eager": pytest.approx(4.0)}


def test_one_workloads_interval_is_the_means() -> None:
    assert compute_mean_intervals([workload("a", eager=(2.0, 1.6, 2.2))])["eager"] == pytest.approx([1.6, 2.2])


def test_errors_of_several_workloads_add_in_quadrature() -> None:
    same = [workload(name, eager=(2.0, 1.8, 2.3)) for name in "abcd"]
    low, high = compute_mean_intervals(same)["eager"]
    assert math.log(2.0 / low) == pytest.approx(math.log(2.0 / 1.8) / 2)
    assert math.log(high / 2.0) == pytest.approx(math.log(2.3 / 2.0) / 2)


def test_a_weight_counts_like_so_many_workloads() -> None:
    one, other = (2.0, 1.8, 2.3), (3.0, 2.5, 3.1)
    weighted = [workload("a", eager=one).model_copy(update={"weight": 3.0}), workload("b", eager=other)]
    assert compute_mean_speedups(weighted)["eager"] == pytest.approx((2.0**3 * 3.0) ** 0.25)
    low, _ = compute_mean_intervals(weighted)["eager"]
    below = math.hypot(3 * math.log(2.0 / 1.8), math.log(3.0 / 2.5)) / 4
    assert math.log((2.0**3 * 3.0) ** 0.25 / low) == pytest.approx(below)


def test_a_workload_without_an_interval_leaves_the_mean_without_one() -> None:
    whole = (1.5, 1.4, 1.6)
    mixed = [workload("a", eager=(2.0, 1.9, 2.1), compile=whole), workload("b", eager=(2.0,), compile=whole)]
    assert set(compute_mean_intervals(mixed)) == {"compile"}
    assert compute_mean_intervals([]) == {}


def test_a_baseline_that_was_not_timed_on_all_workloads_has_no_mean() -> None:
    """Over other workloads than the score it could be above it, though the score is over the fastest baseline."""
    timed = [workload("a", eager=(4.0,), compile=(1.1,)), workload("b", eager=(1.2,)), workload("t", "test")]
    assert compute_mean_speedups(timed) == {"eager": pytest.approx((4.0 * 1.2) ** 0.5)}
    untimed = [*timed, workload("c")]
    assert compute_mean_speedups(untimed) == compute_mean_speedups(timed)
    assert compute_mean_speedups([workload("c")]) == {}


@pytest.mark.parametrize("count", range(6))
def test_few_samples_bound_no_median(count: int) -> None:
    assert compute_median_interval([float(number) for number in range(count)]) is None


def test_the_ranks_of_the_interval_are_those_of_the_tables() -> None:
    """Conover's table for 95 %: the 1st and 6th of 6, the 2nd and 9th of 10, the 6th and 15th of 20."""
    for count, low, high in ((6, 1, 6), (10, 2, 9), (20, 6, 15)):
        shuffled = [float(number) for number in range(1, count + 1)]
        random.Random(7).shuffle(shuffled)
        assert compute_median_interval(shuffled) == [low, high]


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    chance = random.Random(3)
    trials = [compute_median_interval([chance.expovariate(1.0) for _ in range(15)]) for _ in range(2000)]
    held = sum(low <= math.log(2) <= high for low, high in filter(None, trials))
    assert held / len(trials) >= 0.95

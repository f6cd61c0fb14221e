"""What each tunable explains of a sweep's times, and when that cannot be told."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from warpsmith.service.views.importance import (
    ImportanceDocument,
    explain_gains,
    explain_sweeps,
    explain_times,
    time_ratios,
)

GRID = {"A": (1, 2, 4), "B": (1, 2, 4)}


def swept(
    slower: Callable[[Mapping[str, int]], float],
    grid: Mapping[str, tuple[int, ...]] = GRID,
    where: Callable[[Mapping[str, int]], bool] = lambda values: True,
) -> dict[str, Any]:
    """A sweep over a grid; `slower` is the logarithm of a configuration's time over 10 us."""
    configurations: list[dict[str, Any]] = []
    for chosen in itertools.product(*grid.values()):
        values = dict(zip(grid, chosen, strict=True))
        if where(values):
            configurations.append({"values": values, "time_us": {"x": 10 * math.exp(slower(values))}, "rounds": 1})
    configurations.sort(key=lambda one: one["time_us"]["x"])
    return {"chosen": configurations[0]["values"], "configurations": configurations, "seconds": 1.0}


def shares(found: ImportanceDocument) -> dict[str, float]:
    assert found.unclear is None, found.unclear
    return {one.name: one.share for one in found.tunables}


def test_shares_are_those_of_an_analysis_of_variance() -> None:
    # Effects -a, 0, a and -b, 0, b have variances of 2/3 a^2 and 2/3 b^2: with a = 3 b nine tenths and one.
    found = explain_times(swept(lambda at: 0.3 * math.log2(at["A"]) + 0.1 * math.log2(at["B"])), {})
    assert shares(found) == pytest.approx({"A": 0.9, "B": 0.1})
    assert [one.name for one in found.tunables] == ["A", "B"]
    assert found.configurations == 9
    assert [one.by_chance for one in found.tunables] == pytest.approx([0, 0], abs=1e-12), "nothing is left over"


def test_what_tunables_do_together_is_the_share_of_none() -> None:
    found = explain_times(swept(lambda at: 0.2 * (math.log2(at["A"]) - 1) * (math.log2(at["B"]) - 1)), {})
    assert shares(found) == pytest.approx({"A": 0, "B": 0}, abs=1e-12)
    assert [one.by_chance for one in found.tunables] == pytest.approx([0.5, 0.5]), "two of four degrees of freedom"


def test_a_tunable_that_does_nothing_explains_about_what_chance_would() -> None:
    grid = {"A": (1, 2, 4, 8), "IDLE": (1, 2, 3, 4)}
    ratios = []
    for seed in range(200):
        luck = random.Random(seed)
        found = explain_times(swept(lambda at, luck=luck: 0.2 * at["A"] + luck.gauss(0, 0.05), grid), {})  # type: ignore[misc]
        idle = next(one for one in found.tunables if one.name == "IDLE")
        ratios.append(idle.share / idle.by_chance)
    assert 0.8 < sum(ratios) / len(ratios) < 1.8, "an F ratio of 3 and 9 degrees of freedom has a mean of 9/7"


def test_conditions_that_leave_combinations_out_leave_no_residual_where_effects_add_up() -> None:
    grid = {"A": (1, 2, 3, 4), "B": (1, 2, 3, 4)}
    found = explain_times(swept(lambda at: 0.1 * at["A"] + 0.02 * at["B"], grid, lambda at: at["A"] + at["B"] < 8), {})
    assert found.configurations == 15
    assert shares(found)["A"] > 0.8
    assert max(one.by_chance for one in found.tunables) < 1e-6


def test_workloads_count_by_their_weights() -> None:
    sweep = swept(lambda at: 0.3 * math.log2(at["A"]))
    for one in sweep["configurations"]:
        one["time_us"]["y"] = 10 * math.exp(0.3 * math.log2(one["values"]["B"]))
    assert shares(explain_times(sweep, {})) == pytest.approx({"A": 0.5, "B": 0.5})
    assert shares(explain_times(sweep, {"x": 3.0, "y": 1.0})) == pytest.approx({"A": 0.9, "B": 0.1})


def test_configurations_that_are_out_are_not_used() -> None:
    sweep = swept(lambda at: 0.3 * math.log2(at["A"]), {"A": (1, 2, 4), "B": (1, 2, 4, 8)})
    for one in sweep["configurations"]:
        if one["values"]["B"] == 8:
            one |= {"time_us": {}, "failure": "does not compile"}
    found = explain_times(sweep, {})
    assert (found.configurations, [one.values for one in found.tunables]) == (9, [3, 3])


@pytest.mark.parametrize(
    ("sweep", "why"),
    [
        (swept(lambda at: 0.1 * at["A"], {"A": (1, 2), "B": (1, 2)}), "found 4 timed, expected at least 5"),
        (swept(lambda at: 0.1 * at["A"], {"A": (1, 2, 3, 4), "B": (1,)}), "fewer than two tunables had several values"),
        (swept(lambda at: 0.1 * at["A"], {"A": (1, 2, 3, 4)}), "one tunable alone"),
        (swept(lambda at: 0.0), "measured the same"),
        ({"chosen": {"A": 1}, "configurations": [], "seconds": 1.0}, "no configuration was timed"),
    ],
)
def test_what_cannot_be_told_is_said(sweep: dict[str, Any], why: str) -> None:
    found = explain_times(sweep, {})
    assert found.tunables == []
    assert why in (found.unclear or "")


def test_several_sweeps_count_alike() -> None:
    slow = time_ratios(swept(lambda at: 0.3 * math.log2(at["A"]) + 0.1 * math.log2(at["B"])), {})
    found = explain_sweeps([slow, slow])
    assert shares(found) == pytest.approx({"A": 0.9, "B": 0.1}), "twice the same says the same"
    assert (found.sweeps, found.unused, found.configurations) == (2, 0, 18)

    reversed_ = time_ratios(swept(lambda at: -0.3 * math.log2(at["A"]) - 0.1 * math.log2(at["B"])), {})
    assert shares(explain_sweeps([slow, reversed_])) == pytest.approx({"A": 0.9, "B": 0.1}), "within each candidate"

    other = time_ratios(swept(lambda at: 0.1 * math.log2(at["A"]) + 0.3 * math.log2(at["B"])), {})
    assert shares(explain_sweeps([slow, other])) == pytest.approx({"A": 0.5, "B": 0.5})

    # Differences ten times as large make a hundred times the squares, and no more of a share.
    large = time_ratios(swept(lambda at: 1.0 * math.log2(at["A"]) + 3.0 * math.log2(at["B"])), {})
    assert shares(explain_sweeps([slow, slow, large])) == pytest.approx({"A": 1.9 / 3, "B": 1.1 / 3})


def test_a_tunable_is_judged_by_the_sweeps_that_vary_it() -> None:
    first = time_ratios(swept(lambda at: 0.3 * math.log2(at["A"]) + 0.1 * math.log2(at["B"])), {})
    grid = {"A": (1, 2, 8), "C": (1, 2, 4)}
    second = time_ratios(swept(lambda at: 0.3 * math.log2(at["C"]), grid), {})
    few = time_ratios(swept(lambda at: 0.1 * at["A"], {"A": (1, 2), "B": (1, 2)}), {})
    found = explain_sweeps([first, second, few])
    assert shares(found) == pytest.approx({"C": 1.0, "A": 0.45, "B": 0.1})
    assert {one.name: (one.values, one.sweeps) for one in found.tunables} == {"A": (4, 2), "B": (3, 1), "C": (3, 1)}
    assert (found.sweeps, found.unused, found.configurations) == (3, 1, 18)


def test_sweeps_of_which_none_can_tell_say_so_once() -> None:
    few = time_ratios(swept(lambda at: 0.1 * at["A"], {"A": (1, 2), "B": (1, 2)}), {})
    assert "none of 2 sweeps can tell" in (explain_sweeps([few, few]).unclear or "")
    one = time_ratios(swept(lambda at: 0.1 * at["A"], {"A": (1, 2, 3, 4)}), {})
    assert explain_sweeps([one, one]).unclear == (
        "none of 2 sweeps can tell, all of them because: one tunable alone has nothing to be compared with"
    )
    assert "2 of them because: one tunable alone" in (explain_sweeps([few, one, one]).unclear or ""), "most first"
    assert explain_sweeps([]).unclear == "no candidate was swept"


def test_what_has_no_logarithm_is_left_out() -> None:
    sweep = swept(lambda at: 0.3 * math.log2(at["A"]), {"A": (1, 2, 4), "B": (1, 2, 4, 8)})
    for one in sweep["configurations"]:
        if one["values"]["B"] == 8:
            one["time_us"] = {"x": 0.0}
    assert explain_times(sweep, {}).configurations == 9
    sweep["configurations"][0]["time_us"] = {"x": 0.0}
    assert time_ratios(sweep, {}) == [], "nothing to compare with: the chosen one's time is not known"
    gains = [("a", 2.0), ("a", 2.0), ("b", 1.0), ("b", 1.0)]
    assert explain_gains([*gains, ("b", 0.0)]) == explain_gains(gains)


def test_the_technique_is_weighed_as_a_tunable_is() -> None:
    found = explain_gains([("a", 2.0), ("a", 2.0), ("b", 1.0), ("b", 1.0)])
    assert found.share == pytest.approx(1.0)
    assert (found.candidates, found.techniques) == (4, 2)
    noisy = explain_gains([("a", 2.0), ("a", 0.5), ("b", 2.0), ("b", 0.5)])
    assert noisy.share == pytest.approx(0.0, abs=1e-12)
    assert noisy.by_chance == pytest.approx(0.5), "one of two degrees of freedom that are left"
    assert "fewer than two techniques" in (explain_gains([("a", 2.0)]).unclear or "")
    assert "too few candidates" in (explain_gains([("a", 2.0), ("b", 1.0)]).unclear or "")

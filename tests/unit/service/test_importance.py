"""What each tunable explains of a sweep's times, and when that cannot be told."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from warpsmith.service.views.importance import ImportanceDocument, explain_times

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
        (swept(lambda at: 0.1 * at["A"], {"A": (1, 2, 3, 4), "B": (1,)}), "fewer than two tunables"),
        (swept(lambda at: 0.0), "the same time"),
        ({"chosen": {"A": 1}, "configurations": [], "seconds": 1.0}, "fewer than two tunables"),
    ],
)
def test_what_cannot_be_told_is_said(sweep: dict[str, Any], why: str) -> None:
    found = explain_times(sweep, {})
    assert found.tunables == []
    assert why in (found.unclear or "")

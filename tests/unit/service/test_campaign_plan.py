"""What a campaign decides: which regions are searched, with which budgets, and which kernels stay in the model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.service.client import campaign_plan as plan
from warpsmith.service.documents.campaigns import CampaignRegion
from warpsmith.workers.search.budget import COUNTS, parse_budget

WEIGHTS = st.lists(st.floats(min_value=1e-3, max_value=1e9), min_size=1, max_size=12)


def opportunity(name: str, time_us: float, limit_us: float, **more: Any) -> dict[str, Any]:
    """A row of `warpsmith profile` with two places, both of them in the total."""
    return {
        "name": name,
        "operators": name,
        "places": ["layers.0", "layers.1"],
        "time_us": time_us,
        "share": time_us / 1000,
        "limit_us": limit_us,
        "limit_by": "bytes",
        "saving_us": max(0.0, time_us - limit_us),
        "joins": 1,
        "counted": 2,
        "file": f"{name}.yaml",
        "reason": None,
    } | more


def chosen(*opportunities: dict[str, Any], top: int = 4, **budget: float) -> dict[str, CampaignRegion]:
    regions = [plan.read_region(one) for one in opportunities]
    return {one.name: one for one in plan.choose_regions(regions, top, budget)}


@given(WEIGHTS, st.integers(min_value=0, max_value=10_000))
def test_counts_are_divided_without_rest_and_nobody_gets_none(weights: list[float], spare: int) -> None:
    total = len(weights) + spare
    parts = plan.divide_budget({"candidates": total}, weights)
    found = [part["candidates"] for part in parts]
    assert sum(found) == total
    assert all(isinstance(share, int) and share >= 1 for share in found)
    heaviest = max(range(len(weights)), key=weights.__getitem__)
    assert found[heaviest] == max(found)
    for part in parts:
        parse_budget(part)


@given(WEIGHTS)
def test_money_and_device_time_are_divided_and_running_time_is_not(weights: list[float]) -> None:
    parts = plan.divide_budget({"cost_usd": 2.5, "gpu_seconds": 60, "wall_clock_s": 600}, weights)
    assert sum(part["cost_usd"] for part in parts) == pytest.approx(2.5)
    assert sum(part["gpu_seconds"] for part in parts) == pytest.approx(60)
    assert {part["wall_clock_s"] for part in parts} == {600}, "the searches run side by side"


def test_a_budget_goes_by_what_is_to_be_saved() -> None:
    found = chosen(opportunity("mlp", 700, 100), opportunity("norm", 210, 10), candidates=42)
    assert {name: region.budget for name, region in found.items()} == {
        "mlp": {"candidates": 31},
        "norm": {"candidates": 11},
    }
    assert all(region.reason is None for region in found.values())


def test_only_half_of_the_places_count_where_others_overlap() -> None:
    found = chosen(opportunity("mlp", 700, 100, counted=1))
    assert found["mlp"].saving_us == 300


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (opportunity("other", 50, 20, file=None, reason="it draws random numbers"), "no spec: it draws random numbers"),
        (opportunity("other", 500, 20, counted=0), "it overlaps regions that save more"),
        (opportunity("other", 20, 50, counted=0), "it takes no longer than the limit"),
        (opportunity("other", 50, 20), "it is not among the 1 that save most"),
    ],
)
def test_a_region_that_is_not_searched_says_why(other: dict[str, Any], why: str) -> None:
    found = chosen(opportunity("mlp", 700, 100), other, top=1)
    assert found["mlp"].reason is None
    assert (found["other"].reason, found["other"].budget) == (why, {})


@pytest.mark.parametrize("limit", COUNTS)
def test_no_more_regions_than_the_budget_has_candidates_calls_or_tokens(limit: str) -> None:
    found = chosen(opportunity("mlp", 700, 100), opportunity("norm", 210, 10), **{limit: 1})
    assert found["mlp"].budget == {limit: 1}
    assert found["norm"].reason == "it is not among the 1 that save most"


def measured(ci95: list[float] | None, **more: Any) -> dict[str, Any]:
    """The document of `warpsmith ablate` for one kernel that has a place."""
    gain = {"speedup": 1.2, "ci95": ci95, "saved_us": 20.0}
    return {
        "places": [{"kernel": "mlp_k", "replaced": True, "reason": None}],
        "brings": [{"kernel": "mlp_k", "alone": gain, "beside": gain}],
        "variants": [{"variant": "all", "agrees": True}],
        "unusable": {},
    } | more


def assessed(found: dict[str, Any]) -> CampaignRegion:
    (region,) = chosen(opportunity("mlp", 700, 100)).values()
    return plan.assess(region, "mlp_k", found)


def test_a_kernel_stays_where_the_model_is_surely_faster_with_it() -> None:
    region = assessed(measured([1.1, 1.3]))
    assert (region.kept, region.reason, region.served) == (True, None, 1)
    assert region.beside is not None
    assert region.beside.saved_us == 20.0


NO_PLACE = {"places": [{"kernel": "mlp_k", "replaced": False, "reason": "x.shape[0] is 64"}], "brings": []}


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (measured([0.99, 1.3]), "the model is not surely faster with it: 1.20x [0.99, 1.30]"),
        (measured(None), "too few rounds were timed to tell what it brings"),
        (
            measured([1.1, 1.3], variants=[{"variant": "all", "agrees": False}]),
            "the model's results do not agree with it",
        ),
        (measured(None, **NO_PLACE), "no place: x.shape[0] is 64"),
        (measured(None, **NO_PLACE, unusable={"mlp_k": "it works in place"}), "no place: it works in place"),
    ],
)
def test_a_kernel_that_does_not_pay_is_taken_out_with_the_reason(found: dict[str, Any], why: str) -> None:
    region = assessed(found)
    assert (region.kept, region.reason) == (False, why)


def test_a_kernel_by_itself_is_asked_whether_results_agree() -> None:
    """Beside a wrong one all together disagree: the right one is not blamed."""
    rows = [{"variant": "all", "agrees": False}, {"variant": "only mlp_k", "agrees": True}]
    assert assessed(measured([1.1, 1.3], variants=rows)).kept


def test_where_all_together_disagree_the_least_goes() -> None:
    small, large = (assessed(measured([1.1, 1.3])).model_copy(update={"name": name}) for name in ("small", "large"))
    assert large.beside is not None
    large = large.model_copy(update={"beside": large.beside.model_copy(update={"speedup": 2.0})})
    assert [one.kept for one in plan.drop_least([small, large])] == [False, True]

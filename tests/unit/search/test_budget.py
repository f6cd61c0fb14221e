"""Budgets: their documents, and what they still allow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.search.policy_play import accepted, root
from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.workers.llm.reply.parsing import MAX_REASKS
from warpsmith.workers.search.budget import (
    CALLS_PER_STEP,
    allowance,
    budget_document,
    exhausted,
    out_of_time,
    parse_budget,
    sweep_seconds_left,
)
from warpsmith.workers.search.policy_base import carry_on
from warpsmith.workers.search.tree import Budget, Spend, Tree

# All that end a search; `try_seconds` and `sweep_seconds` limit tries and sweeps alone.
LIMITS = ["candidates", "model_calls", "tokens", "cost_usd", "wall_clock_s", "gpu_seconds"]


def test_an_empty_budget_has_no_limits() -> None:
    assert parse_budget({}) == Budget()
    assert parse_budget({"candidates": None}) == Budget()
    assert exhausted(Budget(), Spend(candidates=10**9)) is None


@given(st.builds(Budget, candidates=st.none() | st.integers(1, 10**12), cost_usd=st.none() | st.floats(0.001, 1e9)))
def test_the_document_of_a_budget_reads_back(budget: Budget) -> None:
    assert parse_budget(budget_document(budget)) == budget


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("found", [0, -1, True, "10"])
def test_what_is_not_a_positive_number_is_refused(limit: str, found: object) -> None:
    with pytest.raises(SpecError) as caught:
        parse_budget({limit: found})
    assert caught.value.field == f"budget.{limit}"
    assert caught.value.found == found
    assert "from 1" in caught.value.expected or "above 0" in caught.value.expected


@pytest.mark.parametrize("found", [float("inf"), float("nan"), [1], 1e300])
def test_what_is_no_amount_is_refused(found: object) -> None:
    with pytest.raises(
        SpecError, match=r"^budget\.cost_usd: found .*, expected a number above 0 and at most 1000000000$"
    ):
        parse_budget({"cost_usd": found})


@pytest.mark.parametrize("limit", ["candidates", "model_calls", "tokens"])
def test_counts_are_whole(limit: str) -> None:
    with pytest.raises(SpecError, match=f"budget.{limit}: found 1.5, expected a whole number"):
        parse_budget({limit: 1.5})


def test_an_unknown_limit_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        SpecError,
        match=r"^budget\.judge_seconds: found 3, expected one of candidates, model_calls, tokens, cost_usd",
    ):
        parse_budget({"judge_seconds": 3})


def test_a_budget_that_is_no_object_is_refused() -> None:
    with pytest.raises(SpecError, match="budget: found 40, expected an object"):
        parse_budget(40)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_that_is_reached_is_named(limit: str) -> None:
    assert exhausted(Budget(**{limit: 7}), Spend(**{limit: 6})) is None
    assert exhausted(Budget(**{limit: 7}), Spend(**{limit: 7})) == f"the budget is used up: {limit} 7 of 7"


def test_the_calls_of_a_step_are_those_that_the_model_access_makes() -> None:
    assert CALLS_PER_STEP == 1 + MAX_REASKS


@pytest.mark.parametrize("limit", ["wall_clock_s", "gpu_seconds"])
def test_a_limit_of_time_ends_judging_too(limit: str) -> None:
    assert not out_of_time(Budget(**{limit: 7}), Spend(**{limit: 6.9}))
    assert out_of_time(Budget(**{limit: 7}), Spend(**{limit: 7.0}))
    assert not out_of_time(Budget(tokens=7), Spend(tokens=7))
    allowed = allowance(Tree([root()]), Budget(**{limit: 7}), Spend(**{limit: 8.0}))
    assert not allowed.screen()
    assert allowed.calls_for_step(candidates=1) is None
    assert allowed.reason == f"the budget is used up: {limit} 8 of 7"


def screens(budget: Budget, spend: Spend, *states: str) -> int:
    """Judge steps granted beside nodes in these states."""
    nodes = [accepted(seq, 1.0, state=state, verdict=None) for seq, state in enumerate(states, start=1)]
    allowed = allowance(Tree([root(), *nodes]), budget, spend)
    granted = 0
    while granted < 100 and allowed.screen():
        granted += 1
    return granted


def test_gpu_seconds_are_granted_at_the_mean_so_far() -> None:
    spend = Spend(candidates=10, gpu_seconds=50.0)
    assert screens(Budget(), spend) == 100
    assert screens(Budget(gpu_seconds=71.0), spend) == 4
    assert screens(Budget(gpu_seconds=71.0), spend, "judging", "judging") == 2
    assert screens(Budget(gpu_seconds=51.0), spend) == 1, "one always, while anything is left"
    assert screens(Budget(gpu_seconds=51.0), spend, "judging") == 0
    assert screens(Budget(gpu_seconds=50.0), spend) == 0


def test_before_the_first_candidate_the_baselines_are_the_measure() -> None:
    assert screens(Budget(gpu_seconds=60.0), Spend(gpu_seconds=20.0)) == 2
    assert screens(Budget(gpu_seconds=60.0), Spend()) == 100


def test_candidates_that_are_written_or_judged_hold_their_place() -> None:
    assert screens(Budget(candidates=5), Spend(candidates=1), "coding", "judging", "planned", "closed") == 2


def test_a_written_candidate_that_cannot_be_judged_now_keeps_its_place() -> None:
    # The device is busy with one, and takes 10 s for each: the written one waits, and one more place is left of four.
    nodes = [accepted(1, 1.0, state="judging", verdict=None), accepted(2, 1.0, state="coded", verdict=None)]
    nodes += [accepted(seq, 1.0, state="planned", verdict=None) for seq in (3, 4)]
    allowed = allowance(
        Tree([root(), *nodes]), Budget(candidates=4, gpu_seconds=15.0), Spend(candidates=1, gpu_seconds=10.0)
    )
    assert [(step.kind, step.node_id) for step in carry_on(nodes, allowed, 0)] == [("code", nodes[2].id)]


def test_the_seconds_of_sweeps_end_no_search_and_are_never_below_zero() -> None:
    budget = parse_budget({"sweep_seconds": 10})
    assert sweep_seconds_left(budget, 4.0) == 6.0
    assert sweep_seconds_left(budget, 11.0) == 0.0
    assert sweep_seconds_left(Budget(), 11.0) is None
    assert exhausted(budget, Spend(sweep_seconds=11.0, gpu_seconds=11.0)) is None
    assert not out_of_time(budget, Spend(sweep_seconds=11.0))

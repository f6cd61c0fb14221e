"""Budgets: their documents, and what they still allow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_db.spec_errors import SpecError
from workers.model.parsing import MAX_REASKS
from workers.search.budget import CALLS_PER_STEP, budget_document, exhausted, parse_budget
from workers.search.tree import Budget, Spend

LIMITS = ["candidates", "model_calls", "tokens", "cost_usd", "wall_clock_s"]


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
    with pytest.raises(SpecError, match=r"^budget\.cost_usd: found .*, expected a number above 0 and at most 1e\+09"):
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

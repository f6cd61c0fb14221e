"""Results of 16 bits that are rounded, and results that are cut."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.workers.judge.gates.verdict import wrong_value
from warpsmith.workers.judge.values.compare import Comparison, Tolerance, ToleranceBuilder, compare_floats, ulp
from warpsmith.workers.judge.values.rounding import DTYPES, FEWEST, nearer_to_zero


def exact(seed: int, count: int = 4096) -> torch.Tensor:
    return torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def cut(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    nearest = values.to(dtype)
    away = nearest.to(torch.float64).abs() > values.abs()
    return torch.where(away, (nearest.view(torch.int16) - 1).view(dtype), nearest)


def tolerance(dtype: torch.dtype, own: tuple[float, float] | None = None) -> Tolerance:
    builder = ToleranceBuilder(dtype, own)
    for seed in range(3):
        builder.add(exact(seed).to(dtype), exact(seed))
    return builder.finish()


def compared(found: torch.Tensor, wanted: torch.Tensor, limits: Tolerance) -> Comparison:
    return compare_floats(found, wanted, limits)


@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=st.integers(100, 10_000))
@settings(max_examples=25, deadline=None)
def test_a_cut_is_seen_and_a_rounding_passes_on_every_seed(dtype: torch.dtype, seed: int) -> None:
    wanted, limits = exact(seed), tolerance(dtype)
    assert compared(wanted.to(dtype), wanted, limits).passed
    found = compared(cut(wanted, dtype).view(64, 64), wanted.view(64, 64), limits)
    assert (found.passed, found.cut, found.kind) == (False, True, "wrong_value")
    assert found.index is not None
    at = 64 * found.index[0] + found.index[1]
    assert found.expected == wanted[at]
    assert abs(float(found.found or 0.0)) < abs(float(wanted[at]))
    assert found.wrong_elements == pytest.approx(int((cut(wanted, dtype) != wanted.to(dtype)).sum()), abs=4)  # but ties


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("units", [0.3, 0.6, 1.5])
def test_errors_of_any_size_that_have_no_direction_pass(dtype: torch.dtype, units: float) -> None:
    """As other orders of sums in 16 bits make them, where eager rounds once."""
    for seed in range(20):
        wanted = exact(seed + 50)
        off = (torch.rand(4096, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) - 0.5) * 2 * units
        nearer = nearer_to_zero((wanted + off * ulp(wanted, dtype)).to(dtype), wanted)
        assert nearer.different >= FEWEST
        assert not nearer.is_cut


@pytest.mark.parametrize("dtype", DTYPES)
def test_few_numbers_ties_and_what_is_exact_tell_nothing(dtype: torch.dtype) -> None:
    few = exact(1, FEWEST - 1).repeat(100)
    assert not nearer_to_zero(cut(few, dtype), few).is_cut  # a constant that lies badly is no cut
    ties = 1.0 + (2 * torch.arange(4096, dtype=torch.float64) + 1) * torch.finfo(dtype).eps / 2
    assert nearer_to_zero(ties[ties < 2].to(dtype), ties[ties < 2]).telling == 0
    even = exact(2).to(dtype).to(torch.float64)
    assert nearer_to_zero(even.to(dtype), even).telling == 0
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e300], dtype=torch.float64)
    assert nearer_to_zero(special.to(dtype), special).telling == 0


def test_who_rounds_less_than_eager_is_not_asked_where_eager_cuts_or_the_op_says_its_tolerance() -> None:
    wanted, dtype = exact(7), torch.bfloat16
    builder = ToleranceBuilder(dtype)
    builder.add(cut(wanted, dtype), wanted)
    assert compared(cut(wanted, dtype), wanted, builder.finish()).passed
    assert compared(cut(wanted, dtype), wanted, tolerance(dtype, (1e-2, 1e-2))).passed


def test_it_is_told_as_what_it_is() -> None:
    wanted, dtype = exact(7), torch.float16
    failure = wrong_value(compared(cut(wanted, dtype), wanted, tolerance(dtype)), "w", "y", own=False)
    assert "y is cut toward zero and not rounded to the nearest number" in failure["message"]
    assert failure["pattern"].startswith("cut toward zero")
    assert "relative_l2" not in failure

"""The tolerance: derived from float64 and eager's own error, the same for the same seeds, blind to nothing."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.kernels_db.job import float64
from warpsmith.workers.judge.values import compare
from warpsmith.workers.judge.values.compare import (
    Tolerance,
    ToleranceBuilder,
    compare_exactly,
    compare_floats,
    group_edges,
    ulp,
    unit_roundoff,
)

FLOATS = [torch.float32, torch.bfloat16, torch.float16]


def _pair(seed: int, count: int = 4096, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    """A float64 result and what arithmetic in `dtype` makes of it: half a unit of error on top of rounding."""
    generator = torch.Generator().manual_seed(seed)
    exact = torch.randn(count, dtype=torch.float64, generator=generator)
    noise = (torch.rand(count, dtype=torch.float64, generator=generator) - 0.5) * ulp(exact, dtype)
    return (exact + noise).to(dtype), exact


def _tolerance(dtype: torch.dtype = torch.float32, seeds: int = 3, own: tuple[float, float] | None = None) -> Tolerance:
    builder = ToleranceBuilder(dtype, own)
    for seed in range(seeds):
        builder.add(*_pair(seed, dtype=dtype))
    return builder.finish()


@pytest.mark.parametrize("dtype", FLOATS)
def test_ulp_is_the_distance_to_the_next_number(dtype: torch.dtype) -> None:
    values = torch.tensor([1.0, 1.5, 3.0, 0.25, -7.0], dtype=torch.float64)
    narrow = values.to(dtype)
    bits = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
    neighbour = (narrow.abs().view(bits) + 1).view(dtype)
    assert torch.equal(ulp(values, dtype), neighbour.to(torch.float64) - narrow.abs().to(torch.float64))


def test_ulp_of_zero_is_the_smallest_subnormal() -> None:
    assert float(ulp(torch.zeros(1, dtype=torch.float64), torch.float32)) == 2.0**-149


@pytest.mark.parametrize("dtype", FLOATS)
@given(seed=st.integers(100, 10_000))
@settings(max_examples=25, deadline=None)
def test_arithmetic_of_the_same_quality_passes_on_every_seed(dtype: torch.dtype, seed: int) -> None:
    found, exact = _pair(seed, dtype=dtype)
    assert compare_floats(found, exact, _tolerance(dtype)).passed


@given(seed=st.integers(0, 10_000), data=st.data())
@settings(max_examples=50, deadline=None)
def test_one_wrong_element_is_found_and_named(seed: int, data: st.DataObject) -> None:
    found, exact = _pair(seed)
    tolerance = _tolerance()
    at = data.draw(st.integers(0, found.numel() - 1))
    factor = data.draw(st.sampled_from([-3.0, 1.5, 10.0, 1e6]))
    limit = float(tolerance.limits(exact[at : at + 1], torch.float32))
    found[at] = float(exact[at]) + factor * limit
    comparison = compare_floats(found.view(64, 64), exact.view(64, 64), tolerance)
    assert not comparison.passed
    assert comparison.kind == "wrong_value"
    assert comparison.index == [at // 64, at % 64]
    assert comparison.wrong_elements == 1
    assert comparison.expected == float(exact[at])
    assert comparison.found == float(found[at])


@given(st.permutations(range(3)))
@settings(deadline=None)
def test_the_tolerance_does_not_depend_on_the_order_of_later_seeds(order: list[int]) -> None:
    first, second = ToleranceBuilder(torch.float32), ToleranceBuilder(torch.float32)
    first.add(*_pair(99))
    second.add(*_pair(99))
    for one, other in zip(range(3), order, strict=True):
        first.add(*_pair(one))
        second.add(*_pair(other))
    left, right = first.finish(), second.finish()
    assert left.l2 == right.l2
    assert torch.equal(left.element, right.element)
    assert torch.equal(left.edges, right.edges)


@pytest.mark.parametrize(("dtype", "times"), [(torch.float32, 8), (torch.float64, 8), (torch.bfloat16, 1)])
def test_an_exact_eager_leaves_the_roundoff_of_a_sum_in_another_order(dtype: torch.dtype, times: int) -> None:
    """The norm of PyTorch's own compiled softmax is 6.4 units of roundoff off on a CPU, its eager one 1.6."""
    exact = _pair(11)[1].to(dtype).to(torch.float64)
    builder = ToleranceBuilder(dtype)
    builder.add(exact.to(dtype), exact)
    assert builder.finish().l2 == times * torch.finfo(dtype).eps / 2


@pytest.mark.parametrize("narrow", [torch.bfloat16, torch.float16])
def test_lower_precision_is_not_float32(narrow: torch.dtype) -> None:
    _, exact = _pair(7)
    assert not compare_floats(exact.to(narrow).to(torch.float32), exact, _tolerance()).passed


def test_zeros_fail_where_outputs_are_tiny() -> None:
    exact = torch.full((4096,), 1e-9, dtype=torch.float64) * (1 + torch.rand(4096, dtype=torch.float64))
    builder = ToleranceBuilder(torch.float32)
    builder.add(exact.to(torch.float32), exact)
    comparison = compare_floats(torch.zeros(4096), exact, builder.finish())
    assert comparison.wrong_elements == 4096


def test_a_large_error_among_large_values_excuses_none_among_small_ones() -> None:
    exact = torch.cat([torch.full((2048,), 1e4), torch.full((2048,), 1e-3)]).to(torch.float64)
    exact = exact * (1 + 0.1 * torch.rand(4096, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))
    eager = exact.clone()
    eager[:2048] += 0.5
    builder = ToleranceBuilder(torch.float32)
    builder.add(eager.to(torch.float32), exact)
    found = exact.to(torch.float32)
    found[-1] += 0.01
    assert compare_floats(found, exact, builder.finish()).wrong_elements == 1


def test_zeros_of_a_relu_belong_to_the_smallest_group() -> None:
    exact = torch.randn(4096, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).relu()
    edges = group_edges(exact)
    assert float(edges[0]) > 0
    builder = ToleranceBuilder(torch.float32)
    builder.add(exact.to(torch.float32), exact)
    assert compare_floats(exact.to(torch.float32), exact, builder.finish()).passed


@pytest.mark.parametrize(
    ("wanted", "got", "passes"),
    [
        (math.nan, math.nan, True),
        (math.inf, math.inf, True),
        (-math.inf, -math.inf, True),
        (math.inf, -math.inf, False),
        (math.nan, 1.0, False),
        (1.0, math.nan, False),
        (math.inf, math.nan, False),
        (1.0, math.inf, False),
        (math.inf, 3e38, False),
        (1e39, math.inf, True),  # beyond float32: the reference rounds to infinity
        (1e39, 3.4e38, False),
    ],
)
def test_non_finite_values_must_be_expected_ones(wanted: float, got: float, passes: bool) -> None:
    found, exact = _pair(3)
    exact[17], found[17] = wanted, got
    comparison = compare_floats(found, exact, _tolerance())
    assert comparison.passed is passes
    if not passes:
        assert comparison.index == [17]


def test_unwritten_output_is_told_apart() -> None:
    found, exact = _pair(4)
    found[5:7] = torch.tensor([-1, -1], dtype=torch.int32).view(torch.float32)
    comparison = compare_floats(found, exact, _tolerance())
    assert comparison.kind == "not_written"
    assert comparison.wrong_elements == 2


def test_a_small_error_everywhere_fails_the_norm() -> None:
    """Each element is within its own bound, which allows the worst of its group; all of them together are not."""
    found, exact = _pair(5, dtype=torch.bfloat16)
    tolerance = _tolerance(torch.bfloat16)
    shifted = exact + 0.8 * tolerance.limits(exact, torch.bfloat16)
    comparison = compare_floats(shifted.to(torch.bfloat16), exact, tolerance)
    assert not comparison.passed
    assert comparison.wrong_elements == 0
    assert comparison.l2 > comparison.l2_limit
    assert compare_floats(found, exact, tolerance).passed


def test_an_ops_own_tolerance_replaces_the_derived_one() -> None:
    found, exact = _pair(6)
    loose, tight = _tolerance(own=(1e-2, 1e-2)), _tolerance(own=(0.0, 1e-12))
    assert compare_floats((exact * 1.005).to(torch.float32), exact, loose).passed
    assert not compare_floats((exact * 1.05).to(torch.float32), exact, loose).passed
    assert not compare_floats(found, exact, tight).passed


def test_the_largest_error_of_an_element_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "SLICE", 1000)
    expected = torch.randn(4096, dtype=torch.float64)
    found = expected.float()
    found[1234] += 0.25
    own = (found.double() - expected).abs().max().item()
    assert compare_floats(found, expected, _tolerance(own=(0.0, 0.5))).largest == own
    expected[7] = math.inf
    found[7] = math.inf
    assert compare_floats(found, expected, _tolerance(own=(0.0, 0.5))).largest == own
    assert compare.compare_exactly(torch.arange(3), torch.arange(3)).largest == 0.0


def test_exactness_is_to_the_rounded_reference() -> None:
    _, exact = _pair(8)
    tolerance = _tolerance(own=(0.0, 0.0))
    found = exact.to(torch.float32)
    assert compare_floats(found, exact, tolerance).passed
    found[3] = torch.nextafter(found[3], torch.tensor(9.0))
    assert compare_floats(found, exact, tolerance).index == [3]


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=50), st.data())
def test_integers_compare_exactly(values: list[int], data: st.DataObject) -> None:
    expected = torch.tensor(values, dtype=torch.int32)
    assert compare_exactly(expected.clone(), expected).passed
    at = data.draw(st.integers(0, len(values) - 1))
    found = expected.clone()
    found[at] = found[at] ^ 1
    comparison = compare_exactly(found, expected)
    assert comparison.index == [at]
    assert comparison.found == int(found[at])
    assert comparison.expected == values[at]


def test_a_boolean_that_is_neither_is_wrong() -> None:
    expected = torch.tensor([True, False, True])
    found = torch.tensor([1, 0, 0xA5], dtype=torch.uint8).view(torch.bool)
    comparison = compare_exactly(found, expected)
    assert comparison.index == [2]
    assert comparison.kind == "not_written"


@pytest.mark.parametrize("size", [10, 4096])
def test_slices_change_nothing(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found, exact = _pair(9)
    found[4000] += 1
    tolerance = _tolerance()
    whole = compare_floats(found, exact, tolerance)
    monkeypatch.setattr(compare, "SLICE", size)
    parts = compare_floats(found, exact, tolerance)
    assert parts.index == whole.index == [4000]
    assert parts.wrong_elements == whole.wrong_elements
    assert parts.l2 == pytest.approx(whole.l2)


def test_first_difference_sees_bits() -> None:
    nan = torch.tensor([1.0, math.nan])
    assert compare.first_difference(nan, nan.clone()) is None
    assert compare.first_difference(torch.tensor([[0.0, 1.0]]), torch.tensor([[-0.0, 1.0]])) == [0, 0]


def test_another_order_of_summation_is_no_difference_but_noise_is() -> None:
    values = torch.randn(4096, generator=torch.Generator().manual_seed(3))
    assert not compare.differs(values, values * (1 + 2e-7))
    assert compare.differs(values, torch.randn(4096, generator=torch.Generator().manual_seed(4)))
    assert compare.differs(torch.tensor([1, 2]), torch.tensor([1, 3]))


@given(st.floats(width=32, allow_nan=True, allow_infinity=True))
def test_rounding_to_tf32_keeps_ten_bits_and_what_is_no_number(value: float) -> None:
    rounded = float64.rounded_to_tf32(torch.tensor([value], dtype=torch.float32))
    assert rounded is not None
    if not math.isfinite(value):
        assert str(float(rounded)) == str(value)
        return
    assert int(rounded.view(torch.int32)) & 0x1FFF == 0
    if 2.0**-126 <= abs(value) < 3.0e38:
        assert abs(float(rounded) - value) <= 2.0**-11 * abs(value)
    assert float64.rounded_to_tf32(None) is None
    narrow = float64.rounded_to_tf32(torch.tensor([1.0009765625], dtype=torch.bfloat16))
    assert narrow is not None
    assert narrow.dtype == torch.bfloat16


def _noisy(relative: float, times: float) -> tuple[compare.Comparison, float]:
    """What is said of a result `times` as wrong as eager's, whose relative L2 error is about `relative`; float32."""
    generator = torch.Generator().manual_seed(5)
    exact = torch.randn(4096, dtype=torch.float64, generator=generator)
    error = torch.randn(4096, dtype=torch.float64, generator=generator) * relative
    builder = ToleranceBuilder(torch.float32)
    builder.add((exact + error).to(torch.float32), exact)
    tolerance = builder.finish()
    return compare_floats((exact + times * error).to(torch.float32), exact, tolerance), tolerance.eager_l2


@pytest.mark.parametrize(("units", "allowed"), [(4, 8), (1000, 4)])
def test_a_summation_may_cost_eight_times_eagers_error_and_narrower_arithmetic_four(units: int, allowed: int) -> None:
    """Eager's error of a few units of roundoff depends on the order of a sum; one of thousands is TF32's."""
    relative = units * unit_roundoff(torch.float32)
    right, eager_l2 = _noisy(relative, 0.9 * allowed)
    assert right.passed
    assert right.l2_limit == pytest.approx(allowed * eager_l2)
    assert not _noisy(relative, 1.5 * allowed)[0].passed


def test_a_product_summed_in_one_chain_passes_where_eager_splits_the_sum() -> None:
    """64 x 1000 x 48: libraries on a GPU give each of 32 parts of so long a sum to another block."""
    generator = torch.Generator().manual_seed(6)
    a, b = torch.randn(64, 1000, generator=generator), torch.randn(1000, 48, generator=generator)
    exact = a.double() @ b.double()
    builder = ToleranceBuilder(torch.float32)
    builder.add(torch.stack([p @ q for p, q in zip(a.split(32, 1), b.split(32, 0), strict=True)]).sum(0), exact)
    chain = torch.zeros(64, 48)
    for k in range(1000):
        chain = chain + a[:, k, None] * b[None, k]
    tolerance = builder.finish()
    assert compare_floats(chain, exact, tolerance).passed
    narrow = (a.bfloat16().float() @ b.bfloat16().float()).float()
    assert not compare_floats(narrow, exact, tolerance).passed

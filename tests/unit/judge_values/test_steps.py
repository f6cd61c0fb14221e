"""Results that have steps: which values are right, and what is wrong however near it looks."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.jobs import output, tensor, workload
from tests.support.in_process import InProcess
from warpsmith.workers.judge.reference import near_results
from warpsmith.workers.judge.values.compare import Tolerance, ToleranceBuilder
from warpsmith.workers.judge.values.steps import (
    ELSEWHERE,
    HOPELESS_AFTER,
    Steps,
    alike,
    compare_result,
    compare_steps,
    elsewhere,
    wrong_elements,
)


def steps(*others: torch.Tensor, between: bool = True, distinct: int | None = None) -> Steps:
    return Steps(lambda: iter(others), between, None, distinct)


def whole(*values: int, dtype: torch.dtype = torch.int8) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


@given(st.lists(st.integers(-100, 100), min_size=1, max_size=20), st.data())
def test_a_value_is_right_where_it_lies_between_right_ones(right: list[int], data: st.DataObject) -> None:
    other = [value + data.draw(st.integers(-3, 3)) for value in right]
    found = [data.draw(st.integers(value - 4, value + 4)) for value in right]
    told = wrong_elements(whole(*found), whole(*right), steps(whole(*other)))
    assert told.tolist() == [
        not min(one, also) <= value <= max(one, also) for value, one, also in zip(found, right, other, strict=True)
    ]


def test_a_running_sum_for_another_device_may_round_where_this_one_does_not() -> None:
    terms = torch.randn(1000, generator=torch.Generator().manual_seed(1))
    wide, here = terms.to(torch.float64).cumsum(0), terms.cumsum(0)  # which keeps its sum in float64 on a CPU
    builder = ToleranceBuilder(torch.float32)
    builder.add(here, wide)
    limit, plain = builder.finish(), terms.clone()
    for at in range(1, len(terms)):
        plain[at] += plain[at - 1]
    assert not compare_result(plain, wide, limit).passed
    assert compare_result(plain, wide, elsewhere(limit, plain)).passed
    assert not compare_result(plain + 1e-3, wide, elsewhere(limit, plain)).passed


def test_only_derived_limits_of_floats_of_32_bits_are_wider_elsewhere() -> None:
    edges = torch.zeros(0, dtype=torch.float64)
    limit = Tolerance(1e-7, 1e-6, edges, torch.tensor([1e-6], dtype=torch.float64))
    wider = elsewhere(limit, torch.zeros(1))
    assert isinstance(wider, Tolerance)
    assert (wider.l2, wider.ulps, wider.element.tolist()) == (ELSEWHERE * 1e-6, ELSEWHERE, [ELSEWHERE * 1e-6])
    assert elsewhere(limit, torch.zeros(1, dtype=torch.bfloat16)) is limit
    own = Tolerance(1e-7, 1e-6, edges, torch.zeros(1), own=(1e-3, 1e-3))
    assert elsewhere(own, torch.zeros(1)) is own
    right = steps(whole(1))
    assert elsewhere(right, whole(1)) is right
    assert elsewhere(None, whole(1)) is None


def test_an_index_between_two_right_ones_is_wrong() -> None:
    right, other = whole(3, 7, dtype=torch.int64), whole(9, 7, dtype=torch.int64)
    assert compare_steps(whole(9, 7, dtype=torch.int64), right, steps(other, between=False)).passed
    found = compare_steps(whole(5, 7, dtype=torch.int64), right, steps(other, between=False))
    assert (found.passed, found.index, found.found, found.expected, found.wrong_elements) == (False, [0], 5, 3, 1)


def test_an_index_may_not_come_twice() -> None:
    right, other = torch.tensor([[4, 6], [1, 2]]), torch.tensor([[6, 4], [1, 2]])
    assert compare_steps(other, right, steps(other, between=False, distinct=1)).passed
    assert not compare_steps(torch.tensor([[4, 4], [1, 2]]), right, steps(other, between=False, distinct=1)).passed


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_a_step_of_an_8_bit_float_is_wrong_away_from_a_boundary(dtype: torch.dtype) -> None:
    wide = torch.tensor([1.0, -2.0, 0.0, float("nan")], dtype=torch.float64)
    right = wide.to(dtype)
    assert compare_steps(right, wide, steps()).passed
    next_one = right.clone().view(torch.uint8)
    next_one[0] += 1
    assert not compare_steps(next_one.view(dtype), wide, steps()).passed
    assert compare_steps(next_one.view(dtype), wide, steps(next_one.view(dtype))).passed


def test_nothing_lies_between_a_number_and_nan() -> None:
    wide = torch.tensor([448.0], dtype=torch.float64)
    overflown = torch.tensor([float("nan")]).to(torch.float8_e4m3fn)
    assert compare_steps(overflown, wide, steps(overflown)).passed
    assert not compare_steps(torch.tensor([1.0]).to(torch.float8_e4m3fn), wide, steps(overflown)).passed


def test_a_byte_that_is_no_boolean_is_wrong_and_named_as_not_written() -> None:
    found = torch.tensor([0xA5, 1], dtype=torch.uint8).view(torch.bool)
    both = steps(torch.tensor([False, True]), torch.tensor([True, True]))
    told = compare_steps(found, torch.tensor([True, True]), both)
    assert (told.passed, told.kind, told.found) == (False, "not_written", 0xA5)


def test_a_hopeless_result_is_not_compared_with_every_right_one() -> None:
    made = 0

    def others() -> object:
        nonlocal made
        for _ in range(100):
            made += 1
            yield torch.zeros(99, dtype=torch.int8)

    assert not compare_steps(torch.ones(99, dtype=torch.int8), torch.zeros(99, dtype=torch.int8), Steps(others)).passed  # type: ignore[arg-type]
    assert made == HOPELESS_AFTER + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2])
def test_nan_is_like_nan(dtype: torch.dtype) -> None:
    values, others = torch.tensor([[1.0, float("nan"), 2.0], [2.0, float("nan"), float("nan")]]).to(dtype)
    assert alike(values, values).all()
    assert alike(values, others).tolist() == [False, True, False]


QUANTIZED = """import torch

def run(x):
    scale = x.abs().amax(-1, keepdim=True) / 448.0
    return (x / scale).to(torch.float8_e4m3fn)
"""


def test_what_lies_at_a_boundary_is_right_however_few_results_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row's other elements are multiples of its largest by small fractions, so thousands of quotients are ties."""
    monkeypatch.setattr(near_results, "MOST_BYTES", 1)
    shape = (256, 1024)
    where = workload("rows", "test", [tensor("x", shape)], [output("y", shape, dtype="float8_e4m3fn")])
    x = torch.randint(-512, 513, shape, generator=torch.Generator().manual_seed(1)).to(torch.float32)
    x[:, 0] = 512.0 * 1.75
    runners = InProcess(QUANTIZED)
    limit = Steps(partial(near_results.NearResults(runners, where, [x], [0]).of, 0))
    [expected] = runners.run("float64", where, [x])
    scale = torch.nextafter(x.abs().amax(-1, keepdim=True) / 448.0, torch.tensor(torch.inf))
    found = (x / scale).to(torch.float8_e4m3fn)
    assert int((found.float() != expected.to(found.dtype).float()).sum()) > 1000
    assert compare_steps(found, expected, limit).passed
    found.view(torch.uint8)[7, 9] ^= 2  # two steps
    assert compare_steps(found, expected, limit).wrong_elements == 1


@pytest.mark.nightly  # nine seconds on two cores
def test_millions_of_ties_are_right_either_way() -> None:
    """Every quotient is a tie, and all are rounded away from the even neighbour."""
    shape = (1024, 2048)
    where = workload("rows", "test", [tensor("x", shape)], [output("y", shape, dtype="float8_e4m3fn")])
    x = torch.full(shape, 42.0)
    x[:, 0] = 448.0
    runners = InProcess(QUANTIZED)
    limit = Steps(partial(near_results.NearResults(runners, where, [x], [0]).of, 0))
    [expected] = runners.run("float64", where, [x])
    found = (x * (1.0 + 2.0**-23)).clamp(max=448.0).to(torch.float8_e4m3fn)
    assert int((found.float() != expected.to(found.dtype).float()).sum()) > 2_000_000
    assert compare_steps(found, expected, limit).passed

"""New numbers for every call: of the same distribution, and none that was there before."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from warpsmith.kernels_db.job import draws
from warpsmith.workers.judge.values import fresh_inputs


def _stock(dist: dict[str, Any], elements: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return draws.draw(dist, (elements,), dtype, torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "dist",
    [
        {"kind": "normal"},
        {"kind": "normal", "mean": 3.0, "std": 0.5},
        {"kind": "uniform"},
        {"kind": "uniform", "low": -2.0, "high": 5.0},
    ],
)
def test_numbers_are_new_and_their_distribution_is_the_same(dist: dict[str, Any]) -> None:
    stock, choose = _stock(dist, 60_000), random.Random(2)
    calls = [fresh_inputs.independent(dist, stock, 50_000, choose) for _ in range(6)]
    for values in calls:
        assert float(values.mean()) == pytest.approx(float(stock.mean()), abs=0.05)
        assert float(values.std()) == pytest.approx(float(stock.std()), rel=0.03)
        for share in (0.05, 0.5, 0.95):
            wanted = float(stock.quantile(share))
            assert float(values.quantile(share)) == pytest.approx(wanted, abs=0.05 * float(stock.std()) + 0.02)
    # There are but 2^24 numbers of one magnitude, so that some meet by chance.
    known = set(calls[0].tolist()) | set(stock.tolist())
    for values in calls[1:]:
        assert len(known.intersection(values.tolist())) < 5_000
        known.update(values.tolist())


@given(
    st.floats(-5, 5), st.floats(0.01, 9), st.sampled_from([torch.float16, torch.bfloat16, torch.float32]), st.integers()
)
@settings(max_examples=50, deadline=None)
def test_uniform_numbers_stay_in_their_range(low: float, span: float, dtype: torch.dtype, seed: int) -> None:
    dist = {"kind": "uniform", "low": low, "high": low + span}
    values = fresh_inputs.independent(dist, _stock(dist, 4000, dtype), 1000, random.Random(seed)).double()
    edge = 0.02 * max(abs(low), abs(low + span))  # bfloat16 rounds the limits themselves
    assert low - edge <= float(values.min())
    assert float(values.max()) <= low + span + edge


@pytest.mark.parametrize("length", [1, 7, 1000, fresh_inputs.DRAWN_ANEW + 3])
def test_a_permutation_stays_one_and_is_new(length: int) -> None:
    dist, generator, choose = {"kind": "permutation"}, torch.Generator().manual_seed(1), random.Random(3)
    variants = [draws.draw(dist, (length,), torch.int64, generator) for _ in range(2)]
    calls = [fresh_inputs.structured(dist, variants, generator, choose) for _ in range(5)]
    for values in calls:
        assert torch.equal(values.sort().values, torch.arange(length))
    if length > 100:
        assert len({tuple(values[:8].tolist()) for values in [*variants, *calls]}) == 7


@pytest.mark.parametrize(("dist", "shape"), [({"kind": "spd"}, (9, 9)), ({"kind": "indptr", "total": 50_000}, (300,))])
def test_small_structured_values_are_drawn_anew(dist: dict[str, Any], shape: tuple[int, ...]) -> None:
    generator, choose = torch.Generator().manual_seed(1), random.Random(3)
    dtype = torch.float32 if dist["kind"] == "spd" else torch.int64
    variants = [draws.draw(dist, shape, dtype, generator) for _ in range(2)]
    calls = [fresh_inputs.structured(dist, variants, generator, choose) for _ in range(5)]
    assert all(values.shape == shape and values.dtype == dtype for values in calls)
    assert len({tuple(values.flatten().tolist()) for values in [*variants, *calls]}) == 7


def test_a_constant_is_itself() -> None:
    constant = torch.full((4,), 2.5)
    assert fresh_inputs.structured({"kind": "constant"}, [constant], torch.Generator(), random.Random(1)) is constant


def test_the_same_seed_gives_the_same_numbers() -> None:
    stock = _stock({"kind": "normal"}, 3000)
    one, other = (fresh_inputs.independent({"kind": "normal"}, stock, 2000, random.Random(7)) for _ in range(2))
    assert torch.equal(one, other)

"""New values for every call: of the distribution that the spec declares, and none that was there before."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests import judging
from warpsmith.kernels_db.job.memory import BLOCK, DRAWN_ANEW, STOCK
from warpsmith.workers.judge.machine.buffers import TensorSpec
from warpsmith.workers.judge.values import fresh_inputs
from warpsmith.workers.judge.values.inputs import InputSource

CALLS, WINDOW = 500, 64
LARGE = DRAWN_ANEW + 5_000
"""Elements of a tensor that is mixed from a stock where its kind is."""


def no_code(source: str, spec: TensorSpec, seed: int) -> torch.Tensor:
    raise AssertionError("no code runs here")


def source(dist: dict[str, Any], shape: tuple[int, ...], dtype: str = "float32", seed: int = 5) -> InputSource:
    return InputSource([judging.tensor("x", shape, dtype=dtype, **dist)], seed, no_code)


def drawn(dist: dict[str, Any], shape: tuple[int, ...], dtype: str = "float32", calls: int = CALLS) -> Iterator[Any]:
    """The tensors of so many calls."""
    made = source(dist, shape, dtype)
    for _ in range(calls):
        (value,) = made.draw()
        assert value is not None
        assert tuple(value.shape) == shape
        assert value.dtype == getattr(torch, dtype)
        yield value


NORMAL, UNIFORM = {"kind": "normal", "mean": 3.0, "std": 0.5}, {"kind": "uniform", "low": -2.0, "high": 5.0}
MASK, NUMBERS = {"kind": "bernoulli", "p": 0.3}, {"kind": "randint", "low": -3, "high": 40}
KINDS: list[tuple[str, dict[str, Any], tuple[int, ...], str]] = [
    ("normal", {"kind": "normal"}, (1_000,), "float32"),
    ("normal, mixed", {"kind": "normal"}, (5_000,), "float32"),
    ("normal, narrow", NORMAL, (5_000,), "bfloat16"),
    ("normal, float8", {"kind": "normal"}, (5_000,), "float8_e4m3fn"),
    ("uniform", {"kind": "uniform"}, (1_000,), "float32"),
    ("uniform, mixed", UNIFORM, (5_000,), "float32"),
    ("uniform, narrow", UNIFORM, (5_000,), "float16"),
    ("integers", NUMBERS, (5_000,), "int64"),
    ("bytes", {"kind": "randint", "low": 0, "high": 2}, (5_000,), "uint8"),
    ("booleans", MASK, (5_000,), "bool"),
    ("permutation", {"kind": "permutation"}, (1_000,), "int64"),
    ("permutation, large", {"kind": "permutation"}, (5_000,), "int32"),
    ("indptr", {"kind": "indptr", "total": 10_000_000}, (1_000,), "int64"),
    ("ends", {"kind": "ends", "total": 10_000_000}, (1_000,), "int64"),
    ("spd", {"kind": "spd"}, (24, 24), "float32"),
]
SMALL_BLOCK = 1_500
SAME_ONCE_SORTED = {"permutation", "permutation, large", "bytes", "booleans"}
"""A permutation is always that, and what is left of a mask is how many of it are set."""


FACTORS = np.random.default_rng(1).integers(1, 1 << 63, WINDOW, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


def bits(value: torch.Tensor) -> np.ndarray[Any, Any]:
    """The bits of each element, as a number."""
    flat = value.flatten().view(torch.uint8).numpy()
    return flat.view(f"u{value.element_size()}").astype(np.uint64)


def in_any_order(numbers: np.ndarray[Any, Any]) -> int:
    """A hash of what is in a tensor once sorted: the sum of each element's own hash."""
    mixed = (numbers + np.uint64(1)) * FACTORS[0]
    mixed = (mixed ^ (mixed >> np.uint64(29))) * FACTORS[1]
    return int((mixed ^ (mixed >> np.uint64(32))).sum())


def longest_equal(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> int:
    """The most elements in a row that are equal."""
    different = np.flatnonzero(one != other)
    return int(np.diff(different, prepend=-1, append=len(one)).max()) - 1


@pytest.mark.parametrize(("kind", "dist", "shape", "dtype"), KINDS, ids=[kind[0] for kind in KINDS])
def test_no_value_comes_twice(
    kind: str, dist: dict[str, Any], shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not as a whole, not once sorted, and no WINDOW elements at the same place.

    WINDOW equal elements hold WINDOW / 2 that start at a multiple of that: only tensors that have such a part in common
    are compared whole. What is mixed from a stock is so in blocks of SMALL_BLOCK here.
    """
    monkeypatch.setattr(fresh_inputs, "DRAWN_ANEW", SMALL_BLOCK)
    monkeypatch.setattr(fresh_inputs, "BLOCK", SMALL_BLOCK)
    half = WINDOW // 2
    parts, contents = [], set()
    for value in drawn(dist, shape, dtype):
        numbers = bits(value)
        contents.add(in_any_order(numbers))
        parts.append((numbers[: len(numbers) // half * half].reshape(-1, half) * FACTORS[:half]).sum(axis=1))
    hashes = np.stack(parts)
    assert len({row.tobytes() for row in hashes}) == CALLS
    if kind not in SAME_ONCE_SORTED:
        assert len(contents) == CALLS
    order = hashes.argsort(axis=0)
    ranked = np.take_along_axis(hashes, order, axis=0)
    calls, places = np.nonzero(ranked[1:] == ranked[:-1])
    pairs = {(int(order[call, place]), int(order[call + 1, place])) for call, place in zip(calls, places, strict=True)}
    assert len(pairs) < 10  # of a mask, by chance
    if pairs:
        kept = [bits(value) for value in drawn(dist, shape, dtype)]
        assert max(longest_equal(kept[one], kept[other]) for one, other in pairs) < WINDOW


@pytest.mark.parametrize("shape", [(6_000,), (3 * BLOCK + 77,)])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
@pytest.mark.parametrize("dist", [{"kind": "normal"}, NORMAL, {"kind": "uniform"}, UNIFORM])
def test_floating_values_have_the_declared_distribution(
    dist: dict[str, Any], shape: tuple[int, ...], dtype: str
) -> None:
    """Equally many of a hundred equally likely ranges, by chi-squared, and no value beyond the limits."""
    values = torch.cat([value.double() for value in drawn(dist, shape, dtype, calls=4)])
    if dist["kind"] == "normal":
        mean, std = dist.get("mean", 0.0), dist.get("std", 1.0)
        edges = torch.special.ndtri(torch.arange(1, 20, dtype=torch.float64) / 20) * std + mean
    else:
        low, high = dist.get("low", 0.0), dist.get("high", 1.0)
        mean, std = (low + high) / 2, (high - low) / 12**0.5
        edges = torch.linspace(low, high, 21, dtype=torch.float64)[1:-1]
        assert low <= float(values.min())
        assert float(values.max()) <= high
    assert float(values.mean()) == pytest.approx(mean, abs=6 * std / len(values) ** 0.5 + 1e-3 * std)
    assert float(values.std()) == pytest.approx(std, rel=6 / len(values) ** 0.5)
    if dtype in ("float64", "float32"):  # narrow ones have values on the edges
        counts = torch.bucketize(values, edges).bincount(minlength=20).double()
        expected = len(values) / 20
        chi_squared = float(((counts - expected) ** 2 / expected).sum())
        assert chi_squared < 19 + 6 * (2 * 19) ** 0.5 * (1 if shape[0] <= DRAWN_ANEW else 2)


@pytest.mark.parametrize(
    ("dist", "dtype", "weights"),
    [
        (NUMBERS, "int64", dict.fromkeys(range(-3, 40), 1 / 43)),
        ({"kind": "randint", "low": -128, "high": 128}, "int8", dict.fromkeys(range(-128, 128), 1 / 256)),
        (MASK, "bool", {0: 0.7, 1: 0.3}),
        ({"kind": "bernoulli", "p": 0.01}, "float32", {0: 0.99, 1: 0.01}),
    ],
)
def test_integers_and_masks_have_the_declared_counts(
    dist: dict[str, Any], dtype: str, weights: dict[int, float]
) -> None:
    values = torch.cat([value.long() for value in drawn(dist, (LARGE,), dtype, calls=4)])
    assert set(values.unique().tolist()) == set(weights)
    low = min(weights)
    counts = (values - low).bincount().tolist()
    chi_squared = sum(
        (counts[number - low] - len(values) * weight) ** 2 / (len(values) * weight)
        for number, weight in weights.items()
    )
    freedom = len(weights) - 1
    assert chi_squared < freedom + 6 * (2 * freedom) ** 0.5


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 1000), (DRAWN_ANEW + 3,), (2, DRAWN_ANEW + 3)])
def test_a_permutation_is_one_in_every_row(shape: tuple[int, ...]) -> None:
    for values in drawn({"kind": "permutation"}, shape, "int64", calls=3):
        assert torch.equal(values.sort(-1).values, torch.arange(shape[-1]).expand(shape))


@pytest.mark.parametrize("size", [40, 300])
def test_an_spd_matrix_is_one_with_eigenvalues_of_its_own(size: int) -> None:
    """Small ones are drawn in float64, large ones in float32: both are as the spec declares."""
    spectra = []
    for values in drawn({"kind": "spd", "shift": 2.0}, (2, size, size), calls=3):
        assert torch.equal(values, values.mT)
        found = torch.linalg.eigvalsh(values.double())
        assert float(found.min()) > 1.99
        assert float(values.diagonal(dim1=-2, dim2=-1).mean()) == pytest.approx(3.0, abs=0.1)
        assert float(found.max()) == pytest.approx(6.0, abs=1.0)  # the edge of the Marchenko-Pastur law, and the shift
        spectra.append(found)
    for one, other in itertools.combinations(spectra, 2):
        assert float((one - other).abs().max()) > 1e-3


def test_a_constant_is_itself() -> None:
    one, other = drawn({"kind": "constant", "value": 2.5}, (4,), calls=2)
    assert one is other
    assert one.tolist() == [2.5] * 4


def test_the_specs_own_code_runs_for_every_call_under_another_seed() -> None:
    seeds: list[int] = []

    def make(text: str, spec: TensorSpec, seed: int) -> torch.Tensor:
        assert text == "def make ..."
        assert spec.shape is not None
        seeds.append(seed)
        return torch.randn(spec.shape, generator=torch.Generator().manual_seed(seed))

    made = InputSource([judging.tensor("x", (9,), kind="code", source="def make ...")], 5, make)
    assert seeds == []
    values = [made.draw()[0] for _ in range(20)]
    assert len(set(seeds)) == 20
    assert len({float(value[0]) for value in values if value is not None}) == 20


def test_the_same_seed_gives_the_same_values() -> None:
    for dist, shape in (({"kind": "normal"}, (LARGE,)), (UNIFORM, (LARGE,)), (MASK, (100,))):
        (one,), (other,) = (source(dist, shape).draw() for _ in range(2))
        (third,) = source(dist, shape, seed=6).draw()
        assert one is not None
        assert other is not None
        assert third is not None
        assert torch.equal(one, other)
        assert not torch.equal(one, third)


def test_blocks_of_one_call_share_no_angle_and_no_place() -> None:
    """What a candidate finds out about one block tells it nothing of the next."""
    dist, spec = {"kind": "uniform"}, TensorSpec("x", (4 * BLOCK,), (1,), torch.float32)
    ramp = torch.arange(STOCK + BLOCK, dtype=torch.float32) / (STOCK + BLOCK)
    made = fresh_inputs.mixed(dist, ramp, spec, random.Random(3)).view(4, BLOCK)
    starts = [float(block[0]) for block in made]
    assert len(set(starts)) == 4


def test_a_stock_is_drawn_once_it_pays_and_the_values_before_and_after_are_new() -> None:
    count = STOCK // 2
    item = judging.tensor("x", (count,))
    patient = InputSource([item], 5, no_code, at_once=False)
    drawn = [patient.draw()[0] for _ in range(3)]  # two without a stock
    assert patient._kept[0] is not None
    assert all(value is not None and abs(float(value.std()) - 1.0) < 0.01 for value in drawn)
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(drawn, 2))  # type: ignore[arg-type]
    few = InputSource([item], 5, no_code, at_once=False)
    assert few.draw()[0] is not None
    assert few._kept[0] is None

"""What is drawn, compared and asked on a GPU: the same answers as on a CPU, and soon enough for the largest results."""

from __future__ import annotations

import random
import time

import pytest
import torch

from tests.judging import LAYER_NORM, layer_norm_workload, output, tensor, workload
from tests.support.in_process import InProcess, no_code
from warpsmith.workers.judge.reference.admission import examine
from warpsmith.workers.judge.reference.input_checks import Unsuited, ask, declared
from warpsmith.workers.judge.reference.learning import learn
from warpsmith.workers.judge.runner.digest import Digester, make_seal
from warpsmith.workers.judge.values.compare import (
    Comparison,
    Tolerance,
    ToleranceBuilder,
    compare_exactly,
    compare_floats,
    first_difference,
)
from warpsmith.workers.judge.values.families import families
from warpsmith.workers.judge.values.inputs import CPU, InputSource, InputSources

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU on this machine")

GPU = torch.device("cuda", 0)
LARGE = 1 << 28
COMPARE_S, LEARN_S = 1.0, 2.0


def pair(count: int, dtype: torch.dtype, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """A float64 result and what rounding makes of it, drawn on the CPU."""
    exact = torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(count))
    return exact.to(dtype).to(device), exact.to(device)


def learnt(found: torch.Tensor, exact: torch.Tensor) -> Tolerance:
    builder = ToleranceBuilder(found.dtype)
    builder.add(found, exact)
    return builder.finish()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("count", [1, 33, 100_003])
def test_a_gpu_derives_and_applies_the_tolerance_of_a_cpu(dtype: torch.dtype, count: int) -> None:
    verdicts: list[Comparison] = []
    tolerances: list[Tolerance] = []
    for device in (torch.device("cpu"), GPU):
        found, exact = pair(count, dtype, device)
        tolerances.append(learnt(found, exact))
        wrong = found.clone()
        wrong[count // 2] += 1
        assert compare_floats(found, exact, tolerances[-1]).passed
        verdicts.append(compare_floats(wrong, exact, tolerances[-1]))
    assert torch.equal(tolerances[0].edges, tolerances[1].edges)
    assert torch.allclose(tolerances[0].element, tolerances[1].element, rtol=1e-12, atol=0)
    assert verdicts[0].index == verdicts[1].index == [count // 2]
    assert verdicts[0].wrong_elements == verdicts[1].wrong_elements == 1
    assert verdicts[0].l2 == pytest.approx(verdicts[1].l2)


def test_special_values_and_integers_compare_on_a_gpu() -> None:
    found, exact = pair(1000, torch.float32, GPU)
    tolerance = learnt(found, exact)
    exact[7], found[7] = torch.inf, -torch.inf
    assert compare_floats(found, exact, tolerance).kind == "non_finite"
    found[7] = torch.inf
    assert compare_floats(found, exact, tolerance).passed
    whole = torch.arange(1000, device=GPU)
    other = whole.clone()
    other[999] = 0
    assert compare_exactly(whole, whole.clone()).passed
    assert compare_exactly(other, whole).index == [999]
    assert first_difference(found, exact.to(torch.float32)) is None
    assert first_difference(other, whole) == [999]


def test_the_largest_results_are_compared_soon_and_in_bounded_memory() -> None:
    exact = torch.randn(LARGE, dtype=torch.float64, device=GPU)
    found = exact.to(torch.float32)
    learnt(found[:1000], exact[:1000])
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    start = time.monotonic()
    tolerance = learnt(found, exact)
    between = time.monotonic()
    assert compare_floats(found, exact, tolerance).passed
    end = time.monotonic()
    assert between - start < LEARN_S
    assert end - between < COMPARE_S
    assert torch.cuda.max_memory_allocated() - before < 6 << 30


@pytest.mark.parametrize(
    ("dtype", "dist"),
    [
        ("float32", {"kind": "normal", "mean": 2.0, "std": 0.5}),
        ("bfloat16", {"kind": "uniform", "low": -1.0, "high": 1.0}),
        ("float16", {"kind": "constant", "value": 3.0}),
        ("int64", {"kind": "randint", "low": 3, "high": 9}),
        ("bool", {"kind": "bernoulli", "p": 0.25}),
        ("int32", {"kind": "permutation"}),
        ("float64", {"kind": "spd"}),
        ("float8_e4m3fn", {"kind": "normal"}),
    ],
)
def test_every_distribution_is_drawn_on_the_gpu(dtype: str, dist: dict[str, object]) -> None:
    item = tensor("x", (48, 48), dtype=dtype, **dist)
    first, again = (InputSource([item], 5, no_code, GPU).draw()[0] for _ in range(2))
    assert first is not None
    assert again is not None
    assert first.device == GPU
    assert first.dtype == getattr(torch, dtype)
    assert first_difference(first, again) is None


def test_no_value_comes_twice_on_the_gpu() -> None:
    """Windows of one place, and what is in a tensor once sorted, are new for every call."""
    inputs = [
        tensor("x", (5_000,), kind="normal"),
        tensor("n", (5_000,), dtype="int32", kind="randint", low=0, high=100),
        tensor("narrow", (5_000,), dtype="float8_e4m3fn", kind="normal"),
        tensor("order", (5_000,), dtype="int64", kind="permutation"),
        tensor("square", (64, 64), kind="spd"),
    ]
    source = InputSource(inputs, 5, no_code, GPU)
    starts: list[set[bytes]] = [set() for _ in inputs]
    for _ in range(200):
        for known, value in zip(starts, source.draw(), strict=True):
            assert value is not None
            known.add(value.flatten()[1_000:1_064].contiguous().view(torch.uint8).cpu().numpy().tobytes())
    assert [len(known) for known in starts] == [200] * len(inputs)


def test_runner_and_referee_take_the_same_digest_on_any_device() -> None:
    arena = torch.randint(0, 256, (1 << 16,), dtype=torch.uint8)
    seal = make_seal(0, [(512, 40_000), (41_004, 8), (50_001, 77)], random.Random(2))
    here, there = Digester(CPU), Digester(GPU)
    wanted = int(here.take(arena, seal).item())
    on_gpu = arena.to(GPU)
    assert int(there.take(on_gpu, seal).item()) == wanted
    on_gpu[600] ^= 1
    assert int(there.take(on_gpu, seal).item()) != wanted


def test_indptr_is_drawn_on_the_gpu() -> None:
    found = InputSource([tensor("p", (9,), dtype="int32", kind="indptr", total=100)], 5, no_code, GPU).draw()[0]
    assert found is not None
    assert found.tolist() == sorted(found.tolist())
    assert found.tolist()[-1] == 100


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3fn"])
def test_families_change_values_on_the_gpu(dtype: str) -> None:
    inputs = [tensor("x", (6, 8), dtype=dtype), tensor("w", (8,), dtype=dtype, kind="uniform", low=-1.0, high=2.0)]
    place = workload("w", "bench", inputs, [output("y", (6, 8))])
    for family in families(place, random.Random(1)):
        for value in InputSource(inputs, 3, no_code, GPU, family).draw():
            assert value is not None
            assert value.device == GPU
            assert bool(torch.isfinite(value.to(torch.float64)).all()), family


def test_questions_and_admission_work_on_the_gpu() -> None:
    place = layer_norm_workload("bench", "bench", 200, 1023)
    runners, rng = InProcess(LAYER_NORM), random.Random(2)
    sources = InputSources(rng, no_code, GPU)
    learn(runners, place, sources)
    assert declared(runners, place, sources.of(place["inputs"])).limits == runners.limits(place)
    asked = 0
    for family in families(place, rng):
        try:
            question = ask(runners, place, family, sources.of(place["inputs"], family), "ieee", rng)
        except Unsuited:
            continue
        (found,) = runners.run("eager", place, question.values)
        assert compare_floats(found, question.expected[0], question.limits[0]).passed  # type: ignore[arg-type]
        asked += 1
    assert asked > 10
    op = {"name": "norm", "digest": "", "reference": LAYER_NORM, "math": "ieee", "library_calls": [], "baselines": []}
    checks = examine(op, [place], runners, sources, rng)  # type: ignore[arg-type]
    assert checks
    assert all(check["caught"] for check in checks), [check for check in checks if not check["caught"]]

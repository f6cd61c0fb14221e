"""Input families: what they may touch, what they catch, and that honest algorithms pass them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judging import LAYER_NORM, layer_norm_workload, output, scalar, tensor, workload
from tests.support.in_process import learnt, no_code, question_on, wrong_on
from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.workers.judge.reference import input_checks
from warpsmith.workers.judge.reference.input_checks import Unsuited
from warpsmith.workers.judge.values.compare import compare_floats
from warpsmith.workers.judge.values.families import ELSEWHERE, EVERYWHERE, TIES, Family, families, plan
from warpsmith.workers.judge.values.inputs import CPU, InputSource

FLOATS = ["float64", "float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3fn"]
ALL = ("shifted", "heavy", "tiny", "large", "constant_rows", "integers", "low_rank", "diagonal", "one_hot")

MATMUL = "def run(a, b):\n    return a @ b\n"
SOFTMAX = "import torch\n\ndef run(x):\n    return torch.softmax(x, dim=-1)\n"
MEAN = "def run(x):\n    return x.mean(-1)\n"
GELU = "import torch\n\ndef run(x):\n    return torch.nn.functional.gelu(x, approximate='tanh')\n"
BLEND = "def run(x, w):\n    return x + 1e-7 * (x @ w)\n"


def of(*inputs: Any, outputs: Any = None) -> ResolvedWorkload:
    return workload("w", "bench", list(inputs), outputs or [output("y", (6, 8))])


def drawn(place: ResolvedWorkload, family: Family, seed: int) -> list[torch.Tensor]:
    values = InputSource(place["inputs"], seed, no_code, CPU, family).draw()
    return [value for value in values if value is not None]


def kinds(place: ResolvedWorkload, seed: int = 0) -> list[Family]:
    return families(place, random.Random(seed))


@pytest.mark.parametrize("dtype", FLOATS)
@given(seed=st.integers(0, 2**30))
@settings(max_examples=10, deadline=None)
def test_values_are_finite_and_of_the_declared_shape_and_dtype(dtype: str, seed: int) -> None:
    place = of(tensor("x", (6, 8), dtype=dtype), tensor("w", (8,), dtype=dtype, kind="uniform", low=-1.0, high=2.0))
    found = kinds(place, seed)
    assert {family.kind for family in found} >= set(ALL)
    for family in found:
        x, w = drawn(place, family, seed)
        assert x.shape == (6, 8)
        assert w.shape == (8,)
        assert x.dtype == w.dtype == getattr(torch, dtype)
        assert torch.isfinite(x.to(torch.float64)).all(), family
        assert torch.isfinite(w.to(torch.float64)).all(), family


@given(seed=st.integers(0, 2**30), low=st.floats(-5, 5), width=st.floats(0.01, 10))
@settings(max_examples=40, deadline=None)
def test_a_declared_range_is_respected(seed: int, low: float, width: float) -> None:
    place = of(tensor("u", (6, 8), kind="uniform", low=low, high=low + width))
    for family in kinds(place):
        (u,) = drawn(place, family, seed)
        assert float(u.min()) >= float(torch.tensor(low)), family
        assert float(u.max()) < low + width, family


@given(seed=st.integers(0, 2**30), sign=st.sampled_from([-1.0, 1.0]), std=st.floats(0.01, 0.33))
@settings(max_examples=40, deadline=None)
def test_what_is_of_one_sign_stays_so(seed: int, sign: float, std: float) -> None:
    place = of(tensor("scale", (6, 8), kind="normal", mean=sign, std=std))
    declared = InputSource(place["inputs"], seed, no_code).draw()[0]
    assert declared is not None
    for family in kinds(place):
        (scale,) = drawn(place, family, seed)
        if bool((declared * sign > 0).all()) and family.kind != "heavy":
            assert bool((scale * sign > 0).all()), family
        if family.kind == "heavy":
            assert bool((scale * sign >= 1.0).all())


def test_only_floating_inputs_of_known_distribution_are_touched() -> None:
    untouched = [
        tensor("ids", (6, 8), dtype="int64", kind="randint", high=9),
        tensor("mask", (6, 8), dtype="bool", kind="bernoulli"),
        tensor("order", (6, 8), dtype="int32", kind="permutation"),
        tensor("matrix", (6, 6), kind="spd"),
        tensor("one", (6, 8), kind="constant", value=1.0),
        tensor("fixed", (6, 8), kind="normal", mean=2.0, std=0.0),
        scalar("m", 0.5),
    ]
    assert kinds(of(*untouched)) == []
    place = of(tensor("x", (6, 8)), *untouched)
    plain = InputSource(place["inputs"], 3, no_code).draw()
    for family in kinds(place):
        changed = InputSource(place["inputs"], 3, no_code, CPU, family).draw()
        assert not torch.equal(changed[0], plain[0])  # type: ignore[arg-type]
        for one, other in zip(changed[1:], plain[1:], strict=True):
            assert (one is None and other is None) or torch.equal(one, other)  # type: ignore[arg-type]


def test_each_family_is_what_it_says() -> None:
    place = of(tensor("x", (64, 48), kind="normal", mean=0.5, std=2.0), tensor("w", (48,)))
    values = {family.name: drawn(place, family, 11)[0] for family in kinds(place)}
    assert abs(abs(float(values["shifted"].mean()) - 0.5) / 2.0 - 4.5) < 2
    assert float((values["heavy"] - 0.5).abs().max()) > 20
    assert float(values["tiny"].abs().max()) < 1e-4 < 1e2 < float(values["large"].abs().max())
    assert bool((values["constant_rows"] == values["constant_rows"][:, :1]).all())
    assert len(set(values["constant_rows"][:, 0].tolist())) == 64
    assert set(values["integers"].unique().tolist()) == {-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0}
    assert int(torch.linalg.matrix_rank(values["low_rank"].double() - 0.5, rtol=1e-5)) == 1
    assert torch.equal(values["diagonal"].nonzero()[:, 0], values["diagonal"].nonzero()[:, 1])
    assert bool(((values["one_hot"] != 0).sum(-1) == 1).all())
    assert not bool(values["zeroed:x"].any())
    assert float(values["emphasised:x"].std()) == pytest.approx(128, rel=0.2)


def test_families_of_one_input_leave_the_others_alone() -> None:
    place = of(tensor("a", (6, 8)), tensor("b", (8, 5)))
    a, b = InputSource(place["inputs"], 5, no_code).draw()
    for family in kinds(place):
        if family.only == "a":
            assert torch.equal(drawn(place, family, 5)[1], b)  # type: ignore[arg-type]
        if family.only == "b":
            assert torch.equal(drawn(place, family, 5)[0], a)  # type: ignore[arg-type]
    assert {family.only for family in kinds(place)} == {None, "a", "b"}


def test_an_op_with_integer_results_is_asked_nothing_that_ties() -> None:
    place = of(tensor("x", (6, 8)), outputs=[output("at", (6,), dtype="int64")])
    assert not {family.kind for family in kinds(place)} & TIES
    mutated = of(tensor("x", (6, 8)), tensor("ids", (6,), dtype="int64", mutated=True, kind="randint", high=3))
    assert not {family.kind for family in kinds(mutated)} & TIES


def test_the_smallest_bench_workload_is_asked_all_and_every_other_some() -> None:
    places = [layer_norm_workload(name, role, rows, 33) for name, role, rows in (  # type: ignore[arg-type]
        ("large", "bench", 90), ("small", "bench", 40), ("tiny", "test", 2), ("odd", "holdout", 5)
    )]  # fmt: skip
    found = plan(places, random.Random(1), sparing=False)
    assert len(found["small"]) >= len(ALL)
    for name in ("large", "tiny", "odd"):
        assert found[name][0].kind == EVERYWHERE
        assert len(found[name]) == 1 + ELSEWHERE
    drawn_again = [plan(places, random.Random(seed), sparing=False)["large"] for seed in range(40)]
    assert {family.kind for some in drawn_again for family in some} == {family.kind for family in found["small"]}
    assert list(plan(places, random.Random(1), sparing=True)) == ["tiny"]


def test_a_broadcast_axis_holds_one_value() -> None:
    item = tensor("x", (6, 8))
    item["strides"] = [0, 1]
    for family in (None, Family("one_hot"), Family("shifted")):
        x = InputSource([item], 1, no_code, CPU, family).draw()[0]
        assert x is not None
        assert bool((x == x[:1]).all())


# What families catch: right on the declared inputs, wrong elsewhere.


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x, weight.shape, weight, bias, 1e-5)


def caught_by(reference: str, place: ResolvedWorkload, answer: Callable[..., Any], seed: int = 3) -> set[str]:
    """The families on which an answer is wrong."""
    runners = learnt(reference, place)
    names = set()
    for family in kinds(place, seed):
        try:
            question = question_on(runners, place, family, seed)
        except Unsuited:
            continue
        if wrong_on(runners, place, question, answer):
            names.add(family.name)
    return names


def test_a_mean_taken_for_zero_is_caught_on_shifted_inputs() -> None:
    place = of(tensor("x", (4, 1 << 16)), outputs=[output("y", (4,), tolerance={"rtol": 0.0, "atol": 0.05})])
    assert "shifted" in caught_by(MEAN, place, lambda x: torch.zeros(4))


def test_an_ops_own_atol_does_not_hide_results_that_are_tiny() -> None:
    place = of(tensor("x", (6, 8)), outputs=[output("y", (6, 8), tolerance={"rtol": 0.0, "atol": 1e-3})])
    assert "large" in caught_by("def run(x):\n    return x * 1e-4\n", place, torch.zeros_like)
    place = of(tensor("x", (6, 8)), outputs=[output("y", (6, 8), tolerance={"rtol": 0.0, "atol": 0.1})])
    assert caught_by("def run(x):\n    return x * 1.0\n", place, torch.zeros_like) >= {"tiny", "large", "shifted"}


def test_a_product_too_small_to_be_seen_is_caught_where_it_is_emphasised() -> None:
    place = of(tensor("x", (16, 16)), tensor("w", (16, 16), kind="normal", std=1e-4), outputs=[output("y", (16, 16))])
    runners = learnt(BLEND, place)
    declared = InputSource(place["inputs"], 1, no_code).draw()
    assert wrong_free(runners, place, declared, lambda x, w: x)
    assert caught_by("def run(x, w):\n    return x + x @ w\n", place, lambda x, w: x) >= {"emphasised:w"}


def wrong_free(runners: Any, place: ResolvedWorkload, values: Any, answer: Callable[..., Any]) -> bool:
    expected = runners.expected(place, values)
    return compare_floats(answer(*values), expected[0], runners.limits(place)[0]).passed


@pytest.mark.parametrize("structured", ["diagonal", "low_rank", "constant_rows", "one_hot", "integers", "zeroed:a"])
def test_a_shortcut_for_what_looks_like_noise_is_caught_on_structure(structured: str) -> None:
    """Right on dense values; on values with a structure it detects it takes a wrong turn."""
    place = of(tensor("a", (16, 16)), tensor("b", (16, 16)), outputs=[output("c", (16, 16))])
    looks = {
        "diagonal": lambda a: bool((a - torch.diag(a.diag()) == 0).all()),
        "low_rank": lambda a: int(torch.linalg.matrix_rank(a)) <= 1,
        "constant_rows": lambda a: bool((a == a[:, :1]).all()),
        "one_hot": lambda a: bool(((a != 0).sum(-1) == 1).all()),
        "integers": lambda a: bool((a == a.round()).all()),
        "zeroed:a": lambda a: not bool(a.any()),
    }[structured]
    assert structured in caught_by(MATMUL, place, lambda a, b: (a @ b) + 1 if looks(a) else a @ b)


# What families must not reject.


def one_pass_layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = ((x * x).mean(-1, keepdim=True) - mean * mean).clamp_min(0)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * weight + bias


def chained_sum_softmax(x: torch.Tensor) -> torch.Tensor:
    scaled = torch.exp2((x - x.amax(-1, keepdim=True)) * torch.tensor(1.4426950408889634))
    return scaled * (1 / scaled.cumsum(-1)[..., -1:])


def chained_matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        c.addcmul_(a[:, k : k + 1], b[k : k + 1])
    return c


def strassen(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    h = a.shape[0] // 2
    (a1, a2), (a3, a4) = ((rows[:, :h], rows[:, h:]) for rows in (a[:h], a[h:]))
    (b1, b2), (b3, b4) = ((rows[:, :h], rows[:, h:]) for rows in (b[:h], b[h:]))
    m1, m2, m3, m4 = (a1 + a4) @ (b1 + b4), (a3 + a4) @ b1, a1 @ (b2 - b4), a4 @ (b3 - b1)
    m5, m6, m7 = (a1 + a2) @ b4, (a3 - a1) @ (b1 + b2), (a2 - a4) @ (b3 + b4)
    return torch.cat([torch.cat([m1 + m4 - m5 + m7, m3 + m5], 1), torch.cat([m2 + m4, m1 - m2 + m3 + m6], 1)])


SQUARE = of(tensor("a", (96, 96)), tensor("b", (96, 96)), outputs=[output("c", (96, 96))])
ROWS = of(tensor("x", (32, 700), kind="normal", std=3.0), outputs=[output("y", (32, 700))])


@pytest.mark.parametrize(
    ("reference", "place", "answer"),
    [
        pytest.param(
            LAYER_NORM, layer_norm_workload("w", "bench", 24, 513), one_pass_layer_norm, id="one-pass variance"
        ),
        pytest.param(SOFTMAX, ROWS, chained_sum_softmax, id="exp2 and one chain of sums"),
        pytest.param(MATMUL, SQUARE, chained_matmul, id="products in one chain"),
        pytest.param(MATMUL, SQUARE, strassen, id="Strassen"),
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_honest_algorithms_pass_every_family(
    reference: str, place: ResolvedWorkload, answer: Callable[..., Any], seed: int
) -> None:
    assert caught_by(reference, place, answer, seed) == set()


def test_sixteen_bit_results_rounded_along_the_way_pass() -> None:
    reference = "import torch\n\ndef run(x, w):\n    return torch.nn.functional.rms_norm(x, (x.shape[-1],), w, 1e-6)\n"
    place = of(
        tensor("x", (32, 256), dtype="bfloat16"),
        tensor("w", (256,), dtype="bfloat16", kind="normal", mean=1.0, std=0.1),
        outputs=[output("y", (32, 256), dtype="bfloat16")],
    )

    def rounded_twice(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-6)).bfloat16() * w

    assert caught_by(reference, place, rounded_twice) == set()


def test_a_family_beyond_the_ops_domain_does_not_suit_it() -> None:
    place = of(tensor("x", (6, 8)), tensor("y", (6, 8)))
    runners = learnt("def run(x, y):\n    return x.abs().log() + y * 0\n", place)
    with pytest.raises(Unsuited, match="y is not finite"):
        question_on(runners, place, Family("zeroed", "x"), 1)
    raising = learnt("def run(x, y):\n    assert bool((y.abs() < 50).all())\n    return x + y\n", place)
    with pytest.raises(Unsuited, match="the reference fails on it"):
        question_on(raising, place, Family("large"), 1)
    assert len(raising.facts(place).unsuited) == 1


def test_an_exact_op_stays_exact_on_families() -> None:
    exact = [output("y", (6, 8), tolerance={"rtol": 0.0, "atol": 0.0})]
    place = of(tensor("x", (6, 8)), outputs=exact)
    assert caught_by("def run(x):\n    return x + x\n", place, lambda x: 2 * x) == set()
    nearly = caught_by("def run(x):\n    return x + x\n", place, lambda x: 2 * x * (1 + 2**-22))
    assert nearly == {family.name for family in kinds(place, 3)}


def test_expected_infinities_keep_their_places_and_signs() -> None:
    place = of(tensor("x", (6, 8)), tensor("mask", (6, 8), dtype="bool", kind="bernoulli", p=0.3))
    reference = "import math\n\ndef run(x, mask):\n    return x.masked_fill(mask, -math.inf)\n"
    assert caught_by(reference, place, lambda x, mask: x.masked_fill(mask, -torch.inf)) == set()
    for other in (torch.inf, torch.nan, -3e38):
        caught = caught_by(reference, place, lambda x, mask, other=other: x.masked_fill(mask, other))
        assert {"shifted", "integers", "zeroed:x"} - caught <= {"zeroed:x"}


def gelu_without_cancellation(x: torch.Tensor) -> torch.Tensor:
    """x sigmoid(2u) is 0.5 x (1 + tanh(u)), and keeps what 1 + tanh(u) loses below -20."""
    wide = x.to(torch.float64)
    return (wide * torch.sigmoid(2 * (2 / torch.pi) ** 0.5 * (wide + 0.044715 * wide**3))).to(x.dtype)


@pytest.mark.parametrize("shape", [(1, 7), (6, 8)])
@pytest.mark.parametrize("seeds", [range(16), pytest.param(range(16, 40), marks=pytest.mark.nightly)])
def test_who_keeps_what_the_reference_loses_in_float64_is_right(shape: tuple[int, int], seeds: range) -> None:
    place = of(tensor("x", shape, kind="normal", std=2.0), outputs=[output("y", shape)])
    runners = learnt(GELU, place)
    lost = caught = 0
    for seed in seeds:
        for family in kinds(place, seed):
            question = question_on(runners, place, family, seed)
            lost += int((question.expected[0] == 0).sum())
            assert wrong_on(runners, place, question, gelu_without_cancellation) is None, family
            caught += wrong_on(runners, place, question, lambda x: torch.nn.functional.gelu(x) * 1.01) is not None
    assert lost, "no value lay where the reference loses its result"
    assert caught > 80, "elsewhere 1 % is found out"


def test_what_code_makes_widens_nothing() -> None:
    """A mask of the smallest numbers, or of infinities, says nothing of what float64 loses."""
    drawn = tensor("x", (6, 8), kind="normal", std=2.0)
    mask = tensor("mask", (6, 8), kind="code", source="")
    place = of(drawn, mask)
    x = torch.full((6, 8), 3.0)
    for value in (-3.4e38, float("-inf")):
        lost = input_checks._lost_in_float64(place, [x, torch.full((6, 8), value)])
        assert lost == input_checks._lost_in_float64(of(drawn), [x]) == 12.0 * 2.0**-53
    narrow = of(tensor("x", (6, 8), dtype="float8_e4m3fn", kind="normal"))
    assert input_checks._lost_in_float64(narrow, [x.to(torch.float8_e4m3fn)]) == 12.0 * 2.0**-53

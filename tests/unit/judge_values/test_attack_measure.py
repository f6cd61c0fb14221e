"""The measure of a counterexample: wrong algorithms are found, honest ones of any order and arithmetic pass."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.jobs import output, scalar, tensor, workload
from tests.kinds import nightly_but
from tests.support.in_process import InProcess, call_arguments, no_code
from warpsmith.kernels_db.job.attack_documents import Accuracy, Recipe
from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.workers.judge.attack.measure import (
    HIGHEST,
    Rule,
    Special,
    backward_step,
    is_ordered,
    is_rounded_once,
)
from warpsmith.workers.judge.attack.oracle import Answer, Oracle, _alike
from warpsmith.workers.judge.attack.recipe import build, describe
from warpsmith.workers.judge.attack.search import search
from warpsmith.workers.judge.attack.shrink import shrink
from warpsmith.workers.judge.reference.indices import Indices
from warpsmith.workers.judge.values.inputs import InputSource
from warpsmith.workers.judge.values.workload_specs import Values

Tensor = torch.Tensor
Candidate = Callable[..., Any]
TRIES = 80
"""The openings of a matrix product are more; these are asked first."""


def oracle_of(
    reference: str,
    where: ResolvedWorkload,
    candidate: Candidate,
    *,
    math: str = "ieee",
    accuracy: Accuracy = "componentwise",
) -> Oracle:
    def call(one: ResolvedWorkload, values: Values) -> list[Tensor]:
        found = candidate(*call_arguments(one, values))
        return list(found) if isinstance(found, tuple) else [found]

    def draw(seed: int) -> Values:
        return InputSource(where["inputs"], seed, no_code).draw()

    oracle = Oracle(where, InProcess(reference), call, draw, math, accuracy, random.Random(3))
    oracle.prepare(5)
    return oracle


def worst_of(oracle: Oracle, tries: int = TRIES) -> Answer:
    found = search(oracle.workload, oracle.ask, random.Random(7), 600.0, most=tries)
    assert found.worst is not None, "nothing was fair"
    return found.worst


def rows(rows: int, columns: int) -> ResolvedWorkload:
    return workload("rows", "test", [tensor("x", (rows, columns))], [output("y", (rows, columns))])


PRODUCT = "def run(a, b):\n    return a @ b\n"
MATRICES = workload("mm", "test", [tensor("a", (9, 64)), tensor("b", (64, 20))], [output("c", (9, 20))])
SQUARES = workload("mm", "test", [tensor("a", (32, 32)), tensor("b", (32, 32))], [output("c", (32, 32))])
SOFTMAX = "import torch\n\ndef run(x):\n    return torch.softmax(x, dim=-1)\n"
NORM = "import torch\n\ndef run(x):\n    return torch.nn.functional.layer_norm(x, x.shape[1:], None, None, 1e-5)\n"
TOTAL = "def run(x):\n    return x.sum(-1, keepdim=True)\n"


def in_chain(x: Tensor) -> Tensor:
    """The sum along the last axis in float32, one after the other."""
    with np.errstate(all="ignore"):
        return torch.from_numpy(np.cumsum(x.numpy(), axis=-1, dtype=np.float32)[..., -1:].copy())


def product_in_chain(a: Tensor, b: Tensor) -> Tensor:
    found = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        found += a[:, k : k + 1] * b[k : k + 1]
    return found


def cut(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype).to(torch.float32)


def split_product(a: Tensor, b: Tensor) -> Tensor:
    """bfloat16x3: two parts of each operand, without the product of the low ones."""
    high, top = cut(a, torch.bfloat16), cut(b, torch.bfloat16)
    low, rest = cut(a - high, torch.bfloat16), cut(b - top, torch.bfloat16)
    return low @ top + high @ rest + high @ top


def shared_scale_product(a: Tensor, b: Tensor) -> Tensor:
    """float16 pairs, one scale for every operand."""
    scales = [torch.exp2(14 - one.abs().amax().clamp(1e-30, 1e30).log2().floor()) for one in (a, b)]
    parts = []
    for one, scale in zip((a, b), scales, strict=True):
        high = cut(one * scale, torch.float16)
        parts.append((high, cut(one * scale - high, torch.float16)))
    (ah, al), (bh, bl) = parts
    return (al @ bh + ah @ bl + ah @ bh) / scales[0] / scales[1]


def strassen(a: Tensor, b: Tensor) -> Tensor:
    n = a.shape[0] // 2
    a11, a12, a21, a22 = a[:n, :n], a[:n, n:], a[n:, :n], a[n:, n:]
    b11, b12, b21, b22 = b[:n, :n], b[:n, n:], b[n:, :n], b[n:, n:]
    m1, m2, m3 = (a11 + a22) @ (b11 + b22), (a21 + a22) @ b11, a11 @ (b12 - b22)
    m4, m5 = a22 @ (b21 - b11), (a11 + a12) @ b22
    m6, m7 = (a21 - a11) @ (b11 + b12), (a12 - a22) @ (b21 + b22)
    return torch.cat([torch.cat([m1 + m4 - m5 + m7, m3 + m5], 1), torch.cat([m2 + m4, m1 - m2 + m3 + m6], 1)])


def online_softmax(x: Tensor) -> Tensor:
    most, total = torch.full_like(x[:, :1], -torch.inf), torch.zeros_like(x[:, :1])
    for block in x.split(16, dim=1):
        larger = torch.maximum(most, block.amax(-1, keepdim=True))
        base = torch.where(larger == -torch.inf, 0.0, larger)
        total = total * torch.exp(most - base) + torch.exp(block - base).sum(-1, keepdim=True)
        most = larger
    return torch.exp(x - most) / total


def exp2_softmax(x: Tensor) -> Tensor:
    powers = torch.exp2((x - x.amax(-1, keepdim=True)) * 1.4426950408889634)
    return powers / in_chain(powers)


def softmax_without_maximum(x: Tensor) -> Tensor:
    return torch.exp(x) / torch.exp(x).sum(-1, keepdim=True)


def two_pass(x: Tensor) -> Tensor:
    away = x - in_chain(x) / x.shape[-1]
    return away * torch.rsqrt(in_chain(away * away) / x.shape[-1] + 1e-5)


def shifted_one_pass(x: Tensor) -> Tensor:
    y = x - x[:, :1]
    mean = in_chain(y) / x.shape[-1]
    variance = in_chain(y * y) / x.shape[-1] - mean * mean
    return (y - mean) * torch.rsqrt(variance.clamp(min=0) + 1e-5)


def one_pass(x: Tensor) -> Tensor:
    mean = in_chain(x) / x.shape[-1]
    return (x - mean) * torch.rsqrt((in_chain(x * x) / x.shape[-1] - mean * mean).clamp(min=0) + 1e-5)


HONEST: dict[str, tuple[str, ResolvedWorkload, Candidate]] = {
    "a product in one chain": (PRODUCT, MATRICES, product_in_chain),
    "a product of split operands": (PRODUCT, MATRICES, split_product),
    "an online softmax": (SOFTMAX, rows(5, 40), online_softmax),
    "a softmax by powers of two": (SOFTMAX, rows(5, 40), exp2_softmax),
    "a variance in two passes": (NORM, rows(4, 50), two_pass),
    "a variance in one pass with a shift": (NORM, rows(4, 50), shifted_one_pass),
    "a sum of 4096 in one chain": (
        TOTAL,
        workload("sum", "test", [tensor("x", (3, 4096))], [output("y", (3, 1))]),
        in_chain,
    ),
}
WRONG: dict[str, tuple[str, ResolvedWorkload, Candidate]] = {
    "a product with shared scales": (PRODUCT, MATRICES, shared_scale_product),
    "a product in bfloat16": (PRODUCT, MATRICES, lambda a, b: cut(a, torch.bfloat16) @ cut(b, torch.bfloat16)),
    "a product of Strassen's": (PRODUCT, SQUARES, strassen),
    "a softmax without its maximum": (SOFTMAX, rows(5, 40), softmax_without_maximum),
    "a variance in one pass": (NORM, rows(4, 50), one_pass),
    "a maximum that drops NaN": (
        "def run(x):\n    return x.amax(-1)\n",
        workload("max", "test", [tensor("x", (5, 40))], [output("y", (5,))]),
        lambda x: torch.nan_to_num(x, nan=-torch.inf).amax(-1),
    ),
    "counters of eight bits": (
        "import torch\n\ndef run(i):\n    return torch.bincount(i, minlength=8)\n",
        workload(
            "bins",
            "test",
            [tensor("i", (1000,), dtype="int64", kind="randint", low=0, high=8)],
            [output("y", (8,), dtype="int64")],
        ),
        lambda i: torch.bincount(i, minlength=8) % 256,
    ),
    "a sign that is read by comparison": (
        "import torch\n\ndef run(x, s):\n    return torch.copysign(x, s)\n",
        workload("signs", "test", [tensor("x", (50,)), tensor("s", (50,))], [output("y", (50,))]),
        lambda x, s: torch.where(s < 0, -x.abs(), x.abs()),
    ),
    "an eps that is written down": (
        "import torch\n\ndef run(x, eps):\n    return torch.nn.functional.layer_norm(x, x.shape[1:], eps=eps)\n",
        workload("norm", "test", [tensor("x", (4, 50)), scalar("eps", 1e-5)], [output("y", (4, 50))]),
        lambda x, eps: two_pass(x),
    ),
    "a scalar that is not read": (
        "def run(x, m):\n    return x * m\n",
        workload("scaled", "test", [tensor("x", (50,)), scalar("m", 0.75)], [output("y", (50,))]),
        lambda x, m: x * 0.75,
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_algorithm_passes(name: str) -> None:
    worst = worst_of(oracle_of(*HONEST[name]))
    assert 0 < worst.ratio <= 1, (worst.worst, describe(worst.recipe))


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_algorithm_is_found_and_its_recipe_fails_again(name: str) -> None:
    oracle = oracle_of(*WRONG[name])
    found = worst_of(oracle)
    assert found.failed, (found.worst, describe(found.recipe))
    simple = shrink(found, oracle.ask, 600.0)
    assert simple.failed
    assert len(simple.recipe["changes"]) <= len(found.recipe["changes"])
    again = oracle_of(*WRONG[name]).ask(simple.recipe)
    assert again.failed


def softmax_of_zeros(x: Tensor) -> Tensor:
    return torch.where(x.amax(-1, keepdim=True) == -torch.inf, 0.0, torch.softmax(x, -1))


def unguarded_online_softmax(x: Tensor) -> Tensor:
    most, total = torch.full_like(x[:, :1], -torch.inf), torch.zeros_like(x[:, :1])
    for block in x.split(16, dim=1):
        larger = torch.maximum(most, block.amax(-1, keepdim=True))
        total = total * torch.exp(most - larger) + torch.exp(block - larger).sum(-1, keepdim=True)
        most = larger
    return torch.exp(x - most) / total


def softmax_with_a_wrong_last_row(x: Tensor) -> Tensor:
    most = x.amax(-1, keepdim=True)
    most[-1] = most[-1].clamp(min=0)
    return torch.exp(x - most) / torch.exp(x - most).sum(-1, keepdim=True)


def root_of_a_negative(x: Tensor) -> Tensor:
    """A variance in one pass, its sums in float64, one after the other."""
    wide = x.double()
    mean, squares = (one.cumsum(-1)[:, -1:] / x.shape[-1] for one in (wide, wide * wide))
    return ((x - mean) * torch.rsqrt(squares - mean * mean + 1e-5)).float()


def relu_with_a_tail(x: Tensor) -> Tensor:
    found = torch.relu(x)
    found[:, 36:] = torch.nan_to_num(x[:, 36:], nan=0.0).clamp(min=0)
    return found


RARELY_WRONG: dict[str, tuple[str, ResolvedWorkload, Candidate]] = {
    "zeros for a row of minus infinity": (SOFTMAX, rows(5, 40), softmax_of_zeros),
    "a first tile of minus infinity": (SOFTMAX, rows(5, 40), unguarded_online_softmax),
    "a maximum from zero in the last row": (SOFTMAX, rows(50, 40), softmax_with_a_wrong_last_row),
    "the root of a negative variance": (NORM, rows(4, 700), root_of_a_negative),
    "a tail that drops NaN": (
        "import torch\n\ndef run(x):\n    return torch.relu(x)\n",
        rows(90, 40),
        relu_with_a_tail,
    ),
}


def wrong_where(meet: Callable[[Tensor, Tensor], Tensor], number: float, op: Candidate) -> Candidate:
    """An op of two inputs that gives a number where both hold what `meet` says, and is right elsewhere."""
    return lambda a, b: torch.where(meet(a, b), number, op(a, b))


PAIRS: dict[str, tuple[str, Candidate, Candidate]] = {
    "a difference": ("a - b", lambda a, b: a - b, wrong_where(lambda a, b: a.isinf() & (a == b), 0.0, torch.sub)),
    "a sum": ("a + b", lambda a, b: a + b, wrong_where(lambda a, b: a.isinf() & (a == -b), 0.0, torch.add)),
    # Who leaves out what is multiplied by zero has zero, and no other number.
    "a product": ("a * b", lambda a, b: a * b, wrong_where(lambda a, b: a.isinf() & (b == 0), 1.0, torch.mul)),
    "a product turned": ("a * b", lambda a, b: a * b, wrong_where(lambda a, b: b.isinf() & (a == 0), 1.0, torch.mul)),
    "a quotient": ("a / b", lambda a, b: a / b, wrong_where(lambda a, b: a.isinf() & b.isinf(), 1.0, torch.div)),
}


@pytest.mark.parametrize("columns", nightly_but((16,).__eq__, [(16,), (4, 16)]))
@pytest.mark.parametrize("name", PAIRS)
def test_infinities_of_two_inputs_meet_under_every_seed_and_without_time(name: str, columns: tuple[int, ...]) -> None:
    expression, op, cheat = PAIRS[name]
    where = workload("pair", "test", [tensor("a", (4, 16)), tensor("b", columns)], [output("y", (4, 16))])
    reference = f"def run(a, b):\n    return {expression}\n"
    wrong, honest = oracle_of(reference, where, cheat), oracle_of(reference, where, op)
    for seed in range(4):
        found, fine = (search(where, one.ask, random.Random(seed), 0.0).worst for one in (wrong, honest))
        assert found is not None
        assert found.failed
        assert fine is not None
        assert not fine.failed


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 20), marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", RARELY_WRONG)
def test_what_is_wrong_on_few_values_is_found_under_every_seed_and_without_time(name: str, seeds: range) -> None:
    oracle = oracle_of(*RARELY_WRONG[name])
    for seed in seeds:
        found = search(oracle.workload, oracle.ask, random.Random(seed), 0.0)
        assert found.worst is not None
        assert found.worst.failed, (seed, found.worst.worst)


def test_sums_that_overflow_in_float32_are_no_counterexample_and_other_overflow_is() -> None:
    """PyTorch's own kernels differ there: eager's is NaN from one length of a row on, the compiled from another."""
    large = {"input": "x", "move": "fill", "number": 2.0**126}
    values = torch.full((4, 50), 2.0**126)
    assert two_pass(values).isnan().all(), "the case is void: no sum overflows"
    assert torch.nn.functional.layer_norm(values, (50,)).isfinite().all()
    assert not ask(oracle_of(NORM, rows(4, 50), two_pass), large).failed
    # What overflows far below that is no sum of so many terms.
    assert ask(oracle_of(NORM, rows(4, 50), lambda x: two_pass(x * x * x / (x * x))), large).failed


MASKED = """import torch

def run(q, k, v, seen):
    return torch.softmax((q @ k.T).masked_fill(~seen, -torch.inf), -1) @ v
"""
ATTENDED = workload(
    "attended",
    "test",
    [
        *(tensor(name, shape) for name, shape in (("q", (6, 8)), ("k", (12, 8)), ("v", (12, 5)))),
        tensor("seen", (6, 12), dtype="bool", kind="bernoulli"),
    ],
    [output("o", (6, 5))],
)


def skipping_attention(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """Reads no key and no value that is masked."""
    return torch.stack([torch.softmax(k[row] @ one, 0) @ v[row] for one, row in zip(q, seen, strict=True)])


def plant(name: str, value: str, where: str, draw: int = 1, axis: int = 1) -> dict[str, Any]:
    return {"input": name, "move": "plant", "value": value, "where": where, "axis": axis, "draw": draw}


@pytest.mark.parametrize("draws", [range(2), pytest.param(range(2, 8), marks=pytest.mark.nightly)])
def test_what_is_masked_may_be_skipped_whatever_stands_there(draws: range) -> None:
    """Zero times infinity is NaN in the reference: alone, beside infinities that count, and in two inputs at once."""
    values = [declared for declared in InputSource(ATTENDED["inputs"], 11, no_code).draw() if declared is not None]
    assert bool(values[3].any(1).all()), "the case is void: the row that is masked whole is NaN"
    honest = oracle_of(MASKED, ATTENDED, skipping_attention)
    for value in ("inf", "-inf", "nan"):
        assert not ask(honest, plant("v", value, "first half")).failed
        assert not ask(honest, plant("v", value, "all")).failed
        for draw in draws:
            assert not ask(honest, plant("v", value, "some", draw)).failed
            assert not ask(honest, plant("k", "inf", "some", draw), plant("v", value, "some", draw + 1)).failed


ONE_OF_EACH = [plant("v", value, "one", draw, axis=0) for draw, value in enumerate(("nan", "inf", "-inf"), 1)]
"""A change that every workload is asked: NaN and both infinities, here in values that some rows mask."""


def asked_under(oracle: Oracle, seed: int) -> Answer:
    return oracle.ask({"workload": oracle.workload["id"], "seed": seed, "changes": ONE_OF_EACH})


def skipping_attention_of_whole_rows(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """The same, with NaN for a row that is masked whole, as PyTorch has it."""
    return torch.where(seen.any(1, keepdim=True), skipping_attention(q, k, v, seen), torch.nan)


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 50), marks=pytest.mark.nightly)])
def test_a_masked_nan_beside_an_infinity_that_counts_may_be_skipped_under_every_seed(seeds: range) -> None:
    """The reference's is NaN, for zero times NaN is; the kernel's is the infinity, and was refused one time in four."""
    oracle = oracle_of(MASKED, ATTENDED, skipping_attention_of_whole_rows)
    infinite = 0
    for seed in seeds:
        answer = asked_under(oracle, seed)
        assert not answer.failed, (seed, answer.worst)
        values = [value for value in build(answer.recipe, ATTENDED, oracle.draw(seed)) if value is not None]
        found = skipping_attention_of_whole_rows(*values)
        read = torch.softmax((values[0] @ values[1].T).masked_fill(~values[3], -torch.inf), -1) @ values[2]
        infinite += bool((read.isnan() & found.isinf()).any())
    assert infinite, "the case is void: no NaN was masked beside an infinity"


@pytest.mark.parametrize("number", [123.0, 0.0, "the other infinity", "no NaN that counts"])
def test_beside_an_infinity_that_counts_masked_nan_is_no_other_number(number: float | str) -> None:
    def wrong(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
        found = skipping_attention_of_whole_rows(q, k, v, seen)
        if number == "no NaN that counts":
            return torch.where(v.isinf().any(0), skipping_attention_of_whole_rows(q, k, v.nan_to_num(), seen), found)
        return torch.where(found.isinf(), -found if isinstance(number, str) else number, found)

    oracle = oracle_of(MASKED, ATTENDED, wrong)
    assert any(asked_under(oracle, seed).failed for seed in range(12))


@pytest.mark.parametrize(
    ("wrong", "changes"),
    [
        (lambda found: -found, [plant("v", "-inf", "first half")]),  # the other infinity
        (lambda found: found.nan_to_num(posinf=0.0, neginf=0.0), [plant("v", "-inf", "first half")]),
        (lambda found: found.nan_to_num(), [plant("v", "nan", "first half")]),
        (lambda found: torch.where(found.isnan(), torch.inf, found), [plant("v", "nan", "first half")]),
    ],
)
def test_what_is_not_masked_counts(wrong: Candidate, changes: list[dict[str, Any]]) -> None:
    oracle = oracle_of(MASKED, ATTENDED, lambda *given: wrong(skipping_attention(*given)))
    assert ask(oracle, *changes).failed


def softmax_that_gives_up(x: Tensor) -> Tensor:
    large = (x.isfinite() & (x.abs() > 2.0**112)).any(-1, keepdim=True)
    return torch.where(large, torch.nan, torch.softmax(x, -1))


def maximum_that_overflows(x: Tensor) -> Tensor:
    most = x.amax(-1, keepdim=True)
    return torch.where(most.abs() > 2.0**112, most * torch.inf, most)


@pytest.mark.parametrize(
    ("reference", "columns", "candidate"),
    [(SOFTMAX, 4096, softmax_that_gives_up), ("def run(x):\n    return x.amax(-1, True)\n", 1, maximum_that_overflows)],
)
def test_large_numbers_excuse_nothing_where_none_are_summed(reference: str, columns: int, candidate: Candidate) -> None:
    where = workload("large", "test", [tensor("x", (8, 4096))], [output("y", (8, columns))])
    oracle = oracle_of(reference, where, candidate)
    for power in (114, 116):
        assert ask(oracle, {"input": "x", "move": "scale", "exponent": power}).failed


SHARES = "def run(x):\n    return x / x.sum(-1, keepdim=True)\n"


def shares(x: Tensor, sums: type[np.floating[Any]] = np.float32) -> Tensor:
    """Shares of a row's sum, of which positive and negative numbers are a part each: as large as parts can be."""
    with np.errstate(all="ignore"):
        parts = [one.float().numpy().cumsum(-1, dtype=sums)[..., -1:] for one in (x.clamp(min=0), x.clamp(max=0))]
        return (x.double() / torch.from_numpy(parts[0] + parts[1]).double()).to(x.dtype)


def shares_up_to(most: float) -> Candidate:
    """NaN for rows of larger numbers, none of which makes a sum infinite."""

    def run(x: Tensor) -> Tensor:
        fine = x.float().abs().amax(-1, keepdim=True) <= most
        return torch.where(fine, (x.double() / x.double().sum(-1, keepdim=True)).to(x.dtype), torch.nan)

    return run


@pytest.mark.parametrize(
    ("dtype", "power", "candidate", "wrong"),
    [
        ("float32", 122, shares, False),
        ("bfloat16", 122, shares, False),
        ("float16", 10, shares, False),
        # PyTorch sums float16 in float32: parts that overflow at 65,504 are the kernel's own.
        ("float16", 10, lambda x: shares(x, np.float16), True),
        # 4,096 numbers of 2^120 exceed the largest number by 2^4 to 2^6, and not by 4,096.
        ("float32", 120, shares_up_to(2.0**108), True),
        ("bfloat16", 120, shares_up_to(2.0**108), True),
        ("float32", 112, shares_up_to(2.0**106), True),
        ("float16", 10, shares_up_to(2.0**5), True),
    ],
)
def test_sums_are_excused_by_as_much_as_they_can_overflow(
    dtype: str, power: int, candidate: Candidate, wrong: bool
) -> None:
    where = workload("shares", "test", [tensor("x", (8, 4096), dtype=dtype)], [output("y", (8, 4096), dtype=dtype)])
    large = {"input": "x", "move": "scale", "exponent": power}
    oracle = oracle_of(SHARES, where, candidate)
    answers = [oracle.ask({"workload": "shares", "seed": seed, "changes": [large]}) for seed in range(4)]
    assert all(answer.worst is not None for answer in answers), "the case is void: nothing was fair"
    assert [answer.failed for answer in answers] == [wrong] * 4


def test_signs_show_a_sum_that_overflows_beside_rows_of_small_numbers() -> None:
    oracle = oracle_of(NORM, rows(4, 700), two_pass)
    large = [plant("x", "largest", "first half", axis=0), {"input": "x", "move": "scale", "exponent": -5}]
    assert not ask(oracle, *large).failed


WEIGHED = "import torch\n\ndef run(a, b):\n    return a * torch.sigmoid(b)\n"
RATIO = "def run(a, b):\n    return a / b\n"
TWINS = workload("pair", "test", [tensor("a", (4, 16)), tensor("b", (4, 16))], [output("y", (4, 16))])


def skipped_or(number: float, q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Tensor:
    """A number where masked NaN is multiplied by zero; elsewhere what an honest kernel gives."""
    found = skipping_attention(q, k, v, seen)
    read = torch.softmax((q @ k.T).masked_fill(~seen, -torch.inf), -1) @ v
    return torch.where(read.isnan() & found.isfinite(), number, found)


@pytest.mark.parametrize("number", [123.0, 0.5, 1e-20, torch.inf, -torch.inf])
def test_what_weighs_nothing_may_be_left_out_and_be_no_other_number(number: float) -> None:
    infinite = [plant("a", "inf", "all"), plant("b", "-inf", "all")]
    wrong = oracle_of(WEIGHED, TWINS, lambda a, b: (a * torch.sigmoid(b)).nan_to_num(nan=number))
    assert ask(wrong, *infinite).failed
    assert not ask(oracle_of(WEIGHED, TWINS, lambda a, b: a / (1 + torch.exp(-b))), *infinite).failed
    both = oracle_of(RATIO, TWINS, lambda a, b: torch.where(b.isinf() & (a / b).isnan(), number, a / b))
    assert ask(both, plant("a", "nan", "all"), plant("b", "inf", "all")).failed

    masked = oracle_of(MASKED, ATTENDED, lambda q, k, v, seen: skipped_or(number, q, k, v, seen))
    assert ask(masked, plant("v", "nan", "some", 3)).failed
    assert not ask(oracle_of(MASKED, ATTENDED, skipping_attention), plant("v", "nan", "some", 3)).failed


def total_of_infinity(x: Tensor) -> Tensor:
    positive = (x == torch.inf).any(-1, keepdim=True) & ~x.isnan().any(-1, keepdim=True)
    return torch.where(positive, torch.inf, x.sum(-1, keepdim=True))


def centred_infinity(x: Tensor) -> Tensor:
    found = x - x.mean(-1, keepdim=True)
    return torch.where(found.isnan() & x.isinf(), x, found)


def product_of_infinities(a: Tensor, b: Tensor) -> Tensor:
    found = a @ b
    return torch.where(found.isnan(), torch.copysign(torch.tensor(torch.inf), a.nan_to_num(posinf=1e9) @ b), found)


ROW_TOTALS = workload("total", "test", [tensor("x", (4, 64))], [output("y", (4, 1))])


@pytest.mark.parametrize(
    ("reference", "where", "candidate", "changes"),
    [
        (TOTAL, ROW_TOTALS, total_of_infinity, [plant("x", "inf", "some"), plant("x", "-inf", "some", 2)]),
        (TOTAL, ROW_TOTALS, total_of_infinity, [plant("x", "inf", "all"), plant("x", "-inf", "some", 2)]),
        (
            "def run(x):\n    return x - x.mean(-1, keepdim=True)\n",
            rows(4, 64),
            centred_infinity,
            [plant("x", "inf", "one")],
        ),
        (PRODUCT, MATRICES, product_of_infinities, [plant("a", "inf", "first half")]),
    ],
)
def test_infinities_that_meet_are_nan(
    reference: str, where: ResolvedWorkload, candidate: Candidate, changes: list[dict[str, Any]]
) -> None:
    assert ask(oracle_of(reference, where, candidate), *changes).failed


def test_infinities_of_long_lines_are_looked_at_at_equal_distances() -> None:
    shapes = (("q", (6, 8)), ("k", (90, 8)), ("v", (90, 5)))
    inputs = [*(tensor(name, shape) for name, shape in shapes), tensor("seen", (6, 90), dtype="bool", kind="bernoulli")]
    honest = oracle_of(MASKED, workload("long", "test", inputs, [output("o", (6, 5))]), skipping_attention)
    assert not ask(honest, plant("v", "inf", "all")).failed
    assert not ask(honest, plant("v", "-inf", "first half")).failed


def test_what_infinities_grow_to_is_asked_of_floating_results_alone() -> None:
    reference = "def run(x):\n    return x.cumsum(-1) > 0, x.cumsum(-1)\n"
    exact: Any = output("above", (5, 40), dtype="bool") | {"tolerance": {"rtol": 0.0, "atol": 0.0}}
    results = [exact, output("y", (5, 40))]
    where = workload("two", "test", [tensor("x", (5, 40))], results)
    infinite = plant("x", "inf", "one")
    honest = oracle_of(reference, where, lambda x: (x.cumsum(-1) > 0, x.cumsum(-1)))
    assert not ask(honest, infinite).failed
    assert ask(oracle_of(reference, where, lambda x: (x.cumsum(-1) < 0, x.cumsum(-1).clamp(max=1e30))), infinite).failed


def test_normwise_accuracy_keeps_strassen_possible() -> None:
    worst = worst_of(oracle_of(PRODUCT, SQUARES, strassen, accuracy="normwise"))
    assert worst.ratio <= 1, (worst.worst, describe(worst.recipe))


def test_narrower_operands_pass_under_tf32_alone() -> None:
    def tf32(x: Tensor) -> Tensor:
        nearest = ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
        return torch.where(torch.isfinite(x), nearest, x)

    def rounded(a: Tensor, b: Tensor) -> Tensor:
        return tf32(a) @ tf32(b)

    def half(a: Tensor, b: Tensor) -> Tensor:
        return cut(a, torch.float16) @ cut(b, torch.float16)

    assert worst_of(oracle_of(PRODUCT, MATRICES, rounded, math="tf32")).ratio <= 1
    assert worst_of(oracle_of(PRODUCT, MATRICES, rounded)).failed
    assert worst_of(oracle_of(PRODUCT, MATRICES, half, math="tf32")).failed


def ask(oracle: Oracle, *changes: dict[str, Any]) -> Answer:
    recipe: Recipe = {"workload": oracle.workload["id"], "seed": 11, "changes": list(changes)}
    return oracle.ask(recipe)


def test_an_overflow_near_the_border_is_no_counterexample_and_one_beyond_it_is() -> None:
    """exp(x) of a softmax without maximum overflows from 88 on."""
    oracle = oracle_of(SOFTMAX, rows(5, 40), softmax_without_maximum)
    assert not ask(oracle, {"input": "x", "move": "fill", "number": 100.0}).failed
    assert ask(oracle, {"input": "x", "move": "fill", "number": 100.0 * 2**5}).failed


def test_where_eager_is_not_right_nothing_is_asked_of_a_candidate() -> None:
    """Squares overflow in eager's float32; a candidate may do better or worse there."""
    reference = "def run(x):\n    return (x * x).sum(-1, keepdim=True).sqrt()\n"
    where = workload("norm", "test", [tensor("x", (5, 40))], [output("y", (5, 1))])
    for candidate in (lambda x: x.double().norm(dim=-1, keepdim=True).float(), lambda x: x[:, :1] * 0):
        answer = ask(oracle_of(reference, where, candidate), {"input": "x", "move": "fill", "number": 2.0**100})
        assert answer.worst is None


BATCH_NORM = "import torch\n\ndef run(x):\n    return torch.nn.functional.batch_norm(x, None, None, training=True)\n"
LARGE = 2.0**24 + 6
EQUAL = {"input": "x", "move": "fill", "number": LARGE}


def normalised(x: Tensor) -> Tensor:
    """Batch normalisation as one product and sum, the mean by a chain."""
    mean = in_chain(x.t().contiguous())[:, 0] / x.shape[0]
    scale = torch.rsqrt(x.var(0, correction=0) + 1e-5)
    return torch.addcmul(-mean * scale, x, scale)


BIASED_NORM = """import torch

def run(x, bias, weight, shift):
    y = x + bias[:, None]
    return torch.relu(torch.nn.functional.batch_norm(y, None, None, weight, shift, True, 0.1, 1e-5))
"""


def channels(columns: int) -> ResolvedWorkload:
    vectors = [tensor(name, (16,)) for name in ("bias", "weight", "shift")]
    return workload("bn", "test", [tensor("x", (4, 16, columns)), *vectors], [output("y", (4, 16, columns))])


def batch_norm(x: Tensor, bias: Tensor, weight: Tensor, shift: Tensor, correction: int = 0) -> Tensor:
    y = x + bias[:, None]
    variance, mean = torch.var_mean(y, dim=(0, 2), correction=correction)
    scale = weight * torch.rsqrt(variance + 1e-5)
    return torch.relu(torch.addcmul((shift - mean * scale)[:, None], y, scale[:, None]))


@pytest.mark.parametrize("seed", [19, 25])
def test_what_eager_loses_between_two_steps_is_lost_at_every_element(seed: int) -> None:
    """Eager's own error was zero at elements, and in a whole channel, that its relu cuts."""
    oracle = oracle_of(BIASED_NORM, channels(900), batch_norm)
    oracle.rng = random.Random(seed)
    change = {"input": "bias", "move": "grade", "axis": 0, "low": -20, "high": 20, "draw": seed + 1}
    answer = oracle.ask({"workload": "bn", "seed": seed, "changes": [change]})
    assert answer.worst is not None
    assert 0 < answer.worst.ratio <= 1, answer.worst


def test_a_wrong_correction_of_such_an_op_is_found() -> None:
    def wrong(x: Tensor, bias: Tensor, weight: Tensor, shift: Tensor) -> Tensor:
        return batch_norm(x, bias, weight, shift, correction=1)

    assert worst_of(oracle_of(BIASED_NORM, channels(9), wrong)).failed


def test_where_the_result_jumps_a_finite_value_passes_and_no_other() -> None:
    """Equal elements: a mean that is one rounding off is divided by sqrt(eps)."""
    where = rows(900, 3)
    honest = oracle_of(BATCH_NORM, where, normalised)
    values = torch.full((900, 3), LARGE)
    assert normalised(values).abs().max() > 16, "the case is void: this mean is exact"
    assert not ask(honest, EQUAL).failed
    assert worst_of(honest).ratio <= 1
    for wrong in (
        lambda x: (x - x.mean(0)) * torch.rsqrt(x.var(0, correction=0)),
        lambda x: torch.zeros_like(x) + torch.nan,
    ):
        assert ask(oracle_of(BATCH_NORM, where, wrong), EQUAL).failed
    small = EQUAL | {"number": 0.5}
    assert ask(oracle_of(BATCH_NORM, where, lambda x: normalised(x) + 1), small).failed


def test_numbers_beyond_float32_are_measured() -> None:
    where = workload("std", "test", [tensor("x", (4, 50), dtype="float64")], [output("y", (4,), dtype="float64")])
    large = {"input": "x", "move": "scale", "exponent": 480}
    reference = "def run(x):\n    return x.std(-1)\n"
    assert not ask(oracle_of(reference, where, lambda x: (x - x[:, :1]).std(-1) * (1 + 2**-48)), large).failed
    assert ask(oracle_of(reference, where, lambda x: x.std(-1) * (1 + 2**-20)), large).failed


def test_a_reference_that_raises_makes_a_question_unfair() -> None:
    reference = "def run(x):\n    assert x.isfinite().all()\n    return x\n"
    where = workload("same", "test", [tensor("x", (5, 40))], [output("y", (5, 40))])
    change = {"input": "x", "move": "plant", "value": "nan", "where": "one", "axis": 0, "draw": 1}
    assert ask(oracle_of(reference, where, lambda x: x * 0), change).ratio == -1


QUANTIZE = """
import torch

def run(x):
    scale = x.float().abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448.0
    return (x.float() / scale).to(torch.float8_e4m3fn)
"""


def quantized(x: Tensor, most: float) -> Tensor:
    inverse = most / x.float().abs().amax(-1, keepdim=True).clamp(min=1e-4)
    return (x.float() * inverse).clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


def test_8_bit_results_of_few_inputs_are_asked() -> None:
    # An element depends on itself and on the largest of its row alone, which is found to be a pointwise op.
    x = tensor("x", (3, 16), dtype="bfloat16") | {"values": {"finite": True}}
    where = workload("groups", "test", [x], [output("q", (3, 16), dtype="float8_e4m3fn")])
    honest = oracle_of(QUANTIZE, where, lambda x: quantized(x, 448.0))
    assert not worst_of(honest).failed
    assert worst_of(oracle_of(QUANTIZE, where, lambda x: quantized(x, 384.0))).failed


def test_an_op_that_chooses_may_break_ties_as_it_likes() -> None:
    where = workload("argmax", "test", [tensor("x", (5, 40))], [output("y", (5,), dtype="int64")])
    reference = "def run(x):\n    return x.argmax(-1)\n"
    last = oracle_of(reference, where, lambda x: 39 - x.flip(-1).argmax(-1))
    assert worst_of(last).ratio == 0
    assert worst_of(oracle_of(reference, where, lambda x: x[:, :32].argmax(-1))).failed


def test_the_step_is_that_of_the_arithmetic() -> None:
    unit = 2.0**-24
    assert backward_step([torch.float32], 1000, "ieee") == pytest.approx(1064 * unit)
    assert backward_step([torch.float32], 1, "ieee") == pytest.approx(9 * unit)
    assert backward_step([torch.bfloat16, torch.float32], 1000, "ieee") == pytest.approx(2.0**-8 + 1000 * unit)
    assert backward_step([torch.bfloat16], 1, "ieee", once=True) == pytest.approx(9 * unit)
    assert backward_step([torch.bfloat16], 1, "ieee") == pytest.approx(2.0**-8 + unit)
    assert backward_step([torch.bfloat16], 1000, "ieee", once=True) == pytest.approx(2.0**-8 + 1000 * unit)
    assert backward_step([torch.float64], 1000, "ieee") == pytest.approx(1064 * 2.0**-53)
    assert backward_step([torch.float32], 1000, "tf32") == pytest.approx(2.0**-11 + 1000 * 2.0**-23)


def narrow(dtype: str, names: str) -> ResolvedWorkload:
    inputs = [tensor(name, (7, 130), dtype=dtype) for name in names]
    return workload("narrow", "test", inputs, [output("o", (7, 130), dtype=dtype)])


def cubic(x: Tensor) -> Tensor:
    return 0.79788456080286536 * (x + 0.044715 * x**3)


def coarse_gelu(x: Tensor) -> Tensor:
    """A GELU whose tanh is good to 2^-13 of 1, as `tanh.approx.f32` is in its best range."""
    tanh = torch.round(torch.tanh(cubic(x.float())) * 4096) / 4096
    return (0.5 * x.float() * (1 + tanh)).to(x.dtype)


GELU = "import torch\n\ndef run(x):\n    return torch.nn.functional.gelu(x, approximate='tanh')\n"
GATED = "import torch\n\ndef run(x, y):\n    return torch.nn.functional.silu(x) * y\n"
ROTATED = "import torch\n\ndef run(x, y, z):\n    return x * torch.cos(z) - y * torch.sin(z)\n"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("reference", "names", "candidate", "wrong"),
    [
        (GELU, "x", coarse_gelu, True),  # loses all digits where tanh is near -1
        (GELU, "x", lambda x: (x.float() / (1 + torch.exp(-2 * cubic(x.float())))).to(x.dtype), False),
        (GATED, "xy", lambda x, y: (torch.nn.functional.silu(x.float()) * y.float()).to(x.dtype), False),
        (GATED, "xy", lambda x, y: torch.nn.functional.silu(x) * y, False),  # rounds in between, as eager does
        (ROTATED, "xyz", lambda x, y, z: x * torch.cos(z) - y * torch.sin(z), False),
        ("def run(x, y, z):\n    return x + y + z\n", "xyz", lambda x, y, z: x + (y + z), False),  # another order
    ],
)
def test_a_pointwise_op_of_narrow_inputs_is_computed_as_eager_computes_it(
    reference: str, names: str, candidate: Candidate, wrong: bool, dtype: str
) -> None:
    assert worst_of(oracle_of(reference, narrow(dtype, names), candidate)).failed is wrong


@pytest.mark.parametrize(
    ("special", "dtype", "fan_in", "found", "passes"),
    [
        (Special(), torch.float64, 50, np.inf, True),  # terms overflowed: inf - inf, or one exact product after another
        (Special(), torch.float64, 50, -np.inf, True),
        (Special(), torch.float64, 50, 1e300, False),
        (Special(nan=True), torch.float64, 50, np.inf, False),  # who drops NaN
        (Special(infinities=True), torch.float64, 50, np.inf, False),
        (Special(), torch.float64, 1, np.inf, False),  # no sum: a function's own NaN
        (Special(), torch.float32, 50, np.inf, False),  # float64 has room for what overflows here
    ],
)
def test_an_overflow_within_a_float64_sum_is_infinite_or_nan(
    special: Special, dtype: torch.dtype, fan_in: int, found: float, passes: bool
) -> None:
    rule = Rule("c", None, "componentwise", backward_step([dtype], fan_in, "ieee"), fan_in)
    truth = torch.full((3,), np.nan, dtype=torch.float64)
    worst = rule.worst(torch.full((3,), found, dtype=dtype), truth.to(dtype), truth, None, special)
    assert worst is not None
    assert worst.ratio == (0.0 if passes else HIGHEST)


LOGSUMEXP = "import torch\n\ndef run(x):\n    return torch.logsumexp(x, dim=-1, keepdim=True)\n"


def shifted_logsumexp(x: Tensor) -> Tensor:
    """The logarithm of a sum of exponentials about the row's maximum: NaN where that is infinite."""
    most = x.amax(-1, keepdim=True)
    return most + torch.log(torch.exp(x - most).sum(-1, keepdim=True))


def guarded_logsumexp(x: Tensor) -> Tensor:
    most = x.amax(-1, keepdim=True)
    most = torch.where(most.isinf(), 0.0, most)
    return most + torch.log(torch.exp(x - most).sum(-1, keepdim=True))


@pytest.mark.parametrize(("candidate", "wrong"), [(shifted_logsumexp, True), (guarded_logsumexp, False)])
def test_a_row_that_is_masked_whole_is_minus_infinity_where_no_sum_is_split(candidate: Candidate, wrong: bool) -> None:
    where = workload("rows", "test", [tensor("x", (6, 40))], [output("y", (6, 1))])
    oracle = oracle_of(LOGSUMEXP, where, candidate)
    masked = {"input": "x", "move": "plant", "value": "-inf", "where": "slice", "axis": 0, "draw": 1}
    assert oracle.ask({"workload": "rows", "seed": 5, "changes": [masked]}).failed is wrong


@pytest.mark.parametrize(
    ("reference", "ordered"),
    [
        (LOGSUMEXP, True),
        ("def run(x):\n    return x.amax(-1)\n", True),
        (TOTAL, False),
        (PRODUCT, False),
        (SOFTMAX, False),
        ("import torch\n\ndef run(x, w):\n    return torch.relu(torch.nn.functional.linear(x, w))\n", False),
        ("import torch\n\ndef run(x):\n    return torch.log(torch.exp(x - x.amax()).sum())\n", False),
    ],
)
def test_ops_that_only_compare_have_no_terms_to_split(reference: str, ordered: bool) -> None:
    assert is_ordered(reference) is ordered


SORT_BY_BITS = """import torch

def run(x):
    bits = x.view(torch.int64 if x.dtype == torch.float64 else torch.int32)
    keys = torch.where(bits < 0, bits ^ torch.iinfo(bits.dtype).max, bits)
    return x.gather(-1, keys.argsort(-1))
"""
"""As PyTorch sorts on a GPU: a NaN with its sign set comes before all numbers."""


@pytest.mark.parametrize(("value", "fair"), [("nan", True), ("-nan", False)])
def test_which_nan_it_is_is_no_question_where_the_reference_tells_them_apart(value: str, fair: bool) -> None:
    where = rows(6, 40)
    oracle = oracle_of(SORT_BY_BITS, where, lambda x: x.sort(-1).values)
    some = {"input": "x", "move": "plant", "value": value, "where": "some", "axis": 0, "draw": 1}
    answer = oracle.ask({"workload": "rows", "seed": 5, "changes": [some]})
    assert (answer.worst is not None) is fair
    assert not answer.failed


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float32, torch.int32])
def test_results_of_every_dtype_are_alike_where_any_nan_is_any_other(dtype: torch.dtype) -> None:
    one = torch.tensor([1.0, 2.0, 0.0]).to(dtype)
    other = one.clone()
    if dtype.is_floating_point:
        one[1], other[1] = float("nan"), -float("nan")
    assert _alike(one, other)
    other[0] = 2.0
    assert not _alike(one, other)


GATE = """import torch

def run(x):
    weights, chosen = torch.topk(torch.softmax(x, dim=-1), 4, dim=-1)
    return weights, chosen.to(torch.int32)
"""


def gate(x: Tensor) -> tuple[Tensor, Tensor]:
    """Choose by the numbers themselves, which are apart where their softmax is not."""
    best = x.topk(4, dim=-1).indices
    return torch.softmax(x, dim=-1).gather(-1, best), best.to(torch.int32)


def last_gate(x: Tensor) -> tuple[Tensor, Tensor]:
    best = x.topk(4, dim=-1, largest=False).indices
    return torch.softmax(x, dim=-1).gather(-1, best), best.to(torch.int32)


@pytest.mark.parametrize(
    ("exponent", "candidate", "wrong"), [(-63, gate, False), (1, gate, False), (1, last_gate, True)]
)
def test_equals_that_the_reference_makes_itself_may_be_chosen_in_any_order(
    exponent: int, candidate: Candidate, wrong: bool
) -> None:
    outputs = [output("weights", (32, 4)), output("chosen", (32, 4), dtype="int32")]
    where = workload("rows", "test", [tensor("x", (32, 40))], outputs)
    oracle = oracle_of(GATE, where, candidate)
    oracle.runners.facts(where).indices[1] = Indices(0, 1, along=True, kept=True, any_order=True)
    scaled = {"input": "x", "move": "scale", "exponent": exponent}
    assert oracle.ask({"workload": "rows", "seed": 5, "changes": [scaled]}).failed is wrong


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16])
def test_one_rounding_to_a_narrow_dtype_is_told_from_more(dtype: torch.dtype) -> None:
    """Quantising to 8 bits is asked it as well: a float of 8 bits cannot be asked whether it is finite."""
    wide = torch.linspace(-3.0, 3.0, 4096, dtype=torch.float64)
    wide[7] = torch.nan
    assert is_rounded_once(wide.to(dtype), wide)
    assert not is_rounded_once((1.2 * wide).to(dtype), wide)


def test_results_of_8_bits_are_asked_too() -> None:
    """Torch has no isfinite for their dtype."""
    reference = "import torch\n\ndef run(x):\n    return (x * 3.0).to(torch.float8_e4m3fn)\n"
    where = workload("points", "test", [tensor("x", (5, 40))], [output("y", (5, 40), dtype="float8_e4m3fn")])
    for factor, wrong in ((3.0, False), (2.0, True)):
        oracle = oracle_of(reference, where, lambda x, factor=factor: (x * factor).to(torch.float8_e4m3fn))
        assert worst_of(oracle).failed == wrong


def in_a_narrow_chain(x: Tensor) -> Tensor:
    total = torch.zeros(x.shape[0], dtype=x.dtype)
    for column in x.T:
        total = total + column
    return total


@pytest.mark.parametrize(
    ("columns", "dtype", "candidate"),
    [
        (257, "bfloat16", in_a_narrow_chain),
        (1021, "float16", in_a_narrow_chain),
        (1021, "float16", lambda x: x[:, :-1].sum(-1)),
        (4099, "bfloat16", lambda x: x[:, :-1].sum(-1)),
    ],
    ids=["a chain of 257", "a chain of 1021", "1020 of 1021", "4098 of 4099"],
)
def test_what_the_norm_of_one_16_bit_result_may_pass_is_found(columns: int, dtype: str, candidate: Candidate) -> None:
    """The norm limit of a single result is wide: now and then all questions of a verification pass these."""
    where = workload("sum", "test", [tensor("x", (1, columns), dtype=dtype)], [output("y", (1,), dtype=dtype)])
    assert worst_of(oracle_of("def run(x):\n    return x.sum(-1)\n", where, candidate), 400).failed


def test_a_tree_of_one_16_bit_result_passes() -> None:
    where = workload("sum", "test", [tensor("x", (1, 257), dtype="float16")], [output("y", (1,), dtype="float16")])

    def in_a_tree(x: Tensor) -> Tensor:
        while x.shape[1] > 1:
            x = torch.nn.functional.pad(x, (0, x.shape[1] % 2))
            x = x[:, ::2] + x[:, 1::2]
        return x[:, 0]

    assert not worst_of(oracle_of("def run(x):\n    return x.sum(-1)\n", where, in_a_tree), 100).failed

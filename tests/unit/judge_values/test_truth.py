"""Honest answers whose right result is not one alone, or not told by eager's own error; and their wrong siblings."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch

from tests.judging import output, tensor, workload
from tests.kinds import nightly_but
from tests.support.in_process import InProcess, learnt, no_code, question_on, wrong_on
from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.job.dtypes import DTYPE_BYTES
from warpsmith.workers.judge.reference import read_shares
from warpsmith.workers.judge.reference.admission import examine
from warpsmith.workers.judge.reference.indices import leaves_order_open
from warpsmith.workers.judge.reference.input_checks import Unsuited, declared, declared_on
from warpsmith.workers.judge.reference.learning import learn
from warpsmith.workers.judge.reference.moved_inputs import narrow_norm
from warpsmith.workers.judge.reference.read_shares import SAMPLES, least_bytes
from warpsmith.workers.judge.values.families import families
from warpsmith.workers.judge.values.inputs import CPU, InputSource, InputSources

Answer = Callable[..., Any]


def op(reference: str) -> str:
    return f"import torch\n\n\ndef run(x, y=None):\n    {reference}\n"


def place(shape: tuple[int, ...], dtype: str, *outputs: Any, other: Any = None, **dist: Any) -> ResolvedWorkload:
    inputs = [tensor("x", shape, dtype=dtype, **dist)] + ([] if other is None else [other])
    return workload("w", "bench", inputs, list(outputs))


def wrong_answers(reference: str, where: ResolvedWorkload, answer: Answer) -> list[str]:
    """What is wrong with an answer on two draws of the declared inputs and on every family."""
    runners = learnt(reference, where)
    questions = [declared(runners, where, source(where, seed)) for seed in (1, 2)]
    for family in families(where, random.Random(3), ties=runners.decides_ties(where)):
        try:
            questions.append(question_on(runners, where, family, 4))
        except Unsuited:
            continue
    found = (wrong_on(runners, where, question, answer) for question in questions)
    return [what for what in found if what is not None]


def source(where: ResolvedWorkload, seed: int) -> InputSource:
    return InputSource(where["inputs"], seed, no_code, CPU)


def chain(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    total = torch.zeros(x.shape[0], dtype=dtype)
    for column in x.to(dtype).T:
        total = total + column
    return total


def tree(x: torch.Tensor) -> torch.Tensor:
    while x.shape[1] > 1:
        x = torch.nn.functional.pad(x, (0, x.shape[1] % 2))
        x = x[:, ::2] + x[:, 1::2]
    return x[:, 0]


SUM = op("return x.sum(-1)")
ARGMAX = op("return x.argmax(-1)")
TOPK = op("return torch.topk(x, 3, dim=-1).indices")
WHOLE_TOPK = op("return torch.topk(x, 3).indices")
STABLE = op("return torch.argsort(x, dim=-1, stable=True)")
CODES = op("return torch.cdist(x, y).argmin(-1)")
INT8 = op("return torch.clamp(torch.round(x / y), -128, 127).to(torch.int8)")
FLOAT8 = op("return (x / y).to(torch.float8_e4m3fn)")

OWN_SCALE = op("s = x.float().abs().amax(-1, True) / 127.0; return torch.round(x.float() / s).to(torch.int8)")

DOUBLES = place((8, 999), "float64", output("out", (8,), dtype="float64"))
NARROWS = place((32, 999), "bfloat16", output("out", (32,), dtype="bfloat16"))
ROWS = place((40, 60), "bfloat16", output("out", (40,), dtype="int64"))
FLOATS = place((40, 60), "float32", output("out", (40,), dtype="int64"))
CHOSEN = place((40, 60), "bfloat16", output("out", (40, 3), dtype="int64"))
ORDERED = place((40, 60), "bfloat16", output("out", (40, 60), dtype="int64"))
NEAREST = place((300, 16), "float32", output("out", (300,), dtype="int64"), other=tensor("y", (200, 16)))
SCALE = tensor("y", (40, 1), kind="uniform", low=0.3, high=0.9)
QUANTISED = place((40, 60), "float32", output("out", (40, 60), dtype="int8"), other=SCALE, kind="normal", std=20.0)
EIGHTS = place((40, 60), "float32", output("out", (40, 60), dtype="float8_e4m3fn"), other=SCALE)


WHOLE_ROWS = place((40, 60), "int32", output("out", (40, 3), dtype="int64"), kind="randint", low=0, high=20)
SCALED = place((400, 300), "bfloat16", output("out", (400, 300), dtype="int8"))


def own_scale(x: torch.Tensor, reciprocal: float) -> torch.Tensor:
    """Another last bit of the scale: half of a row's largest, which is common in bfloat16, goes the other way."""
    scale = x.float().abs().amax(-1, True) * torch.tensor(reciprocal)
    return torch.round(x.float() / torch.nextafter(scale, torch.full_like(scale, 9e9))).to(torch.int8)


def last_largest(x: torch.Tensor) -> torch.Tensor:
    return x.shape[-1] - 1 - x.flip(-1).argmax(-1)


def three_largest(x: torch.Tensor, seed: int) -> torch.Tensor:
    """Equals in any order."""
    order = torch.randperm(x.shape[-1], generator=torch.Generator().manual_seed(seed))
    return order[x[:, order].sort(dim=-1, descending=True, stable=True).indices[:, :3]]


def with_one_twice(x: torch.Tensor) -> torch.Tensor:
    found = three_largest(x, 0)
    values = x.gather(-1, found)
    found[:, 1] = torch.where(values[:, 0] == values[:, 1], found[:, 0], found[:, 1])
    return found


def step_towards_zero(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    wide = x / y
    near = wide.to(torch.float8_e4m3fn)
    below = (near.view(torch.uint8) - 1).view(torch.float8_e4m3fn)
    return torch.where(near.float().abs() > wide.abs(), below.float(), near.float()).to(torch.float8_e4m3fn)


def clamped(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-128, 127).to(torch.int8)


@pytest.mark.parametrize(
    ("reference", "where", "answer"),
    [
        pytest.param(SUM, DOUBLES, lambda x: chain(x, torch.float64), id="float64 in a chain"),
        pytest.param(SUM, DOUBLES, lambda x: chain(x.flip(-1), torch.float64), id="float64 backwards"),
        pytest.param(SUM, DOUBLES, tree, id="float64 by a tree"),
        pytest.param(SUM, NARROWS, lambda x: chain(x, torch.float32).bfloat16(), id="bfloat16 in float32"),
        pytest.param(SUM, NARROWS, tree, id="bfloat16 by a tree of its own"),
        pytest.param(ARGMAX, ROWS, lambda x: x.argmax(-1), id="first of equals"),
        pytest.param(TOPK, CHOSEN, lambda x: three_largest(x, 1), id="topk in some order"),
        pytest.param(TOPK, CHOSEN, lambda x: three_largest(x, 2), id="topk in another order"),
        pytest.param(STABLE, ORDERED, lambda x: x.argsort(dim=-1, stable=True), id="stable sort"),
        pytest.param(CODES, NEAREST, lambda x, y: ((y * y).sum(-1) - 2 * x @ y.T).argmin(-1), id="codes by products"),
        pytest.param(
            CODES, NEAREST, lambda x, y: torch.cdist(x.double(), y.double()).argmin(-1), id="codes in float64"
        ),
        pytest.param(INT8, QUANTISED, lambda x, y: clamped((x * (1 / y)).round()), id="int8 by a reciprocal"),
        pytest.param(INT8, QUANTISED, lambda x, y: clamped((x / y + 0.5).floor()), id="int8, halves up"),
        pytest.param(OWN_SCALE, SCALED, lambda x: own_scale(x, 1 / 127), id="int8 by a scale of its own, a reciprocal"),
        pytest.param(WHOLE_TOPK, WHOLE_ROWS, lambda x: x.flip(-1).topk(3).indices.neg() + 59, id="topk of integers"),
        pytest.param(FLOAT8, EIGHTS, lambda x, y: (x * (1 / y)).to(torch.float8_e4m3fn), id="float8 by a reciprocal"),
    ],
)
def test_an_honest_answer_is_right(reference: str, where: ResolvedWorkload, answer: Answer) -> None:
    assert wrong_answers(reference, where, answer) == []


@pytest.mark.parametrize(
    ("reference", "where", "answer"),
    [
        pytest.param(SUM, DOUBLES, lambda x: x.float().sum(-1).double(), id="float64 in float32"),
        pytest.param(SUM, DOUBLES, lambda x: x.float().double().sum(-1), id="float64 of float32"),
        pytest.param(SUM, NARROWS, lambda x: chain(x, torch.bfloat16), id="bfloat16 in a chain of its own"),
        pytest.param(ARGMAX, ROWS, last_largest, id="last of equals"),
        pytest.param(TOPK, CHOSEN, with_one_twice, id="one of equals twice"),
        pytest.param(TOPK, CHOSEN, lambda x: three_largest((x * 8).round(), 1), id="topk of rounded values"),
        pytest.param(STABLE, ORDERED, lambda x: 59 - x.flip(-1).argsort(dim=-1, stable=True), id="equals turned"),
        pytest.param(CODES, NEAREST, lambda x, y: (x @ y.T).argmax(-1), id="codes by products alone"),
        pytest.param(INT8, QUANTISED, lambda x, y: clamped((x / y).trunc()), id="int8 cut"),
        pytest.param(
            INT8, QUANTISED, lambda x, y: clamped((x.bfloat16() / y.bfloat16()).round()), id="int8 in bfloat16"
        ),
        pytest.param(FLOAT8, EIGHTS, step_towards_zero, id="float8 cut"),
    ],
)
def test_its_wrong_sibling_is_caught(reference: str, where: ResolvedWorkload, answer: Answer) -> None:
    assert wrong_answers(reference, where, answer)


@pytest.mark.parametrize(("shape", "seeds"), [((5, 4099), (10, 11)), ((1, 1021), (7, 12, 24))])
def test_a_sum_by_a_tree_is_right_where_few_results_cancel(shape: tuple[int, int], seeds: tuple[int, ...]) -> None:
    """On these seeds one move of the inputs leaves the few results nearer than a tree does."""
    few = place(shape, "float16", output("out", shape[:1], dtype="float16"))
    runners = learnt(SUM, few)
    heavy = next(family for family in families(few, random.Random(3)) if family.name == "heavy")
    questions = [question_on(runners, few, heavy, seed) for seed in seeds]
    assert [wrong_on(runners, few, question, tree) for question in questions] == [None] * len(seeds)


def test_a_chain_is_caught_on_few_results() -> None:
    few = place((5, 1021), "bfloat16", output("out", (5,), dtype="bfloat16"))
    assert len(wrong_answers(SUM, few, lambda x: chain(x, torch.bfloat16))) > 3


@pytest.mark.parametrize(("elements", "units"), [(1, 5.0), (5, 2.84), (13, 2.5077), (14, 2.5), (10**6, 2.5)])
def test_the_norm_of_a_16_bit_sum_is_wider_for_few_results_alone(elements: int, units: float) -> None:
    assert narrow_norm(elements) == pytest.approx(units, abs=1e-4)


def test_a_small_result_has_its_norm_limit_from_its_size() -> None:
    one, many = (place((rows, 999), "bfloat16", output("out", (rows,), dtype="bfloat16")) for rows in (1, 64))
    for where, units in ((one, 5.0), (many, 2.5)):
        [found] = learnt(SUM, where).limits(where)
        assert found is not None
        assert found.l2 >= units / 256


def test_ties_of_float32_are_asked_where_the_first_is_promised() -> None:
    """Values drawn at random have no equals: a family has them."""
    assert wrong_answers(ARGMAX, FLOATS, lambda x: x.argmax(-1)) == []
    assert wrong_answers(ARGMAX, FLOATS, last_largest)


@pytest.mark.parametrize(
    ("reference", "where", "shown"),
    [
        (ARGMAX, ROWS, (0, 1, True, False, False, True)),
        (TOPK, CHOSEN, (0, 1, True, True, True, True)),
        (op("return torch.softmax(x, -1).argmax(-1)"), FLOATS, (0, 1, True, False, False, False)),
        (op("return x.max(1).indices"), FLOATS, (0, 1, True, False, False, True)),
        (CODES, NEAREST, (1, 0, False, False, False, False)),
        (op("return torch.topk(x + torch.arange(60), 3).indices"), CHOSEN, None),
        (op("return x.round().long()"), place((9, 7), "float32", output("out", (9, 7), dtype="int64")), None),
    ],
)  # fmt: skip
def test_indices_are_shown_by_the_reference(reference: str, where: ResolvedWorkload, shown: Any) -> None:
    found = learnt(reference, where).facts(where).indices.get(0)
    told = None
    if found is not None:
        told = (found.position, found.axis, found.along, found.kept, found.any_order, found.sharp)
    assert told == shown


@pytest.mark.parametrize(
    ("call", "opened"),
    [
        ("torch.topk(x, 3)", True),
        ("x.topk(3)", True),
        ("torch.sort(x)", True),
        ("torch.sort(x, stable=True)", False),
        ("x.argsort(-1, stable=True)", False),
        ("x.argsort(stable=False)", True),
        ("x.argmax(-1)", False),
        ("x.max(-1)", False),
    ],
)
def test_the_source_says_whether_the_order_of_equals_is_open(call: str, opened: bool) -> None:
    assert leaves_order_open(op(f"return {call}")) == opened


def test_the_ops_word_on_its_indices_holds() -> None:
    own = {**output("out", (40, 3), dtype="int64"), "indices": {"ties": "first", "of": "x", "axis": -1}}
    strict = place((40, 60), "bfloat16", own)
    assert wrong_answers(TOPK, strict, lambda x: torch.topk(x, 3, dim=-1).indices) == []
    assert wrong_answers(TOPK, strict, lambda x: three_largest(x, 1))


def test_an_exact_check_of_integers_stays_exact() -> None:
    own = output("out", (40, 60), dtype="int8", tolerance={"rtol": 0.0, "atol": 0.0})
    where = place((40, 60), "float32", own, other=SCALE, kind="normal", std=20.0)
    assert learnt(INT8, where).limits(where) == [None]
    assert wrong_answers(INT8, where, lambda x, y: clamped((x / y).round())) == []
    halves = place(
        (40, 60), "float32", own, other=tensor("y", (40, 1), kind="constant", value=2.0), kind="randint", low=-9, high=9
    )
    assert wrong_answers(INT8, halves, lambda x, y: clamped((x / y + 0.5).floor()))  # fmt: skip


def test_what_eager_gives_is_right_where_a_result_jumps() -> None:
    """At whole numbers less a little float32 rounds up before the floor; the declared values seldom hold any."""
    where = place((400,), "float32", output("out", (400,)))
    runners = learnt(op("return torch.floor(x * 0.3)"), where)
    values = torch.full((400,), 36.666664, dtype=torch.float32)
    values[0] = torch.nextafter(torch.tensor(11 / 0.3), torch.tensor(0.0))
    question = declared_on(runners, where, [values])
    eager = torch.floor(values * 0.3)
    assert not torch.equal(eager.double(), question.expected[0])
    assert wrong_on(runners, where, question, lambda x: torch.floor(x * 0.3)) is None
    assert wrong_on(runners, where, question, lambda x: torch.floor(x * 0.3) + (torch.arange(400) == 7))


def test_an_exact_check_of_indices_is_asked_for_ties() -> None:
    """`argmax` of a mask: the reference itself does not show that the result holds indices."""
    mask = op("return (x == x.amax(-1, keepdim=True)).to(torch.int8).argmax(-1)")
    own = output("out", (40,), dtype="int64", tolerance={"rtol": 0.0, "atol": 0.0})
    where = place((40, 60), "float32", own)
    assert learnt(mask, where).decides_ties(where)
    assert wrong_answers(mask, where, lambda x: x.argmax(-1)) == []
    assert wrong_answers(mask, where, last_largest)


def often_paired(pair: tuple[str, str]) -> bool:
    """Each dtype with itself, with the next one, and with float32 either way."""
    given, made = (list(DTYPE_BYTES).index(dtype) for dtype in pair)
    return "float32" in pair or made - given in (0, 1)


@pytest.mark.parametrize("pair", nightly_but(often_paired, itertools.product(DTYPE_BYTES, DTYPE_BYTES)), ids="-".join)
def test_every_dtype_of_a_spec_is_examined(pair: tuple[str, str]) -> None:
    given, made = pair
    dist: dict[str, Any] = {"kind": "normal"}
    if "float" not in given:
        dist = {"kind": "bernoulli"} if given == "bool" else {"kind": "randint", "low": 0, "high": 100}
    where = place((11, 17), given, output("out", (11, 17), dtype=made), **dist)
    value = (
        "x.to(torch.float32) > x.to(torch.float32).mean()"
        if made == "bool"
        else f"(x.to(torch.float32) * 3).to(torch.{made})"
    )
    runners, sources = InProcess(op(f"return {value}")), InputSources(random.Random(1), no_code)
    learn(runners, where, sources)
    checks = examine({"math": "ieee"}, [where], runners, sources, random.Random(2))  # type: ignore[typeddict-item]
    assert [check["answer"] for check in checks if check["needed"] and not check["caught"]] == []


def index(count: int, below: int) -> Any:
    return tensor("y", (count,), dtype="int64", kind="randint", low=0, high=below)


PICKED = {"other": index(50, 5000)}


@pytest.mark.parametrize(
    ("statement", "where", "share"),
    [
        ("return torch.embedding(x, y)", place((5000, 16), "float32", output("out", (50, 16)), **PICKED), 0.02),
        ("return x[:, y]", place((16, 5000), "float32", output("out", (16, 50)), **PICKED), 0.02),
        ("return x[:, :100].sum(-1)", place((20, 2000), "float32", output("out", (20,))), 0.25),
        ("return x.amax(-1)", place((20, 2000), "float32", output("out", (20,))), 1.0),
        ("return x.relu()", place((20, 2000), "float32", output("out", (20, 2000))), 1.0),
        ("x[y] = 1.0", place((5000, 16), "float32", mutated=True, kind="normal", **PICKED), 0.02),
    ],
    ids=["embedding", "columns", "a part", "maximum", "relu", "in place"],
)
def test_the_least_bytes_are_what_is_read(statement: str, where: ResolvedWorkload, share: float) -> None:
    runners = learnt(op(statement), where)
    needed = least_bytes(runners, where, lambda: source(where, 3), sampled=True)
    outputs = sum(4 * torch.Size(item["shape"]).numel() for item in where["outputs"])
    read = where["min_bytes"] - outputs
    if share == 1.0:
        assert needed == where["min_bytes"]
    else:
        assert needed - outputs <= share * read


@pytest.mark.parametrize("dtype", [name for name in DTYPE_BYTES if name != "bool"])
def test_the_rows_that_are_read_are_found_in_every_dtype(dtype: str) -> None:
    dist: dict[str, Any] = {"kind": "normal"} if "float" in dtype else {"kind": "randint", "low": 0, "high": 100}
    where = place((5000, 64), dtype, output("out", (50, 64), dtype=dtype), **PICKED, **dist)
    runners = learnt(op("return x[y]"), where)
    assert least_bytes(runners, where, lambda: source(where, 3)) < where["min_bytes"] / 10


@pytest.mark.parametrize("first", [13, SAMPLES - 1])
def test_many_units_in_a_row_that_matter_do_not_mean_that_all_do(first: int) -> None:
    """Of a product of experts' weights two thirds were read, and the first twelve samples all happened to be."""

    class Scene:
        values = (torch.zeros(1024),)
        asked = 0

        def matters(self, position: int, replaced: torch.Tensor) -> bool:
            self.asked += 1
            return self.asked <= first

    share = read_shares._sampled_share(cast("Any", Scene()), 0, random.Random(0), time.monotonic() + 60)
    assert share < first / SAMPLES

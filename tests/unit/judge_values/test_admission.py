"""Admission: each wrong answer is told from a right one, or the spec is told what to change."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.judging import FUSED, LAYER_NORM, fused_workload, layer_norm_workload, output, tensor, workload
from tests.support.in_process import InProcess, no_code
from warpsmith.kernels_db.job.documents import AdmissionCheck, JobOp, ResolvedWorkload
from warpsmith.workers.judge.machine.buffers import TensorSpec
from warpsmith.workers.judge.reference import mutants
from warpsmith.workers.judge.reference.admission import examine
from warpsmith.workers.judge.reference.learning import learn
from warpsmith.workers.judge.reference.mutants import rounded
from warpsmith.workers.judge.reference.refusals import refusal
from warpsmith.workers.judge.reference.spec_warnings import warnings_of
from warpsmith.workers.judge.values import compare
from warpsmith.workers.judge.values.inputs import InputSources

SOFTMAX = "import torch\n\ndef run(x):\n    return torch.softmax(x, dim=-1)\n"


def examined(reference: str, *workloads: ResolvedWorkload, math: Any = "ieee", seed: int = 1) -> list[AdmissionCheck]:
    return examined_by(InProcess(reference), *workloads, math=math, seed=seed)


def examined_by(
    runners: InProcess, *workloads: ResolvedWorkload, math: Any = "ieee", seed: int = 1
) -> list[AdmissionCheck]:
    rng = random.Random(seed)
    sources = InputSources(rng, no_code)
    for place in workloads:
        learn(runners, place, sources)
    op: JobOp = {
        "name": "op",
        "digest": "",
        "reference": "",
        "math": math,
        "library_calls": [],
        "baselines": ["eager"],
    }
    return examine(op, workloads, runners, sources, rng)


def missed(checks: list[AdmissionCheck]) -> dict[str, bool]:
    """The answers that were not caught, and whether that refuses the op."""
    return {check["answer"]: check["needed"] for check in checks if not check["caught"]}


def rows(name: str, *outputs: Any, dtype: str = "float32", columns: int = 40, **dist: Any) -> ResolvedWorkload:
    return workload(name, "bench", [tensor("x", (16, columns), dtype=dtype, **dist)], list(outputs))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("reference", "places"),
    [
        pytest.param(LAYER_NORM, [layer_norm_workload("a", "bench", 24, 65), layer_norm_workload("b", "test", 3, 9)]),
        pytest.param(FUSED, [fused_workload("a", "bench", 16, 33)]),
        pytest.param(SOFTMAX, [rows("a", output("y", (16, 40)))]),
        pytest.param(
            "def run(x):\n    return x.amax(-1), x.argmax(-1)\n",
            [rows("a", output("most", (16,)), output("at", (16,), dtype="int64"), columns=700)],
        ),
        pytest.param(
            "def run(x):\n    return (x > 0.5)\n", [rows("a", output("y", (16, 40), dtype="bool"), kind="uniform")]
        ),
    ],
)
def test_a_sound_op_is_admitted(reference: str, places: list[ResolvedWorkload], seed: int) -> None:
    checks = examined(reference, *places, seed=seed)
    assert {name for name, needed in missed(checks).items() if needed} == set()
    assert refusal(checks) is None
    names = {check["answer"].partition(" as ")[0] for check in checks}
    assert {"zeros", "stale", "tail of zeros", "x not read"} <= names


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_lower_precision_is_told_in_every_dtype(dtype: str) -> None:
    checks = examined("def run(x):\n    return x * 1.5\n", rows("a", output("y", (16, 40), dtype=dtype), dtype=dtype))
    assert missed(checks) == {}
    assert "lower precision" in {check["answer"] for check in checks}


def test_lower_precision_of_inputs_that_is_lost_in_a_mean_is_right() -> None:
    """It is within units in the last place of float64's result, so no tolerance should find it out."""
    place = workload("a", "bench", [tensor("x", (1024, 4), kind="uniform")], [output("y", (1,))])
    checks = examined("def run(x):\n    return 64 + x.mean().reshape(1)\n", place)
    assert missed(checks) == {}
    assert refusal(checks) is None
    assert {"lower precision", "x not read"} <= {check["answer"] for check in checks}


def test_of_many_weights_some_are_asked_and_the_same_in_each_check() -> None:
    """Each answer takes a call of the whole op: a deep network has hundreds of weights."""
    weights = [tensor(f"w{number}", (2,)) for number in range(mutants.MOST_ASKED + 8)]
    place = workload("a", "bench", [tensor("x", (16, 2)), *weights], [output("y", (16, 2))])
    reference = "def run(x, *weights):\n    return x.exp() + sum(weights)\n"

    def unread(seed: int) -> set[str]:
        asked = {check["answer"] for check in examined(reference, place, seed=seed)}
        assert len({answer for answer in asked if " read as " in answer}) == mutants.MOST_ASKED // 4
        return {answer for answer in asked if answer.endswith(" not read")}

    assert len(unread(1)) == len(unread(2)) == mutants.MOST_ASKED
    assert unread(1) == unread(2)


def test_a_check_says_what_found_the_answer_out() -> None:
    checks = examined(SOFTMAX, rows("a", output("y", (16, 40))))
    zeros = next(check for check in checks if check["answer"] == "zeros")
    assert zeros["caught"]
    assert (zeros["workload"], zeros["family"], zeros["tensor"]) == ("a", None, "y")
    assert zeros["error"] is not None
    assert zeros["limit"] is not None
    assert zeros["error"] > zeros["limit"]


def test_an_atol_above_the_results_is_refused_with_the_remedy() -> None:
    wide = output("y", (4, 8192), tolerance={"rtol": 1e-2, "atol": 1e-2})
    checks = examined(SOFTMAX, workload("a", "bench", [tensor("x", (4, 8192))], [wide]))
    assert missed(checks)["zeros"]
    assert missed(checks)["x not read"]
    assert missed(checks)["lower precision"] is False, "an author who sets a tolerance may mean it"
    failure = refusal(checks)
    assert failure is not None
    assert failure["field"] == "outputs.y.tolerance"
    assert "zeros" in failure["message"]
    assert "atol 0.01" in failure["message"]
    assert "root mean square of y is 0.0002" in failure["message"]


def test_an_input_that_is_not_used_is_refused() -> None:
    inputs = [tensor("x", (16, 40)), tensor("spare", (40,))]
    checks = examined(
        "def run(x, spare):\n    return x.exp()\n", workload("a", "bench", inputs, [output("y", (16, 40))])
    )
    assert missed(checks) == {"spare not read": True}
    failure = refusal(checks)
    assert failure is not None
    assert failure["field"] == "inputs.spare"
    assert "no input spare" in failure["expected"]


def test_a_small_input_is_told_where_it_is_emphasised() -> None:
    inputs = [tensor("x", (16, 40)), tensor("w", (40,), kind="normal", std=1e-9)]
    reference = "def run(x, w):\n    return x.sin() * 1024.0 + w\n"
    checks = examined(reference, workload("a", "bench", inputs, [output("y", (16, 40))]))
    unread = next(check for check in checks if check["answer"] == "w not read")
    assert unread["family"] in ("integers", None) if unread["caught"] else unread["needed"]
    assert unread["caught"], "integers are larger than the declared values"


def test_a_result_that_never_changes_is_refused() -> None:
    reference = "import torch\n\ndef run(x):\n    return torch.softmax(x.sum(-1, keepdim=True), -1)\n"
    checks = examined(reference, rows("a", output("y", (16, 1))))
    assert {"constant", "stale", "x not read"} <= missed(checks).keys()
    assert refusal(checks) is not None


def test_results_that_are_always_zero_are_refused() -> None:
    reference = "def run(x):\n    return x - x.clone()\n"
    assert {"zeros", "stale"} <= missed(examined(reference, rows("a", output("y", (16, 40))))).keys()


def test_a_copy_may_pass_its_input_through() -> None:
    exact = output("y", (16, 40), tolerance={"rtol": 0.0, "atol": 0.0})
    assert missed(examined("def run(x):\n    return x.clone()\n", rows("a", exact))) == {}


def test_one_result_of_several_that_is_never_looked_at_is_named() -> None:
    loose = output("h", (16, 40), tolerance={"rtol": 0.0, "atol": 1e9})
    reference = "def run(x):\n    return x.exp(), x.sin()\n"
    failure = refusal(examined(reference, rows("a", output("y", (16, 40)), loose)))
    assert failure is not None
    assert failure["field"] == "outputs.h.tolerance"
    assert "zeros as h" in failure["message"]
    assert "zeros as y" not in failure["message"]


def test_results_that_an_answer_leaves_right_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[torch.Size] = []

    def counted(found: torch.Tensor, *others: Any) -> compare.Comparison:
        compared.append(found.shape)
        return compare_floats(found, *others)

    compare_floats = compare.compare_floats
    place = rows("a", output("y", (16, 40)), output("h", (16, 40)), output("g", (16, 40)))
    runners = InProcess("def run(x):\n    return x.exp(), x.sin(), x.cos()\n")
    monkeypatch.setattr(compare, "compare_floats", counted)
    learnt = 3  # learning compares eager with itself
    checks = examined_by(runners, place)
    answers = [check["answer"] for check in checks]
    assert missed(checks) == {}
    assert {check["tensor"] for check in checks if " as " in check["answer"]} == {"y", "h", "g"}
    assert len(compared) - learnt <= len(answers) + 3, "one for each answer, and one for each right result"


def test_operands_that_may_stand_for_each_other_only_warn() -> None:
    inputs = [tensor("x", (16, 40)), tensor("y", (16, 40))]
    reference = "import torch\n\ndef run(x, y):\n    return torch.maximum(x, y)\n"
    place = workload("a", "bench", inputs, [output("z", (16, 40))])
    assert missed(examined(reference, place)) == {}
    loose = workload("a", "bench", inputs, [output("z", (16, 40), tolerance={"rtol": 0.0, "atol": 100.0})])
    found = missed(examined(reference, loose))
    assert found["x read as y"] is False
    assert found["x not read"] is True


def test_flipped_infinities_are_told() -> None:
    inputs = [tensor("x", (16, 40)), tensor("mask", (16, 40), dtype="bool", kind="bernoulli", p=0.2)]
    reference = "import math\n\ndef run(x, mask):\n    return x.masked_fill(mask, -math.inf)\n"
    checks = examined(reference, workload("a", "bench", inputs, [output("y", (16, 40))]))
    assert missed(checks) == {}
    assert "flipped infinities" in {check["answer"] for check in checks}


@given(st.floats(-(2.0**100), 2.0**100), st.sampled_from([1, 2, 3, 7, 10, 23]))
@settings(max_examples=200, deadline=None)
def test_rounding_keeps_so_many_bits_and_the_nearest(value: float, bits: int) -> None:
    found = float(rounded(torch.tensor([value], dtype=torch.float64), bits)[0])
    assert abs(found - value) <= abs(value) * 2.0 ** -(bits + 1)
    fraction = torch.frexp(torch.tensor(found, dtype=torch.float64)).mantissa
    assert float(fraction * 2 ** (bits + 1)).is_integer()


def coded_op(source: str) -> ResolvedWorkload:
    mask = tensor("mask", (16, 40), kind="code", source=source)
    loose = output("y", (16, 40), tolerance={"rtol": 1e-3, "atol": 1e-3})  # so that families tell nothing
    return workload("a", "bench", [tensor("x", (16, 40)), mask], [loose])


def examined_with(make: Any, place: ResolvedWorkload, seed: int) -> tuple[list[AdmissionCheck], InProcess]:
    runners, rng = InProcess("def run(x, mask):\n    return x * mask\n"), random.Random(seed)
    sources = InputSources(rng, make)
    learn(runners, place, sources)
    op: Any = {"name": "op", "digest": "", "reference": "", "math": "ieee", "library_calls": [], "baselines": ["eager"]}
    return examine(op, [place], runners, sources, rng), runners


@pytest.mark.parametrize("seed", range(8))
def test_a_generator_with_few_variants_of_which_two_are_alike_is_told_every_time(seed: int) -> None:
    def one_of_four(source: str, spec: TensorSpec, number: int) -> torch.Tensor:
        ones = torch.ones(16, 40)
        return [ones, ones.tril(), ones.triu(), ones][number % 4].clone()

    checks, _ = examined_with(one_of_four, coded_op("few"), seed)
    unread = next(check for check in checks if check["answer"] == "mask not read")
    assert unread["caught"]
    assert refusal(checks) is None


def test_an_input_by_code_that_never_changes_is_no_reason_to_refuse_an_op() -> None:
    checks, _ = examined_with(lambda *_: torch.ones(16, 40).tril(), coded_op("mask"), 1)
    assert "mask not read" not in {check["answer"] for check in checks}
    assert refusal(checks) is None


def test_an_input_by_code_that_changes_and_is_not_used_is_refused() -> None:
    place = coded_op("noise")
    runners, rng = InProcess("def run(x, mask):\n    return x.exp()\n"), random.Random(1)
    sources = InputSources(rng, lambda source, spec, seed: torch.full((16, 40), float(seed % 97)))
    learn(runners, place, sources)
    op: Any = {"name": "op", "digest": "", "reference": "", "math": "ieee", "library_calls": [], "baselines": ["eager"]}
    assert missed(examine(op, [place], runners, sources, rng))["mask not read"]


def test_results_of_which_half_are_nan_and_benches_of_few_elements_are_warned_of() -> None:
    small, large = (rows(name, output("y", (16, columns)), columns=columns) for name, columns in (("a", 8), ("b", 400)))
    runners = InProcess("def run(x):\n    return x.log()\n")
    for place in (small, large):
        learn(runners, place, InputSources(random.Random(1), no_code))
    told = list(warnings_of([small, large], runners))
    assert [text.partition(",")[0] for text in told if "elements" in text] == [
        "workload a: found inputs of 128 elements in a bench"
    ]
    shares = [int(text.split("found ")[1].split("%")[0]) for text in told if "NaN" in text]
    assert len(shares) == 2
    assert all(30 < share < 70 for share in shares)
    sound = InProcess("def run(x):\n    return x.exp()\n")
    learn(sound, large, InputSources(random.Random(1), no_code))
    assert list(warnings_of([large], sound)) == []

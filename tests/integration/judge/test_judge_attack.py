"""The counterexample search by a real judge: what the families let pass is found, honest kernels pass, and an op's own
counterexamples are asked at screening.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.redteam_catalogue.cheats_rows import NORM_C, rows
from tests import judging
from tests.judging import cpp, output, scalar, tensor, workload
from tests.kinds import nightly_but
from warpsmith.kernels_db.job.attack_documents import Recipe
from warpsmith.kernels_db.job.documents import Job, ResolvedWorkload, Verdict
from warpsmith.workers.judge.protocol.client import JudgeClient

TIMEOUT_S = 240.0
LONG_S, SHORT_S = 60.0, 0.4
"""Seconds of search: a wrong kernel ends it early, an honest one takes all."""

ADD = "import torch\n\ndef run(x, m):\n    return torch.relu(x * m + 1)\n"
ADDS = [workload("small", "bench", [tensor("x", (40, 50)), scalar("m", 0.75)], [output("y", (40, 50))])]
SOFTMAX = "import torch\n\ndef run(x):\n    return torch.softmax(x, dim=-1)\n"
SOFTMAXES = [
    workload(name, role, [tensor("x", shape)], [output("y", shape)])
    for name, role, shape in (("small", "bench", (20, 60)), ("large", "test", (64, 128)))  # type: ignore[arg-type]
]
NORM = "import torch\n\ndef run(x, w, b):\n    return torch.nn.functional.layer_norm(x, w.shape, w, b, 1e-5)\n"
NORMS = [
    workload("small", "bench", [tensor("x", (20, 60)), tensor("w", (60,)), tensor("b", (60,))], [output("y", (20, 60))])
]
BINS = "import torch\n\ndef run(i):\n    return torch.bincount(i, minlength=16)\n"
BINNED = [
    workload(
        "small",
        "bench",
        [tensor("i", (3000,), dtype="int64", kind="randint", low=0, high=16)],
        [output("y", (16,), dtype="int64")],
    )
]


def relu(value: str) -> str:
    body = f"for (int64_t i = 0; i < n; i++) {{ const float v = {value}; y[i] = NAN_KEPT; }}"
    code = f'extern "C" void f(const float* x, float m, float* y, int64_t n) {{ {body} }}'
    return cpp(code, "def run(x, m, y):\n    kernels.f(x, m, y, y.numel())\n")


ADD_RIGHT = relu("x[i] * m + 1.0f").replace("NAN_KEPT", "v < 0 ? 0.0f : v")
SOFTMAX_C = """float most = in[0]; double sum = 0; for (int64_t i = 1; i < n; i++) most = std::fmax(most, in[i]);
    for (int64_t i = 0; i < n; i++) sum += to[i] = std::exp(in[i] - most);
    for (int64_t i = 0; i < n; i++) to[i] = float(to[i] / sum);"""
ONE_PASS = """float sum = 0, squares = 0; for (int64_t i = 0; i < n; i++) { sum += in[i]; squares += in[i] * in[i]; }
    const float mean = sum / n, scale = 1 / std::sqrt(std::fmax(squares / n - mean * mean, 0.0f) + 1e-5f);
    for (int64_t i = 0; i < n; i++) to[i] = (in[i] - mean) * scale * w[i] + b[i];"""


def bins(count: str) -> str:
    code = (
        'extern "C" void f(const int64_t* i, int64_t* y, int64_t n, int64_t bins) {\n'
        f"    {count} found[16] = {{}};\n    for (int64_t k = 0; k < n; k++) found[i[k]]++;\n"
        "    for (int64_t k = 0; k < bins; k++) y[k] = found[k];\n}"
    )
    return cpp(code, "def run(i, y):\n    kernels.f(i, y, i.numel(), y.numel())\n")


def of_rows(code: str, parameters: str = "x, y") -> str:
    return rows(code, "pass", parameters)["cpp"].replace("float* out,", "float* y,").replace("= out +", "= y +")


CASES: dict[str, tuple[str, Sequence[ResolvedWorkload], str, str]] = {
    "drops NaN": (ADD, ADDS, ADD_RIGHT, relu("x[i] * m + 1.0f").replace("NAN_KEPT", "std::fmax(v, 0.0f)")),
    "does not read a scalar": (ADD, ADDS, ADD_RIGHT, ADD_RIGHT.replace("* m", "* 0.75f")),
    "begins a maximum at zero": (
        SOFTMAX,
        SOFTMAXES,
        of_rows(SOFTMAX_C),
        of_rows(SOFTMAX_C.replace("most = in[0]", "most = std::fmax(in[0], 0.0f)")),
    ),
    "takes the variance in one pass": (NORM, NORMS, of_rows(NORM_C, "x, w, b, y"), of_rows(ONE_PASS, "x, w, b, y")),
    "counts in ten bits": (
        BINS,
        BINNED,
        bins("int64_t"),
        bins("struct { unsigned n : 10; operator int64_t() const { return n; } void operator++(int) { n++; } }"),
    ),
}


@pytest.fixture
def client(judge: JudgeClient) -> JudgeClient:
    return judge


def job_of(name: str, *, wrong: bool, seconds: float, **named: Any) -> Job:
    reference, workloads, right, other = CASES[name]
    source = other if wrong else right
    job = judging.job(reference, list(workloads), source, level=named.get("level", "verify"), time_s=0.05)
    if seconds:
        job["limits"]["attack_s"] = seconds
    return job


def verdict_on(client: JudgeClient, job: Job) -> Verdict:
    return client.judge(job, timeout_s=TIMEOUT_S)


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_kernel_that_the_families_accept_is_found(client: JudgeClient, name: str) -> None:
    """The search comes last: what fails as a counterexample has passed every family."""
    verdict = verdict_on(client, job_of(name, wrong=True, seconds=LONG_S))
    assert (verdict["verdict"], verdict["gate"]) == ("rejected", "verify"), verdict["reason"]
    failure, attack = verdict["failure"], verdict["attack"]
    assert failure is not None
    assert failure["kind"] == "counterexample"
    assert failure["description"].splitlines()[0] in failure["message"]
    assert {"tensor", "index", "expected", "found", "eager", "limit"} <= failure.keys()
    assert attack["counterexample"] == failure["recipe"]
    assert attack["tries"] >= 1


def test_what_was_found_is_asked_first_from_then_on(client: JudgeClient) -> None:
    name = "does not read a scalar"
    found: Recipe = {
        "workload": "small",
        "seed": 1,
        "changes": [{"input": "m", "move": "number", "number": 0.5}],
    }
    job = job_of(name, wrong=True, seconds=0, level="screen")
    job["op"]["counterexamples"] = [found]
    screened = verdict_on(client, job)
    assert (screened["verdict"], screened["gate"]) == ("rejected", "screen"), screened["reason"]
    assert screened["failure"] is not None
    assert (screened["failure"]["kind"], screened["failure"]["recipe"]) == ("counterexample", found)
    job["candidate"] = job_of(name, wrong=False, seconds=0)["candidate"]
    honest = verdict_on(client, job)
    assert honest["verdict"] == "accepted", honest["reason"]
    assert "attack" not in honest


# The honest kernel of the second case is that of the first.
@pytest.mark.parametrize(
    "name",
    nightly_but("takes the variance in one pass".__eq__, (name for name in CASES if name != "does not read a scalar")),
)
def test_an_honest_kernel_passes(client: JudgeClient, name: str) -> None:
    verdict = verdict_on(client, job_of(name, wrong=False, seconds=SHORT_S))
    assert verdict["verdict"] == "accepted", verdict["reason"]
    attack = verdict["attack"]
    assert attack["counterexample"] is None
    assert attack["tries"] == sum(one["tries"] for one in attack["workloads"]) > 0
    ratios = [one["ratio"] for one in attack["workloads"] if one["ratio"] is not None]
    assert ratios
    assert max(ratios) <= 1


def test_a_call_that_ends_on_a_value_is_rejected_with_its_recipe(client: JudgeClient) -> None:
    element = "const float v = x[i] * m + 1.0f; if (v != v) __builtin_trap(); y[i] = v < 0 ? 0.0f : v;"
    body = f"for (int64_t i = 0; i < n; i++) {{ {element} }}"
    code = f'extern "C" void f(const float* x, float m, float* y, int64_t n) {{ {body} }}'
    job = job_of("drops NaN", wrong=False, seconds=LONG_S)
    job["candidate"] = {
        "language": "cpp",
        "source": cpp(code, "def run(x, m, y):\n    kernels.f(x, m, y, y.numel())\n"),
    }
    verdict = verdict_on(client, job)
    assert (verdict["verdict"], verdict["gate"]) == ("rejected", "verify"), verdict["reason"]
    assert verdict["failure"] is not None
    assert verdict["failure"]["kind"] == "crash"
    assert "NaN" in verdict["failure"]["description"]
    assert verdict["attack"]["counterexample"] == verdict["failure"]["recipe"]


def test_a_recipe_that_the_op_has_outgrown_is_noted(client: JudgeClient) -> None:
    stale: Recipe = {"workload": "small", "seed": 1, "changes": [{"input": "gone", "move": "fill", "number": 1.0}]}
    job = job_of("drops NaN", wrong=False, seconds=0, level="screen")
    job["op"]["counterexamples"] = [stale]
    verdict = verdict_on(client, job)
    assert verdict["verdict"] == "accepted"
    assert "op.counterexamples[0].changes[0].input: found 'gone'" in verdict["reason"]

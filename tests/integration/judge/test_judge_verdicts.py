"""The judge's verdicts on right and wrong candidates, from a real judge process."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests import judging
from tests.judging import (
    ALL_ROWS,
    FUSED,
    FUSED_WORKLOADS,
    GOOD_FUSED,
    GOOD_NORM,
    LAYER_NORM,
    LAYER_NORMS,
    cpp,
    layer_norm_workload,
    norm_candidate,
    output,
    tensor,
    workload,
)
from warpsmith.kernels_db.job.documents import Job, Verdict
from warpsmith.workers.judge.protocol.client import JudgeClient
from warpsmith.workers.judge.runner import compiler_cache
from warpsmith.workers.judge.sandbox.sandbox import LEVELS

TIMEOUT_S = 120.0


@pytest.fixture
def client(judge: JudgeClient) -> JudgeClient:
    return judge


def _judge(client: JudgeClient, job: Job) -> Verdict:
    return client.judge(job, timeout_s=TIMEOUT_S)


def _failure(verdict: Verdict) -> dict[str, Any]:
    assert verdict["verdict"] == "rejected", verdict["reason"]
    assert verdict["failure"] is not None
    return dict(verdict["failure"])


def test_a_good_candidate_is_accepted_with_its_numbers(client: JudgeClient) -> None:
    verdict = _judge(client, judging.job(LAYER_NORM, LAYER_NORMS, GOOD_NORM, level="verify"))
    assert (verdict["verdict"], verdict["gate"]) == ("accepted", "time"), verdict["reason"]
    assert verdict["failure"] is None
    assert verdict["score"] is not None
    assert verdict["score_ci95"] is not None
    assert verdict["score_ci95"][0] <= verdict["score"] <= verdict["score_ci95"][1]
    bench, ragged, odd = verdict["workloads"]
    assert verdict["score_ci95"] == bench["ci95"]["eager"], "one ratio, one interval"
    for entry in (bench, ragged, odd):
        assert entry["error"]["candidate"] is not None
        assert entry["error"]["limit"] is not None
        assert entry["error"]["candidate"] <= entry["error"]["limit"]
    assert set(bench["time_us"]) == {"candidate", "eager"}
    assert bench["speedup"]["eager"] == pytest.approx(bench["time_us"]["eager"] / bench["time_us"]["candidate"])
    assert len(bench["samples"]["eager"]) == len(bench["samples"]["candidate"]) >= 5
    assert bench["limit_us"] is not None
    assert bench["limit_by"] == "bytes"
    assert ragged["time_us"] == odd["time_us"] == {}
    assert {"gate", "compile", "memory", "reference", "screen", "verify", "time"} <= set(verdict["seconds"])
    assert [kernel["name"] for kernel in verdict["compile"]["kernels"]] == ["norm"]  # type: ignore[index]
    assert verdict["sandbox"]["level"] in LEVELS
    host = verdict["host_us"]
    assert (host["workload"], host["launches"]) == ("ragged", 1)  # the smallest that is no hold-out
    assert min(host["run"], host["plan"], host["eager"]) > 0


def test_an_in_place_op_with_a_scalar(client: JudgeClient) -> None:
    verdict = _judge(client, judging.job(FUSED, FUSED_WORKLOADS, GOOD_FUSED, level="verify"))
    assert verdict["verdict"] == "accepted", verdict["reason"]
    assert verdict["host_us"]["launches"] == 1


ALWAYS_THE_SAME = """import torch

last = []


def run(x, weight, bias, y):
    last[:] = [*last[-5:], x.clone()]
    assert len(last) < 6 or not all(torch.equal(each, x) for each in last)
    y.copy_(torch.nn.functional.layer_norm(x, weight.shape, weight, bias, 1e-5))
"""


def test_where_the_hosts_time_cannot_be_measured_the_verdict_stands(client: JudgeClient) -> None:
    """Judged calls have not the same values six times running; those that the host's time is of have."""
    verdict = _judge(client, judging.job(LAYER_NORM, LAYER_NORMS, ALWAYS_THE_SAME, language="python", level="verify"))
    if verdict["gate"] == "sandbox":
        pytest.skip(verdict["reason"])
    assert verdict["verdict"] == "accepted", verdict["reason"]
    assert "host_us" not in verdict
    assert "what a call costs the host was not measured" in verdict["reason"]


@pytest.mark.nightly
def test_the_baselines_are_measured_and_a_compiled_one_too(client: JudgeClient) -> None:
    baselines = ("eager", "compile")
    verdict = _judge(client, judging.job(FUSED, FUSED_WORKLOADS[:1], baselines=baselines))
    assert (verdict["verdict"], verdict["gate"]) == ("accepted", "time"), verdict["reason"]
    (entry,) = verdict["workloads"]
    assert set(entry["time_us"]) == set(baselines)
    assert entry["speedup"] == {}
    assert entry["limit_fraction"] == pytest.approx(entry["limit_us"] / entry["time_us"]["eager"])  # type: ignore[operator]


def _no_more(*_: object) -> NoReturn:
    raise AssertionError("compiled again")


@pytest.mark.nightly
def test_a_compiled_reference_starts_from_the_seed_of_the_machine(client: JudgeClient, judge_cache: Path) -> None:
    """Two references, one seed, and a compiler cache for each that holds what the seed holds."""
    jobs = [
        judging.job(reference, FUSED_WORKLOADS[:1], baselines=("eager", "compile"))
        for reference in (FUSED, FUSED + "\n")
    ]
    for job in jobs:
        assert _judge(client, job)["verdict"] == "accepted"
    (seed,) = (judge_cache / "inductor").glob("seed-*")
    held = {path.relative_to(seed) for path in seed.rglob("*.so")}
    assert held
    for job in jobs:
        own = compiler_cache.directory_for(job["op"]["reference"], judge_cache / "inductor", _no_more)
        assert held <= {path.relative_to(own) for path in own.rglob("*.so")}


def test_the_limit_is_what_the_probe_reached(client: JudgeClient) -> None:
    """Bytes over the larger of the bandwidths that the verdict's device reports for the footprints around."""
    verdict = _judge(client, judging.job(FUSED, FUSED_WORKLOADS[:1]))
    rates = {int(size): rate for size, rate in verdict["device"]["peaks"]["bandwidth_gbs"].items()}
    least = FUSED_WORKLOADS[0]["min_bytes"]
    rate = max(rates[min(size for size in rates if size >= least)], rates[max(size for size in rates if size <= least)])
    assert verdict["workloads"][0]["limit_us"] == pytest.approx(least / rate / 1e3)


def test_a_seed_fixes_what_is_checked(client: JudgeClient) -> None:
    job = judging.job(LAYER_NORM, LAYER_NORMS, GOOD_NORM)
    job["seed"] = 7
    first, second = _judge(client, job), _judge(client, job)
    for one, other in zip(first["workloads"], second["workloads"], strict=True):
        assert one["error"]["eager"] == other["error"]["eager"]
        assert one["error"]["limit"] == other["error"]["limit"]
    assert first["fingerprint"] == second["fingerprint"]


WRONG = {
    "dropped tail": (norm_candidate(ALL_ROWS.replace("r < rows", "r < rows - 1")), "not_written", 128),
    "zeros": (norm_candidate("for (int64_t i = 0; i < rows * n; i++) y[i] = 0;"), "wrong_value", 64 * 128),
    "pass-through": (norm_candidate("for (int64_t i = 0; i < rows * n; i++) y[i] = x[i];"), "wrong_value", 64 * 128),
    "nothing": (norm_candidate(""), "not_written", 64 * 128),
    "one percent": (
        norm_candidate(ALL_ROWS + "for (int64_t i = 0; i < rows * n; i += 100) y[i] += 1e-3f;"),
        "wrong_value",
        82,
    ),
    "not a number": (norm_candidate(ALL_ROWS + "y[3 * n + 5] = 0.0f / 0.0f * y[0];"), "non_finite", 1),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_named(client: JudgeClient, name: str) -> None:
    source, kind, wrong = WRONG[name]
    verdict = _judge(client, judging.job(LAYER_NORM, LAYER_NORMS, source))
    failure = _failure(verdict)
    assert verdict["gate"] == "screen"
    assert failure["kind"] == kind
    assert failure["workload"] == "bench"
    assert failure["tensor"] == "y"
    assert failure["wrong_elements"] == pytest.approx(wrong, rel=0.05)
    assert failure["elements"] == 64 * 128
    row, column = failure["index"]
    assert 0 <= row < 64
    assert 0 <= column < 128
    assert isinstance(failure["expected"], float)
    assert failure["found"] is not None
    assert f"y[{row}, {column}]" in verdict["reason"]
    if name == "dropped tail":
        assert row == 63
    if name == "not a number":
        assert (row, column, failure["found"]) == (3, 5, "nan")


def test_lower_precision_is_rejected_in_float32(client: JudgeClient) -> None:
    rounding = """
    for (int64_t i = 0; i < rows * n; i++) {
        uint32_t bits; std::memcpy(&bits, y + i, 4);
        bits = (bits + 0x8000) & 0xFFFF0000u;
        std::memcpy(y + i, &bits, 4);
    }"""
    failure = _failure(_judge(client, judging.job(LAYER_NORM, LAYER_NORMS, norm_candidate(ALL_ROWS + rounding))))
    assert failure["kind"] == "wrong_value"
    assert abs(failure["found"] - failure["expected"]) > failure["limit"]


def test_written_inputs_are_seen(client: JudgeClient) -> None:
    source = norm_candidate(ALL_ROWS + "const_cast<float*>(x)[2 * n + 1] += 1;")
    failure = _failure(_judge(client, judging.job(LAYER_NORM, LAYER_NORMS, source)))
    assert (failure["kind"], failure["tensor"], failure["index"]) == ("input_modified", "x", [2, 1])


@pytest.mark.parametrize("place", ["rows * n", "-1"])
def test_writes_out_of_bounds_are_seen(client: JudgeClient, place: str) -> None:
    source = norm_candidate(ALL_ROWS + f"y[{place}] = 1;")
    failure = _failure(_judge(client, judging.job(LAYER_NORM, LAYER_NORMS, source)))
    assert (failure["kind"], failure["tensor"]) == ("out_of_bounds", "y")


def test_what_is_wrong_at_a_hold_out_shape_alone_passes_the_screen_and_not_the_verification(
    client: JudgeClient,
) -> None:
    source = norm_candidate(ALL_ROWS + "if (n == 33) y[4] += 1;")
    assert _judge(client, judging.job(LAYER_NORM, LAYER_NORMS[:1], source))["verdict"] == "accepted"
    verdict = _judge(client, judging.job(LAYER_NORM, LAYER_NORMS, source, level="verify"))
    assert verdict["gate"] == "verify"
    assert (_failure(verdict)["workload"], _failure(verdict)["index"]) == ("odd", [0, 4])


def test_an_in_place_result_is_checked(client: JudgeClient) -> None:
    source = GOOD_FUSED.replace("sum > 0 ? sum : 0", "sum")
    failure = _failure(_judge(client, judging.job(FUSED, FUSED_WORKLOADS, source)))
    assert (failure["kind"], failure["tensor"]) == ("wrong_value", "x")
    assert failure["expected"] == 0.0


FILLED = norm_candidate("for (int64_t i = 0; i < rows * n; i++) y[i] = 12345;")


@pytest.mark.parametrize(("source", "verdict"), [(FILLED, "rejected"), (GOOD_NORM, "accepted")])
def test_a_screen_without_a_bench_workload_checks_the_others(client: JudgeClient, source: str, verdict: str) -> None:
    found = _judge(client, judging.job(LAYER_NORM, LAYER_NORMS[1:2], source))
    assert found["verdict"] == verdict, found["reason"]
    if verdict == "accepted":
        assert found["reason"] == "right on ragged; no bench workload, so nothing was timed"


INTEGERS = workload(
    "bench",
    "bench",
    [tensor("x", (100,), dtype="int64", kind="randint", low=-5, high=5)],
    [output("y", (100,), dtype="int32"), output("positive", (100,), dtype="bool")],
)
INTEGER_REFERENCE = "import torch\n\ndef run(x):\n    return (x * 2).to(torch.int32), x > 0\n"


@pytest.mark.parametrize(("at", "passes"), [(-1, True), (42, False)])
def test_integers_and_booleans_compare_exactly(client: JudgeClient, at: int, passes: bool) -> None:
    source = cpp(
        f"""
extern "C" void twice(const int64_t* x, int32_t* y, bool* p, int64_t n) {{
    for (int64_t i = 0; i < n; i++) {{ y[i] = int32_t(2 * x[i]) + (i == {at}); p[i] = x[i] > 0; }}
}}""",
        "def run(x, y, positive):\n    kernels.twice(x, y, positive, x.numel())\n",
    )
    verdict = _judge(client, judging.job(INTEGER_REFERENCE, [INTEGERS], source))
    if passes:
        assert verdict["verdict"] == "accepted", verdict["reason"]
    else:
        failure = _failure(verdict)
        assert (failure["tensor"], failure["index"]) == ("y", [42])
        assert failure["found"] == failure["expected"] + 1


def test_an_ops_own_tolerance_decides_and_is_told(client: JudgeClient) -> None:
    loose = workload(
        "bench", "bench", LAYER_NORMS[0]["inputs"], [output("y", (64, 128), tolerance={"rtol": 0, "atol": 0.1})]
    )
    near, far = (norm_candidate(ALL_ROWS + f"y[7] += {error}f;") for error in (0.05, 0.2))
    assert _judge(client, judging.job(LAYER_NORM, [loose], near))["verdict"] == "accepted"
    verdict = _judge(client, judging.job(LAYER_NORM, [loose], far))
    assert _failure(verdict)["index"] == [0, 7]
    assert "the op's own tolerance" in verdict["reason"]


def test_strides_and_promised_alignment_reach_the_candidate(client: JudgeClient) -> None:
    strided = tensor("x", (16, 8))
    strided["strides"] = [20, 2]
    strided["alignment"] = 4
    place = workload("bench", "bench", [strided], [output("y", (16, 8))])
    code = """
extern "C" void copy(const float* x, float* y, int64_t rows, int64_t n, int64_t step, int64_t stride) {
    if (reinterpret_cast<uintptr_t>(x) % 8 == 0) return;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < n; i++) y[r * n + i] = x[r * step + i * stride] * 2;
}"""
    run = "def run(x, y):\n    kernels.copy(x, y, x.shape[0], x.shape[1], x.stride(0), x.stride(1))\n"
    verdict = _judge(client, judging.job("def run(x):\n    return x * 2\n", [place], cpp(code, run)))
    assert verdict["verdict"] == "accepted", verdict["reason"]


def test_values_from_the_users_own_generator(client: JudgeClient) -> None:
    make = "import torch\n\ndef make(shape, dtype, generator):\n"
    make += "    return torch.rand(shape, generator=generator).to(dtype) + 5\n"
    place = workload("bench", "bench", [tensor("x", (64,), kind="code", source=make)], [output("y", (64,))])
    code = 'extern "C" void f(const float* x, float* y, int64_t n) {\n'
    code += "    for (int64_t i = 0; i < n; i++) y[i] = x[i] < 5 ? 0 : x[i] * 2;\n}"
    run = "def run(x, y):\n    kernels.f(x, y, x.numel())\n"
    verdict = _judge(client, judging.job("def run(x):\n    return x * 2\n", [place], cpp(code, run)))
    assert verdict["verdict"] == "accepted", verdict["reason"]


def test_a_scalar_result_is_held_to_eagers_error_on_many_seeds(client: JudgeClient) -> None:
    place = workload("bench", "bench", [tensor("x", (5000,))], [output("y", ())])
    sums = {
        "accepted": "double s = 0; for (int64_t i = 0; i < n; i++) s += x[i]; *y = float(s);",
        "rejected": "double s = 0; for (int64_t i = 0; i < n - 1; i++) s += x[i]; *y = float(s);",
    }
    for word, body in sums.items():
        source = cpp(
            f'extern "C" void f(const float* x, float* y, int64_t n) {{ {body} }}',
            "def run(x, y):\n    kernels.f(x, y, x.numel())\n",
        )
        verdict = _judge(client, judging.job("def run(x):\n    return x.sum()\n", [place], source))
        assert verdict["verdict"] == word, verdict["reason"]


def test_expected_infinities_and_nans_pass(client: JudgeClient) -> None:
    place = workload(
        "bench", "bench", [tensor("x", (500,), kind="randint", low=-2, high=3, dtype="int32")], [output("y", (500,))]
    )
    code = 'extern "C" void f(const int32_t* x, float* y, int64_t n) {\n'
    code += "    for (int64_t i = 0; i < n; i++) y[i] = std::log(float(x[i]));\n}"
    reference = "def run(x):\n    return x.float().log()\n"
    run = "def run(x, y):\n    kernels.f(x, y, x.numel())\n"
    verdict = _judge(client, judging.job(reference, [place], cpp(code, run)))
    assert verdict["verdict"] == "accepted", verdict["reason"]


def test_the_gate_and_the_compiler_speak_before_anything_runs(client: JudgeClient) -> None:
    gated = _judge(client, judging.job(LAYER_NORM, LAYER_NORMS, "import os\n" + GOOD_NORM))
    assert (gated["verdict"], gated["gate"]) == ("rejected", "gate")
    assert _failure(gated)["message"].startswith("line 1")
    broken = _judge(client, judging.job(LAYER_NORM, LAYER_NORMS, norm_candidate("y[0] = undeclared;")))
    assert (broken["verdict"], broken["gate"]) == ("rejected", "compile")
    assert "undeclared" in _failure(broken)["log"]
    assert broken["workloads"] == []


def test_languages_of_other_devices_are_refused(client: JudgeClient, examples: Path) -> None:
    source = (examples.parent / "tests/candidates/add_relu_triton.py").read_text()
    verdict = _judge(client, judging.job(LAYER_NORM, LAYER_NORMS, source, language="triton"))
    failure = _failure(verdict)
    assert (verdict["gate"], failure["field"], failure["found"]) == ("gate", "candidate.language", "triton")
    assert "cpp" in failure["expected"]


ADD_RELU = "import torch\n\ndef run(x, bias):\n    return torch.relu(x + bias)\n"
ADD_RELUS = [workload("small", "test", [tensor("x", (5, 33)), tensor("bias", (33,))], [output("y", (5, 33))])]


def test_triton_without_a_gpu_is_interpreted_compiled_and_not_timed(client: JudgeClient, examples: Path) -> None:
    source = (examples.parent / "tests/candidates/add_relu_triton.py").read_text()
    job = judging.job(ADD_RELU, ADD_RELUS, source, language="triton", target="cuda:sm_90")
    verdict = _judge(client, job)
    assert (verdict["verdict"], verdict["gate"]) == ("ambiguous", "time"), verdict["reason"]
    found = (
        "no CUDA device: checked under Triton's interpreter on small, floats with 16 times the tolerance by this CPU's "
        "error, compiled for sm_90, not timed"
    )
    compiled = f"compiled here by triton {version('triton')}: another minor version may compile otherwise"
    assert verdict["reason"] == f"{found}; {compiled}"
    assert verdict["versions"]["triton"] == version("triton")
    assert verdict["compile"]["kernels"][0]["registers"] is not None  # type: ignore[index]
    assert verdict["workloads"][0]["error"]["candidate"] is not None
    job = judging.job(
        ADD_RELU, ADD_RELUS, source.replace("total < 0", "total < 0.5"), language="triton", target="cuda:sm_90"
    )
    wrong = _judge(client, job)
    assert (wrong["verdict"], wrong["gate"]) == ("rejected", "screen")
    assert _failure(wrong)["kind"] == "wrong_value"


ADD_BFLOAT16 = """
import triton
import triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(out + i, tl.load(x + i, m) + tl.load(y + i, m), m)

def run(x, y, out):
    n = out.numel()
    add[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
"""


def test_what_the_interpreter_makes_of_bfloat16_proves_nothing(client: JudgeClient) -> None:
    tensors = [tensor(name, (1009,), dtype="bfloat16") for name in ("x", "y")]
    adds = [workload("small", "test", tensors, [output("out", (1009,), dtype="bfloat16")])]
    reference = "def run(x, y):\n    return x + y\n"
    verdict = _judge(client, judging.job(reference, adds, ADD_BFLOAT16, language="triton", target="cuda:sm_90"))
    assert verdict["verdict"] == "ambiguous", verdict["reason"]
    assert verdict["gate"] in ("screen", "time")
    if verdict["gate"] == "screen":  # a Triton whose interpreter gets it right is believed
        assert "interpreter computes bfloat16" in verdict["reason"]


MULTIPLY_BFLOAT16 = """
import triton
import triton.language as tl

@triton.jit
def multiply(a, b, c, FACTOR: tl.constexpr):
    i = tl.arange(0, 16)
    tile = i[:, None] * 16 + i[None, :]
    product = tl.dot(tl.load(a + tile), tl.load(b + tile))
    tl.store(c + tile, product * FACTOR)

def run(a, b, c):
    multiply[(1,)](a, b, c, FACTOR=1)
"""


def test_the_interpreter_multiplies_bfloat16_as_a_gpu_does(client: JudgeClient) -> None:
    tensors = [tensor(name, (16, 16), dtype="bfloat16") for name in ("a", "b")]
    products = [workload("small", "test", tensors, [output("c", (16, 16))])]
    reference = "def run(a, b):\n    return a.float() @ b.float()\n"

    def judged(source: str) -> Verdict:
        return _judge(client, judging.job(reference, products, source, language="triton", target="cuda:sm_90"))

    right = judged(MULTIPLY_BFLOAT16)
    assert (right["verdict"], right["gate"]) == ("ambiguous", "time"), right["reason"]
    assert "checked under Triton's interpreter on small" in right["reason"]
    wrong = judged(MULTIPLY_BFLOAT16.replace("FACTOR=1", "FACTOR=2"))
    assert (wrong["verdict"], wrong["gate"]) == ("ambiguous", "screen"), "other operations may still be at fault"


def test_cuda_without_a_gpu_is_compiled_and_not_run(client: JudgeClient, examples: Path) -> None:
    source = (examples.parent / "tests/candidates/add_relu_cuda.py").read_text()
    verdict = _judge(client, judging.job(ADD_RELU, ADD_RELUS, source, language="cuda", target="cuda:sm_90"))
    assert (verdict["verdict"], verdict["gate"]) == ("ambiguous", "screen"), verdict["reason"]
    assert "compiled for sm_90, not run" in verdict["reason"]


def test_a_launch_that_fails_on_a_hold_out_alone_is_put_to_it(client: JudgeClient, examples: Path) -> None:
    """Whoever tells the model of it has to know, for the message has its size."""
    source = (examples.parent / "tests/candidates/add_relu_cuda.py").read_text()
    source = source.replace("(n + 255) // 256, 256]", "x.shape[0], bias.shape[0]]")
    wide = workload("secret", "holdout", [tensor("x", (5, 1344)), tensor("bias", (1344,))], [output("y", (5, 1344))])
    job = judging.job(ADD_RELU, [wide, *ADD_RELUS], source, language="cuda", target="cuda:sm_90", level="verify")
    verdict = _judge(client, job)
    assert (verdict["verdict"], verdict["gate"]) == ("rejected", "compile"), verdict["reason"]
    failure = _failure(verdict)
    assert "found 1344" in failure["message"]
    assert (failure["kind"], failure["workload"]) == ("compile", "secret")
    both = [wide, workload("too_wide", "test", *(wide[part] for part in ("inputs", "outputs")))]  # type: ignore[literal-required]
    failure = _failure(_judge(client, {**job, "id": "job_again", "workloads": both}))
    assert failure["workload"] == "too_wide", "hold-out shapes come last"


def test_a_workload_that_does_not_fit_is_refused_before_anything_is_allocated(client: JudgeClient) -> None:
    huge = [judging.layer_norm_workload("huge", "bench", 1 << 24, 1 << 20)]
    verdict = _judge(client, judging.job(LAYER_NORM, huge, GOOD_NORM))
    failure = _failure(verdict)
    assert verdict["gate"] == "memory"
    assert failure["workload"] == "huge"
    assert failure["found"] > 1 << 44
    assert "at most" in failure["expected"]
    assert "reference" not in verdict["seconds"]
    limited = _judge(client, judging.job(LAYER_NORM, LAYER_NORMS, GOOD_NORM, memory_bytes=1000))
    assert "limits.memory_bytes" in limited["reason"]


def test_a_workload_that_occurs_more_often_decides_more_of_the_score(client: JudgeClient) -> None:
    small, large = layer_norm_workload("small", "bench", 4, 64), layer_norm_workload("large", "bench", 512, 512)
    small["weight"] = 9.0
    verdict = _judge(client, judging.job(LAYER_NORM, [small, large], GOOD_NORM))
    assert verdict["verdict"] == "accepted", verdict["reason"]
    first, second = verdict["workloads"]
    assert (first["weight"], "weight" in second) == (9.0, False)
    gains = [entry["speedup"]["eager"] for entry in (first, second)]
    assert verdict["score"] == pytest.approx((gains[0] ** 9 * gains[1]) ** 0.1, rel=1e-9)
    assert verdict["score"] != pytest.approx((gains[0] * gains[1]) ** 0.5, rel=1e-9)


def test_a_job_with_a_weight_that_is_none_is_refused(client: JudgeClient) -> None:
    wrong = layer_norm_workload("small", "bench", 4, 64)
    wrong["weight"] = 0.0
    with pytest.raises(Exception, match=r"workloads\[0\]\.weight: found '?0\.0'?, expected a finite number above 0"):
        _judge(client, judging.job(LAYER_NORM, [wrong], GOOD_NORM))

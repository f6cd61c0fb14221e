"""The judge of a GPU, from job to verdict: honest candidates, wrong ones, and ones that fall over."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import jobs
from benchmarks.jobs import Language, job, output, scalar, tensor, workload
from warpsmith.kernels_db.job.documents import Failure, ResolvedWorkload, Verdict, WorkloadVerdict
from warpsmith.workers.judge.protocol.client import JudgeClient

if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU on this machine", allow_module_level=True)

TIMEOUT_S = 180.0
ADD_RELU = "import torch\n\ndef run(x, y):\n    return torch.relu(x + y)\n"
BENCH, ODD = 1 << 20, 100_003
ENDLESS_CALL_S = 2.0
TERABYTE_ELEMENTS = 1 << 38


def target() -> str:
    """The GPU at hand."""
    major, minor = torch.cuda.get_device_capability(0)
    return f"cuda:sm_{major}{minor}"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeClient]:
    """One judge for all tests, so that what one candidate does could harm the next."""
    with JudgeClient(cache=Path(tmp_path_factory.mktemp("judge")), log=print) as client:
        yield client


def adds(dtype: str = "float32", **options: Any) -> list[ResolvedWorkload]:
    """out = max(x + y, 0), at a size to be timed and an odd one."""
    return [
        workload(
            name,
            role,  # type: ignore[arg-type]  # the pair below
            [tensor("x", (n,), dtype=dtype, **options), tensor("y", (n,), dtype=dtype)],
            [output("out", (n,), dtype=dtype)],
        )
        for name, role, n in (("large", "bench", BENCH), ("odd", "test", ODD))
    ]


def cuda(body: str, before: str = "", run: str = "") -> str:
    """A CUDA candidate of add_relu, whose kernel has this body."""
    head = "const float* x, const float* y, float* out, long long n"
    call = run or "    n = out.numel()\n    kernels.add_relu[(n + 255) // 256, 256](x, y, out, n)\n"
    return (
        f'from kernels_db.runtime import cuda\n\nkernels = cuda.compile(r"""{before}\nextern "C" __global__ void '
        f"add_relu({head}) {{\n    const long long i = blockIdx.x * 256ll + threadIdx.x;\n    {body}\n}}\n"
        f'""")\n\n\ndef run(x, y, out):\n{call}'
    )


RIGHT = "if (i < n) out[i] = fmaxf(x[i] + y[i], 0.0f);"
HONEST = cuda(RIGHT)
TRITON = """import triton
import triton.language as tl


@triton.jit
def add_relu(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x + i, mask=i < n).to(tl.float32) + tl.load(y + i, mask=i < n).to(tl.float32)
    tl.store(out + i, tl.maximum(total, 0.0).to(out.dtype.element_ty), mask=i < n)


def run(x, y, out):
    n = out.numel()
    add_relu[(triton.cdiv(n, 1024),)](x, y, out, n, BLOCK=1024)
"""


def judged(client: JudgeClient, source: str, language: Language = "cuda", **options: Any) -> Verdict:
    """The verdict on a candidate of add_relu, at level verify unless named."""
    options = {"level": "verify", "target": target(), "time_s": 0.1, "name": "add_relu", **options}
    workloads = options.pop("workloads", None) or adds()
    reference = options.pop("reference", ADD_RELU)
    return client.judge(job(reference, workloads, source, language=language, **options), TIMEOUT_S)


def accepted(verdict: Verdict) -> Verdict:
    """The verdict, which must accept."""
    assert (verdict["verdict"], verdict["failure"]) == ("accepted", None), verdict["reason"]
    return verdict


def failure_of(verdict: Verdict) -> Failure:
    """What a verdict rejects for."""
    assert verdict["verdict"] == "rejected", verdict["reason"]
    assert verdict["failure"] is not None
    return verdict["failure"]


def entry(verdict: Verdict, name: str = "large") -> WorkloadVerdict:
    """One workload of a verdict."""
    return next(item for item in verdict["workloads"] if item["id"] == name)


@pytest.mark.parametrize(("language", "source"), [("cuda", HONEST), ("triton", TRITON)])
def test_an_honest_candidate_is_accepted_with_its_evidence(judge: JudgeClient, language: Language, source: str) -> None:
    verdict = accepted(judged(judge, source, language))
    timed = entry(verdict)
    assert timed["time_us"]["candidate"] > 0
    assert timed["time_us"]["eager"] > 0
    low, high = timed["ci95"]["eager"]
    assert low <= timed["speedup"]["eager"] <= high
    assert {"events", "wall"} <= set(timed["clocks_us"]["candidate"])
    assert "add_relu" in timed["kernels"]
    assert timed["limit_us"] is not None
    assert timed["repeatable"] is True
    assert timed["families"]
    assert verdict["device"]["type"] == "cuda"
    assert verdict["compile"] is not None
    assert {kernel["name"] for kernel in verdict["compile"]["kernels"]} == {"add_relu"}
    host = verdict["host_us"]
    assert host["launches"] == 1, host
    assert 0 < host["plan"] < host["run"]


def test_configurations_that_start_together_fall_alone(judge: JudgeClient) -> None:
    """One writes where there is no memory, one is wrong, one does its work hundreds of times: each by itself."""
    body = (
        f"if (AS == 1) out[i + {TERABYTE_ELEMENTS}ll] = 1.0f;\n"
        "    volatile float* to = out;\n"
        "    for (int again = 0; again < (AS == 3 ? 400 : 1); again++)\n"
        "        if (i < n) to[i] = fmaxf(x[i] + y[i], 0.0f) + (AS == 2 ? 1.0f : 0.0f);"
    )
    source = (
        cuda(body)
        .replace('""")', '""", flags=("-DAS=0",))')
        .replace("\n\nkernels", '\n\nTUNE = {"AS": [0, 1, 2, 3]}\nkernels')
    )
    verdict = accepted(judged(judge, source, level="screen"))
    found = {one["values"]["AS"]: one for one in verdict["sweep"]["configurations"]}
    assert verdict["sweep"]["chosen"] == {"AS": 0}
    assert "failure" in found[1]
    assert "elements are wrong" in found[2]["failure"]
    assert "failure" not in found[3]
    assert found[3]["time_us"]["large"] > 2 * found[0]["time_us"]["large"]
    assert verdict["sweep_seconds"] < verdict["seconds"]["exclusive"]
    accepted(judged(judge, HONEST, level="screen"))


def test_calls_that_the_host_launches_late_are_counted(judge: JudgeClient) -> None:
    slow = "import time\n" + ADD_RELU.replace("    return", "    time.sleep(0.005)\n    return")
    timed = entry(accepted(judged(judge, HONEST, reference=slow)))
    assert timed["late_calls"]["eager"] > timed["late_calls"].get("candidate", 0)
    assert "unsure" not in timed, "late in every block: so it is launched, and another timing would find the same"


def test_a_wrong_element_is_named(judge: JudgeClient) -> None:
    failure = failure_of(judged(judge, cuda(f"{RIGHT} if (i == 12345) out[i] += 1.0f;")))
    assert (failure["kind"], failure["tensor"], failure["index"]) == ("wrong_value", "out", [12345])
    assert failure["found"] == pytest.approx(failure["expected"] + 1.0, abs=1e-5)


def test_a_shape_that_the_kernel_forgets_is_found(judge: JudgeClient) -> None:
    """Right at the size that is timed, wrong at another: what a screen lets through, a verification does not."""
    source = cuda(f"if (n == {BENCH} || i % 7) {{ {RIGHT} }} else if (i < n) out[i] = 0.0f;")
    accepted(judged(judge, source, level="screen", workloads=adds()[:1]))
    failure = failure_of(judged(judge, source))
    assert failure["workload"] == "odd"


def test_a_write_past_the_output_is_seen(judge: JudgeClient) -> None:
    failure = failure_of(judged(judge, cuda(f"{RIGHT} if (i == 0) out[n] = 0.0f;")))
    assert failure["kind"] == "out_of_bounds"


def test_a_write_before_the_output_is_seen(judge: JudgeClient) -> None:
    failure = failure_of(judged(judge, cuda(f"{RIGHT} if (i == 0) out[-1] = 0.0f;")))
    assert failure["kind"] == "out_of_bounds"


def test_a_changed_input_is_seen(judge: JudgeClient) -> None:
    failure = failure_of(judged(judge, cuda(f"{RIGHT} if (i == 77) const_cast<float*>(x)[i] = 0.5f;")))
    assert (failure["kind"], failure["tensor"], failure["index"]) == ("input_modified", "x", [77])


def test_what_is_not_written_is_seen(judge: JudgeClient) -> None:
    failure = failure_of(judged(judge, cuda(RIGHT.replace("i < n", "i < n - 3"))))
    assert (failure["kind"], failure["tensor"]) == ("not_written", "out")
    assert failure["wrong_elements"] == 3


def test_a_kernel_without_end_costs_itself_alone(judge: JudgeClient) -> None:
    endless = "volatile const float* first = x; while (first[0] == first[0]) {}" + RIGHT
    failure = failure_of(judged(judge, cuda(endless), call_s=ENDLESS_CALL_S))
    assert failure["kind"] == "timeout"
    accepted(judged(judge, HONEST))


def test_an_illegal_access_costs_itself_alone(judge: JudgeClient) -> None:
    failure = failure_of(judged(judge, cuda(f"{RIGHT} out[i + (1ll << 44)] = 1.0f;")))
    assert failure["kind"] in ("crash", "device", "raises")
    accepted(judged(judge, HONEST))
    accepted(judged(judge, TRITON, "triton"))


def test_a_trap_costs_itself_alone(judge: JudgeClient) -> None:
    failure = failure_of(judged(judge, cuda(f"{RIGHT} if (i == 5) __trap();")))
    assert failure["kind"] in ("crash", "device", "raises")
    accepted(judged(judge, HONEST))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_floating_types(judge: JudgeClient, dtype: str) -> None:
    source = TRITON if dtype != "float64" else TRITON.replace("tl.float32", "tl.float64")
    accepted(judged(judge, source, "triton", workloads=adds(dtype)))


COUNT = """from kernels_db.runtime import cuda

kernels = cuda.compile(r\"\"\"
extern "C" __global__ void count(const float* x, long long* counts, int rows, int columns) {
    const int row = blockIdx.x * 256 + threadIdx.x;
    if (row >= rows) return;
    long long found = 0;
    for (int c = 0; c < columns; ++c) found += x[row * (long long)columns + c] > 0.0f;
    counts[row] = found;
}
\"\"\")


def run(x, counts):
    rows, columns = x.shape
    kernels.count[(rows + 255) // 256, 256](x, counts, rows, columns)
"""


def counts(rows: int, columns: int) -> list[ResolvedWorkload]:
    """How many elements of a row are positive."""
    return [workload("rows", "bench", [tensor("x", (rows, columns))], [output("counts", (rows,), dtype="int64")])]


def test_integers_are_compared_exactly(judge: JudgeClient) -> None:
    reference = "def run(x):\n    return (x > 0).sum(-1)\n"
    options = {"reference": reference, "workloads": counts(5000, 129), "name": "count"}
    accepted(judged(judge, COUNT, **options))
    failure = failure_of(
        judged(judge, COUNT.replace("counts[row] = found", "counts[row] = found + (row == 9)"), **options)
    )
    assert (failure["kind"], failure["index"]) == ("wrong_value", [9])


IN_PLACE = """from kernels_db.runtime import cuda

kernels = cuda.compile(r\"\"\"
extern "C" __global__ void add_scaled(float* x, const float* y, float m, long long n) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < n) x[i] = x[i] + m * y[i];
}
\"\"\")


def run(x, y, m):
    n = x.numel()
    kernels.add_scaled[(n + 255) // 256, 256](x, y, m, n)
"""


def test_a_mutated_input_and_a_number(judge: JudgeClient) -> None:
    inputs = [tensor("x", (ODD,), mutated=True), tensor("y", (ODD,)), scalar("m", 0.75)]
    reference = "def run(x, y, m):\n    x.add_(y, alpha=m)\n"
    options = {"reference": reference, "workloads": [workload("odd", "bench", inputs, [])], "name": "add_scaled"}
    accepted(judged(judge, IN_PLACE, **options))
    failure = failure_of(judged(judge, IN_PLACE.replace("m * y[i]", "y[i]"), **options))
    assert (failure["kind"], failure["tensor"]) == ("wrong_value", "x")


STRIDED = """import triton
import triton.language as tl


@triton.jit
def add_relu(x, y, out, columns, stride, BLOCK: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, BLOCK)
    inside = column < columns
    total = tl.load(x + row * stride + column, mask=inside) + tl.load(y + row * columns + column, mask=inside)
    tl.store(out + row * columns + column, tl.maximum(total, 0.0), mask=inside)


def run(x, y, out):
    rows, columns = out.shape
    add_relu[(rows,)](x, y, out, columns, x.stride(0), BLOCK=triton.next_power_of_2(columns))
"""


def test_a_strided_input(judge: JudgeClient) -> None:
    inputs = [tensor("x", (300, 129), strides=(192, 1)), tensor("y", (300, 129))]
    options = {"workloads": [workload("rows", "bench", inputs, [output("out", (300, 129))])], "name": "strided"}
    accepted(judged(judge, STRIDED, "triton", **options))
    failure = failure_of(judged(judge, STRIDED.replace("x.stride(0)", "columns"), "triton", **options))
    assert failure["kind"] in ("wrong_value", "non_finite")


def test_what_cannot_fit_is_refused_before_anything_is_allocated(judge: JudgeClient) -> None:
    n = TERABYTE_ELEMENTS
    huge = workload("huge", "bench", [tensor("x", (n,)), tensor("y", (n,))], [output("out", (n,))])
    before = torch.cuda.mem_get_info(0)[0]
    verdict = judged(judge, HONEST, workloads=[huge])
    assert verdict["gate"] == "memory"
    assert failure_of(verdict)["workload"] == "huge"
    assert abs(before - torch.cuda.mem_get_info(0)[0]) < 8 << 30
    assert sum(verdict["seconds"].values()) < 30


def test_a_job_for_another_architecture_is_not_run(judge: JudgeClient) -> None:
    other = "cuda:sm_80" if target() != "cuda:sm_80" else "cuda:sm_90"
    verdict = judged(judge, HONEST, target=other)
    assert verdict["verdict"] in ("rejected", "ambiguous")
    assert not any("candidate" in item["time_us"] for item in verdict["workloads"])
    assert other.partition(":")[2] in verdict["reason"]


def test_more_shared_memory_than_a_block_has_is_refused(judge: JudgeClient) -> None:
    run = (
        "    n = out.numel()\n    kernels.add_relu.launch((n + 255) // 256, 256, x, y, out, n, shared_bytes=1048576)\n"
    )
    verdict = judged(judge, cuda(RIGHT, run=run))
    failure_of(verdict)
    assert "shared" in verdict["reason"]
    accepted(judged(judge, HONEST))


def test_a_launch_that_is_missing_is_refused(judge: JudgeClient) -> None:
    failure_of(judged(judge, cuda(RIGHT, run="    return\n")))


def test_several_jobs_in_flight_get_their_own_verdicts(judge: JudgeClient) -> None:
    def one(number: int) -> tuple[int, Verdict, str]:
        source = HONEST if number % 2 == 0 else cuda(f"{RIGHT} if (i == {100 + number}) out[i] += 1.0f;")
        document = job(
            ADD_RELU, adds()[:1], source, language="cuda", level="screen", target=target(), time_s=0.05, name="add_relu"
        )
        return number, judge.judge(document, TIMEOUT_S), document["id"]

    with ThreadPoolExecutor(8) as pool:
        for number, verdict, wanted in pool.map(one, range(8)):
            assert verdict["id"] == wanted
            if number % 2 == 0:
                accepted(verdict)
            else:
                assert failure_of(verdict)["index"] == [100 + number]


def test_a_screen_holds_the_gpu_for_a_moment(judge: JudgeClient) -> None:
    accepted(judged(judge, HONEST, level="screen", workloads=adds()[:1]))  # the reference is warm from here on
    verdict = accepted(judged(judge, cuda(RIGHT + " // again"), level="screen", workloads=adds()[:1]))
    assert 0 < verdict["seconds"]["exclusive"] < 5


def test_the_cpu_is_judged_beside_the_gpu(judge: JudgeClient) -> None:
    source = """from kernels_db.runtime import cpp

kernels = cpp.compile(r\"\"\"
extern "C" void add_relu(const float* x, const float* y, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i] > 0.0f ? x[i] + y[i] : 0.0f;
}
\"\"\")


def run(x, y, out):
    kernels.add_relu(x, y, out, out.numel())
"""
    accepted(judged(judge, source, "cpp", target=jobs.CPU))
    accepted(judged(judge, HONEST))

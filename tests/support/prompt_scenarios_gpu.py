"""Contexts for a GPU, beside those of `prompt_scenarios`: an H200, CUDA and Triton candidates. Times are invented."""

from __future__ import annotations

from typing import Any

from tests.support.prompt_scenarios import SPEC, WRONG, context, op, rejected, timed, verdict, workloads
from warpsmith.kernels_db.job.documents import Failure, Verdict
from warpsmith.kernels_db.spec.op import Target
from warpsmith.workers.llm.prompt.candidates import NodeFacts
from warpsmith.workers.llm.prompt.requests import LedgerEntry, RequestContext

DEVICE: dict[str, Any] = {
    "name": "NVIDIA H200",
    "type": "cuda",
    "arch": "sm_90",
    "multiprocessors": 132,
    "memory_bytes": 150_109_880_320,
    "caches": {"L2": 62_914_560},
    "shared_bytes_per_block": 232_448,
    "registers_per_multiprocessor": 65_536,
    "peaks": {
        "bandwidth_gbs": {"1048576": 1_480.0, "2097152": 2_210.0, "134217728": 3_930.0},
        "gflops": {"float32": 134_000.0},
    },
    "exchange_us": 2.91,
}
VERSIONS = {"python": "3.12.3", "torch": "2.11.0+cu130", "cuda": "13.0", "driver": "580.159.04", "triton": "3.6.0"}
IDEA: dict[str, Any] = {
    "technique": "fusion",
    "title": "One block per row, row read once",
    "mechanism": "Add, square and sum while the row is read; the second loop finds it in L1.",
    "evidence": "Eager needs 121 us for 128 MiB: three passes.",
    "expected_gain": "prefill: 37 us, 1.2x of torch.compile",
    "risk": "Few blocks at 16 tokens.",
    "sketch": "256 threads per row, shuffles, then one exchange through shared memory.",
}
OTHER_IDEA: dict[str, Any] = {**IDEA, "technique": "memory_access", "title": "16-byte loads, four in flight"}

CUDA_SOURCE = '''from kernels_db.runtime import cuda

kernels = cuda.compile(r"""
extern "C" __global__ void __launch_bounds__(256)
add_rms_norm(const float* x, float* r, const float* w, float eps, float* y, int n) {
    const long long row = (long long)blockIdx.x * n;
    float sum = 0.f;
    for (int j = threadIdx.x; j < n; j += 256) {
        const float v = r[row + j] + x[row + j];
        r[row + j] = v;
        sum += v * v;
    }
    __shared__ float part[8];
    for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.f;
    for (int i = 0; i < 8; ++i) sum += part[i];
    const float scale = rsqrtf(sum / n + eps);
    for (int j = threadIdx.x; j < n; j += 256) y[row + j] = r[row + j] * scale * w[j];
}
""")


def run(x, residual, weight, eps, y):
    kernels.add_rms_norm[x.shape[0], 256](x, residual, weight, eps, y, x.shape[1])
'''
TRITON_SOURCE = """import triton
import triton.language as tl


@triton.jit
def add_rms_norm(x, r, w, eps, y, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    j = tl.arange(0, BLOCK)
    v = tl.load(x + row + j) + tl.load(r + row + j)
    tl.store(r + row + j, v)
    scale = 1.0 / tl.sqrt(tl.sum(v * v) / n + eps)
    tl.store(y + row + j, v * scale * tl.load(w + j))


def run(x, residual, weight, eps, y):
    rows, n = x.shape
    add_rms_norm[(rows,)](x, residual, weight, eps, y, n, BLOCK=triton.next_power_of_2(n), num_warps=8)
"""

COMPILE_ERROR: Failure = {
    "kind": "compile",
    "message": "NVRTC refused the source",
    "log": '/tmp/job_7f3a/kernels.cu(17): error: identifier "rsqrtff" is undefined\n'
    "      const float scale = rsqrtff(sum / n + eps);\n"
    "                          ^\n\n"
    '1 error detected in the compilation of "/tmp/job_7f3a/kernels.cu".\n',
}

LEDGER = (
    LedgerEntry(1, "fusion", IDEA["title"], "1.18x", "1.16 to 1.20; decode 4.90 us, 1.14x; prefill 36.9 us, 1.22x"),
    LedgerEntry(2, "memory_access", OTHER_IDEA["title"], "rejected at compile", "no member named w"),
)


def baselines() -> Verdict:
    """The root's verdict on the GPU."""
    entries = [timed("decode", None, 11.9, 5.6, 0.72), timed("prefill", None, 121.0, 45.1, 34.2)]
    return verdict(
        level="baseline",
        target="cuda:sm_90",
        device=DEVICE,
        versions=VERSIONS,
        workloads=entries,
        score=None,
        score_ci95=None,
        compile=None,
        language=None,
    )


def accepted(language: str) -> Verdict:
    """A verdict on a candidate that is right, and somewhat faster than torch.compile."""
    kernels = [{"name": "add_rms_norm", "registers": 40, "spills": 0, "shared": 32}]
    launches = [{"kernel": "add_rms_norm", "grid": [8192, 1, 1], "block": [512, 1, 1], "shared_bytes": 0}]
    return verdict(
        target="cuda:sm_90",
        device=DEVICE,
        language=language,
        workloads=[timed("decode", 4.9, 11.9, 5.6, 0.72), timed("prefill", 36.9, 121.0, 45.1, 34.2)],
        compile={"seconds": 0.1, "log": "", "cached": False, "kernels": kernels, "launches": launches},
        score=1.18,
        score_ci95=[1.16, 1.2],
    )


def scenarios() -> dict[str, RequestContext]:
    """What the golden files show of the GPU, by name."""
    spec = op(SPEC)
    gpu: dict[str, Any] = {
        "target": Target.parse("cuda:sm_90"),
        "workloads": workloads(spec, "cuda:sm_90"),
        "baselines": baselines(),
        "best": None,
        "ledger": LEDGER,
    }
    parent = NodeFacts(1, IDEA, CUDA_SOURCE, "e" * 64, accepted("cuda"))
    broken = CUDA_SOURCE.replace("rsqrtf", "rsqrtff")
    on_gpu = {"target": "cuda:sm_90", "device": DEVICE}
    return {
        "ideate_cuda": context("ideate", language="cuda", **gpu | {"parent": parent, "best": parent}),
        "code_cuda": context("code", language="cuda", variant=0, variants=1, **gpu | {"parent": None}),
        "code_cuda_parent": context("code", idea=OTHER_IDEA, language="cuda", **gpu | {"parent": parent}),
        "repair_cuda": context(
            "repair",
            language="cuda",
            parent=None,
            failing=NodeFacts(2, OTHER_IDEA, broken, "f" * 64, rejected("compile", COMPILE_ERROR, **on_gpu)),
            **gpu,
        ),
        "repair_triton": context(
            "repair",
            language="triton",
            parent=None,
            failing=NodeFacts(4, IDEA, TRITON_SOURCE, "9" * 64, rejected("screen", WRONG, **on_gpu)),
            **gpu,
        ),
    }

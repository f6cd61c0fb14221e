"""What `math: tf32` admits: operands rounded to TF32 once, whether or not PyTorch makes use of that here."""

from __future__ import annotations

import pytest

from tests import judging
from warpsmith.workers.judge.protocol.client import JudgeClient

PRODUCT = """
import torch

def run(a, b):
    return a @ b
"""
SIZE = 96
WORKLOADS = [
    judging.workload(
        "bench",
        "bench",
        [judging.tensor("a", (SIZE, SIZE)), judging.tensor("b", (SIZE, SIZE))],
        [judging.output("c", (SIZE, SIZE))],
    )
]


def product(kept_bits: int) -> str:
    """A matrix product of operands rounded to so many of float32's 23 bits of fraction."""
    half = 1 << (22 - kept_bits)
    return f'''
from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
#include <cstring>
static float rounded(float x) {{
    int32_t bits; std::memcpy(&bits, &x, 4);
    bits = (bits + {half}) & ~{2 * half - 1}; std::memcpy(&x, &bits, 4);
    return x;
}}
extern "C" void product(const float* a, const float* b, float* c, int64_t n) {{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {{
            double sum = 0;
            for (int64_t k = 0; k < n; k++) sum += (double)rounded(a[i * n + k]) * rounded(b[k * n + j]);
            c[i * n + j] = (float)sum;
        }}
}}
""")


def run(a, b, c):
    kernels.product(a, b, c, c.shape[0])
'''


@pytest.mark.parametrize(
    ("math", "kept_bits", "accepted"),
    [
        ("tf32", 10, True),
        pytest.param("tf32", 7, False, marks=pytest.mark.nightly),
        ("ieee", 10, False),
        pytest.param("ieee", 22, True, marks=pytest.mark.nightly),
    ],
)
def test_rounded_operands(math: str, kept_bits: int, accepted: bool, judge: JudgeClient) -> None:
    job = judging.job(PRODUCT, WORKLOADS, product(kept_bits))
    job["op"]["math"] = math  # type: ignore[typeddict-item]  # one of the two words
    job["op"]["baselines"] = ["eager"]
    verdict = judge.judge(job, 120.0)
    assert (verdict["gate"] == "screen") is not accepted, verdict["reason"]
    if not accepted:
        assert verdict["failure"] is not None
        assert verdict["failure"]["kind"] == "wrong_value"

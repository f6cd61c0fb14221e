"""A candidate of an op with named dtypes is right only where it is right in all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.spec.test_dtypes import SPEC
from warpsmith.kernels_db.job.documents import Level, Verdict
from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.spec.resolve import build_job
from warpsmith.workers.judge.protocol.client import JudgeClient

pytestmark = pytest.mark.nightly

SOURCE = '''import torch

from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
static inline float wide(uint16_t bits) {
    const uint32_t word = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &word, 4);
    return value;
}

static inline uint16_t narrow(float value) {
    uint32_t word;
    std::memcpy(&word, &value, 4);
    if (value != value) return uint16_t((word >> 16) | 0x40);
    return uint16_t((word + 0x7fff + ((word >> 16) & 1)) >> 16);
}

extern "C" void scale_float(const float* x, const float* s, float shift, float* y, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < n; ++c) y[r * n + c] = x[r * n + c] * s[r] + shift;
}

extern "C" void scale_half(const uint16_t* x, const float* s, float shift, uint16_t* y, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < n; ++c) y[r * n + c] = narrow(wide(x[r * n + c]) * s[r] + shift);
}
""")


def run(x, scale, shift, y):
    rows, columns = x.shape
    if x.dtype == torch.float32:
        kernels.scale_float(x, scale, shift, y, rows, columns)
    else:
        kernels.scale_half(x, scale, shift, y, rows, columns)
'''


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeClient]:
    with JudgeClient(cache=tmp_path_factory.mktemp("cache")) as client:
        yield client


def judged(judge: JudgeClient, source: str | None, level: Level) -> Verdict:
    candidate = None if source is None else {"language": "cpp", "source": source}
    op = parse_op({**SPEC, "objective": {"baselines": ["eager"]}})
    job = build_job(op, Target.parse("cpu"), level=level, candidate=candidate)  # type: ignore[arg-type]
    job["limits"]["attack_s"] = 0.0
    return judge.judge(job, timeout_s=280)


def test_the_op_is_admitted_in_all_its_dtypes(judge: JudgeClient) -> None:
    verdict = judged(judge, None, "baseline")
    assert verdict["verdict"] == "accepted", verdict["reason"]
    assert {"wide", "wide_half", "odd", "odd_half"} <= {workload["id"] for workload in verdict["workloads"]}


def test_a_candidate_is_judged_on_all_of_them(judge: JudgeClient) -> None:
    verdict = judged(judge, SOURCE, "verify")
    assert verdict["verdict"] == "accepted", verdict["reason"]
    timed = {workload["id"] for workload in verdict["workloads"] if "candidate" in workload["time_us"]}
    assert timed == {"wide", "wide_half"}
    assert verdict["score"] is not None


def test_one_that_is_wrong_in_one_dtype_is_rejected(judge: JudgeClient) -> None:
    wrong = SOURCE.replace("wide(x[r * n + c]) * s[r] + shift", "wide(x[r * n + c])")
    verdict = judged(judge, wrong, "screen")
    assert verdict["verdict"] == "rejected"
    assert verdict["failure"] is not None
    assert verdict["failure"]["workload"] == "wide_half"

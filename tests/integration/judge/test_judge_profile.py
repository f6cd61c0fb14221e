"""A profile on request: what a candidate's calls run, by its own word."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.jobs import job
from benchmarks.redteam_catalogue.text import cpp
from tests import judging
from warpsmith.workers.judge.gates import traces
from warpsmith.workers.judge.gates.profiling import CALLS, read_bounded
from warpsmith.workers.judge.protocol.client import JudgeClient

PLACE = judging.layer_norm_workload("bench", "bench", 64, 128)
SMALLER = judging.layer_norm_workload("smaller", "bench", 8, 128)
WRONG = judging.norm_candidate("for (int64_t i = 0; i < rows * n; i++) y[i] = 0;")
CRASHES = cpp(
    'extern "C" void norm(float* y) { *(volatile int*)8 = 1; }', "def run(x, weight, bias, y):\n    kernels.norm(y)\n"
)


def test_calls_and_kernel_functions_are_counted(judge: JudgeClient, judge_cache: Path) -> None:
    found = judge.judge(job(judging.LAYER_NORM, [SMALLER, PLACE], judging.GOOD_NORM, level="profile"), timeout_s=280)
    again = judge.judge(job(judging.LAYER_NORM, [PLACE], judging.GOOD_NORM), timeout_s=280)
    assert (found["verdict"], found["gate"]) == ("ambiguous", "time")
    assert "decides nothing" in found["reason"]
    profile = found["profile"]
    assert (profile["workload"], profile["calls"]) == ("bench", CALLS)
    rows = {row["name"]: row for row in profile["rows"]}
    assert rows["run"]["count"] == rows["kernels.norm"]["count"] == CALLS
    assert rows["run"]["kind"] == rows["kernels.norm"]["kind"] == "region"
    assert rows["run"]["total_us"] >= rows["kernels.norm"]["total_us"] > 0
    assert rows["run"]["mean_us"] == pytest.approx(rows["run"]["total_us"] / CALLS, abs=0.01)
    assert str(judge_cache) not in str(profile["trace"])
    assert profile["trace"]["traceEvents"][-1]["ph"] == "X"
    assert found["workloads"] == []
    assert found["score"] is None
    assert again["verdict"] == "accepted", again["reason"]  # what was profiled leaves nothing behind
    assert "profile" not in again


def test_what_is_wrong_is_profiled_and_what_falls_over_says_so(judge: JudgeClient) -> None:
    sources = (WRONG, CRASHES, "import os\n\ndef run(x):\n    pass\n")
    wrong, fallen, refused = (
        judge.judge(job(judging.LAYER_NORM, [PLACE], source, level="profile"), timeout_s=280) for source in sources
    )
    assert wrong["verdict"] == "ambiguous"
    assert wrong["profile"]["rows"]
    assert fallen["verdict"] == "rejected"
    assert fallen["failure"] is not None
    assert fallen["failure"]["kind"] == "crash"
    assert "profile" not in fallen
    assert (refused["verdict"], refused["gate"]) == ("rejected", "gate")


def test_only_a_plain_file_of_bounded_size_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("nobody's business")
    link = tmp_path / "trace.json"
    link.symlink_to(secret)
    for path in (link, tmp_path, tmp_path / "absent"):
        with pytest.raises(OSError, match=r"\w"):
            read_bounded(path)
    large = tmp_path / "large"
    large.write_bytes(b" " * (traces.MOST_BYTES + 10))
    with pytest.raises(traces.BadTrace, match="found more than"):
        read_bounded(large)

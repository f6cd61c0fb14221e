"""What the compile baseline's compiler generated stands on the baselines' verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.jobs import job
from tests import judging
from warpsmith.workers.judge.protocol.client import JudgeClient


@pytest.mark.nightly
def test_the_baselines_carry_the_generated_code_and_candidates_do_not(tmp_path: Path) -> None:
    places = [judging.layer_norm_workload(f"rows{rows}", "bench", rows, 512) for rows in (7, 256)]
    both = ("eager", "compile")
    with JudgeClient(cache=tmp_path) as judge:
        root = judge.judge(job(judging.LAYER_NORM, places, baselines=both), timeout_s=280)
        again = judge.judge(job(judging.LAYER_NORM, places, baselines=both), timeout_s=280)
        screened = judge.judge(job(judging.LAYER_NORM, places, judging.GOOD_NORM, baselines=both), timeout_s=280)
        eager = judge.judge(job(judging.LAYER_NORM, places, baselines=("eager",)), timeout_s=280)
    assert root["verdict"] == "accepted", root["reason"]
    assert root["generated"]["language"] == "cpp"
    assert "void  kernel(" in root["generated"]["source"]
    assert "256L" in root["generated"]["source"]  # of the larger workload
    assert str(tmp_path) not in root["generated"]["source"]
    assert again["generated"] == root["generated"]  # by runners that were warm
    assert "generated" not in screened
    assert "generated" not in eager

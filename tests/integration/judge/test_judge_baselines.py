"""A fresh judge process knows which baseline is to be beaten."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import judging
from warpsmith.workers.judge.gates.measurement import RANKED
from warpsmith.workers.judge.protocol.client import JudgeClient

BOTH = ("eager", "compile")


@pytest.mark.nightly
def test_a_fresh_process_times_the_fastest_baseline_alone(tmp_path: Path) -> None:
    place = judging.layer_norm_workload("bench", "bench", 256, 512)
    baselines = judging.job(judging.LAYER_NORM, [place], baselines=BOTH)
    candidate = judging.job(judging.LAYER_NORM, [place], judging.GOOD_NORM, baselines=BOTH)
    with JudgeClient(cache=tmp_path) as first:
        measured = first.judge(baselines, timeout_s=280)["workloads"][0]["time_us"]
    assert measured.keys() == set(BOTH)
    with JudgeClient(cache=tmp_path) as second:
        found = second.judge(candidate, timeout_s=280)["workloads"][0]
    fastest = min(measured, key=lambda name: measured[name])
    assert found["time_us"].keys() == {"candidate", fastest}
    assert found["not_timed"] == {name: RANKED for name in BOTH if name != fastest}
    for kept in (tmp_path / "baselines").iterdir():  # none where a busy host made the second time unlike the first
        kept.unlink()
    with JudgeClient(cache=tmp_path) as third:
        times = third.judge(candidate, timeout_s=280)["workloads"][0]["time_us"]
    assert times.keys() == {"candidate", *BOTH}

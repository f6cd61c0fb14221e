"""On a GPU whose host has Nsight Compute: metrics of real kernels, from a confined process."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.jobs import Language, job
from tests.gpu.test_profile import PLACES, REFERENCE, TIMEOUT_S, source, target
from warpsmith.workers.judge.nsight import access
from warpsmith.workers.judge.protocol.client import JudgeClient

if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU on this machine", allow_module_level=True)
if access.find(None) is None or access.permission() == "refused":
    pytest.skip("no ncu that may read the counters on this machine", allow_module_level=True)

READ = "dram__bytes_read.sum"


@pytest.mark.parametrize("language", ["triton", "cuda"])
def test_a_profile_has_the_kernels_metrics(language: Language, tmp_path: Path) -> None:
    asked = job(REFERENCE, PLACES, source(language), level="profile", language=language, target=target())
    with JudgeClient(cache=tmp_path, log=print) as judge:
        found = judge.judge(asked, 2 * TIMEOUT_S)
        again = judge.judge(
            job(REFERENCE, PLACES, source(language), language=language, target=target()), TIMEOUT_S
        )  # what was profiled leaves the device as it was
    told = found["profile"]["nsight"]
    assert "reason" not in told, told
    (kernel,) = told["kernels"]
    assert kernel["name"].startswith("bias_relu")
    assert kernel["launches"] == 2
    metrics = kernel["metrics"]
    assert 5 < metrics["gpu__time_duration.sum"] < 500
    assert metrics[READ] == pytest.approx(4096 * 1024 * 4, rel=0.2)
    assert len(metrics) > 20, sorted(metrics)
    assert told["sandbox"]["level"] in ("confined", "isolated")
    assert again["verdict"] == "accepted", again["reason"]

"""The candidates of `benchmarks.showcase` on a real GPU: each is right on every workload of its op, and is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
import torch

pytest.importorskip("pydantic", reason="op specs are read with pydantic")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU on this machine", allow_module_level=True)

from benchmarks.showcase import LANGUAGES, OPS, candidate_job, gpu_target
from warpsmith.workers.judge.protocol.client import JudgeClient

TIMEOUT_S = 300.0


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeClient]:
    """One judge for all, so that an op's reference is started once."""
    with JudgeClient(cache=Path(tmp_path_factory.mktemp("judge"))) as client:
        yield client


@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("op", OPS)
def test_the_candidate_is_accepted(op: str, language: Literal["triton", "cuda"], judge: JudgeClient) -> None:
    target = gpu_target()
    assert target is not None
    job = candidate_job(op, language, target, baselines=("eager",), time_s=0.1)
    verdict = judge.judge(job, TIMEOUT_S)
    assert (verdict["verdict"], verdict["failure"]) == ("accepted", None), verdict["reason"]
    assert {item["id"] for item in verdict["workloads"]} == {item["id"] for item in job["workloads"]}
    for item in verdict["workloads"]:
        if item["role"] == "bench":
            assert item["time_us"]["candidate"] > 0
            assert item["speedup"]["eager"] > 0

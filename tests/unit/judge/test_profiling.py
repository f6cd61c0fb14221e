"""A profile with Nsight Compute's metrics: when they are measured, and where they stand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests import judging
from warpsmith.kernels_db.job.documents import Nsight, ResolvedWorkload
from warpsmith.workers.judge.gates.configurations import Prepared
from warpsmith.workers.judge.gates.profiling import profile

PLACE = judging.layer_norm_workload("bench", "bench", 8, 128)
TRACE = {"traceEvents": [{"ph": "X", "cat": "user_annotation", "name": "run", "ts": 1.0, "dur": 2.0, "tid": 0}]}


class Candidate:
    """A runner that tells a trace; `closed` once it has ended."""

    def __init__(self) -> None:
        self.closed = False

    def fill(self, slot: int, values: object) -> None:
        pass

    def call(self, slot: int, limit_s: float) -> None:
        pass

    def profile(self, slot: int, calls: int, limit_s: float) -> object:
        return TRACE

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("has_ncu", [True, False])
def test_metrics_are_measured_on_the_device_after_the_runner_has_ended(has_ncu: bool) -> None:
    candidate, held = Candidate(), [False]
    report = SimpleNamespace(gate=lambda name: nullcontext(), profile=None)

    @contextmanager
    def on_device() -> Iterator[None]:
        held[0] = True
        yield
        held[0] = False

    def measure(workload: ResolvedWorkload) -> Nsight:
        assert (workload["id"], candidate.closed, held[0]) == ("bench", True, True)
        return {"kernels": [], "reason": "told"}

    @contextmanager
    def started() -> Iterator[Candidate]:
        yield candidate
        candidate.close()

    nsight = SimpleNamespace(measure_of=lambda *_: measure)
    job_run: Any = SimpleNamespace(
        interpreted=False,
        job={"target": "cuda:sm_90", "limits": {"call_s": 1.0}, "candidate": {"language": "triton"}},
        prepared=Prepared(),
        on_gpu=True,
        bench=SimpleNamespace(profiler=lambda: nsight if has_ncu else None),
        candidate=started,
        device=torch.device("cuda"),
        report=report,
        workloads=[PLACE],
        timed_workloads=lambda: [PLACE],
        on_device=on_device,
        bound=lambda *_: nullcontext(),
        source=lambda _: SimpleNamespace(draw=list),
    )
    assert profile(job_run)[0] == "ambiguous"
    found: Any = report.profile
    assert found["rows"][0]["name"] == "run"
    assert found.get("nsight") == ({"kernels": [], "reason": "told"} if has_ncu else None)
    assert not held[0]

"""A sweep's own time begins when it has the device."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import steps_support
from warpsmith.kernels_db.job.sweep_documents import SWEEP_S
from warpsmith.kernels_db.spec.resolve import build_job
from warpsmith.workers.judge.gates import sweep as module
from warpsmith.workers.judge.gates import verdict
from warpsmith.workers.judge.gates.candidates import Variant
from warpsmith.workers.judge.gates.verdict import Report


class Clock:
    """The time of the sweep and of the report, which goes on where it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        for read_by in (module, verdict):
            monkeypatch.setattr(read_by, "time", SimpleNamespace(monotonic=lambda: self.now))

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


class Run:
    """The parts of a job run that a sweep reads; the device comes free after `wait_s`."""

    def __init__(self, clock: Clock, on_gpu: bool, wait_s: float) -> None:
        candidate: Any = {"language": "cpp", "source": ""}
        self.job = build_job(steps_support.OP, steps_support.TARGET, level="screen", candidate=candidate)
        self.report = Report(self.job)
        self.clock, self.on_gpu, self.wait_s = clock, on_gpu, wait_s
        self.rng = random.Random(0)
        variants = [
            Variant({"N": number}, "", SimpleNamespace(), None, None)  # type: ignore[arg-type]
            for number in range(4)
        ]
        self.prepared = SimpleNamespace(variants=variants)
        self.chosen: Variant | None = None

    def timed_workloads(self) -> list[Any]:
        return [one for one in self.job["workloads"] if one["role"] == "bench"]

    @contextmanager
    def lease(self) -> Iterator[None]:
        self.clock.pass_by(self.wait_s)
        with self.report.gate("exclusive"):
            yield

    def on_device(self) -> AbstractContextManager[None]:
        return self.lease() if self.on_gpu else nullcontext()

    def choose(self, variant: Variant) -> None:
        self.chosen = variant


@pytest.mark.parametrize("on_gpu", [True, False])
def test_a_wait_for_the_device_takes_nothing_of_the_sweep(
    clock: Clock, on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(clock, on_gpu, wait_s=2 * SWEEP_S)

    def timed(job_run: Run, entry: Any, workloads: list[Any], _plan: Any) -> None:
        if not on_gpu:
            with job_run.lease():
                pass
        entry.history.append({workload["id"]: 1.0 + entry.variant.values["N"] for workload in workloads})

    monkeypatch.setattr(module, "_time", timed)
    monkeypatch.setattr(module, "refuse_twin", lambda *_: None)
    module.sweep(run)  # type: ignore[arg-type]
    found = run.report.sweep
    assert found is not None
    assert "left_out" not in found, "every configuration was timed"
    assert run.chosen is not None
    assert run.chosen.values == {"N": 0}


def test_a_sweep_ends_after_its_own_device_seconds(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(clock, on_gpu=True, wait_s=0.0)

    def timed(_run: Run, entry: Any, workloads: list[Any], _plan: Any) -> None:
        clock.pass_by(2 * SWEEP_S)
        entry.history.append({workload["id"]: 1.0 for workload in workloads})

    monkeypatch.setattr(module, "_time", timed)
    monkeypatch.setattr(module, "refuse_twin", lambda *_: None)
    module.sweep(run)  # type: ignore[arg-type]
    found = run.report.sweep
    assert found is not None
    assert found["left_out"] == 3
    assert "limit_s" not in found

"""What waits before the device's lease is held."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from warpsmith.workers.judge.gates.job_run import JobRun
from warpsmith.workers.judge.languages import compile_service

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.mark.parametrize(("on_gpu", "expected"), [(False, ["settled", "held"]), (True, ["held"])])
def test_a_processor_is_timed_when_no_compile_server_starts(
    on_gpu: bool, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    @contextmanager
    def lease() -> Iterator[None]:
        order.append("held")
        yield

    monkeypatch.setattr(compile_service, "settle", lambda: order.append("settled"))
    report = SimpleNamespace(gate=lambda _: nullcontext(), others=[])
    job_run = SimpleNamespace(on_gpu=on_gpu, bench=SimpleNamespace(lease=lease), report=report)
    with JobRun._lease(cast("Any", job_run)):
        assert order == expected


def test_between_workloads_a_compilation_gives_way() -> None:
    entered: list[str] = []
    share = SimpleNamespace(give_way=lambda: entered.append("gave way"))
    report = SimpleNamespace(enter=lambda _gate, workload, *_: entered.append(workload["id"]))
    workloads = [{"id": "one"}, {"id": "two"}]
    job_run = SimpleNamespace(_share=share, report=report, workloads=workloads)
    for workload in workloads:
        JobRun.enter(cast("Any", job_run), "screen", cast("Any", workload))
    assert entered == ["gave way", "one", "gave way", "two"]

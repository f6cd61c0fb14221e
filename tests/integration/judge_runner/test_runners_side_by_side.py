"""Runners that are started side by side, as those of a candidate's configurations are on a GPU."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pytest
import torch

from benchmarks.redteam_catalogue.text import HIDDEN, LIBC
from tests import judging
from tests.field import Field
from warpsmith.kernels_db.runtime import cpp
from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.machine.buffers import TensorSpec
from warpsmith.workers.judge.runner import exchange
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle

REACHES = (
    LIBC
    + HIDDEN
    + """
extern "C" void probe(const int64_t* whom, int64_t* out) {
    kill((int)*whom, 18);
    kill((int)*whom, 9);
    *out = hidden<int64_t>(0);
    hidden<int64_t>(0) = *whom;
}
"""
)
"""Tries to wake and to end another process, tells what memory at a fixed address holds, and leaves something there."""


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    made = Field(tmp_path_factory.mktemp("field"), torch.device("cpu"), [])
    yield made
    made.close()


def started(field: Field, sources: Sequence[str]) -> list[RunnerHandle]:
    """Start runners as the sweep does; those that load."""
    runners = [field.runner(source, wait=False) for source in sources]
    for runner in runners:
        runner.begin_load()
    loaded = []
    for runner in runners:
        try:
            runner.end_load()
        except RunnerFault:
            runner.close()
        else:
            runner.rest()
            loaded.append(runner)
    return loaded


def asked(runner: RunnerHandle, whom: int) -> int:
    """Bind a runner, call it once on `whom`, and return its answer."""
    runner.bind([TensorSpec("whom", (1,), (1,), torch.int64)], [TensorSpec("out", (1,), (1,), torch.int64)], 1)
    runner.fill(0, [torch.tensor([whom])])
    runner.call(0, 20.0)
    return int(runner.slots[0].tensor(1).item())


def test_each_stands_still_until_its_turn_and_reaches_no_other(field: Field) -> None:
    cpp.build(REACHES, cache_dir=field.own)
    source = judging.cpp(REACHES, "def run(whom, out):\n    kernels.probe(whom, out)\n")
    runners = started(field, [source, "raise ValueError('does not load')\n", source, source])
    try:
        assert len(runners) == 3, "one that does not load costs the others nothing"
        assert all(process_control.is_stopped(runner.pid) for runner in runners)
        first, second, third = runners
        assert asked(first, second.pid) == 0
        assert process_control.is_stopped(second.pid), "not woken"
        assert asked(second, third.pid) == 0, "not ended, and without what the first left"
        first.close()
        assert asked(third, second.pid) == 0
    finally:
        for runner in runners:
            runner.close()


def test_loads_side_by_side_have_their_seconds_together(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a clock on which a twentieth of them is over each time that it is read."""
    runners = [field.runner("while True:\n    pass\n", wait=False) for _ in range(3)]
    try:
        for runner in runners:
            runner.begin_load()
        reads: list[float] = []

        def read() -> float:
            reads.append(time.monotonic() + len(reads) * exchange.SETUP_S / 20)
            return reads[-1]

        clock = SimpleNamespace(monotonic=read, perf_counter_ns=time.perf_counter_ns, sleep=time.sleep)
        monkeypatch.setattr(exchange, "time", clock)
        for runner in runners:
            with pytest.raises(RunnerFault, match="did not return within 120 s"):
                runner.end_load()
        assert reads[-1] - reads[0] < 2 * exchange.SETUP_S
    finally:
        for runner in runners:
            runner.close()

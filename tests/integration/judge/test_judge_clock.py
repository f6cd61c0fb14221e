"""Jobs that only compile, while another judge of the host times."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests import judging
from tests.support.clock import is_awaited
from tests.support.waiting import wait_until
from warpsmith.workers.judge.machine import clock_lease
from warpsmith.workers.judge.machine.clock_lease import PROCESSOR, ClockLease

if TYPE_CHECKING:
    from pathlib import Path

    from warpsmith.kernels_db.job.documents import Job
    from warpsmith.workers.judge.protocol.client import JudgeClient

PATIENCE_S = 60.0


def compilation(beside: str) -> Job:
    source = judging.norm_candidate(f"/* beside {beside} */ {judging.ALL_ROWS}")
    return {**judging.job(judging.LAYER_NORM, judging.LAYER_NORMS[:1], source), "level": "compile"}


def test_a_compilation_waits_for_the_timing_of_another_judge(
    judge: JudgeClient, judge_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock_lease, "HELD_S", 0.0)  # this timing keeps the clock no longer than it takes
    before = judge.judge(compilation("no timing"), PATIENCE_S)  # and it has started by now
    with ThreadPoolExecutor() as pool:
        with ClockLease(judge_cache, PROCESSOR).timing():
            verdict = pool.submit(judge.judge, compilation("a timing"), PATIENCE_S)
            wait_until(lambda: is_awaited(judge_cache), PATIENCE_S, "a wait for the clock")
            assert not verdict.done()
        after = verdict.result(PATIENCE_S)
    for found in (before, after):
        assert (found["gate"], found["reason"]) == ("compile", "it compiles; nothing of it was run")

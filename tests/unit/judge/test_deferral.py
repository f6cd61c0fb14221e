"""Work in calls that decide no time counts as time; what strikes all contenders alike does not."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpsmith.workers.judge.clock.deferral import ALLOWED, Ledger
from warpsmith.workers.judge.clock.timing import plan_for
from warpsmith.workers.judge.gates.reading import Reading
from warpsmith.workers.judge.gates.workload_run import WorkloadRun


def ledger(calls: dict[str, list[float]]) -> Ledger:
    made = Ledger()
    for name, times in calls.items():
        for time in times:
            made.add(name, time)
    return made


@given(st.lists(st.floats(1.0, 1e5), min_size=3, max_size=40), st.sampled_from(["cpu", "cuda"]))
def test_a_kernel_against_itself_defers_nothing(times: list[float], device: str) -> None:
    kept = ledger({"eager": times, "candidate": times})
    samples = {"eager": times, "candidate": times}
    assert kept.deferred_us(samples, "candidate", device) == 0.0


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("heavy", [1, 3, 6])
def test_work_in_the_fewer_half_of_the_blocks_counts(device: str, heavy: int) -> None:
    """The candidate does in some blocks what it leaves out of the others."""
    blocks = [10.0] * (15 - heavy) + [10.0 + 90.0 * 15 / heavy] * heavy
    kept = ledger({"eager": [100.0] * 15, "candidate": blocks})
    samples = {"eager": [100.0] * 15, "candidate": blocks}
    assert kept.deferred_us(samples, "candidate", device) == pytest.approx(90.0)


def test_work_in_calls_that_are_no_samples_counts() -> None:
    """In what wakes a block, or in the checks after the last round."""
    kept = ledger({"eager": [100.0] * 60, "candidate": [10.0] * 45 + [370.0] * 15})
    samples = {"eager": [100.0] * 15, "candidate": [10.0] * 15}
    assert kept.deferred_us(samples, "candidate", "cpu") == pytest.approx(90.0)


@given(st.floats(0.0, 0.9), st.floats(1.0, 1e4))
def test_what_the_baselines_suffer_as_well_is_no_work(excess: float, time: float) -> None:
    """A neighbour that strikes everybody, and the waking that every contender pays."""
    calls = [time] * 9 + [time * (1 + 10 * excess)]
    kept = ledger({"eager": calls, "compile": calls, "candidate": calls})
    samples = {name: [time] * 9 for name in ("eager", "compile", "candidate")}
    assert kept.deferred_us(samples, "candidate", "cuda") == 0.0


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_share_within_the_allowance_does_not_count_and_one_beyond_counts_whole(device: str) -> None:
    for share, counted in ((0.9, False), (1.1, True)):
        more = 100.0 * (1 + share * ALLOWED[device])
        kept = ledger({"eager": [200.0] * 10, "candidate": [more] * 10})
        samples = {"eager": [200.0] * 10, "candidate": [100.0] * 10}
        expected = more - 100.0 if counted else 0.0
        assert kept.deferred_us(samples, "candidate", device) == pytest.approx(expected)


def test_a_candidate_alone_and_baselines_alone_have_nothing_to_compare() -> None:
    assert ledger({"candidate": [1.0, 9.0]}).deferred_us({"candidate": [1.0]}, "candidate", "cpu") == 0.0
    assert ledger({"eager": [1.0, 9.0]}).deferred_us({"eager": [1.0]}, "candidate", "cpu") == 0.0


@pytest.mark.parametrize(
    ("found", "counted", "made"), [([0.0], 0.0, 1), ([9.0, 0.0], 0.0, 2), ([9.0, 7.0, 8.0, 0.0], 7.0, 3)]
)
def test_a_timing_that_seems_to_leave_work_out_is_made_again(
    found: list[float], counted: float, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A neighbour's one long call does not come twice; who defers work does so every time."""
    left = list(found)

    def timed(self: WorkloadRun, baselines: object, plan: object) -> Reading:
        deferred_us = left.pop(0)
        return Reading({"eager": [1.0], "candidate": [float(len(left))]}, deferred_us=deferred_us)

    monkeypatch.setattr(WorkloadRun, "_time_calls", timed)
    nothing: Any = SimpleNamespace(device=SimpleNamespace(type="cpu"))
    run = WorkloadRun(nothing, nothing, None, 1.0, nothing, random.Random(0))
    reading = run.time([], plan_for(False, "cpu", 1.0))
    assert len(found) - len(left) == made
    assert reading.deferred_us == counted
    assert reading.samples == {"eager": [1.0], "candidate": [len(found) - 1 - found.index(counted) + counted]}

"""Calls that a busy host launches late: counted in the runner, and what a timing with many of them comes to."""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tests import judging
from warpsmith.workers.judge.clock.timing import Plan
from warpsmith.workers.judge.gates import measurement, workload_run
from warpsmith.workers.judge.gates.reading import Reading, choose, is_spoilt
from warpsmith.workers.judge.gates.workload_run import WorkloadRun
from warpsmith.workers.judge.runner import burst, told
from warpsmith.workers.judge.runner.digest import Digester, Seal
from warpsmith.workers.judge.runner.faults import RunnerFault

SAMPLES = {"eager": [2.0], "candidate": [1.0]}
PLAN = Plan(fewest_rounds=7, most_rounds=7, time_s=1.0, checks=2, escape=0.25, check_baseline=0.05)


class Device:
    """Stands in for torch.cuda: a device that reaches an event `lead` launches after the host has made it."""

    def __init__(self, lead: int) -> None:
        self.lead = lead
        self.launched = 0

    def event(self, enable_timing: bool) -> Any:
        del enable_timing
        made: dict[str, int] = {}

        def record() -> None:
            made["at"] = self.launched

        return SimpleNamespace(record=record, query=lambda: self.launched >= made["at"] + self.lead)


@pytest.mark.parametrize(("launches", "late"), [(1, 0), (2, 0), (3, 4), (9, 4)])
def test_a_call_is_late_where_the_device_is_there_before_all_of_it_is_launched(
    launches: int, late: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(lead=3)
    nothing = lambda *_, **__: SimpleNamespace(zero_=lambda: None)  # noqa: E731
    cuda = SimpleNamespace(Event=device.event, synchronize=nothing, _sleep=nothing)
    stand_in = SimpleNamespace(cuda=cuda, empty=nothing, int32=None, device=nothing)
    monkeypatch.setattr(burst, "torch", stand_in)
    monkeypatch.setattr(burst, "Digester", nothing)
    for kept in ("_flush", "_events", "_digester"):
        monkeypatch.setattr(burst, kept, [])

    def run() -> None:
        device.launched += launches

    order = bytes([0, 1, burst.EMPTY, 2, 3])
    calls = burst.Burst(order, cast("Any", SimpleNamespace(fixed=-1)))
    calls.go(run, [([], [])] * 4, [])
    assert calls.late == late


def test_what_bursts_need_is_there_before_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process loads for its first burst is loaded while it starts, by a burst of nothing."""
    stand_in = Device(lead=1)

    class OnCpu:
        """Stands in for torch, with its CPU for the device."""

        cuda = SimpleNamespace(Event=stand_in.event, synchronize=lambda: None, _sleep=lambda _: None)

        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

        def device(self, _: str) -> torch.device:
            return torch.device("cpu")

        def empty(self, *shape: int, **more: Any) -> torch.Tensor:
            return torch.empty(*shape, **(more | {"device": "cpu"}))

        def zeros(self, *shape: int, **more: Any) -> torch.Tensor:
            return torch.zeros(*shape, **(more | {"device": "cpu"}))

    monkeypatch.setattr(burst, "torch", OnCpu())
    monkeypatch.setattr(burst, "FLUSH_BYTES", 1 << 20)
    for kept in ("_flush", "_events", "_digester"):
        monkeypatch.setattr(burst, kept, [])
    burst.make_ready()
    (flush,), (digester,) = burst._flush, burst._digester
    seal = Seal(0, (3, 5, 7), ((0, 64),))
    taken = int(digester.take(torch.ones(64, dtype=torch.uint8), seal).item())
    assert taken == int(Digester(torch.device("cpu")).take(torch.ones(64, dtype=torch.uint8), seal).item())
    later = burst.Burst(bytes([burst.EMPTY]), seal)
    later.go(lambda: None, [], [torch.ones(64, dtype=torch.uint8)])
    assert later.digest() == taken
    assert burst._flush[0] is flush, "the first burst makes none of it again"
    assert burst._digester[0] is digester


@pytest.mark.parametrize("found", [None, -1, 5, 1.0, True, "1"])
def test_a_runner_tells_a_count_of_late_calls_or_has_failed(found: object) -> None:
    assert told.late("eager", {"late": 4}, 4) == 4
    with pytest.raises(RunnerFault, match="no count of late calls"):
        told.late("eager", {"late": found}, 4)


def reading(*shares: float, deferred_us: float = 0.0) -> Reading:
    """Late blocks of eager and of the candidate."""
    blocks = dict(zip(("eager", "candidate"), shares, strict=True))
    return Reading(SAMPLES, deferred_us=deferred_us, late_blocks=blocks)


@pytest.mark.parametrize(
    ("shares", "spoilt", "unsure"),
    [
        ((0.0, 0.0), False, False),
        ((0.25, 0.1), False, False),
        ((0.3, 0.0), True, True),
        ((0.0, 0.6), False, True),
        ((0.95, 0.0), False, False),  # launched more slowly than it runs
        ((1.0, 0.4), False, True),
    ],
)
def test_late_blocks_make_times_unsure_and_those_of_a_baseline_another_timing(
    shares: tuple[float, float], spoilt: bool, unsure: bool
) -> None:
    one = reading(*shares)
    assert is_spoilt(one, [one]) == spoilt
    assert choose([one]).unsure == unsure


def test_a_candidate_does_not_choose_its_timing_by_calling_blocks_late() -> None:
    slow, fast = reading(0.0, 0.8), reading(0.0, 0.0)
    lucky = replace(fast, samples={"eager": [2.0], "candidate": [0.5]})
    assert choose([slow, lucky]) == replace(slow, unsure=True)


def test_being_late_in_every_block_is_a_habit_only_where_it_is_so_in_every_timing() -> None:
    some, every = reading(0.5, 0.0), reading(1.0, 0.0)
    assert is_spoilt(every, [some, every])
    assert choose([some, every]) == choose([every, some]) == replace(some, unsure=True)


def test_the_timing_counts_that_leaves_least_out_and_then_the_one_that_was_spoilt_least() -> None:
    clean, late, defers = reading(0.0, 0.0), reading(0.5, 0.0), reading(0.0, 0.0, deferred_us=3.0)
    assert choose([late, defers, clean]) == clean
    assert choose([defers, late]).late_blocks == late.late_blocks
    assert choose([defers]).samples == {"eager": [2.0], "candidate": [4.0]}


@pytest.mark.parametrize(
    ("found", "takes_s", "made", "unsure"),
    [
        ([0.0], 0.1, 1, False),
        ([0.5, 0.0], 0.1, 2, False),
        ([0.5, 0.6, 0.4, 0.0], 0.1, 3, True),
        ([0.5, 0.0], 2.0, 1, True),  # there is no time for another
        ([1.0, 0.0], 0.1, 1, False),
    ],
)
def test_a_spoilt_timing_is_made_again_within_its_time(
    found: list[float], takes_s: float, made: int, unsure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, now = list(found), [0.0]

    def timed(*_: object) -> Reading:
        now[0] += takes_s
        return reading(left.pop(0), 0.0)

    monkeypatch.setattr(WorkloadRun, "_time_bursts", timed)
    monkeypatch.setattr(workload_run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    nothing: Any = SimpleNamespace(device=SimpleNamespace(type="cuda"))
    run = WorkloadRun(nothing, nothing, None, 1.0, nothing, random.Random(0))
    counted = run.time([], PLAN)
    assert len(found) - len(left) == made
    assert counted.unsure == unsure
    assert counted.late_blocks["eager"] == min(found[:made])


@pytest.mark.parametrize("unsure", [False, True])
def test_a_verdict_says_how_many_calls_were_late_and_whether_its_times_are_unsure(unsure: bool) -> None:
    place = judging.layer_norm_workload("bench", "bench", 4, 8)
    entry: dict[str, Any] = {}
    notes: list[str] = []
    job_run: Any = SimpleNamespace(entry=lambda _: entry, report=SimpleNamespace(notes=notes))
    measurement._note_late(job_run, place, Reading(SAMPLES))
    assert (entry, notes) == ({}, [])
    measurement._note_late(job_run, place, Reading(SAMPLES, late_calls={"eager": 12, "candidate": 1}, unsure=unsure))
    assert entry == {"late_calls": {"eager": 12, "candidate": 1}} | ({"unsure": True} if unsure else {})
    said = "times of bench are unsure: the host launched calls late (12 of eager, 1 of candidate): it was held up"
    assert [note.partition(", and")[0] for note in notes] == ([said] if unsure else [])

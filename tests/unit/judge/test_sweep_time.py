"""A sweep's own time begins when it has the device."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import steps_support
from warpsmith.kernels_db.job.sweep_documents import SWEEP_S, describe_sweep, find_leaders
from warpsmith.kernels_db.spec.resolve import build_job
from warpsmith.workers.gate.tunables import Configuration
from warpsmith.workers.judge.clock import timing
from warpsmith.workers.judge.gates import configurations, verdict
from warpsmith.workers.judge.gates import sweep as module
from warpsmith.workers.judge.gates.configurations import Configurations, Prepared, Variant
from warpsmith.workers.judge.gates.job_run import MOST_STARTED, JobRun
from warpsmith.workers.judge.gates.reading import Reading
from warpsmith.workers.judge.gates.verdict import Report, Stopped
from warpsmith.workers.judge.gates.workload_run import WorkloadRun


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
    """The parts of a job run that a sweep reads.

    The device comes free after `wait_s`, and runners that start side by side have loaded after `start_s`.
    """

    def __init__(
        self,
        clock: Clock,
        on_gpu: bool,
        wait_s: float = 0.0,
        declared: int = 4,
        sweep_s: float | None = None,
        start_s: float = 0.0,
    ) -> None:
        candidate: Any = {"language": "cpp", "source": ""}
        self.job = build_job(steps_support.OP, steps_support.TARGET, level="screen", candidate=candidate)
        if sweep_s is not None:
            self.job["limits"] = {**self.job["limits"], "sweep_s": sweep_s}
        self.report = Report(self.job)
        self.clock, self.on_gpu, self.wait_s, self.start_s = clock, on_gpu, wait_s, start_s
        self.rng = random.Random(0)
        self.configurations = Configurations([{"N": number} for number in range(declared)], built, beside=on_gpu)
        self.configurations.begin(1)
        self.prepared = Prepared(configurations=self.configurations)
        self.chosen: Variant | None = None
        self.started: list[list[int]] = []
        self.runners = None

    def timed_workloads(self) -> list[Any]:
        return [one for one in self.job["workloads"] if one["role"] == "bench"]

    @contextmanager
    def lease(self) -> Iterator[None]:
        self.clock.pass_by(self.wait_s)
        with self.report.gate("exclusive"):
            yield

    def on_device(self) -> AbstractContextManager[None]:
        return nullcontext()

    exclusive = on_device

    def source(self, _: Any) -> None: ...

    def bind_for_timing(self, *_: Any) -> None: ...

    def started_at_once(self) -> int:
        return MOST_STARTED if self.on_gpu else 1

    @contextmanager
    def variants(self, variants: Sequence[Variant]) -> Iterator[list[None]]:
        self.started.append([variant.values["N"] for variant in variants])
        self.clock.pass_by(self.start_s)
        yield [None for _ in variants]

    def choose(self, variant: Variant) -> None:
        self.chosen = variant

    def note(self, text: str) -> None:
        self.report.notes.append(text)


def built(values: Configuration) -> Variant:
    """Compile a configuration: one in sixteen is refused."""
    if values["N"] % 16 == 15:
        return Variant(values, "", None, None, Stopped("rejected", "compile", "no such thing"))
    return Variant(values, "", Prepared(), None, None, 2.5)


class Timings:
    """In place of a timing: it holds the device for `once` s and `block` s for each of its first round's blocks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, clock: Clock, once: float, block: float = 0.0) -> None:
        self.clock, self.once, self.block = clock, once, block
        self.rounds: list[list[int]] = [[], [], [], []]
        monkeypatch.setattr(module, "_time", self)
        monkeypatch.setattr(module, "refuse_twin", lambda *_: None)

    def __call__(
        self, job_run: Run, entry: Any, runner: None, workloads: list[Any], seconds: Any, fastest: dict[str, float]
    ) -> None:
        number, clock_s = entry.rounds, self.block * (1 << entry.rounds)
        with job_run.lease():
            self.clock.pass_by(self.once + clock_s)
        seconds.add(self.once + clock_s, clock_s, number)
        self.rounds[number].append(entry.variant.values["N"])
        entry.history.append({workload["id"]: 1.0 + entry.variant.values["N"] for workload in workloads})


@pytest.mark.parametrize("on_gpu", [True, False])
def test_a_wait_for_the_device_takes_nothing_of_the_sweep(
    clock: Clock, on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(clock, on_gpu, wait_s=2 * SWEEP_S)
    Timings(monkeypatch, clock, 0.01)
    module.sweep(run)  # type: ignore[arg-type]
    found = run.report.sweep
    assert found is not None
    assert "left_out" not in found, "every configuration was timed"
    assert run.report.notes == []
    assert run.chosen is not None
    assert run.chosen.values == {"N": 0}


def test_a_sweep_ends_after_its_own_device_seconds(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(clock, on_gpu=True)
    Timings(monkeypatch, clock, 2 * SWEEP_S)
    module.sweep(run)  # type: ignore[arg-type]
    found = run.report.sweep
    assert found is not None
    assert found["left_out"] == 3
    assert "limit_s" not in found
    (note,) = run.report.notes
    assert note.startswith("the sweep ended after 120 device seconds, 3 of 4 configurations not timed")


@pytest.mark.parametrize("on_gpu", [True, False])
@pytest.mark.parametrize(
    ("sweep_s", "once", "block", "first", "later"),
    [
        (7.0, 1.2, 0.0, 5, [0, 0, 0]),  # as few as were seen on an H200: all of them once
        (20.0, 1.0, 0.2, 11, [4, 0, 0]),  # two thirds for the first round, the rest for the best of it
        (60.0, 0.5, 0.1, 60, [17, 6, 3]),
        (600.0, 0.01, 0.001, 60, [30, 15, 8]),  # all but the refused, and then the better half
    ],
)
def test_a_sweep_compiles_what_its_seconds_can_time(
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    on_gpu: bool,
    sweep_s: float,
    once: float,
    block: float,
    first: int,
    later: list[int],
) -> None:
    """Of 64 configurations, by up to 8 compilers, of which one cannot know how long a timing takes before the first."""
    monkeypatch.setattr(configurations, "cores_available", lambda: 16)
    run = Run(clock, on_gpu, declared=64, sweep_s=sweep_s)
    timings = Timings(monkeypatch, clock, once, block)
    module.sweep(run)  # type: ignore[arg-type]
    found = run.report.sweep
    assert found is not None
    assert [len(one) for one in timings.rounds] == [first, *later]
    assert run.chosen is not None
    assert run.chosen.values == {"N": 0}
    assert run.report.seconds["exclusive"] <= min(sweep_s, SWEEP_S)
    refused = first // 15
    ahead = run.configurations.compiled - first - refused
    assert 0 <= ahead <= (2 if on_gpu else 0)
    if first == 60:
        assert "left_out" not in found
        assert run.report.notes == []
        return
    left = 64 - first - refused
    assert (found["left_out"], found["not_compiled"], found["limit_s"]) == (left, left - ahead, sweep_s)
    assert f"{left} of 64 configurations not timed, {left - ahead} of them not compiled" in run.report.notes[0]


def test_a_second_round_waits_until_some_were_timed(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(clock, on_gpu=True, declared=64, sweep_s=10.0)
    timings = Timings(monkeypatch, clock, 1.0)
    module.sweep(run)  # type: ignore[arg-type]
    assert [len(one) for one in timings.rounds] == [module.FEWEST, 2, 0, 0]


def test_wrong_configurations_take_no_more_than_the_limit_once_one_is_right(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(clock, on_gpu=True, declared=16, sweep_s=3.0)
    timings = Timings(monkeypatch, clock, 1.0)

    def time(job_run: Run, entry: Any, runner: None, workloads: Any, seconds: Any, fastest: dict[str, float]) -> None:
        if entry.variant.values["N"] < 5:
            with job_run.lease():
                clock.pass_by(1.0)
            entry.failure = Stopped("rejected", "screen", f"N={entry.variant.values['N']} is wrong")
        else:
            timings(job_run, entry, runner, workloads, seconds, fastest)

    monkeypatch.setattr(module, "_time", time)
    module.sweep(run)  # type: ignore[arg-type]
    assert run.report.sweep is not None
    assert run.report.sweep["chosen"] == {"N": 5}
    assert len(run.report.sweep["configurations"]) == 6


def test_runners_start_side_by_side_where_the_device_is_not_what_compiles(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configurations, "cores_available", lambda: 16)
    for on_gpu, together in ((True, MOST_STARTED), (False, 1)):
        run = Run(clock, on_gpu, declared=8)
        run.configurations.begin(8)
        Timings(monkeypatch, clock, 0.01)
        module.sweep(run)  # type: ignore[arg-type]
        assert max(map(len, run.started)) <= together
        assert {number for some in run.started for number in some} == set(range(8))
    assert all(len(some) == 1 for some in run.started)


def test_a_configuration_that_was_started_is_not_timed_once_the_seconds_are_over(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(clock, on_gpu=True, declared=4, sweep_s=4.0)
    timings = Timings(monkeypatch, clock, 5.0)
    module.sweep(run)  # type: ignore[arg-type]
    assert timings.rounds[0] == [0]
    assert run.report.sweep is not None
    assert run.report.sweep["left_out"] == 3


@pytest.mark.parametrize(("on_gpu", "together"), [(True, 4), (False, 1)])
def test_a_later_round_starts_no_runner_once_the_seconds_are_over(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, on_gpu: bool, together: int
) -> None:
    """Timings of the second round take longer than by those before: one takes all that is left."""
    run = Run(clock, on_gpu, declared=12, sweep_s=50.0)
    timings = Timings(monkeypatch, clock, 0.5)

    def time(job_run: Run, entry: Any, runner: None, workloads: Any, seconds: Any, fastest: dict[str, float]) -> None:
        if entry.rounds:
            timings.once = 50.0
        timings(job_run, entry, runner, workloads, seconds, fastest)

    monkeypatch.setattr(module, "_time", time)
    module.sweep(run)  # type: ignore[arg-type]
    assert [len(one) for one in timings.rounds] == [12, 1, 0, 0]
    assert sum(map(len, run.started)) == 12 + together
    assert run.report.notes == ["limits.sweep_s: the sweep ended after 56 device seconds, before its last round"]


def test_what_is_slower_on_every_workload_is_not_timed_again_and_costs_later_rounds_nothing(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(clock, on_gpu=True, declared=12, sweep_s=60.0)
    timings = Timings(monkeypatch, clock, 0.5, 0.1)
    beside: list[float] = []

    def time(job_run: Run, entry: Any, runner: None, workloads: Any, seconds: Any, fastest: dict[str, float]) -> None:
        timings(job_run, entry, runner, workloads, seconds, fastest)
        beside.extend(fastest.values())
        entry.is_out = entry.variant.values["N"] >= 3

    monkeypatch.setattr(module, "_time", time)
    module.sweep(run)  # type: ignore[arg-type]
    assert [sorted(one) for one in timings.rounds] == [list(range(12)), [0, 1], [], []]
    assert set(beside) == {1.0}, "each beside the fastest so far, and the second round beside none"
    assert run.chosen is not None
    assert run.chosen.values == {"N": 0}


@pytest.mark.parametrize("on_gpu", [True, False])
@pytest.mark.parametrize("sweep_s", [3.0, None])
def test_loads_that_never_end_end_the_sweep_though_they_hold_no_device(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, sweep_s: float | None, on_gpu: bool
) -> None:
    run = Run(clock, on_gpu, declared=15, sweep_s=sweep_s, start_s=120.0)

    def time(job_run: Run, entry: Any, runner: None, workloads: Any, seconds: Any, fastest: dict[str, float]) -> None:
        entry.failure = Stopped("rejected", "screen", f"N={entry.variant.values['N']} does not load")

    monkeypatch.setattr(module, "_time", time)
    with pytest.raises(Stopped, match="N=0 does not load"):
        module.sweep(run)  # type: ignore[arg-type]
    assert len(run.started) == 1, "120 s of starts leave none of the 60 s"
    assert run.report.sweep_seconds == 0.0


def test_starts_count_towards_the_limit_beyond_their_own_seconds_and_the_verdict_says_so(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(clock, on_gpu=False, declared=15, sweep_s=30.0, start_s=20.0)
    timings = Timings(monkeypatch, clock, 1.0)
    module.sweep(run)  # type: ignore[arg-type]
    assert timings.rounds == [[0, 1, 2, 3], [], [], []], "the fifth's start goes beyond 30 s"
    (note,) = run.report.notes
    assert "ended after 4 device seconds and 100 s of starting runners, 11 of 15 configurations not timed" in note


class TimingsOfTwo:
    """In place of a timing: by configuration the times of its first round on w1 and w2; the others are out at once.

    The first `wrong` of those with times are found wrong in the second round.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, run: Run, times: list[tuple[float, float]], wrong: int) -> None:
        self.times, self.wrong = times, wrong
        monkeypatch.setattr(module, "_time", self)
        monkeypatch.setattr(module, "refuse_twin", lambda *_: None)
        (bench, *_) = run.timed_workloads()
        monkeypatch.setattr(run, "timed_workloads", lambda: [{**bench, "id": "w1"}, {**bench, "id": "w2"}])

    def __call__(
        self, job_run: Run, entry: Any, runner: None, workloads: list[Any], seconds: Any, fastest: dict[str, float]
    ) -> None:
        number = entry.variant.values["N"]
        if entry.rounds and number < self.wrong:
            entry.failure = Stopped("rejected", "screen", f"N={number} is wrong in a later call")
            return
        entry.is_out = number >= len(self.times)
        times = (100.0, 100.0) if entry.is_out else self.times[number]
        entry.history.append(dict(zip(("w1", "w2"), times, strict=True)))
        seconds.add(0.01, 0.0, 0)


def test_where_all_that_went_on_fail_the_sweep_ends_with_why_and_not_with_what_was_never_checked(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(clock, on_gpu=True, declared=4)
    TimingsOfTwo(monkeypatch, run, [(1.0, 10.0), (1.1, 10.0), (9.0, 5.0)], wrong=3)
    with pytest.raises(Stopped, match="N=0 is wrong in a later call"):
        module.sweep(run)  # type: ignore[arg-type]


def test_times_of_nothing_that_a_runner_tells_have_ratios(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module._median_us([0.0, 0.0, 0.0]) > 0.0
    assert module._median_us([1e308] * 3) < 1e308
    assert module._median_us([3.0, 1.0, 2.0]) == 2.0
    run = Run(clock, on_gpu=True, declared=4)
    nothing = module._median_us([0.0])
    TimingsOfTwo(monkeypatch, run, [(1.0, 1.0), (nothing, 1.0), (nothing, nothing), (1e-5, 1e-5)], wrong=0)
    module.sweep(run)  # type: ignore[arg-type]
    assert run.report.sweep is not None
    assert all(time > 0.0 for one in run.report.sweep["configurations"] for time in one["time_us"].values())
    assert find_leaders(run.report.sweep) == ()


def test_first_calls_of_the_chosen_one_make_no_leader_of_what_left_before_it_was_timed(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The machine is half as fast later. N=1 is chosen, left early on w2 in the first round, N=3's only one."""
    run = Run(clock, on_gpu=True, declared=4)
    (bench, *_) = run.timed_workloads()
    monkeypatch.setattr(run, "timed_workloads", lambda: [{**bench, "id": "w1"}, {**bench, "id": "w2"}])
    monkeypatch.setattr(module, "refuse_twin", lambda *_: None)
    monkeypatch.setattr(module, "RunnerHandle", SimpleNamespace)
    first = [(11.0, 11.0), (8.0, 25.0), (50.0, 9.9), (16.0, 13.0)]
    later = [(22.0, 22.0), (16.0, 20.0), (100.0, 19.8)]
    reads = {(number, 0): times for number, times in enumerate(first)}
    reads |= {(number, 1): times for number, times in enumerate(later)}

    @contextmanager
    def variants(variants: Sequence[Variant]) -> Iterator[list[Any]]:
        yield [
            SimpleNamespace(number=one.values["N"], rest=lambda: None, close=lambda: None, calls=0) for one in variants
        ]

    def time(calls: Any, _: Any, plan: timing.Plan) -> Reading:
        number, later_round = calls.candidate.number, plan.fewest_rounds > module.FIRST_BLOCKS
        read = reads[number, int(later_round)][calls.workload["id"] == "w2"]
        return Reading({"candidate": [read]}, hopeless=read > plan.hopeless_us)

    monkeypatch.setattr(run, "variants", variants)
    monkeypatch.setattr(WorkloadRun, "time", time)
    module.sweep(run)  # type: ignore[arg-type]
    found = run.report.sweep
    assert found is not None
    assert found["chosen"] == {"N": 1}
    by_number = {one["values"]["N"]: one for one in found["configurations"]}
    assert by_number[3] == {"values": {"N": 3}, "time_us": {"w1": 32.0, "w2": 13.0}, "rounds": 1, "unscaled": ["w2"]}
    assert all("unscaled" not in by_number[number] for number in (0, 1, 2))
    assert find_leaders(found) == ()
    assert "on w2" not in describe_sweep(found)


@pytest.mark.parametrize(
    ("on_gpu", "free", "together"),
    [(False, 1 << 40, 1), (True, 139 << 30, MOST_STARTED), (True, 12 << 30, 2), (True, 1 << 30, 1)],
)
def test_as_many_runners_start_together_as_the_memory_beside_the_buffers_has_room_for(
    on_gpu: bool, free: int, together: int
) -> None:
    device = SimpleNamespace(free_bytes=lambda: free)
    run: Any = SimpleNamespace(on_gpu=on_gpu, bench=SimpleNamespace(device=device))
    assert JobRun.started_at_once(run) == together

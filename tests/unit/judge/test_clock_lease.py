"""Turns of timings and of what only compiles at the clock of one processor."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.support.clock import is_awaited
from tests.support.waiting import wait_until
from warpsmith.workers.judge.__main__ import share_clock
from warpsmith.workers.judge.machine import clock_lease
from warpsmith.workers.judge.machine.clock_lease import ClockLease
from warpsmith.workers.judge.machine.device import Cpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE_S = 10.0


@pytest.fixture
def clock(tmp_path: Path) -> ClockLease:
    return ClockLease(tmp_path, clock_lease.PROCESSOR)


@pytest.fixture
def steps() -> list[str]:
    return []


@pytest.fixture
def begin(clock: ClockLease, tmp_path: Path) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Start work in a thread, and return once it waits for the clock, or has it."""
    started: list[threading.Thread] = []

    def start(work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        started.append(thread)
        thread.start()
        wait_until(lambda: is_awaited(tmp_path) or not thread.is_alive(), PATIENCE_S, "a wait for the clock")

    yield start
    for thread in started:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


@pytest.fixture
def in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """No timing keeps shares out beyond itself."""
    monkeypatch.setattr(clock_lease, "HELD_S", 0.0)


@pytest.mark.usefixtures("in_turns")
def test_what_compiles_waits_for_a_timing_and_a_timing_for_what_compiles(
    clock: ClockLease, steps: list[str], begin: Callable[[Callable[[], None]], None]
) -> None:
    def compile_one() -> None:
        with clock.beside():
            steps.append("compiled")

    def time_one() -> None:
        with clock.timing():
            steps.append("timed")

    with clock.timing():
        begin(compile_one)
        assert steps == []
    wait_until(lambda: steps == ["compiled"], PATIENCE_S, "what compiles")
    with clock.beside():
        begin(time_one)
        assert steps == ["compiled"]
    wait_until(lambda: steps == ["compiled", "timed"], PATIENCE_S, "the timing")


def test_several_compile_at_once(clock: ClockLease) -> None:
    with ExitStack() as held:
        for _ in range(3):
            held.enter_context(clock.beside())


@pytest.mark.usefixtures("in_turns")
def test_a_judge_that_times_again_at_once_lets_in_what_waits(
    clock: ClockLease, steps: list[str], begin: Callable[[Callable[[], None]], None]
) -> None:
    def compile_one() -> None:
        with clock.beside():
            steps.append("compiled")

    with clock.timing():
        begin(compile_one)
    for _ in range(3):
        with clock.timing():
            steps.append("timed")
    assert steps == ["compiled", "timed", "timed", "timed"]


class Monotonic:
    """A clock that stands still but for sleeps, which last until the test ends them."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.asleep, self.awake = threading.Semaphore(0), threading.Semaphore(0)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.asleep.release()
        assert self.awake.acquire(timeout=PATIENCE_S)
        self.now += seconds


@pytest.fixture
def monotonic(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    found = Monotonic()
    monkeypatch.setattr(clock_lease, "time", found)
    return found


def test_timings_wait_for_a_share_once_in_some_seconds(
    clock: ClockLease, steps: list[str], monotonic: Monotonic
) -> None:
    """One that compiles again and again does not come before each of them."""

    def compile_all() -> None:
        for number in range(2):
            with clock.beside():
                steps.append(f"compiled {number}")

    def time_one() -> None:
        with clock.timing():
            steps.append("timed")

    time_one()
    compiling = threading.Thread(target=compile_all, daemon=True)
    compiling.start()
    assert monotonic.asleep.acquire(timeout=PATIENCE_S)
    for _ in range(3):
        time_one()
    monotonic.now += clock_lease.HELD_S  # later timings keep nothing out for longer
    time_one()
    monotonic.awake.release()
    compiling.join(PATIENCE_S)
    assert steps == ["timed"] * 5 + ["compiled 0", "compiled 1"]
    time_one()
    again = threading.Thread(target=compile_all, daemon=True)
    again.start()
    assert monotonic.asleep.acquire(timeout=PATIENCE_S), "the first timing after a share keeps others out"
    monotonic.awake.release()
    again.join(PATIENCE_S)
    assert steps[-3:] == ["timed", "compiled 0", "compiled 1"]


@pytest.mark.parametrize("left", [b"1e9", b"nan", b"12.", b"1.2.3"])
def test_what_is_left_in_the_file_of_the_turn_holds_nothing_up(
    clock: ClockLease, monotonic: Monotonic, tmp_path: Path, left: bytes
) -> None:
    """A host that started again counts from 0."""
    (tmp_path / f"timing-{clock_lease.PROCESSOR}.turn").write_bytes(left)
    with clock.beside():
        assert not monotonic.asleep.acquire(blocking=False)


def test_between_two_pieces_a_timing_that_waits_goes_first(
    clock: ClockLease,
    steps: list[str],
    begin: Callable[[Callable[[], None]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def time_one() -> None:
        with clock.timing():
            steps.append("timed")

    with clock.beside() as share:
        share.give_way()  # to nobody
        begin(time_one)
        steps.append("first piece")
        share.give_way()  # held too short
        steps.append("second piece")
        monkeypatch.setattr(clock_lease, "HELD_S", 0.0)
        share.give_way()
        steps.append("third piece")
    assert steps == ["first piece", "second piece", "timed", "third piece"]


def test_a_judge_that_starts_keeps_timings_off(
    steps: list[str],
    begin: Callable[[Callable[[], None]], None],
    tmp_path: Path,
) -> None:
    processor = Cpu(1)

    def time_one() -> None:
        with ClockLease(tmp_path, processor.lease).timing():  # as a job's timing has it
            steps.append("timed")

    with share_clock(tmp_path):
        begin(time_one)
        assert steps == []
    wait_until(lambda: steps == ["timed"], PATIENCE_S, "the timing")


def test_a_judge_starts_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    share_clock(tmp_path / "file").close()

"""The exchange with a runner wakes it, stops it and reads the clock in one order."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from warpsmith.workers.judge.machine import channel, process_control
from warpsmith.workers.judge.runner.commands import CALL, DONE, FAILED
from warpsmith.workers.judge.runner.exchange import Exchange
from warpsmith.workers.judge.runner.faults import RunnerFault


class Runner:
    """Notes what is done to a runner's process, in order; it answers each request at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, device: str, *, held: bool, answer: bytes = DONE) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.done: list[str] = []
        self.answer = answer
        spawned: Any = SimpleNamespace(control=self, pid=7)
        self.ours = ours
        monkeypatch.setattr(os, "killpg", self.signalled)
        monkeypatch.setattr(time, "perf_counter_ns", self.clock)
        monkeypatch.setattr(process_control, "is_stopped", lambda _: self.note("stands still"))
        self.exchange = Exchange(
            None,  # type: ignore[arg-type]  # asked where a runner dies
            spawned,
            name="candidate",
            memory_bytes=1 << 30,
            device=torch.device(device),
            processes=False,
            held=held,
        )

    def note(self, what: str) -> bool:
        self.done.append(what)
        return True

    def signalled(self, pid: int, number: int) -> None:
        self.note(signal.Signals(number).name)

    def clock(self) -> int:
        self.note("clock")
        return len(self.done)

    def fileno(self) -> int:
        return self.ours.fileno()

    def send(self, request: bytes) -> None:
        self.note("request")
        self.theirs.send(self.answer)

    def recv(self, size: int, flags: int = 0) -> bytes:
        raw = self.ours.recv(size, flags)
        self.note("answer")
        return raw


Start = Callable[..., Runner]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Makes runners, whose sockets are closed in the end."""
    with ExitStack() as stack:

        def made(device: str, *, held: bool, answer: bytes = DONE) -> Runner:
            runner = Runner(monkeypatch, device, held=held, answer=answer)
            stack.enter_context(runner.ours)
            stack.enter_context(runner.theirs)
            return runner

        yield made


def test_a_held_runner_wakes_after_the_clock_starts_and_stops_before_it_is_read(start: Start) -> None:
    runner = start("cpu", held=True)
    runner.exchange.rest()
    assert runner.done == ["SIGSTOP", "stands still"]
    runner.done.clear()
    runner.exchange.timed(CALL + b"\0", 1.0)
    assert runner.done == ["stands still", "clock", "request", "SIGCONT", "answer", "SIGSTOP", "clock"]
    runner.done.clear()
    runner.exchange.rest()
    assert runner.done == ["stands still"], "it was told to stop already"


def test_on_a_gpu_the_clock_is_read_before_the_runner_is_stopped(start: Start) -> None:
    runner = start("cuda", held=True)
    runner.exchange.rest()
    runner.done.clear()
    runner.exchange.timed(CALL + b"\0", 1.0)
    runner.exchange.rest()
    assert runner.done == [
        "stands still",
        "clock",
        "request",
        "SIGCONT",
        "answer",
        "clock",
        "SIGSTOP",
        "stands still",
    ]


def test_a_runner_that_is_not_held_is_never_stopped(start: Start) -> None:
    runner = start("cpu", held=False)
    runner.exchange.rest()
    runner.exchange.timed(CALL + b"\0", 1.0)
    assert runner.done == ["clock", "request", "answer", "clock"]


def test_an_answer_before_the_request_is_refused_before_the_clock(start: Start) -> None:
    runner = start("cpu", held=True)
    runner.theirs.send(DONE)
    with pytest.raises(RunnerFault, match="answered before it was asked"):
        runner.exchange.timed(CALL + b"\0", 1.0)
    assert runner.done == ["answer"]


@pytest.mark.parametrize(("answer", "said"), [(b"?", "out of turn"), (FAILED, "out of turn")])
def test_an_answer_that_is_none_is_a_fault_after_the_clock(
    monkeypatch: pytest.MonkeyPatch, start: Start, answer: bytes, said: str
) -> None:
    runner = start("cpu", held=True, answer=answer)
    monkeypatch.setattr(channel, "send", lambda *_: runner.theirs.send(b"no JSON"))
    with pytest.raises(RunnerFault, match=said):
        runner.exchange.timed(CALL + b"\0", 1.0)
    assert runner.done[:4] == ["clock", "request", "answer", "SIGSTOP"]

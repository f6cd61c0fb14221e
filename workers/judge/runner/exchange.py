"""The exchange with one runner: commands, answers, the clock around a call, and rest.

The order of waking, stopping and reading the clock here is the protection against work that is done before a call or
after its answer: change none of it alone.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any

import torch

from warpsmith.workers.judge.machine import channel, process_control
from warpsmith.workers.judge.runner.commands import DONE, FAILED
from warpsmith.workers.judge.runner.faults import RunnerFault, ended, reported
from warpsmith.workers.judge.runner.fork_server_client import ForkServer, Spawned
from warpsmith.workers.judge.runner.limits import MOST_PROCESSES

SETUP_S = 120.0
"""Longest answer to anything that runs no call."""

_WATCH_MS = 50
_SPIN_S = 0.02
_STOP_S = 5.0


class Exchange:
    """Talks with a runner's process, stops it and wakes it. Raises RunnerFault everywhere."""

    def __init__(
        self,
        server: ForkServer,
        spawned: Spawned,
        *,
        name: str,
        memory_bytes: int,
        device: torch.device,
        processes: bool,
        held: bool,
    ) -> None:
        """Talk to the runner `spawned` by `server`.

        processes: the runner may start some, which are then counted. held: it is stopped between its calls.
        """
        self.held = held
        self.closing = False  # whether the last call closes its buffers to writes
        self._stopped = False
        self._server = server
        self._spawned = spawned
        self._control: socket.socket = spawned.control
        self._pid = spawned.pid
        self._name = name
        self._memory_bytes = memory_bytes
        self._device = device
        self._processes = processes
        self._poller = select.poll()
        self._poller.register(self._control, select.POLLIN)

    def timed(self, request: bytes, limit_s: float) -> int:
        """Return the nanoseconds from the request to its answer.

        The clock starts before a stopped process is woken: its threads run when it does, and the values are there.
        """
        self._nothing_unsolicited()
        if self._stopped:
            self._standing_still()
        start = time.perf_counter_ns()
        try:
            self._control.send(request)
        except OSError:
            self._died()
        self._wake()
        reply = self._wait(limit_s)
        if self._device.type == "cpu":  # a thread that works on while the answer travels works by the clock
            self._halt()
        end = time.perf_counter_ns()
        self._accept(reply)
        return end - start

    def rest(self) -> None:
        """Stop every thread of the runner's group, and wait until all are stopped.

        Only where the runner is to be stopped between calls.
        """
        if self.held:
            self._halt()
            self._standing_still()

    def _halt(self) -> None:
        """Tell every thread of the runner's group to stop, where it is to be stopped between calls."""
        if not self.held or self._stopped:
            return
        try:
            os.killpg(self._pid, signal.SIGSTOP)
        except ProcessLookupError:
            self._died()
        self._stopped = True

    def _standing_still(self) -> None:
        """Wait until every thread has stopped. Raises RunnerFault where they do not."""
        deadline = time.monotonic() + _STOP_S
        while not process_control.is_stopped(self._pid):
            if time.monotonic() > deadline:
                raise RunnerFault(self._name, "protocol", f"did not stand still within {_STOP_S:g} s of being stopped")
            time.sleep(0)

    def _wake(self) -> None:
        """Undo `rest`."""
        if not self._stopped:
            return
        self._stopped = False
        try:
            os.killpg(self._pid, signal.SIGCONT)
        except ProcessLookupError:
            self._died()

    def command(self, message: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """Send a JSON command and return its answer.

        Raises RunnerFault where the runner reports an error or dies.
        """
        self.send(message)
        return self.answer(limit_s)

    def send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        """Send a JSON command, with descriptors; `answer` comes next."""
        self._wake()
        try:
            channel.send(self._control, message, fds)
        except channel.ChannelClosed:
            self._died()

    def answer(self, limit_s: float, since: float | None = None) -> dict[str, Any]:
        """Return the answer to the JSON command sent last. Raises RunnerFault also for an error.

        since: when the limit began, by the monotonic clock; None: now.
        """
        raw = self._wait(limit_s, since)
        try:
            answer = json.loads(raw)
            error = answer.get("error")
        except (ValueError, AttributeError, RecursionError):
            raise RunnerFault(self._name, "protocol", "the runner answered out of turn") from None
        if error:
            raise reported(self._name, error)
        assert isinstance(answer, dict)
        return answer

    def exchange(self, request: bytes, limit_s: float) -> None:
        """Send a command of bytes and wait until it is done. No clock runs."""
        self._wake()
        try:
            self._control.send(request)
        except OSError:
            self._died()
        self._accept(self._wait(limit_s))

    def _accept(self, reply: bytes) -> None:
        if reply == FAILED:
            self.command({"command": "error"}, SETUP_S)
            raise RunnerFault(self._name, "protocol", "the runner reported a failure and named none")
        if reply != DONE:
            raise RunnerFault(self._name, "protocol", "the runner answered out of turn")

    def _nothing_unsolicited(self) -> None:
        try:
            self._control.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            self._died()
        raise RunnerFault(self._name, "protocol", "the runner answered before it was asked")

    def _wait(self, limit_s: float, since: float | None = None) -> bytes:
        now = time.monotonic()
        deadline = (now if since is None else since) + limit_s
        asleep_from = now + (_SPIN_S if self._device.type == "cuda" else 0.0)
        # On a GPU's host there are cores to spare, and a wake-up would cost time on the clock.
        while time.monotonic() < asleep_from and not self._poller.poll(0):
            pass
        while not self._poller.poll(_WATCH_MS):
            resident = process_control.resident_bytes(self._pid)
            if resident > self._memory_bytes:
                raise RunnerFault(
                    self._name,
                    "memory",
                    f"uses {resident >> 20} MiB of memory besides the buffers, limit {self._memory_bytes >> 20} MiB",
                    found=resident,
                    expected=f"at most {self._memory_bytes}",
                )
            if self._processes:
                self._count_processes()
            if time.monotonic() > deadline:
                raise RunnerFault(
                    self._name,
                    "timeout",
                    f"did not return within {limit_s:g} s",
                    found=f"more than {limit_s:g} s",
                    expected=f"{limit_s:g} s",
                )
        try:
            reply = self._control.recv(channel.MAX_MESSAGE)
        except OSError:
            reply = b""
        if not reply:
            self._died()
        return reply

    def _count_processes(self) -> None:
        # Root's processes are counted by no limit, and orphans are the fork server's: so all are counted.
        count = len(process_control.family(self._server.pid)) if self._server.pid else 0
        if count > MOST_PROCESSES:
            raise RunnerFault(
                self._name, "processes", "started too many processes", found=count, expected=f"at most {MOST_PROCESSES}"
            )

    def _died(self) -> None:
        code, log = self._server.exit_code(self._spawned, 10.0), self._spawned.log_tail()
        raise ended(self._name, code, log, closing=self.closing)

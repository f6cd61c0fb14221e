"""The referee's side of one runner: buffers, the timed exchange and deadlines.

A contender is a candidate or one mode of the reference. What its runner says is used for messages only; whether a call
counted is seen from the referee's clock and the bytes in the slot.
"""

from __future__ import annotations

import json
import math
import os
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from warpsmith.kernels_db.job.documents import Generated
from warpsmith.workers.judge.machine import buffers, channel, process_control
from warpsmith.workers.judge.machine.buffers import Slot, TensorSpec
from warpsmith.workers.judge.runner import generated
from warpsmith.workers.judge.runner.faults import ContenderFault, ended, reported
from warpsmith.workers.judge.runner.fork_server_client import ForkServer, Spawned
from warpsmith.workers.judge.runner.runner_process import (
    BURST,
    CALL,
    CALL_AND_CLOSE,
    DELIVER,
    DONE,
    FAILED,
    FREE,
    GO,
    NOTHING,
)
from warpsmith.workers.judge.sandbox import sandbox
from warpsmith.workers.judge.sandbox.sandbox import Confinement, NotConfined

Mode = Literal["candidate", "float64", "eager", "compile", "max_autotune", "generate"]

_WATCH_MS = 50
_SPIN_S = 0.02
_SETUP_S = 120.0
_STOP_S = 5.0
_MIB = 1 << 20
TRACE = "trace.json"
"""The file of a profiled run in a runner's own directory."""
MOST_PROCESSES = 512
"""Under one fork server, while a runner that may start compilers is at work."""


@dataclass(frozen=True)
class Burst:
    """One burst: the referee's clock around it, in nanoseconds, and the device's for each call, in microseconds."""

    wall_ns: int
    calls_us: list[float]


def runner_limits(base_virtual: int, memory_bytes: int, mode: Mode, cores: int, device: torch.device) -> dict[str, int]:
    """Resource limits of a runner.

    Resident memory is watched by the referee; the address space is the backstop for what allocates faster than it is
    watched, so it leaves room for thread stacks and allocator arenas. CUDA reserves address space for all memory of
    host and device, so there is no such backstop on a GPU. A compiled baseline starts compilers and writes their
    output.
    """
    threads = 80 * _MIB * (cores + 4)
    limits = {"CORE": 0, "CPU": 1800 * cores, "NOFILE": 1024}
    compiles = mode in ("compile", "max_autotune")
    if device.type == "cpu":
        room = 8192 * _MIB if compiles else 0
        limits["AS"] = base_virtual + 2 * memory_bytes + threads + 1024 * _MIB + room
    if compiles:
        return limits | {"FSIZE": 4096 * _MIB}
    return limits | {"FSIZE": 64 * _MIB, "NPROC": process_control.user_tasks() + 256}


class Contender:
    """One runner with its slots. Close it; closing kills the runner with everything it started."""

    def __init__(
        self,
        server: ForkServer,
        *,
        name: str,
        mode: Mode,
        source: str,
        arithmetic: str,
        directory: Path,
        environment: dict[str, str],
        memory_bytes: int,
        cores: int,
        device: torch.device,
        language: str | None = None,
    ) -> None:
        """Fork the runner, confine it and load `source` into it. `language`: of a candidate.

        Raises ContenderFault, ForkServerDied, NotConfined.
        """
        self.name = name
        self.mode: Mode = mode
        self.memory_bytes = memory_bytes
        self.device = device
        self.held = mode == "candidate"
        """Its process stands still but for its calls and commands: it can neither work ahead nor be in others' way."""

        self._stopped = False
        self._result = False  # whether its process holds one, of a call
        self._closing = False  # whether the last call was of that kind
        self.slots: list[Slot] = []
        self.inputs: list[TensorSpec] = []
        self.outputs: list[TensorSpec] = []
        self._server = server
        self._directory = directory
        self._spawned: Spawned | None = None
        self._profile = sandbox.profile(mode, device.type, language, directory, environment, cores)
        directory.mkdir(mode=0o700)
        stem = "candidate" if mode == "candidate" else "generator" if mode == "generate" else "reference"
        path = directory / f"{stem}.py"
        path.write_text(source, encoding="utf-8")
        try:
            server.ready()
            self._spawned = server.spawn(
                directory=directory,
                environment={"HOME": str(directory), "TMPDIR": str(directory), **environment},
                limits=runner_limits(server.base_virtual_bytes(), memory_bytes, mode, cores, device),
                profile=self._profile,
            )
            self._poller = select.poll()
            self._poller.register(self._control, select.POLLIN)
            self.confinement = self._confined()
            self.command(
                {"command": "load", "mode": mode, "path": str(path), "math": arithmetic, "language": language}, _SETUP_S
            )
        except BaseException:
            self.close()
            raise

    def _confined(self) -> Confinement:
        """What stands around the runner. It is asked before it reads anybody's code, so here it can be believed."""
        answer = self.command({"command": "enter", "device": self.device.type}, _SETUP_S)
        if "refused" in answer:
            raise NotConfined(str(answer["refused"]))
        reached = Confinement(tuple(answer["layers"]))
        sandbox.verify(self.pid, reached)
        return reached

    @property
    def _control(self) -> socket.socket:
        assert self._spawned is not None
        return self._spawned.control

    @property
    def pid(self) -> int:
        """The runner's process id, which is also its session and group."""
        assert self._spawned is not None
        return self._spawned.pid

    def bind(
        self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], slots: int, beside: Contender | None = None
    ) -> None:
        """Allocate slots for these tensors and have the runner map them. Raises ContenderFault, OSError where memory is
        refused.

        beside: on a GPU, a contender that is bound to the same tensors, whose slots are taken instead. Where memory
        lies changes a kernel's time by percents, so whoever is compared works in the same. Only one of them runs at a
        time, on slots that were filled and poisoned just before.
        """
        self.unbind()
        self.inputs, self.outputs = list(inputs), list(outputs)
        if beside is not None and self.device.type == "cuda":
            self.slots = buffers.retain(beside.slots)
        else:
            self.slots = buffers.allocate([*inputs, *outputs], slots, self.device)
        for number, slot in enumerate(self.slots):
            items = buffers.described(slot, [*self.inputs, *self.outputs])
            message: dict[str, Any] = {
                "command": "bind",
                "slot": number,
                "bytes": slot.size,
                "inputs": items[: len(self.inputs)],
                "outputs": items[len(self.inputs) :],
            }
            if slot.shared is not None:
                message |= {"handle": slot.shared.handle.hex(), "base": slot.base, "total": len(slot.shared.tensor)}
            self._send(message, [] if slot.fd is None else [slot.fd])
            self._answer(_SETUP_S)

    def unbind(self) -> None:
        """Have the runner forget its slots and free them."""
        if self.slots:
            self.command({"command": "unbind"}, _SETUP_S)
        self._free()

    def fill(self, slot: int, values: Sequence[torch.Tensor | None]) -> None:
        """Copy values into the slot's inputs (None for scalars), and poison its outputs and the gaps of strided
        inputs. The process stands still meanwhile, if it is held, and until its clock runs.
        """
        if self._result:
            self._exchange(FREE, _SETUP_S)
            self._result = False
        self._rest()
        buffers.fill(self.slots[slot], self.inputs, len(self.outputs), values)

    def call(self, slot: int, limit_s: float, closing: bool = False) -> int:
        """Run once on a slot; returns nanoseconds on the referee's clock. Raises ContenderFault.

        closing: on a CPU, the runner closes the slot to writes as `run` returns, before it answers: a thread of the
        candidate's that is still at work cannot end it while the answer travels, but ends the process.
        """
        self._settle()
        self._closing = closing and self.device.type == "cpu"
        spent = self._timed((CALL_AND_CLOSE if self._closing else CALL) + bytes([slot]), limit_s)
        self._result = self.mode != "candidate"
        self._rest()
        return spent

    def call_on_one_core(self, slot: int, limit_s: float) -> int:
        """A closing `call` with every thread of the process, and the referee's, on one core of a CPU.

        A thread of the candidate's that is still at work when `run` returns has no core of its own to end it on, while
        the answer travels: its part of the result is missing. Raises ContenderFault.
        """
        with process_control.on_one_core(self.pid):
            return self.call(slot, limit_s, closing=True)

    def empty_call(self) -> int:
        """The exchange with nothing run: what the clock reads for a kernel that takes no time, in nanoseconds."""
        self._rest()
        return self._timed(NOTHING, _SETUP_S)

    def burst(self, order: Sequence[int], limit_s: float) -> Burst:
        """Run once on each slot of `order`, back to back on a GPU; `burst.EMPTY` flushes the caches and runs nothing.

        Raises ContenderFault.
        """
        self._settle()
        self._exchange(BURST + bytes(order), _SETUP_S)
        wall = self._timed(GO, limit_s)
        times = _times(self.name, self.command({"command": "times"}, _SETUP_S), len(order))
        self._rest()
        return Burst(wall, times)

    def _timed(self, request: bytes, limit_s: float) -> int:
        """Nanoseconds from the request to its answer. The clock starts before a process that stands still is woken: its
        threads run when it does, and the values lie there.
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
        if self.device.type == "cpu":  # a thread that works on while the answer travels works by the clock
            self._halt()
        end = time.perf_counter_ns()
        self._accept(reply)
        return end - start

    def _settle(self) -> None:
        """Have what the referee wrote into device memory arrive before the runner is told of it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def kernels(self, slot: int, limit_s: float) -> tuple[list[str], list[int]]:
        """What one call on a filled slot runs on the device, and how often, as the runner tells it. Raises
        ContenderFault.
        """
        answer = self.command({"command": "kernels", "slot": slot}, limit_s)
        names, calls = answer.get("names"), answer.get("calls")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ContenderFault(self.name, "protocol", "the runner gave no names of kernels")
        if not isinstance(calls, list) or len(calls) != len(names) or not all(type(count) is int for count in calls):
            raise ContenderFault(self.name, "protocol", "the runner gave no counts of kernels")
        return names, calls

    def generated(self) -> Generated | None:
        """The code that the runner's compiler generated since this was last asked, as it tells it. Raises
        ContenderFault.
        """
        return generated.checked(self.command({"command": "generated"}, _SETUP_S).get("generated"))

    def profile(self, slot: int, calls: int, limit_s: float) -> Path | Any:
        """Have the runner profile `calls` calls on a filled slot. Answers the trace, or where the runner was to write
        it; either may be anything. Raises ContenderFault.
        """
        answer = self.command({"command": "profile", "slot": slot, "calls": calls, "file": TRACE}, limit_s)
        return answer["trace"] if "trace" in answer else self._directory / TRACE

    def ping(self) -> None:
        """Have the runner wait for its device. Raises ContenderFault where its context is broken."""
        self.command({"command": "ping"}, _SETUP_S)

    def deliver(self) -> None:
        """Have a reference copy its last result into the slot's outputs. Raises ContenderFault where it does not fit
        them.
        """
        self._exchange(DELIVER, _SETUP_S)

    def _rest(self) -> None:
        """Stop every thread of the runner's group, where it is to stand still between calls, and wait until all are."""
        if self.held:
            self._halt()
            self._standing_still()

    def _halt(self) -> None:
        """Tell every thread of the runner's group to stop, where it is to stand still between calls."""
        if not self.held or self._stopped:
            return
        try:
            os.killpg(self.pid, signal.SIGSTOP)
        except ProcessLookupError:
            self._died()
        self._stopped = True

    def _standing_still(self) -> None:
        """Wait until every thread has stopped. Raises ContenderFault where they do not."""
        deadline = time.monotonic() + _STOP_S
        while not process_control.is_stopped(self.pid):
            if time.monotonic() > deadline:
                raise ContenderFault(
                    self.name, "protocol", f"did not stand still within {_STOP_S:g} s of being stopped"
                )
            time.sleep(0)

    def _wake(self) -> None:
        """Undo `_rest`."""
        if not self._stopped:
            return
        self._stopped = False
        try:
            os.killpg(self.pid, signal.SIGCONT)
        except ProcessLookupError:
            self._died()

    def command(self, message: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """Send a JSON command and return its answer. Raises ContenderFault where the runner reports an error or
        dies.
        """
        self._send(message)
        return self._answer(limit_s)

    def close(self) -> None:
        """Kill the runner and free everything. Raises nothing: a dead fork server is noticed by the next spawn."""
        if self._spawned is not None:
            self._server.discard(self._spawned)
            self._spawned = None
        self._free()
        try:
            shutil.rmtree(self._directory, ignore_errors=True)
        except RecursionError:  # free Python may nest directories deeper than Python can follow
            subprocess.run(["rm", "-rf", "--", self._directory], check=False)  # noqa: S607 - wherever coreutils are

    def _free(self) -> None:
        buffers.release(self.slots)
        self.slots = []

    def _send(self, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
        self._wake()
        try:
            channel.send(self._control, message, fds)
        except channel.ChannelClosed:
            self._died()

    def _answer(self, limit_s: float) -> dict[str, Any]:
        raw = self._wait(limit_s)
        try:
            answer = json.loads(raw)
            error = answer.get("error")
        except (ValueError, AttributeError, RecursionError):
            raise ContenderFault(self.name, "protocol", "the runner answered out of turn") from None
        if error:
            raise reported(self.name, error)
        assert isinstance(answer, dict)
        return answer

    def _exchange(self, request: bytes, limit_s: float) -> None:
        self._wake()
        try:
            self._control.send(request)
        except OSError:
            self._died()
        self._accept(self._wait(limit_s))

    def _accept(self, reply: bytes) -> None:
        if reply == FAILED:
            self.command({"command": "error"}, _SETUP_S)
            raise ContenderFault(self.name, "protocol", "the runner reported a failure and named none")
        if reply != DONE:
            raise ContenderFault(self.name, "protocol", "the runner answered out of turn")

    def _nothing_unsolicited(self) -> None:
        try:
            self._control.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            self._died()
        raise ContenderFault(self.name, "protocol", "the runner answered before it was asked")

    def _wait(self, limit_s: float) -> bytes:
        now = time.monotonic()
        deadline, asleep_from = now + limit_s, now + (_SPIN_S if self.device.type == "cuda" else 0.0)
        # On a GPU's host there are cores to spare, and a wake-up would stand on the clock.
        while time.monotonic() < asleep_from and not self._poller.poll(0):
            pass
        while not self._poller.poll(_WATCH_MS):
            resident = process_control.resident_bytes(self.pid)
            if resident > self.memory_bytes:
                raise ContenderFault(
                    self.name,
                    "memory",
                    f"uses {resident >> 20} MiB of memory besides the buffers, limit {self.memory_bytes >> 20} MiB",
                    found=resident,
                    expected=f"at most {self.memory_bytes}",
                )
            if self._profile.processes:
                self._count_processes()
            if time.monotonic() > deadline:
                raise ContenderFault(
                    self.name,
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
        # Root's processes are counted by no limit, and orphans are the fork server's: so everybody's are counted.
        count = len(process_control.family(self._server.pid)) if self._server.pid else 0
        if count > MOST_PROCESSES:
            raise ContenderFault(
                self.name, "processes", "started too many processes", found=count, expected=f"at most {MOST_PROCESSES}"
            )

    def _died(self) -> None:
        assert self._spawned is not None
        code, log = self._server.exit_code(self._spawned.pid, 10.0), self._spawned.log_tail()
        raise ended(self.name, code, log, closing=self._closing)


def _times(name: str, answer: dict[str, Any], calls: int) -> list[float]:
    """The times of a burst. Raises ContenderFault where they are not so many numbers."""
    times = answer.get("microseconds")
    if (
        isinstance(times, list)
        and len(times) == calls
        and all(isinstance(value, float | int) and math.isfinite(value) and value >= 0 for value in times)
    ):
        return [float(value) for value in times]
    raise ContenderFault(name, "protocol", "the runner gave no times of its burst")

"""The referee's side of one runner: its process, its buffers and its commands.

A runner runs a candidate or one mode of the reference. Its answers are used for messages only; whether a call counted
is seen from the referee's clock and the bytes in the slot.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from warpsmith.kernels_db.job.documents import Configuration, Generated
from warpsmith.workers.judge.machine import buffers, process_control
from warpsmith.workers.judge.machine.buffers import Slot, TensorSpec
from warpsmith.workers.judge.machine.native_calls import TRACE_BYTES
from warpsmith.workers.judge.runner import generated, told
from warpsmith.workers.judge.runner.burst import EMPTY
from warpsmith.workers.judge.runner.commands import BURST, CALL, CALL_AND_CLOSE, DELIVER, FREE, GO, HOST, NOTHING
from warpsmith.workers.judge.runner.digest import Seal
from warpsmith.workers.judge.runner.exchange import SETUP_S, Exchange
from warpsmith.workers.judge.runner.fork_server_client import ForkServer, Spawned
from warpsmith.workers.judge.runner.limits import Mode, runner_limits
from warpsmith.workers.judge.sandbox import sandbox
from warpsmith.workers.judge.sandbox.sandbox import Confinement, NotConfined

TRACE = "trace.json"
"""The file of a profiled run in a runner's own directory."""


@dataclass(frozen=True)
class Burst:
    """One burst, as the referee's clock and the device's measured it.

    The referee's clock is around the whole burst, in nanoseconds, the device's around each call, in microseconds.
    `late`: calls that the device had reached before the host had launched all of them, whose times hold its wait.
    `digest`: of the sealed call's results, as the runner took it when that call had ended.
    """

    wall_ns: int
    calls_us: list[float]
    late: int
    digest: int


class RunnerHandle:
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
        packages: Sequence[str] = (),
        wait: bool = True,
    ) -> None:
        """Fork the runner, confine it and load `source` into it.

        `language`: of a candidate. `packages`: places of packages that it imports, which it may read. `wait`: without,
        it is only begun; `begin_load` and then `end_load` bring it to its end, and others start meanwhile.

        Raises RunnerFault, ForkServerDied, NotConfined.
        """
        self.name = name
        self.mode: Mode = mode
        self.device = device
        self._result = False  # whether its process holds one, of a call
        self.calls = 0  # of its `run`, as far as they were begun
        self.slots: list[Slot] = []
        self.inputs: list[TensorSpec] = []
        self.outputs: list[TensorSpec] = []
        self._server = server
        self._directory = directory
        self._spawned: Spawned | None = None
        self._exchange: Exchange | None = None
        self._loading_since: float | None = None
        profile = sandbox.profile(mode, device.type, language, directory, environment, cores, packages)
        directory.mkdir(mode=0o700)
        stem = {"candidate": "candidate", "generate": "generator", "expert": "expert"}.get(mode, "reference")
        path = directory / f"{stem}.py"
        path.write_text(source, encoding="utf-8")
        try:
            server.ready()
            self._spawned = server.spawn(
                directory=directory,
                environment={"HOME": str(directory), "TMPDIR": str(directory), **environment},
                limits=runner_limits(server.base_virtual_bytes(), memory_bytes, mode, cores, device),
                profile=profile,
            )
            self._exchange = Exchange(
                server,
                self._spawned,
                name=name,
                memory_bytes=memory_bytes,
                device=device,
                processes=profile.processes,
                held=mode == "candidate",
            )
            self._load = {"command": "load", "mode": mode, "path": str(path), "math": arithmetic, "language": language}
            self._exchange.send({"command": "enter", "device": device.type})
            if wait:
                self.begin_load()
                self.end_load()
        except BaseException:
            self.close()
            raise

    def begin_load(self) -> None:
        """Wait until the runner has confined itself, and tell it to load its source. Raises as making it."""
        self.confinement = self._confined()
        self._talk.send(self._load)
        self._loading_since = time.monotonic()

    def end_load(self) -> None:
        """Wait until the source is loaded, no longer than SETUP_S after that was begun. Raises RunnerFault."""
        self._talk.answer(SETUP_S, self._loading_since)

    def rest(self) -> None:
        """Stop its process until it is called, where it is held. Raises RunnerFault."""
        self._talk.rest()

    def _confined(self) -> Confinement:
        """Return the runner's confinement, once it has confined itself.

        It is asked before it reads untrusted code, so its answer can be believed here.
        """
        answer = self._talk.answer(SETUP_S)
        if "refused" in answer:
            raise NotConfined(str(answer["refused"]))
        reached = Confinement(tuple(answer["layers"]))
        sandbox.verify(self.pid, reached)
        return reached

    @property
    def _talk(self) -> Exchange:
        assert self._exchange is not None
        return self._exchange

    @property
    def held(self) -> bool:
        """Whether its process is stopped between its calls and commands, as a candidate's is.

        It can then neither work ahead nor disturb others. Of a closed runner it says nothing.
        """
        return self._talk.held

    @held.setter
    def held(self, held: bool) -> None:
        if self._exchange is not None:  # one that failed while it was held has been closed since
            self._exchange.held = held

    @property
    def pid(self) -> int:
        """The runner's process id, which is also its session and group."""
        assert self._spawned is not None
        return self._spawned.pid

    def bind(
        self,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        slots: int,
        beside: RunnerHandle | None = None,
    ) -> None:
        """Allocate slots for these tensors and have the runner map them.

        Raises RunnerFault, OSError where memory is refused.

        beside: on a GPU, a runner that is bound to the same tensors, whose slots are taken instead. The place of memory
        changes a kernel's time by percents, so contenders that are compared work in the same. Only one of them runs at
        a time, on slots that were filled and poisoned just before.
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
            self._talk.send(message, [] if slot.fd is None else [slot.fd])
            self._talk.answer(SETUP_S)

    def unbind(self) -> None:
        """Have the runner forget its slots and free them."""
        if self.slots:
            self.command({"command": "unbind"}, SETUP_S)
        self._free()

    def fill(self, slot: int, values: Sequence[torch.Tensor | None]) -> None:
        """Copy values into the slot's inputs (None for scalars).

        Its outputs and the gaps of strided inputs are poisoned. The process, if it is held, is stopped meanwhile, and
        until its clock runs.
        """
        if self._result:
            self._talk.exchange(FREE, SETUP_S)
            self._result = False
        self._talk.rest()
        buffers.fill(self.slots[slot], self.inputs, len(self.outputs), values)

    def call(self, slot: int, limit_s: float, closing: bool = False) -> int:
        """Run once on a slot; returns nanoseconds on the referee's clock. Raises RunnerFault.

        closing: on a CPU, the runner closes the slot to writes as `run` returns, before it answers: a thread of the
        candidate's that is still at work cannot end it while the answer travels, but ends the process.
        """
        self._settle()
        self.calls += 1
        talk = self._talk
        talk.closing = closing and self.device.type == "cpu"
        spent = talk.timed((CALL_AND_CLOSE if talk.closing else CALL) + bytes([slot]), limit_s)
        self._result = self.mode != "candidate"
        talk.rest()
        return spent

    def call_on_one_core(self, slot: int, limit_s: float) -> int:
        """Run a closing `call` with every thread, and the referee's, on one core of a CPU.

        A thread of the candidate's that is still at work when `run` returns has no core of its own to end it on, while
        the answer travels: its part of the result is missing. Raises RunnerFault.
        """
        with process_control.on_one_core(self.pid):
            return self.call(slot, limit_s, closing=True)

    def call_in(self, threads: int | None) -> None:
        """Have calls that close their slot find its inputs closed to writes too, and OpenMP with so many threads.

        0: with as many as ever. None: all as ever. Raises RunnerFault.
        """
        self.command({"command": "surroundings", "threads": threads}, SETUP_S)
        self._talk.rest()

    def empty_call(self) -> int:
        """Time the exchange with nothing run, in nanoseconds.

        It is the time that the clock reads for a kernel that takes none.
        """
        self._talk.rest()
        return self._talk.timed(NOTHING, SETUP_S)

    def burst(self, order: Sequence[int], seal: Seal, limit_s: float) -> Burst:
        """Run once on each slot of `order`, back to back on a GPU.

        `burst.EMPTY` flushes the caches and runs nothing. The digest that `seal` tells is taken right after a call.
        Raises RunnerFault.
        """
        self._settle()
        self.calls += sum(slot != EMPTY for slot in order)
        self._talk.exchange(BURST + seal.packed() + bytes(order), SETUP_S)
        wall = self._talk.timed(GO, limit_s)
        answer = self.command({"command": "times"}, SETUP_S)
        self._talk.rest()
        times, late = told.times(self.name, answer, len(order)), told.late(self.name, answer, len(order))
        return Burst(wall, times, late, told.digest(self.name, answer))

    def _settle(self) -> None:
        """Have what the referee wrote into device memory arrive before the runner is told of it."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def generate(self, seed: int, limit_s: float) -> torch.Tensor:
        """Have a spec's own generator fill slot 0 under a seed, and return a copy. Raises RunnerFault."""
        self.command({"command": "generate", "seed": seed}, limit_s)
        self._talk.rest()
        return self.slots[0].tensor(0).clone()

    def kernels(self, slot: int, limit_s: float) -> tuple[list[str], list[int], list[Configuration]]:
        """List the device kernels of one call on a filled slot, how often each runs, and configurations of tuned ones.

        All is as the runner tells it. Raises RunnerFault.
        """
        self.calls += 1
        answer = self.command({"command": "kernels", "slot": slot}, limit_s)
        return told.kernels(self.name, answer)

    def generated(self) -> Generated | None:
        """Return the code that the runner's compiler generated since the last call of this.

        It is as the runner tells it. Raises RunnerFault.
        """
        return generated.checked(self.command({"command": "generated"}, SETUP_S).get("generated"))

    def profile(self, slot: int, calls: int, limit_s: float) -> Path | Any:
        """Have the runner profile `calls` calls on a filled slot.

        Returns the trace, or where the runner was to write it; either may be anything. Raises RunnerFault.
        """
        answer = self.command({"command": "profile", "slot": slot, "calls": calls, "file": TRACE}, limit_s)
        return answer["trace"] if "trace" in answer else self._directory / TRACE

    def look_for_state(self) -> None:
        """Have the runner look at what native code has left in its memory. Raises RunnerFault where it has.

        A `call` that closes its slot has looked already.
        """
        self.command({"command": "kept"}, SETUP_S)
        self._talk.rest()

    def trace(self, slot: int, limit_s: float) -> tuple[dict[str, Any], memoryview]:
        """Have the runner record the calls of C++ functions of one `run` on a filled slot (`native_calls.record`).

        Returns what it tells and the memory that the calls were given; both may be anything. Raises RunnerFault.
        """
        fd = os.memfd_create("trace", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, TRACE_BYTES)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self._talk.send({"command": "trace", "slot": slot}, [fd])
            answer = self._talk.answer(limit_s)
            self._talk.rest()
            return answer, memoryview(mmap.mmap(fd, TRACE_BYTES, prot=mmap.PROT_READ))
        finally:
            os.close(fd)

    def ready_host_calls(
        self, slot: int, calls: int, mutated: Sequence[int], limit_s: float, extension: Path | None
    ) -> dict[str, Any]:
        """Have the runner ready calls on copies of a filled slot; `host_calls` makes them.

        extension: the file that replays launch plans, where the calls are to be made by one. Returns what the runner
        tells of that: `launches`, or `unplanned`. Raises RunnerFault.
        """
        plan = None
        if extension is not None:
            plan = self._directory / extension.name
            if not plan.exists():
                shutil.copyfile(extension, plan)
        message = {"command": "host", "slot": slot, "calls": calls, "mutated": list(mutated)}
        answer = self.command(message | {"plan": None if plan is None else str(plan)}, limit_s)
        self._talk.rest()
        return answer

    def host_calls(self, limit_s: float) -> int:
        """Make the calls that were readied, one after another; returns nanoseconds on the referee's clock.

        On a GPU that is until the last was launched. Raises RunnerFault.
        """
        spent = self._talk.timed(HOST, limit_s)
        self._talk.rest()
        return spent

    def ping(self) -> None:
        """Have the runner wait for its device. Raises RunnerFault where its context is broken."""
        self.command({"command": "ping"}, SETUP_S)

    def deliver(self) -> None:
        """Have a reference copy its last result into the slot's outputs.

        Raises RunnerFault where it does not fit them.
        """
        self._talk.exchange(DELIVER, SETUP_S)

    def command(self, message: dict[str, Any], limit_s: float) -> dict[str, Any]:
        """Send a JSON command and return its answer.

        Raises RunnerFault where the runner reports an error or dies.
        """
        return self._talk.command(message, limit_s)

    def close(self) -> None:
        """Kill the runner and free everything.

        Raises nothing: a dead fork server is noticed by the next spawn.
        """
        if self._spawned is not None:
            self._server.discard(self._spawned)
            self._spawned = self._exchange = None
        self._free()
        try:
            shutil.rmtree(self._directory, ignore_errors=True)
        except RecursionError:  # free Python may nest directories deeper than Python can follow
            subprocess.run(["rm", "-rf", "--", self._directory], check=False)  # noqa: S607 - wherever coreutils are

    def _free(self) -> None:
        buffers.release(self.slots)
        self.slots = []

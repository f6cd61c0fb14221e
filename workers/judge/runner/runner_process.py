"""A runner: the process in which untrusted code runs, a candidate or the user's reference.

It maps buffers that the referee allocated, calls `run` on the slot it is told and answers with one byte. Nothing that
it says decides anything: the referee reads the buffers and its own clock. Code here may therefore be overwritten by the
code it runs; it keeps no secret.

Commands, one datagram each. JSON: enter, load, bind, unbind, error, generate, generated, times, kernels, profile, ping,
kept, trace, host, surroundings.
Bytes: `C<slot>` call `run` on a slot, `L<slot>` the same and close the slot to writes as `run` returns,
`B<seal><slot>...` arm a burst over slots with a digest after one call (GPU), `G` run it, `D` copy the last result into
the slot's output buffers, `F` free it, `N` nothing, `H` make the calls that `host` readied. `C`, `L`, `G`, `N` and `H`
are timed. Answers: JSON to JSON; `K` or `E`
to bytes.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from warpsmith.kernels_db.job.documents import FREE_PYTHON
from warpsmith.kernels_db.job.languages import LANGUAGES
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.workers.judge.machine import channel, gpu, native_calls
from warpsmith.workers.judge.machine.native_watch import NativeWatch
from warpsmith.workers.judge.runner import burst, generated
from warpsmith.workers.judge.runner.burst import Burst
from warpsmith.workers.judge.runner.commands import (
    BURST,
    CALL,
    CALL_AND_CLOSE,
    DELIVER,
    DONE,
    FAILED,
    FREE,
    GO,
    HOST,
    LONGEST_NAME,
    MOST_NAMES,
    NOTHING,
)
from warpsmith.workers.judge.runner.device_state import GpuState
from warpsmith.workers.judge.runner.digest import Seal
from warpsmith.workers.judge.runner.host_calls import HostCalls
from warpsmith.workers.judge.runner.loading import compile_templates_at_once, import_file, set_precision, wrap
from warpsmith.workers.judge.runner.outputs import ContractError, check_output, describe, refuse, returned_as
from warpsmith.workers.judge.runner.slots import Slots
from warpsmith.workers.judge.sandbox.sandbox import Confinement

_GPU_SPIN = 40_000
"""Spins of the wait on a GPU's host, before it sleeps.

There are cores to spare, and a process that sleeps between bursts is slow to launch: some ten milliseconds.
"""

MOST_GRAPHS = 8
"""Graphs of one reference whose generated code is kept."""


class Runner:
    """State of one runner: the loaded `run`, the bound slots, the last result."""

    def __init__(self, control: socket.socket, confine: Callable[[], Confinement]) -> None:
        self.control = control
        self.confine = confine
        self.run: Callable[..., Any] | None = None
        self.interpreter = contextlib.ExitStack()  # open for the life of the process
        self.module: ModuleType | None = None
        self.mode = "candidate"
        self.slots = Slots()
        self.current: tuple[list[Any], list[Any]] = ([], [])
        self.result: Any = None
        self.error: dict[str, Any] = {}
        self.received: list[int] = []  # descriptors that came with the last message
        self.device = "cpu"
        self.burst: Burst | None = None  # armed or run last
        self.state: GpuState | None = None  # of a candidate on a GPU whose host code a gate has read
        self.watch: NativeWatch | None = None  # of native candidates
        self.host_calls: HostCalls | None = None  # of the slot that they were last readied on
        self.codes: deque[str] = deque(maxlen=MOST_GRAPHS)  # what Inductor generated since it was last asked

    def serve(self) -> None:
        """Answer commands until the referee hangs up."""
        handlers = {
            CALL[0]: self.call,
            CALL_AND_CLOSE[0]: self.call_and_close,
            BURST[0]: self.arm_burst,
            GO[0]: self.go,
            DELIVER[0]: self.deliver,
            FREE[0]: self.free,
            NOTHING[0]: self.nothing,
            HOST[0]: self.call_for_host,
        }
        while True:
            raw = self.next_datagram(_GPU_SPIN if self.device == "cuda" else 0)
            if not raw:
                return
            handler = handlers.get(raw[0])
            if handler is None:
                self.command(json.loads(raw))
                continue
            try:
                handler(raw)
            except BaseException as error:  # noqa: BLE001 - whatever it is, the referee must be told that the call failed
                self.error = describe(error)
                self.control.send(FAILED)
            else:
                self.control.send(DONE)

    def next_datagram(self, spin: int) -> bytes:
        for _ in range(spin):
            with contextlib.suppress(BlockingIOError):
                return self.control.recv(channel.MAX_MESSAGE, socket.MSG_DONTWAIT)
        raw, self.received = channel.receive_raw(self.control, max_fds=1)
        return raw

    def call(self, raw: bytes) -> None:
        self.current = self.slots.writable(raw[1])
        self.run_current()

    def run_current(self) -> None:
        assert self.run is not None
        changed = None
        with self.state.unchanged() if self.state else contextlib.nullcontext():
            try:
                self.result = self.run(*self.current[0])
            finally:
                if self.watch is not None:
                    changed = self.watch.ended()
            self.settle()
        refuse(changed)

    def call_and_close(self, raw: bytes) -> None:
        """Run `call`, make writes to the slot fatal (SIGSEGV), and look at what native code left behind."""
        if self.watch is not None:
            self.watch.begin()
        self.current = self.slots.writable(raw[1])
        self.slots.close_inputs(raw[1])
        self.run_current()
        self.slots.close(raw[1])
        self.kept({})

    def arm_burst(self, raw: bytes) -> None:
        self.result = None
        seal, order = Seal.read(raw[1:])
        self.burst = Burst(order, seal)
        if self.state is not None:
            self.state.begin()

    def go(self, raw: bytes) -> None:
        assert self.run is not None
        assert self.burst is not None
        self.result = self.burst.go(self.run, self.slots.bound, self.slots.arenas)
        last = self.burst.order[-1]
        self.current = self.slots.bound[last] if last < len(self.slots.bound) else ([], [])

    def settle(self) -> None:
        """Wait until the device has done everything, on every stream."""
        if self.device == "cuda":
            import torch  # noqa: PLC0415 - already loaded by the fork server

            torch.cuda.synchronize()

    def free(self, raw: bytes) -> None:
        """Free the last result: inside the next call that would cost time on the clock."""
        self.result = None

    def nothing(self, raw: bytes) -> None:
        """Answer, for the clock of the exchange."""

    def deliver(self, raw: bytes) -> None:
        """Copy what the reference returned into the output buffers.

        Raises ContractError where it does not fit them.
        """
        outputs = self.current[1]
        for position, (tensor, output) in enumerate(zip(returned_as(self.result, outputs), outputs, strict=True)):
            check_output(position, tensor, output, self.mode)
            output.copy_(tensor)
        self.settle()

    def command(self, message: dict[str, Any]) -> None:
        answer: dict[str, Any]
        try:
            handler = {
                "enter": self.enter,
                "load": self.load,
                "bind": self.bind,
                "unbind": self.unbind,
                "error": self.last_error,
                "generate": self.generate,
                "times": self.times,
                "generated": self.generated,
                "profile": self.profile,
                "ping": self.ping,
                "kept": self.kept,
                "trace": self.trace,
                "host": self.host,
                "kernels": self.kernels,
                "surroundings": self.surroundings,
            }[message["command"]]
            answer = handler(message)
        except BaseException as error:  # noqa: BLE001 - user code ran inside; the referee must be told
            answer = {"error": describe(error)}
        channel.send(self.control, answer)

    def last_error(self, message: dict[str, Any]) -> dict[str, Any]:
        return {"error": self.error}

    def enter(self, message: dict[str, Any]) -> dict[str, Any]:
        """Take the device and then the sandbox, before untrusted code is read; answer its layers."""
        self.device = message["device"]
        if self.device == "cuda":
            gpu.initialise()
        try:
            return {"layers": self.confine().layers}
        except OSError as error:
            return {"refused": str(error)}

    def load(self, message: dict[str, Any]) -> dict[str, Any]:
        """Import the file and prepare its `run` for `mode`.

        Modes are candidate, float64, eager, compile, max_autotune and expert.
        """
        self.mode = message["mode"]
        set_precision(self.mode, message["math"], self.device)
        known = LANGUAGES.get(message["language"])  # a reference and its baselines have none
        compiler = known and known.compiler
        if self.device == "cuda" and (compiler == "triton" or message["language"] == FREE_PYTHON):
            from warpsmith.workers.judge.runner import triton_runtime  # noqa: PLC0415 - the fork server has it

            triton_runtime.install()
        if self.device == "cuda" and self.mode == "candidate" and compiler in ("nvrtc", "triton", "cute", "tilelang"):
            self.state = GpuState(compiler)
            # What the first call would load, it loads now, without the device's lease: about 1 ms of kernels, which
            # another judge of the device may find beside a burst. Starts wait for no lease, so that a sweep holds it
            # for calls alone.
            self.state.make_ready()
            burst.make_ready()
        interpreted = self.mode == "candidate" and os.environ.get("TRITON_INTERPRET") == "1"
        if interpreted:
            from warpsmith.workers.judge.runner.interpreter.gaps import name_gaps  # noqa: PLC0415 - imports Triton

            name_gaps()
        if self.mode == "candidate" and compiler == "g++":
            self.watch = NativeWatch()
        self.module = import_file(message["path"])
        if self.watch is not None:
            self.watch.loaded(os.environ[CACHE_VARIABLE])
        entry = "make" if self.mode == "generate" else "run"
        run = getattr(self.module, entry, None)
        if not callable(run):
            raise ContractError(
                "raises", f"the source defines no function `{entry}`", expected=f"def {entry}(...)", found=None
            )
        if interpreted:
            from warpsmith.workers.judge.runner.interpreter.launches import run_like_a_device  # noqa: PLC0415 - imports Triton

            run_like_a_device(self.interpreter)
        if self.mode == "max_autotune" and self.device == "cuda":
            compile_templates_at_once()
        self.run = wrap(run, self.mode)
        if self.mode == "compile":
            generated.watch(self.codes)
        gc.collect()
        gc.freeze()
        gc.disable()
        return {}

    def bind(self, message: dict[str, Any]) -> dict[str, Any]:
        """Map one more slot, whose memory came with the message, and build its tensors."""
        self.slots.bind(message, self.received, candidate=self.mode == "candidate")
        return {}

    def unbind(self, message: dict[str, Any]) -> dict[str, Any]:
        self.result = None
        self.current = ([], [])
        self.burst = None
        self.host_calls = None
        self.slots.unbind()
        self.settle()
        self.slots.release()
        if self.device == "cuda":
            import torch  # noqa: PLC0415 - already loaded by the fork server

            torch.cuda.empty_cache()  # what the calls took in between would be missing for other ops' buffers
        return {}

    def kernels(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the names of the kernels that one call runs on the device, and the configurations of tuned ones.

        The names come from the driver's tracing, which takes seconds to begin.
        """
        from warpsmith.workers.judge.runner import kernel_names, tuned_configurations  # noqa: PLC0415 - few come so far

        run, arguments = self.run, self.slots.bound[message["slot"]][0]
        assert run is not None
        with tuned_configurations.recorded() as tuned:
            ran = kernel_names.record(lambda: run(*arguments))[:MOST_NAMES]
        names, calls = [found.name[:LONGEST_NAME] for found in ran], [found.calls for found in ran]
        return {"names": names, "calls": calls, "configurations": tuned}

    def profile(self, message: dict[str, Any]) -> dict[str, Any]:
        """Profile calls on a slot.

        On a GPU the trace goes to a file in this process's own directory.
        """
        from warpsmith.workers.judge.runner import profile_recording  # noqa: PLC0415 - few jobs come so far

        run, arguments = self.run, self.slots.writable(message["slot"])[0]
        assert run is not None
        if self.device == "cpu":
            return {"trace": profile_recording.record_cpu(lambda: run(*arguments), message["calls"])}
        path = Path(os.environ["HOME"]) / message["file"]
        profile_recording.record_gpu(lambda: run(*arguments), message["calls"], path)
        return {}

    def generated(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the kernels that Inductor generated since the last such command."""
        found = generated.kernels_of(list(self.codes))
        self.codes.clear()
        return {"generated": found}

    def kept(self, message: dict[str, Any]) -> dict[str, Any]:
        """Raise ContractError where native code has left something behind since it was loaded."""
        if self.watch is not None:
            refuse(self.watch.ended_checked())
        return {}

    def surroundings(self, message: dict[str, Any]) -> dict[str, Any]:
        """Have calls that close their slot find inputs closed too, and OpenMP with so many threads; None: as ever."""
        self.slots.inputs_closed = message["threads"] is not None
        if self.watch is not None:
            self.watch.use_threads(message["threads"])
        return {}

    def trace(self, message: dict[str, Any]) -> dict[str, Any]:
        """Record the calls of C++ functions that one `run` makes, into the memory that came with the message."""
        run, (arguments, outputs), fd = self.run, self.slots.writable(message["slot"]), self.received.pop()
        assert run is not None and self.module is not None  # noqa: PT018 - loaded before it is bound
        return native_calls.record(lambda: run(*arguments), self.module, [*arguments, *outputs], fd)

    def host(self, message: dict[str, Any]) -> dict[str, Any]:
        """Ready calls on copies of a slot's tensors, by a launch plan where `plan` names the extension's file."""
        run, (arguments, outputs) = self.run, self.slots.writable(message["slot"])
        assert run is not None
        self.settle()
        if self.host_calls is None:
            own = self.mode == "candidate"
            inputs = arguments[: len(arguments) - len(outputs)] if own else arguments
            self.host_calls = HostCalls(run, self.module, inputs, outputs if own else [], message["mutated"])
        answer = self.host_calls.ready(message["calls"], message["plan"])
        self.settle()
        return answer

    def call_for_host(self, raw: bytes) -> None:
        """Make the calls that were readied, and do not wait for the device."""
        assert self.host_calls is not None
        self.host_calls.make()

    def ping(self, message: dict[str, Any]) -> dict[str, Any]:
        self.settle()
        return {}

    def times(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the times of the last burst by the device's own clock, its late calls, and the digest it took."""
        assert self.burst is not None
        if self.state is not None:
            self.state.end()
        return {"microseconds": self.burst.microseconds(), "late": self.burst.late, "digest": self.burst.digest()}

    def generate(self, message: dict[str, Any]) -> dict[str, Any]:
        """Run the spec's own generator function for one input.

        It fills the first output buffer of slot 0.
        """
        import torch  # noqa: PLC0415

        assert self.module is not None
        generator = torch.Generator().manual_seed(message["seed"])
        target = self.slots.bound[0][1][0]
        made = self.module.make(list(target.shape), target.dtype, generator)
        check_output(0, made, target, "eager")
        target.copy_(made)
        return {}


def main(control: socket.socket, confine: Callable[[], Confinement]) -> None:
    """Serve on the control socket; returns when the referee hangs up.

    `confine` is called once, before `load`.
    """
    with contextlib.suppress(ConnectionError, channel.ChannelClosed):
        Runner(control, confine).serve()

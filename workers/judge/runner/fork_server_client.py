"""The referee's handle on the fork server and, through it, on runners as processes."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpsmith import IMPORT_ROOT
from warpsmith.workers.judge.machine import channel, process_control
from warpsmith.workers.judge.sandbox.sandbox import Ability, Profile

_START_S = 180.0
_ANSWER_S = 30.0


class ForkServerDied(Exception):  # noqa: N818 - named for what happened
    """The fork server is gone, and every runner with it; `ForkServer.start` makes a new one."""


@dataclass(frozen=True)
class Spawned:
    """A running runner: its pid, the control socket to it and the memory file with what it prints."""

    pid: int
    control: socket.socket
    log_fd: int

    def log_tail(self, length: int = 2000) -> str:
        """The end of what the runner printed."""
        size = os.fstat(self.log_fd).st_size
        return os.pread(self.log_fd, length, max(0, size - length)).decode(errors="replace").strip("\0")

    def close(self) -> None:
        """Hang up; the process itself is the fork server's to end."""
        self.control.close()
        os.close(self.log_fd)


def fork_server_environment(cores: int) -> dict[str, str]:
    """All that runners inherit. One OpenMP and one allocator setting for every contender; nothing of the caller's but
    where to find programs.

    GOMP_SPINCOUNT: an idle pool sleeps after some 0.1 ms instead of milliseconds, so that it does not take a core from
    the next contender. MALLOC_*: freed memory stays with the process; otherwise eager, which allocates its result in
    every call, pays page faults each time. CUDA_DEVICE_MAX_CONNECTIONS: all streams of a process share one queue of the
    device, so that work on another stream waits behind a burst's head start and stands on the clock (measured on an
    H200: without it such work was done before a wait of 5 ms had ended, with it after, whatever the stream's priority).
    """
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "USER": "warpsmith",  # torch asks for it, and a confined runner cannot look it up
        "PYTHONPATH": str(IMPORT_ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "OMP_NUM_THREADS": str(cores),
        "GOMP_SPINCOUNT": "10000",
        "OPENBLAS_NUM_THREADS": "1",  # NumPy's pool would be a second thread before the fork
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        "MALLOC_ARENA_MAX": "4",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    }
    passed = ("CXX", "CUDA_VISIBLE_DEVICES", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH")
    return environment | {name: os.environ[name] for name in passed if name in os.environ}


class ForkServer:
    """Starts, restarts and addresses the fork server. Not thread-safe: the referee has one thread.

    Every runner inherits torch. Imports no torch here: a process that needs it starts the server first, and both import
    it at once.
    """

    def __init__(self, cores: int, directory: Path) -> None:
        """Runners use `cores` cores; `directory` is their server's own."""
        self._cores = cores
        self._preload: dict[str, Any] | None = None
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._exits: dict[int, int] = {}
        self._ability: Ability | None = None  # known once it is ready

    def preload(self, modules: Sequence[str] = (), triton: tuple[Path, int] | None = None) -> None:
        """Tell the process, started where needed, what runners inherit besides torch: modules, imported, and Triton's
        own C module, which is kept in a directory for GPUs of a compute capability (90 for sm_90). Once.
        """
        kept = None if triton is None else [str(triton[0]), triton[1]]
        self._preload = {"command": "preload", "modules": list(modules), "triton": kept}
        if self._control is None:
            self.start()
        else:
            self._tell(self._control, self._preload)

    @staticmethod
    def _tell(control: socket.socket, message: dict[str, Any]) -> None:
        with contextlib.suppress(channel.ChannelClosed):  # `ready` finds out
            channel.send(control, message)

    def start(self) -> None:
        """Start the process without waiting for it; it is told again what to preload."""
        self.close()
        ours, theirs = channel.pair()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "warpsmith.workers.judge.runner.fork_server", str(theirs.fileno())],
            env=fork_server_environment(self._cores) | {"HOME": str(self._directory), "TMPDIR": str(self._directory)},
            cwd=self._directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # standard output is the door's alone
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # whoever kills the referee's group leaves it alive to clean up
        )
        theirs.close()
        process_control.own_children.add(self._process.pid)  # another device's fork server ends without this one
        self._control = ours
        self._exits = {}
        self._ability = None
        if self._preload is not None:
            self._tell(ours, self._preload)

    @property
    def pid(self) -> int | None:
        """Process id while started."""
        return self._process.pid if self._process else None

    def ready(self) -> Ability:
        """Start where needed and wait until runners can be forked; returns how they can be confined. Raises
        ForkServerDied.
        """
        if self._preload is None:
            self.preload()
        if self._control is None:
            self.start()
        if self._ability is None:
            event = self._event("ready", _START_S)
            threads = event["threads"]
            if threads != 1:
                raise RuntimeError(
                    f"the fork server has {threads} threads, expected 1: a fork would copy locks that nobody holds"
                )
            self._ability = Ability(**event["ability"])
        return self._ability

    def spawn(
        self, *, directory: Path, environment: dict[str, str], limits: dict[str, int], profile: Profile
    ) -> Spawned:
        """Fork a runner into `directory`. Raises ForkServerDied."""
        self.ready()
        assert self._control is not None
        ours, theirs = channel.pair()
        log_fd = os.memfd_create("runner-log", os.MFD_CLOEXEC)
        spec = {"directory": str(directory), "environment": environment, "limits": limits}
        spec["profile"] = profile.document()
        try:
            channel.send(self._control, {"command": "fork", "spec": spec}, [theirs.fileno(), log_fd])
            pid = int(self._event("forked", _ANSWER_S)["pid"])
        except (channel.ChannelClosed, ForkServerDied) as error:
            ours.close()
            os.close(log_fd)
            raise ForkServerDied(str(error)) from error
        finally:
            theirs.close()
        return Spawned(pid, ours, log_fd)

    def base_virtual_bytes(self) -> int:
        """Address space of the fork server: what a runner has before it does anything."""
        assert self._process is not None
        try:
            return process_control.virtual_bytes(self._process.pid)
        except OSError as error:
            raise ForkServerDied(str(error)) from error

    def discard(self, spawned: Spawned) -> None:
        """Kill a runner with all its descendants and wait for its end. Where the fork server is gone, so is the
        runner.
        """
        try:
            if spawned.pid not in self._exits and self._control is not None:
                channel.send(self._control, {"command": "kill", "pid": spawned.pid})
                self.exit_code(spawned.pid, _ANSWER_S)
        except (channel.ChannelClosed, ForkServerDied):
            self.close()  # the next spawn starts a new one
        finally:
            self._exits.pop(spawned.pid, None)
            spawned.close()

    def exit_code(self, pid: int, timeout_s: float) -> int:
        """Wait for a runner's end; returns its exit code (negative: the signal). Raises ForkServerDied."""
        deadline = time.monotonic() + timeout_s
        while pid not in self._exits:
            self._receive(deadline - time.monotonic())
        return self._exits[pid]

    def _event(self, name: str, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while True:
            message = self._receive(deadline - time.monotonic())
            if message["event"] == name:
                return message

    def _receive(self, timeout_s: float) -> dict[str, Any]:
        if self._control is None:
            raise ForkServerDied("not running")
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        if not poller.poll(max(0.0, timeout_s) * 1000):
            raise ForkServerDied("no answer")  # it is Warpsmith's own code with nothing to wait for: as good as dead
        try:
            message, _ = channel.receive(self._control)
        except (channel.ChannelClosed, channel.ChannelViolation) as error:
            raise ForkServerDied(str(error)) from error
        if message["event"] == "exited":
            self._exits[message["pid"]] = message["code"]
        return message

    def close(self) -> None:
        """End the fork server and everything under it; what it leaves (when it was killed itself) is killed here."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            if self._ability is None:  # it still imports, has no runner and does not listen
                self._process.kill()
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            process_control.own_children.discard(self._process.pid)
            self._process = None
        if process_control.adopts_orphans():  # in a process that does not, children may be anybody's
            with contextlib.suppress(TimeoutError):
                process_control.kill_children(os.getpid(), spare=process_control.own_children)

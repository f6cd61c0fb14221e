"""The referee's handle on the fork server and, through it, on runners as processes."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpsmith import IMPORT_ROOT
from warpsmith.workers.judge.machine import channel, process_control
from warpsmith.workers.judge.preloaded.client import Child, ForkServerDied, PreloadedServer
from warpsmith.workers.judge.sandbox.sandbox import Ability, Profile

_MODULE = "warpsmith.workers.judge.runner.fork_server"


@dataclass(frozen=True)
class Spawned:
    """A running runner: its process, its control socket and its output.

    The output is in a memory file.
    """

    child: Child
    server: PreloadedServer
    control: socket.socket
    log_fd: int

    @property
    def pid(self) -> int:
        """Process id, which is also the session and the group."""
        return self.child.pid

    def log_tail(self, length: int = 2000) -> str:
        """Return the end of the runner's output."""
        size = os.fstat(self.log_fd).st_size
        return os.pread(self.log_fd, length, max(0, size - length)).decode(errors="replace").strip("\0")

    def close(self) -> None:
        """Hang up; the process itself is the fork server's to end."""
        self.child.close()
        self.control.close()
        os.close(self.log_fd)


def fork_server_environment(cores: int) -> dict[str, str]:
    """Return the environment that runners inherit, complete.

    It has one OpenMP and one allocator setting for every contender, and of the caller's only where to find programs.

    GOMP_SPINCOUNT: an idle pool sleeps after some 0.1 ms instead of milliseconds, so that it does not take a core from
    the next contender. MALLOC_*: freed memory stays with the process; otherwise eager, which allocates its result in
    every call, pays page faults each time. CUDA_DEVICE_MAX_CONNECTIONS: all streams of a process share one queue of the
    device, so that work on another stream waits behind a burst's head start and is on the clock (measured on an H200:
    without it such work was done before a wait of 5 ms had ended, with it after, whatever the stream's priority).
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
    """Starts, restarts and addresses the fork server.

    Not thread-safe: the referee has one thread.

    Every runner inherits torch. Imports no torch here: a process that needs it starts the server first, and both import
    it at once.
    """

    def __init__(self, cores: int, directory: Path) -> None:
        """Runners use `cores` cores; `directory` is their server's own."""
        self._cores = cores
        self._preload: dict[str, Any] | None = None
        self._directory = directory
        self._server: PreloadedServer | None = None

    def preload(self, modules: Sequence[str] = (), triton: tuple[Path, int] | None = None) -> None:
        """Tell the process, started where needed, what runners inherit besides torch. Call it once.

        That is modules, imported, and Triton's own C module, which is kept in a directory for GPUs of a compute
        capability (90 for sm_90).
        """
        kept = None if triton is None else [str(triton[0]), triton[1]]
        self._preload = {"modules": list(modules), "triton": kept}
        if self._server is None:
            self.start()
        else:
            self._server.tell(self._preload)

    def start(self) -> None:
        """Start the process without waiting for it; it is told again what to preload."""
        self.close()
        home = {"HOME": str(self._directory), "TMPDIR": str(self._directory)}
        self._server = PreloadedServer(_MODULE, fork_server_environment(self._cores) | home, self._directory)
        if self._preload is not None:
            self._server.tell(self._preload)

    @property
    def pid(self) -> int | None:
        """Process id while started."""
        return self._server.pid if self._server else None

    def ready(self) -> Ability:
        """Start where needed and wait until runners can be forked.

        Returns how they can be confined. Raises ForkServerDied.
        """
        return self._running().ready()

    def settle(self) -> None:
        """Wait until a process that starts has started. From any thread."""
        if (server := self._server) is not None:
            with contextlib.suppress(ForkServerDied):  # who forks next finds out
                server.ready()

    def _running(self) -> PreloadedServer:
        if self._preload is None:
            self.preload()
        if self._server is None:
            self.start()
        assert self._server is not None
        return self._server

    def spawn(
        self, *, directory: Path, environment: dict[str, str], limits: dict[str, int], profile: Profile
    ) -> Spawned:
        """Fork a runner into `directory`. Raises ForkServerDied."""
        server = self._running()
        ours, theirs = channel.pair()
        log_fd = os.memfd_create("runner-log", os.MFD_CLOEXEC)
        request = {"directory": str(directory), "environment": environment, "limits": limits}
        try:
            child = server.fork(request | {"profile": profile.document()}, log_fd, [theirs.fileno()])
        except BaseException:
            ours.close()
            os.close(log_fd)
            raise
        finally:
            theirs.close()
        return Spawned(child, server, ours, log_fd)

    def base_virtual_bytes(self) -> int:
        """Address space of the fork server: what a runner has before it does anything."""
        assert self._server is not None
        try:
            return process_control.virtual_bytes(self._server.pid)
        except OSError as error:
            raise ForkServerDied(str(error)) from error

    def discard(self, spawned: Spawned) -> None:
        """Kill a runner with all its descendants and wait for its end.

        Where the fork server is gone, so is the runner.
        """
        try:
            spawned.child.kill()
        except ForkServerDied:
            if spawned.server is self._server:
                self.close()  # the next spawn starts a new one
        finally:
            spawned.close()

    @staticmethod
    def exit_code(spawned: Spawned, timeout_s: float) -> int:
        """Wait for a runner's end and return its exit code (negative: the signal).

        Raises ForkServerDied.
        """
        code = spawned.child.exit_code(timeout_s)
        if code is None:
            raise ForkServerDied("no answer")  # it is Warpsmith's own code with nothing to wait for: as good as dead
        return code

    def close(self) -> None:
        """End the fork server and everything under it.

        The processes that it leaves, when it was killed itself, are killed here.
        """
        if self._server is not None:
            self._server.close()
            self._server = None
        if process_control.adopts_orphans():  # otherwise its children may not come from the server
            with contextlib.suppress(TimeoutError):
                process_control.kill_children(os.getpid(), spare=process_control.own_children)

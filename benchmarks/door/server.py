"""A server that is attacked: a process of its own, with keys required, on a database of its own."""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from warpsmith.kernels_db.store.db import Database
from warpsmith.service.local.redis_server import redis_executable

READY_WITHIN_S = 60.0
PATIENCE_S = 60.0


@dataclass(frozen=True)
class Answer:
    """An answer: status (0 where the connection ended without one), seconds, the body's beginning."""

    status: int
    seconds: float
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """The server under attack."""

    port: int
    key: str
    process: psutil.Process
    broker: subprocess.Popen[bytes]

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        key: bool = True,
        timeout_s: float = PATIENCE_S,
    ) -> Answer:
        """Send one request on a connection of its own and wait for the answer."""
        sent = {"Host": f"127.0.0.1:{self.port}"} | ({"Authorization": f"Bearer {self.key}"} if key else {})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        started = time.perf_counter()
        try:
            connection.request(method, path, body, sent | dict(headers or {}))
            response = connection.getresponse()
            data = response.read(2**20)
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, time.perf_counter() - started, data, found)
        except (OSError, http.client.HTTPException):
            return Answer(0, time.perf_counter() - started)
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """Open a connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def exchange(self, data: bytes, wait_s: float = 5.0) -> bytes:
        """Send raw bytes; returns all that comes back until the server closes or is silent for `wait_s`."""
        found = b""
        with self.connect() as connection:
            connection.settimeout(wait_s)
            with suppress(OSError):
                connection.sendall(data)
            with suppress(OSError):
                while chunk := connection.recv(65536):
                    found += chunk
        return found

    def memory_mb(self) -> float:
        """Resident memory of the server, MB."""
        return float(self.process.memory_info().rss) / 1e6

    def cpu_s(self) -> float:
        """Processor time of the server, seconds."""
        times = self.process.cpu_times()
        return float(times.user + times.system)

    def connections(self, peer: str) -> int:
        """Count the connections from an address that the server holds open."""
        return sum(1 for item in self.process.net_connections("tcp") if item.raddr and item.raddr.ip == peer)


@contextmanager
def served(**settings: str) -> Iterator[Target]:
    """Run a server with a private Redis; both end with the context."""
    home = Path(tempfile.mkdtemp(prefix="ws-door-"))
    children: list[subprocess.Popen[bytes]] = []
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("WARPSMITH_", "OPENAI_"))},
        "WARPSMITH_HOME": str(home),
        "WARPSMITH_AUTH": "always",
        "WARPSMITH_LOG_LEVEL": "WARNING",
        "WARPSMITH_HEAD_TIMEOUT_S": "4",
        "WARPSMITH_BODY_TIMEOUT_S": "6",
        "WARPSMITH_ANSWER_TIMEOUT_S": "6",
        **settings,
    }
    try:
        broker = _start_redis(home)
        children.append(broker)
        Database(f"sqlite:///{home / 'warpsmith.db'}").upgrade()
        key = _make_key(environment)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(4096)
            port = listener.getsockname()[1]
            with (home / "server.log").open("wb") as log:
                server = subprocess.Popen(
                    [sys.executable, "-m", "warpsmith.service.server.serve", "--fd", str(listener.fileno())],
                    env=environment,
                    stdout=log,
                    stderr=log,
                    pass_fds=[listener.fileno()],
                )
        children.append(server)
        target = Target(port, key, psutil.Process(server.pid), broker)
        deadline = time.monotonic() + READY_WITHIN_S
        while target.ask("GET", "/readyz", timeout_s=5.0).status != 200:
            if server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the server did not start:\n{(home / 'server.log').read_text()[-2000:]}")
            time.sleep(0.1)
        yield target
    finally:
        for child in reversed(children):
            child.send_signal(signal.SIGCONT)
            child.kill()
            child.wait()
        shutil.rmtree(home, ignore_errors=True)


def _start_redis(home: Path) -> subprocess.Popen[bytes]:
    executable = redis_executable()
    if executable is None:
        raise SystemExit("no redis-server")
    options = ["--port", "0", "--unixsocket", str(home / "redis.sock"), "--dir", str(home), "--save", ""]
    return subprocess.Popen([executable, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _make_key(environment: Mapping[str, str]) -> str:
    command = [sys.executable, "-m", "warpsmith.service.cli", "keys", "create", "door"]
    output = subprocess.run(command, env=dict(environment), check=True, capture_output=True, text=True).stdout
    return next(word for word in output.split() if word.startswith("wsk_"))


class Bystander:
    """Somebody else, who asks for a list and for the process's health all the time; the longest wait counts."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(path,)) for path in ("/v1/ops", "/healthz")]
        self.longest_s = 0.0

    def __enter__(self) -> Bystander:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, path: str) -> None:
        while not self._over.is_set():
            answer = self._target.ask("GET", path)
            self.longest_s = max(self.longest_s, PATIENCE_S if answer.status != 200 else answer.seconds)
            self._over.wait(0.05)

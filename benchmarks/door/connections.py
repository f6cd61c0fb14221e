"""Clients that connect and then dawdle, all from one address that is not the other clients'."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from benchmarks.door.attack import Finding
from benchmarks.door.server import Answer, Bystander, Target
from warpsmith.service.api.submission import ADD_RELU

ATTACKER = "127.0.0.2"
GONE_WITHIN_S = 15.0
MOST_GROWN_MB = 400.0
"""Growth that is allowed: the memory for bodies, and the connections' own."""

HEAD = b"GET /v1/ops HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


def _post(target: Target, path: str, length: int, *, key: bool) -> bytes:
    authorization = f"Authorization: Bearer {target.key}\r\n" if key else ""
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{authorization}Content-Type: application/x-ndjson\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


@contextmanager
def _opened(target: Target, number: int, first: bytes) -> Iterator[list[socket.socket]]:
    connections: list[socket.socket] = []
    try:
        for _ in range(number):
            with suppress(OSError):
                connection = socket.create_connection(
                    ("127.0.0.1", target.port), timeout=2.0, source_address=(ATTACKER, 0)
                )
                connections.append(connection)
                connection.sendall(first)
        yield connections
    finally:
        for connection in connections:
            connection.close()


def _dawdle(target: Target, name: str, number: int, first: bytes, more: bytes = b"") -> Finding:
    """Open connections, send what begins, then a little more each second; see how long they last."""
    before, cpu_before = target.memory_mb(), target.cpu_s()
    grown = 0.0
    with Bystander(target) as others, _opened(target, number, first) as connections:
        started = time.monotonic()
        while (left := target.connections(ATTACKER)) > number // 100 and time.monotonic() - started < 2 * GONE_WITHIN_S:
            grown = max(grown, target.memory_mb() - before)
            for connection in connections if more else ():
                with suppress(OSError):
                    connection.sendall(more)
            time.sleep(1.0)
        seconds = time.monotonic() - started
    held = seconds <= GONE_WITHIN_S and others.longest_s < 5.0 and grown < MOST_GROWN_MB
    what = f"{len(connections)} connections, {left} left after {seconds:.0f} s, at most {grown:+.0f} MB"
    return Finding(name, held, what, seconds, target.cpu_s() - cpu_before, others.longest_s, grown)


def _freeze_broker(target: Target) -> Finding:
    """200 callers ask whether the service is ready while the broker is stopped; then one submits."""
    cpu_before = target.cpu_s()
    target.broker.send_signal(signal.SIGSTOP)
    try:
        started = time.monotonic()
        with Bystander(target) as others, ThreadPoolExecutor(200) as pool:
            answers: list[Answer] = list(pool.map(lambda _: target.ask("GET", "/readyz", key=False), range(200)))
            submitted = target.ask("POST", "/v1/searches", _search(), {"Content-Type": "application/json"})
        seconds = time.monotonic() - started
    finally:
        target.broker.send_signal(signal.SIGCONT)
    slowest = max(answer.seconds for answer in answers)
    what = f"slowest probe {slowest:.1f} s, a submission {submitted.status} in {submitted.seconds:.1f} s"
    held = max(slowest, submitted.seconds, others.longest_s) < 5.0 and submitted.status == 202
    return Finding("broker stopped, 200 x /readyz", held, what, seconds, target.cpu_s() - cpu_before, others.longest_s)


def _search() -> bytes:
    return json.dumps({"op": ADD_RELU, "target": "cpu", "model": {"provider": "agent"}}).encode()


def list_attacks(target: Target) -> dict[str, Callable[[], Finding]]:
    """List the attacks by name."""
    megabytes = b" " * 1_900_000
    return {
        "1,500 silent connections": lambda: _dawdle(target, "1,500 silent connections", 1500, b""),
        "1,500 half heads, a byte a second": lambda: _dawdle(
            target, "1,500 half heads, a byte a second", 1500, HEAD, b"a"
        ),
        "300 half bodies without a key": lambda: _dawdle(
            target, "300 half bodies without a key", 300, _post(target, "/v1/pools", 2_000_000, key=False) + megabytes
        ),
        "300 half bodies at the sign-in": lambda: _dawdle(
            target, "300 half bodies at the sign-in", 300, _post(target, "/v1/session", 4_000, key=False) + b"{", b" "
        ),
        "300 half bodies with a key": lambda: _dawdle(
            target, "300 half bodies with a key", 300, _post(target, "/v1/pools", 2_000_000, key=True) + megabytes
        ),
        "200 that read no answer": lambda: _dawdle(
            target,
            "200 that read no answer",
            200,
            f"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {target.key}\r\n\r\n".encode()
            * 20,
        ),
        "broker stopped, 200 x /readyz": lambda: _freeze_broker(target),
    }

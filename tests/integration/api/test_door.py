"""The door of a real server: slow clients, bodies, dependencies that hang."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import uvicorn

from tests.services import RedisServer
from tests.support.api_support import SEARCH, application, client_of, problem, settings_for
from warpsmith.kernels_db.store.tables import AttemptRow
from warpsmith.service.api.probes import Outcome, Probe
from warpsmith.service.api.slices import run_sliced
from warpsmith.service.local.connections import ConnectionLimits, make_protocol

HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
LIMITS = ConnectionLimits(head_s=0.5, answer_s=0.5, connections=12, connections_per_peer=8)


@pytest.fixture
def port(tmp_path: Path) -> Any:
    """The port of a server with short limits."""
    app = application(settings_for(tmp_path, body_timeout_s=0.5, max_bodies_bytes=2**20))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        server = uvicorn.Server(
            uvicorn.Config(
                app, log_config=None, http=make_protocol(LIMITS), timeout_keep_alive=1, timeout_graceful_shutdown=1
            )
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join(10)


def connect(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0))


def everything(connection: socket.socket) -> bytes:
    """What the server sends until it closes."""
    found = b""
    try:
        while chunk := connection.recv(65536):
            found += chunk
    except ConnectionResetError:
        pass
    return found


@pytest.mark.parametrize("sent", [b"", HEAD + b"X-Half:", HEAD + b"\r\n" + HEAD])
def test_a_head_that_does_not_end_ends_the_connection(port: int, sent: bytes) -> None:
    started = time.monotonic()
    with connect(port) as connection:
        connection.sendall(sent)
        assert everything(connection).count(b"HTTP/1.1 200") == sent.count(b"\r\n\r\n")
    assert time.monotonic() - started < 8


def test_a_body_comes_in_time_and_within_the_memory_for_bodies(port: int) -> None:
    def post(length: int, sent: bytes) -> bytes:
        with connect(port) as connection:
            head = f"POST /v1/pools HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n"
            connection.sendall(head.encode() + sent)
            return everything(connection)

    assert b"body-too-slow" in post(1000, b" ")
    assert b"too-many-bodies" in post(2 * 2**20, b" " * (2**20 + 1))
    assert b"413" in post(2**30, b"").partition(b"\r\n")[0]


def test_a_peer_has_a_share_of_the_connections(port: int) -> None:
    with ExitStack() as stack:
        held = [stack.enter_context(connect(port, "127.0.0.2")) for _ in range(LIMITS.connections_per_peer)]
        with connect(port, "127.0.0.2") as one_more:
            assert everything(one_more).startswith(b"HTTP/1.1 503")
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
        assert all(connection.fileno() >= 0 for connection in held)
    deadline = time.monotonic() + 5
    while True:  # the places are free again
        with connect(port, "127.0.0.2") as again:
            again.sendall(HEAD + b"Connection: close\r\n\r\n")
            if everything(again).startswith(b"HTTP/1.1 200"):
                return
        assert time.monotonic() < deadline


def test_a_broker_that_stops_holds_nobody_up(tmp_path: Path) -> None:
    broker = RedisServer(tmp_path)
    broker.start()
    assert broker.process is not None
    with client_of(settings_for(tmp_path / "home", broker_url=broker.url, broker_timeout_s=0.5)) as client:
        assert client.get("/readyz").status_code == 200
        broker.process.send_signal(signal.SIGSTOP)
        try:
            started = time.monotonic()
            with ThreadPoolExecutor(20) as pool:
                answers = list(pool.map(lambda _: client.get("/readyz"), range(20)))
            submitted = client.post("/v1/searches", json=SEARCH)
            elapsed = time.monotonic() - started
            assert {answer.status_code for answer in answers} == {503}
            assert "broker" in {error["field"] for error in problem(answers[0], 503, "not-ready")["errors"]}
            assert submitted.status_code == 202
            assert elapsed < 5
            app: Any = client.app
            with app.state.service.db.reading() as session:  # the step waits for the reconciler to send it
                assert [row.state for row in session.query(AttemptRow)] == ["pending"]
        finally:
            broker.process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + 10
        while client.get("/readyz").status_code != 200:
            assert time.monotonic() < deadline
    broker.process.kill()
    broker.process.wait()


def test_a_database_that_hangs_is_refused_at_once_and_pages_are_not(tmp_path: Path) -> None:
    hung = threading.Event()

    def check() -> Outcome:
        hung.wait()
        return Outcome("")

    with client_of(settings_for(tmp_path)) as client:
        app: Any = client.app
        probe = Probe("database", check, timeout_s=0.1)
        object.__setattr__(app.state.service, "database_probe", probe)
        assert probe.ask_and_wait().fault is not None
        time.sleep(0.15)
        problem(client.get("/v1/searches"), 503, "database-unavailable")
        assert client.get("/healthz").status_code == 200
        assert client.get("/", headers={"Accept": "text/html"}).status_code in {200, 503}
        hung.set()
        deadline = time.monotonic() + 5
        while client.get("/v1/searches").status_code != 200:
            assert time.monotonic() < deadline


def test_slices_end_with_their_result_or_error() -> None:
    def work(fail: bool) -> Any:
        for _ in range(3):
            yield
        if fail:
            raise KeyError("x")
        return 7

    run: Callable[..., Any] = anyio.run
    assert run(run_sliced, work(False)) == 7
    with pytest.raises(KeyError):
        run(run_sliced, work(True))

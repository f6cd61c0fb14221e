"""The door of a real server: slow clients, bodies, dependencies that hang."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import uvicorn

from tests.services import RedisServer
from tests.support.api_support import SEARCH, application, client_of, problem, settings_for
from tests.support.waiting import wait_until
from warpsmith.kernels_db.store.tables import AttemptRow
from warpsmith.service.api.probes import Outcome, Probe
from warpsmith.service.api.slices import run_sliced
from warpsmith.service.local.connections import LOOP, ConnectionLimits, make_protocol
from warpsmith.service.server.serve import LONGEST_HEAD

HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
LIMITS = ConnectionLimits(head_s=0.5, answer_s=0.5, connections=12, connections_per_peer=8)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The port of a server with short limits."""
    with door(tmp_path, LIMITS, body_timeout_s=0.5) as found:
        yield found


@pytest.fixture
def patient_port(tmp_path: Path) -> Iterator[int]:
    """The port of a server whose clients may take their time, and are as few."""
    with door(tmp_path, replace(LIMITS, head_s=60.0, answer_s=60.0), body_timeout_s=60.0) as found:
        yield found


@contextmanager
def door(home: Path, limits: ConnectionLimits, **settings: float) -> Iterator[int]:
    """A served API; yields its port."""
    app = application(settings_for(home, max_bodies_bytes=2**20, **settings))
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                loop=LOOP,
                http=make_protocol(limits),
                h11_max_incomplete_event_size=LONGEST_HEAD,
                timeout_keep_alive=1,
                timeout_graceful_shutdown=1,
            )
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join(10)


def connect(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(source, 0))


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
    """Were it not ended, `everything` would wait longer than its connection allows."""
    with connect(port) as connection:
        connection.sendall(sent)
        assert everything(connection).count(b"HTTP/1.1 200") == sent.count(b"\r\n\r\n")


def post(port: int, length: int, sent: bytes) -> bytes:
    """The answer to a body of `length` bytes of which some are sent."""
    with connect(port) as connection:
        head = f"POST /v1/pools HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n"
        connection.sendall(head.encode() + sent)
        return everything(connection)


def test_a_body_comes_in_time(port: int) -> None:
    assert b"body-too-slow" in post(port, 1000, b" ")


def test_a_body_is_within_the_memory_for_bodies(patient_port: int) -> None:
    assert b"too-many-bodies" in post(patient_port, 2 * 2**20, b" " * (2**20 + 1))
    assert b"413" in post(patient_port, 2**30, b"").partition(b"\r\n")[0]


def head_of(length: int) -> bytes:
    """A head of this many bytes."""
    begun, ended = HEAD + b"Connection: close\r\nX-Long: ", b"\r\n\r\n"
    return begun + b"a" * (length - len(begun) - len(ended)) + ended


@pytest.mark.parametrize("cut", [LONGEST_HEAD, LONGEST_HEAD - 1, 1000])
def test_a_head_within_the_limit_passes_however_it_comes(patient_port: int, cut: int) -> None:
    head = head_of(LONGEST_HEAD)
    with connect(patient_port) as connection:
        connection.sendall(head[:cut])
        connection.sendall(head[cut:])
        assert everything(connection).startswith(b"HTTP/1.1 200")


def test_a_longer_head_without_its_end_is_refused_by_the_http_server(patient_port: int) -> None:
    with connect(patient_port) as connection:
        # It is refused once all of it is read: no reset loses the answer.
        connection.sendall(head_of(LONGEST_HEAD + 5)[: LONGEST_HEAD + 1])
        answer = everything(connection)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"\r\ncontent-type: text/plain; charset=utf-8\r\n" in answer.lower()


def test_a_peer_has_a_share_of_the_connections(patient_port: int) -> None:
    """Those that are held say nothing: a server that ended them meanwhile would have room for one more."""
    port = patient_port
    with ExitStack() as stack:
        held = [stack.enter_context(connect(port, "127.0.0.2")) for _ in range(LIMITS.connections_per_peer)]
        with connect(port, "127.0.0.2") as one_more:
            assert everything(one_more).startswith(b"HTTP/1.1 503")
        assert httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
        assert all(connection.fileno() >= 0 for connection in held)

    def served_again() -> bool:
        with connect(port, "127.0.0.2") as again:
            again.sendall(HEAD + b"Connection: close\r\n\r\n")
            return everything(again).startswith(b"HTTP/1.1 200")

    wait_until(served_again, what="free places")


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
            assert elapsed < 20 * 0.5, "one after the other, each for as long as the broker is given"
            app: Any = client.app
            with app.state.service.db.reading() as session:  # the step waits for the reconciler to send it
                assert [row.state for row in session.query(AttemptRow)] == ["pending"]
        finally:
            broker.process.send_signal(signal.SIGCONT)
        wait_until(lambda: client.get("/readyz").status_code == 200)
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
        wait_until(lambda: client.get("/v1/searches").status_code == 200)


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

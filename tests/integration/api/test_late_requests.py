"""A request that comes while the server's loop is busy is answered, although its connection's time was up meanwhile."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import h11
import httpx
import pytest
import uvicorn
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

from tests.support.api_support import settings_for
from warpsmith.service.local.connections import LOOP, ConnectionLimits, make_protocol
from warpsmith.service.server.serve import make_config
from warpsmith.service.settings import ServiceSettings

REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LIMIT_S = 60
NGINX_KEEPS_S = 60
"""Of a connection to its upstream, unless `keepalive_timeout` says otherwise there."""


class Late:
    """Connections served in the loop of the test, whose clock can be moved on."""

    def __init__(self, limits: ConnectionLimits = ConnectionLimits(head_s=LIMIT_S)) -> None:  # noqa: B008 - frozen
        self.loop = asyncio.get_running_loop()
        self.skipped = 0.0
        clock = self.loop.time
        self.loop.time = lambda: clock() + self.skipped  # type: ignore[method-assign]
        self.config = uvicorn.Config(
            PlainTextResponse("answer"),
            http=make_protocol(limits),
            loop=LOOP,
            timeout_keep_alive=LIMIT_S,
            lifespan="off",
            log_config=None,
        )
        self.config.load()
        self.made: list[Any] = []

    def make_protocol(self) -> Any:
        """Make the protocol of a connection."""
        protocol: Any = self.config.http_protocol_class
        self.made.append(protocol(config=self.config, server_state=ServerState(), app_state={}))
        return self.made[-1]

    @asynccontextmanager
    async def connect(self, timer: str) -> AsyncIterator[tuple[socket.socket, asyncio.TimerHandle]]:
        """Serve one connection, and give its client and this timer of it, once it is set."""
        async with await self.loop.create_server(self.make_protocol, "127.0.0.1", 0) as server:
            with socket.socket() as client:
                client.setblocking(False)
                await self.loop.sock_connect(client, server.sockets[0].getsockname())
                if timer == "timeout_keep_alive_task":  # it runs between two requests
                    client.sendall(REQUEST)
                    assert await read_answer(self.loop, client) == b"answer"
                yield client, await self.find_timer(timer)

    async def find_timer(self, name: str) -> asyncio.TimerHandle:
        """The timer of this name of the one connection, once it is set."""
        while not self.made or getattr(self.made[0], name, None) is None:
            await asyncio.sleep(0)
        found: asyncio.TimerHandle = getattr(self.made[0], name)
        return found

    async def ask_late(self, client: socket.socket, due: asyncio.TimerHandle) -> None:
        """Send a request in the pass of the loop that runs `due`, before it and after the look at the sockets."""
        bell, rung = socket.socketpair()
        asked = asyncio.Event()

        def ask() -> None:
            self.loop.remove_reader(rung)
            client.sendall(REQUEST)
            asked.set()

        def skip() -> None:
            self.skipped += due.when() - self.loop.time() + 1.0
            bell.send(b"!")

        with bell, rung:
            self.loop.add_reader(rung, ask)
            self.loop.call_soon(skip)
            await asked.wait()


async def read_answer(loop: asyncio.AbstractEventLoop, client: socket.socket) -> bytes:
    """The body of the next answer; raises where the server closes or resets the connection before."""
    parser, body = h11.Connection(h11.CLIENT), b""
    parser.send(h11.Request(method="GET", target="/", headers=[("Host", "127.0.0.1")]))
    parser.send(h11.EndOfMessage())
    while not isinstance(event := parser.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            parser.receive_data(await loop.sock_recv(client, 4096))
        elif isinstance(event, h11.Data):
            body += event.data
    return body


@pytest.mark.parametrize("timer", ["timeout_keep_alive_task", "_head_timer"])
def test_a_request_that_came_meanwhile_is_answered(timer: str) -> None:
    async def serve() -> bytes:
        late = Late()
        async with late.connect(timer) as (client, due):
            await late.ask_late(client, due)
            return await read_answer(late.loop, client)

    assert asyncio.run(serve()) == b"answer"


@pytest.mark.parametrize("timer", ["timeout_keep_alive_task", "_head_timer"])
def test_a_connection_without_a_request_is_closed(timer: str) -> None:
    async def serve() -> bytes:
        late = Late()
        async with late.connect(timer) as (client, due):
            late.skipped += due.when() - late.loop.time() + 1.0
            return await late.loop.sock_recv(client, 1)

    assert asyncio.run(serve()) == b""


def test_connections_that_are_refused_take_nobodys_place() -> None:
    """All of them come in one pass of the loop, which closes those that it refuses in the next."""

    async def serve() -> bytes:
        late = Late(ConnectionLimits(connections=4, connections_per_peer=2))
        async with await late.loop.create_server(late.make_protocol, "127.0.0.1", 0) as server:
            address = server.sockets[0].getsockname()
            with ExitStack() as stack:
                for _ in range(8):
                    stack.enter_context(socket.create_connection(address, source_address=("127.0.0.2", 0)))
                other = stack.enter_context(socket.create_connection(address))
                other.setblocking(False)
                other.sendall(REQUEST)
                return await read_answer(late.loop, other)

    assert asyncio.run(serve()) == b"answer"


def test_the_server_runs_on_the_loop_that_the_limits_rely_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn takes uvloop where another package has brought it; there a late request meets a closed connection."""
    other = ModuleType("uvloop")
    other.new_event_loop = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "uvloop", other)
    assert make_config(settings_for(tmp_path)).get_loop_factory() is asyncio.SelectorEventLoop


def test_the_server_keeps_a_connection_longer_than_its_clients() -> None:
    """Whoever waits longer meets a connection that the other closes at that moment; a client can send again."""
    assert ServiceSettings().keep_alive_s > max(NGINX_KEEPS_S, httpx.Limits().keepalive_expiry or 0.0)

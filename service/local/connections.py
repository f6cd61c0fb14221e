"""Limits of connections: how many there are, and how long each may keep the server waiting.

uvicorn bounds the time between two requests alone; its protocol class is the hook for the rest. A connection that opens
and says nothing, sends half a head, or does not read its answer is closed, and one peer gets no more than its share.
The time for a body is the application's to limit, after it has checked who sends it.

A time that is up closes nothing before the loop has looked at its sockets once more. A busy loop is late for both: to
close a connection whose next request had come meanwhile resets it, and the client does not know what was done.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

READ_AT_ONCE = 16 * 1024

LOOP: Final = "asyncio"
"""The event loop that this relies on, for uvicorn's `loop`, which else is uvloop where that is installed.

uvloop reads as much at once as there is, and runs what is due at once before it looks at its sockets again.
"""

REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 21\r\n\r\ntoo many connections\n"
)


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of one server's connections.

    `head_s` is the time for a request's head, from its first byte or from the connection's beginning; `answer_s` the
    time without progress of a client that does not read its answer.
    """

    head_s: float = 10.0
    answer_s: float = 60.0
    connections: int = 768
    connections_per_peer: int = 256


@dataclass
class _Open:
    """The open connections of one server, by peer."""

    by_peer: Counter[str] = field(default_factory=Counter)


def make_protocol(limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """Make the protocol class of one server, for uvicorn's `http`."""
    found = _Open()

    class Protocol(_LimitedProtocol):
        """The protocol with this server's limits and connections."""

        limits_in_force = limits
        open_connections = found

    return Protocol


class _LimitedProtocol(H11Protocol):
    limits_in_force: ConnectionLimits
    open_connections: _Open

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._peer = _name_peer(transport)
        self._head_timer: asyncio.TimerHandle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None
        by_peer, limits = self.open_connections.by_peer, self.limits_in_force
        self._refused = by_peer[self._peer] >= limits.connections_per_peer or by_peer.total() >= limits.connections
        if not self._refused:  # one that is refused is closed in the next pass, and takes no place of another peer's
            by_peer[self._peer] += 1
        _limit_silence(transport, limits.answer_s)
        _limit_reads(transport)
        super().connection_made(transport)
        if self._refused:
            transport.write(REFUSAL)
            transport.close()
        else:
            self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        by_peer = self.open_connections.by_peer
        if not self._refused:
            by_peer[self._peer] -= 1
            if by_peer[self._peer] <= 0:
                del by_peer[self._peer]
        self._end_head_time()
        self._end_answer_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        self._watch_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._answer_timer = self.loop.call_later(self.limits_in_force.answer_s, self.transport.abort)

    def resume_writing(self) -> None:
        self._end_answer_time()
        super().resume_writing()

    def _watch_head(self) -> None:
        """Start the time for a head where no request is under way, and end it where one is.

        What is still sent of a body after its answer counts as a head that does not end.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self._end_head_time()
        elif self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self.limits_in_force.head_s, self._abort_soon)

    def _abort_soon(self) -> None:
        self._head_timer = self.loop.call_later(0, self.transport.abort)

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(0, super().timeout_keep_alive_handler)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle is not None and self.cycle.response_complete:
            self._end_head_time()  # uvicorn's own time between two requests runs

    def _end_head_time(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _end_answer_time(self) -> None:
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None


def _name_peer(transport: asyncio.Transport) -> str:
    address: Any = transport.get_extra_info("peername")
    return str(address[0]) if isinstance(address, tuple) and address else "local"


def _limit_reads(transport: Any) -> None:
    """Let asyncio read less at once than its 256 KiB: as chunks of a byte these take a second, in which nobody else has
    a turn."""
    if hasattr(transport, "max_size"):
        transport.max_size = READ_AT_ONCE


def _limit_silence(transport: asyncio.Transport, seconds: float) -> None:
    """Let the kernel end a connection whose peer takes nothing of what was sent, also after it was closed here."""
    connection = transport.get_extra_info("socket")
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * seconds))

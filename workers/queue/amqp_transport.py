"""Celery's RabbitMQ transport, less a way to hang.

Before it goes to another node, kombu (5.7) closes the channel and the connection to the one that it leaves, and waits
for the answers. A node that is frozen or cut off gives none: a sender then waited until the other nodes had given
it up, or for twice the limit that answers have. Here each farewell waits for FAREWELL_S.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, pyamqp

FAREWELL_S = 1.0
"""Seconds that closing a channel or a connection waits for the node's answer."""


@contextmanager
def _limit_wait(connection: Any) -> Iterator[None]:
    """Limit each wait on a connection's socket to FAREWELL_S; nothing where it has none."""
    transport = None if connection is None else connection._transport  # `transport` would connect
    socket = None if transport is None else transport.sock
    if socket is None:
        yield
        return
    before = socket.gettimeout()
    socket.settimeout(FAREWELL_S)
    try:
        yield
    finally:
        with suppress(OSError):  # it is closed by now
            socket.settimeout(before)


class Channel(pyamqp.Channel):
    """A channel whose end waits for no silent node."""

    def close(self, *args: Any, **options: Any) -> Any:
        """Close; raises TimeoutError where the node does not answer."""
        with _limit_wait(self.connection):
            return super().close(*args, **options)


class Connection(pyamqp.Connection):
    """A connection whose end waits for no silent node."""

    Channel = Channel

    def close(self, *args: Any, **options: Any) -> Any:
        """Close; raises TimeoutError where the node does not answer, and the socket is closed all the same."""
        with _limit_wait(self):
            return super().close(*args, **options)


class Transport(pyamqp.Transport):
    """The transport that `broker_transport` names."""

    Connection = Connection


class SSLTransport(pyamqp.SSLTransport):
    """The same over TLS."""

    Connection = Connection


def install() -> None:
    """Have amqp:// and amqps:// URLs mean these transports, in this process."""
    TRANSPORT_ALIASES["amqp"] = f"{__name__}:Transport"
    TRANSPORT_ALIASES["amqps"] = f"{__name__}:SSLTransport"

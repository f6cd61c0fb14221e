"""The sockets that servers of this machine listen on."""

from __future__ import annotations

import socket

BACKLOG = 256


def listen(host: str, port: int) -> socket.socket:
    """Open a TCP socket that listens at the address; port 0 takes a free one.

    Raises OSError.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener

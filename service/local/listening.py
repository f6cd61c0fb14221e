"""The sockets that servers of this machine listen on."""

from __future__ import annotations

import socket

BACKLOG = 256


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Open a TCP socket that listens at the address; port 0 takes a free one.

    Of `shared` ones of this user several may listen at one address: the kernel spreads connections among them. Raises
    OSError.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def listen_together(host: str, port: int, count: int) -> list[socket.socket]:
    """Open so many sockets at one address, each for a process of its own; raises OSError.

    Not one that the processes share: there the event loop that wakes first takes every connection that waits.
    """
    first = listen(host, port)  # fails where another program listens, also one whose sockets are shared
    if count == 1:
        return [first]
    port = first.getsockname()[1]
    first.close()
    opened: list[socket.socket] = []
    try:
        opened.extend(listen(host, port, shared=True) for _ in range(count))
    except OSError:
        for listener in opened:
            listener.close()
        raise
    return opened

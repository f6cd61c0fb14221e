"""Messages between referee, fork server and runners.

Each is one datagram of a Unix SEQPACKET socket, with file descriptors beside it.

A message is a JSON object or a single byte (the timed exchange). JSON, never pickle: the other end may be hostile. Its
messages are bounded by `MAX_MESSAGE` and used for diagnosis only.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Sequence
from typing import Any

MAX_MESSAGE = 128 * 1024
MAX_FDS = 128


class ChannelClosed(Exception):  # noqa: N818 - named for what happened
    """The other end is gone."""


class ChannelViolation(Exception):  # noqa: N818 - named for what happened
    """The other end sent what the protocol does not allow."""


def pair() -> tuple[socket.socket, socket.socket]:
    """Return two connected ends; both are closed on exec."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(sock: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send a JSON object and descriptors.

    Raises ChannelClosed; ValueError where the message is too long.
    """
    raw = json.dumps(message, separators=(",", ":")).encode()
    if len(raw) > MAX_MESSAGE or len(fds) > MAX_FDS:
        raise ValueError(f"message of {len(raw)} bytes and {len(fds)} descriptors, at most {MAX_MESSAGE} and {MAX_FDS}")
    try:
        socket.send_fds(sock, [raw], list(fds))
    except OSError as error:
        raise ChannelClosed(str(error)) from error


def receive_raw(sock: socket.socket, max_fds: int = 0) -> tuple[bytes, list[int]]:
    """Receive one datagram and at most `max_fds` descriptors.

    The kernel closes further ones (no room in the control buffer).

    Raises ChannelClosed at the end, ChannelViolation for a datagram that is too long.
    """
    room = socket.CMSG_LEN(max_fds * array.array("i").itemsize) if max_fds else 0
    try:
        raw, ancillary, flags, _ = sock.recvmsg(MAX_MESSAGE, room, socket.MSG_CMSG_CLOEXEC)
    except OSError as error:
        raise ChannelClosed(str(error)) from error
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if not raw or flags & socket.MSG_TRUNC:
        for fd in fds:
            os.close(fd)
        if raw:
            raise ChannelViolation("message too long")
        raise ChannelClosed("end of stream")
    return raw, list(fds)


def receive(sock: socket.socket, max_fds: int = 0) -> tuple[dict[str, Any], list[int]]:
    """Receive a JSON object and descriptors.

    Raises as `receive_raw` does, and ChannelViolation for anything but an object.
    """
    raw, fds = receive_raw(sock, max_fds)
    try:
        message = json.loads(raw)
        if not isinstance(message, dict):
            raise ValueError("not an object")
    except ValueError as error:
        for fd in fds:
            os.close(fd)
        raise ChannelViolation(f"unreadable message: {error}") from error
    return message, fds

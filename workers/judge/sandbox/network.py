"""A private network namespace: only a loopback that is down, and no foreign abstract socket.

The fork server enters one before it forks, so runners are born into it and it costs them nothing.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import os
import socket
import struct
from pathlib import Path
from typing import Literal

from warpsmith.workers.judge.machine import process_control

Way = Literal["plain", "user", "none"]
"""How a process gets its own network namespace.

By CAP_SYS_ADMIN, inside a user namespace of its own, or not at all.
"""

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1
_FLAGS = "16sH14x"  # struct ifreq: a name, and its flags
_NVIDIA = Path("/dev/nvidiactl")

_libc = ctypes.CDLL(None, use_errno=True)


def way() -> Way:
    """Return the way that works here, tried in a child."""
    ways: list[Way] = ["plain"]
    if not _NVIDIA.exists():  # memory shared through CUDA between user namespaces is not known to work
        ways.append("user")
    for name in ways:
        if process_control.works_in_child(functools.partial(leave, name)):
            return name
    return "none"


def leave(how: Way) -> None:
    """Move this process, which must have one thread, into a network namespace of its own.

    User and group ids stay as they are.

    Raises OSError. `none` does nothing.
    """
    if how == "none":
        return
    user, group = os.geteuid(), os.getegid()
    flags = _CLONE_NEWNET if how == "plain" else _CLONE_NEWUSER | _CLONE_NEWNET
    if _libc.unshare(ctypes.c_int(flags)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"unshare: {os.strerror(number)}")
    if how == "user":
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def raise_loopback() -> None:
    """Have this namespace's loopback carry what its own processes say to each other.

    Raises OSError.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        found = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack(_FLAGS, b"lo", 0))
        name, flags = struct.unpack(_FLAGS, found[: struct.calcsize(_FLAGS)])
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack(_FLAGS, name, flags | _IFF_UP))

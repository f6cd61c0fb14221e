"""Where the servers of a run are: on this machine, or on hosts that are network namespaces and can be cut off."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

SUBNET = "10.213.8"
FIRST_HOST = 11


class Missing(RuntimeError):  # noqa: N818 - a state of the machine
    """Something that a run needs is not on this machine, or not allowed."""


@dataclass(frozen=True)
class Host:
    """A place for servers. `namespace`: empty for this machine; `plug`: the end here of its cable."""

    address: str
    namespace: str = ""
    plug: str = ""
    bridge: str = ""

    def enter(self, command: Sequence[str], user: str | None = None) -> list[str]:
        """Return the command line that runs a program there, as `user` where one is named."""
        if not self.namespace:
            return list(command)
        become = [] if user is None else ["setpriv", f"--reuid={user}"]
        return ["ip", "netns", "exec", self.namespace, *become, *command]

    def cut_off(self) -> None:
        """Let nothing reach it and nothing come from it, and tell nobody."""
        _ip("link", "set", self.plug, "nomaster")

    def plug_in(self) -> None:
        """Give it the network back."""
        _ip("link", "set", self.plug, "master", self.bridge, "up")


HERE = Host("127.0.0.1")


class Network:
    """A bridge of this machine with hosts on it; this machine itself is `address` there."""

    address = f"{SUBNET}.1"
    subnet = f"{SUBNET}.0/24"

    def __init__(self, size: int) -> None:
        bridge = f"wsb{os.getpid()}"
        self._bridge = bridge
        self.hosts = [
            Host(f"{SUBNET}.{FIRST_HOST + number}", f"ws-{os.getpid()}-{number}", f"{bridge}-{number}", bridge)
            for number in range(size)
        ]

    def create(self) -> None:
        """Make the bridge and its hosts. Raises Missing where that takes rights or programs that are not here."""
        if os.geteuid() != 0 or shutil.which("ip") is None:
            raise Missing("network namespaces need root and the program `ip`")
        try:
            _ip("link", "add", self._bridge, "type", "bridge")
            _ip("addr", "add", f"{self.address}/24", "dev", self._bridge)
            _ip("link", "set", self._bridge, "up")
            for host in self.hosts:
                _ip("netns", "add", host.namespace)
                _ip("link", "add", host.plug, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
                _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
                _ip("-n", host.namespace, "link", "set", "lo", "up")
                _ip("-n", host.namespace, "link", "set", "eth0", "up")
                host.plug_in()
        except subprocess.CalledProcessError as error:
            raise Missing(f"no network namespaces: {error.stderr.strip()}") from error

    def remove(self) -> None:
        """End what still runs on the hosts, and take everything away."""
        for host in self.hosts:
            with suppress(subprocess.CalledProcessError):
                for pid in _ip("netns", "pids", host.namespace).split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                _ip("netns", "del", host.namespace)
        with suppress(subprocess.CalledProcessError):
            _ip("link", "del", self._bridge)


def _ip(*words: str) -> str:
    command = ["ip", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout

"""The base of both preloaded servers.

Each is a process with one thread that forks a limited child for each request.

It has a clean environment, so it can hold no secret. It listens on the socket whose descriptor is its first argument.
Each request comes with a reply socket of its own, a file for the child's output, and the child's other descriptors. The
first answer on the reply socket is the child's pid; the second, when the child has ended and everything that it started
is gone, its exit code. A message on the reply socket, or its closing, kills the child.

The server adopts orphaned descendants and kills them with their child. When the process that started it ends, in
whatever way, the control socket closes and everything here dies. When the server is killed, its children die by their
death signal; their own children are for the process above to adopt and kill.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from warpsmith.workers.judge.machine import channel, process_control
from warpsmith.workers.judge.sandbox import network, sandbox

Become = Callable[[dict[str, Any], list[int]], int]
"""The work of a child: a function of the request and the descriptors that are its own.

It returns the child's exit status.
"""

_MOST_FDS = 3  # of a request: reply, output, and a runner's control socket


def begin() -> tuple[socket.socket, sandbox.Ability]:
    """Make this process, just started, a server.

    Returns its control socket and how children can be confined. Call it before anything is imported that could start a
    thread.
    """
    control = socket.socket(fileno=int(sys.argv[1]))
    process_control.close_other_fds({0, 1, 2, control.fileno()})
    process_control.adopt_orphans()
    ability = sandbox.detect()
    network.leave(ability.network)
    process_control.hide_memory()  # children inherit it: none can read or trace another, this process or the referee
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the referee's to handle
    return control, ability


def serve(control: socket.socket, ability: sandbox.Ability, become: Become) -> NoReturn:
    """Say that everything is preloaded, fork until the control socket closes, and end this process."""
    gc.collect()
    gc.freeze()  # children share these pages; a collection would copy them all
    sandbox.toolchain()  # found once, for all children
    channel.send(control, {"threads": threads(), "ability": dataclasses.asdict(ability)})
    _Server(control, become).serve()
    os._exit(0)  # to take torch's modules apart one by one takes a third of a second


def threads() -> int:
    """Count the threads of this process.

    A server must have one: a fork copies locks that the others hold.
    """
    return len(os.listdir("/proc/self/task"))


@dataclass
class _Child:
    pidfd: int
    reply: socket.socket
    killed: bool = False


class _Server:
    def __init__(self, control: socket.socket, become: Become) -> None:
        self.control = control
        self.become = become
        self.children: dict[int, _Child] = {}
        self.pid = os.getpid()

    def serve(self) -> None:
        try:
            while True:
                ready = self.wait()
                for pid, child in list(self.children.items()):
                    if child.pidfd in ready:
                        self.bury(pid)
                    elif child.reply.fileno() in ready:
                        child.killed = True
                        process_control.kill_session(pid)
                if self.control.fileno() in ready:
                    request, fds = channel.receive(self.control, max_fds=_MOST_FDS)
                    self.fork(request, *fds)
        except channel.ChannelClosed:
            pass
        finally:
            for pid in list(self.children):
                process_control.kill_session(pid)
            process_control.kill_children(self.pid, spare=())

    def wait(self) -> set[int]:
        """Wait for a request, a child's end or the order to kill one.

        Returns the descriptors that say so.
        """
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        for child in self.children.values():
            poller.register(child.pidfd, select.POLLIN)
            if not child.killed:
                poller.register(child.reply, select.POLLIN)
        return {fd for fd, _ in poller.poll()}

    def fork(self, request: dict[str, Any], reply_fd: int, output_fd: int, *fds: int) -> None:
        reply = socket.socket(fileno=reply_fd)
        pid = os.fork()
        if pid == 0:
            status = 70  # EX_SOFTWARE: left only by an exception below
            try:
                process_control.begin_session(self.pid, output_fd, fds)
                os.chdir(request["directory"])
                tempfile.tempdir = None  # a cached value would point into the parent's directory
                status = self.become(request, list(fds))
            finally:
                os._exit(status)
        for fd in (output_fd, *fds):
            os.close(fd)
        self.children[pid] = _Child(os.pidfd_open(pid), reply)
        with contextlib.suppress(channel.ChannelClosed):  # the caller hung up: the next round kills the child
            channel.send(reply, {"pid": pid})

    def bury(self, pid: int) -> None:
        """Reap a child, kill what it left behind and report its end."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        child = self.children.pop(pid)
        os.close(child.pidfd)
        process_control.kill_children(self.pid, spare=self.children)
        with child.reply, contextlib.suppress(channel.ChannelClosed, OSError):  # the caller hung up
            # What is left unread when this end closes would cut the report off: so nothing more may come.
            child.reply.shutdown(socket.SHUT_RD)
            while child.reply.recv(channel.MAX_MESSAGE):
                pass
            channel.send(child.reply, {"code": os.waitstatus_to_exitcode(status)})

"""The referee's side of a preloaded server: the process, and the children that it forks.

`Shared` starts such a process when it is first used, and again when it died; the referee's own
(`runner.fork_server_client`) has another rule for that.
"""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from warpsmith.workers.judge.machine import channel, process_control
from warpsmith.workers.judge.sandbox.sandbox import Ability

_START_S = 180.0
_ANSWER_S = 30.0
_END_S = 10.0


class ForkServerDied(Exception):  # noqa: N818 - named for what happened
    """A preloaded server is gone, and every child with it."""


class Child:
    """A forked process, and the socket over which the server reports its end.

    Close it: that kills it, too.
    """

    def __init__(self, pid: int, reply: socket.socket) -> None:
        """Hold process `pid`, whose id is also its session and group.

        `reply` is this child's own socket; it is closed with this object.
        """
        self.pid = pid
        self._reply = reply
        self._code: int | None = None

    def exit_code(self, timeout_s: float) -> int | None:
        """Wait for its end and return its exit code (negative: the signal).

        Returns None where it has not ended in time. Otherwise everything that it started is gone, too. Raises
        ForkServerDied.
        """
        if self._code is None:
            answer = _answer(self._reply, timeout_s)
            if answer is None:
                return None
            self._code = int(answer["code"])
        return self._code

    def kill(self) -> int:
        """Kill it with all its descendants and wait for its end.

        Returns its exit code. Raises ForkServerDied.
        """
        if self._code is None:
            with contextlib.suppress(channel.ChannelClosed):  # it has ended meanwhile, or `exit_code` finds out
                channel.send(self._reply, {"command": "kill"})
        code = self.exit_code(_ANSWER_S)
        if code is None:
            raise ForkServerDied("no answer")  # it is Warpsmith's own code with nothing to wait for: as good as dead
        return code

    def close(self) -> None:
        """Hang up. A child that still runs is killed, without a wait for its end."""
        self._reply.close()


class PreloadedServer:
    """One server process, from its start to its end. Thread-safe. Close it."""

    def __init__(self, module: str, environment: Mapping[str, str], directory: Path) -> None:
        """Start `python -m module` without waiting for it.

        Args:
            module: its `main` begins as `server.begin` does.
            environment: all that it inherits, and its children with it.
            directory: where it works.
        """
        ours, theirs = channel.pair()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(theirs.fileno())],
            env=dict(environment),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # standard output is the door's alone
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # a kill of the referee's group leaves it alive to clean up
        )
        process_control.own_children.add(self._process.pid)  # the end of another server leaves this one
        theirs.close()
        self.name = module.rpartition(".")[2].replace("_", " ")
        self._control = ours
        self._lock = threading.Lock()
        self._ability: Ability | None = None  # known once it is ready

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def tell(self, message: dict[str, Any]) -> None:
        """Send what the process asks for before it is ready. Where it is gone, `ready` finds out."""
        with contextlib.suppress(channel.ChannelClosed):
            channel.send(self._control, message)

    def ready(self) -> Ability:
        """Wait until children can be forked, and return how they can be confined.

        Raises ForkServerDied.
        """
        with self._lock:
            if self._ability is None:
                message = _answer(self._control, _START_S)
                if message is None:
                    raise ForkServerDied("not ready in time")
                if message["threads"] != 1:
                    raise RuntimeError(
                        f"the {self.name} has {message['threads']} threads, expected 1: "
                        "a fork would copy locks that nobody holds"
                    )
                self._ability = Ability(**message["ability"])
            return self._ability

    def fork(self, request: Mapping[str, Any], output_fd: int, fds: Sequence[int] = ()) -> Child:
        """Fork a child that does what `request` says, once the server is ready.

        It runs in request["directory"]. Its output goes to `output_fd`; `fds` are its own to use. Raises
        ForkServerDied.
        """
        self.ready()
        ours, theirs = channel.pair()
        try:
            with theirs, self._lock:
                channel.send(self._control, dict(request), [theirs.fileno(), output_fd, *fds])
            answer = _answer(ours, _ANSWER_S)
            if answer is None:
                raise ForkServerDied("no answer")
            return Child(int(answer["pid"]), ours)
        except channel.ChannelClosed as error:
            ours.close()
            raise ForkServerDied(str(error)) from error
        except BaseException:
            ours.close()
            raise

    def close(self) -> None:
        """End the process and every child of it."""
        if self._ability is None:  # it still imports, has no child and does not listen
            self._process.kill()
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        process_control.own_children.discard(self._process.pid)
        self._control.close()


Server = TypeVar("Server", bound=PreloadedServer)
Answer = TypeVar("Answer")


class Shared(Generic[Server]):
    """One server of a kind for all threads of this process."""

    def __init__(self, start: Callable[[], Server]) -> None:
        """Hold what `start` starts, once it is asked for."""
        self._start = start
        self._lock = threading.Lock()
        self._server: Server | None = None

    def get(self) -> Server:
        """Return the server, started where there is none."""
        with self._lock:
            if self._server is None:
                self._server = self._start()
            return self._server

    def running(self) -> Server | None:
        """Return the server, if there is one."""
        return self._server

    def use(self, work: Callable[[Server], Answer]) -> Answer:
        """Do something with the server, and repeat it once where that dies.

        A server that dies meanwhile may have been killed by another's candidate: the work is then repeated in a server
        of its own, so that no candidate can kill another's twice. Raises OSError where that one dies.
        """
        server = self.get()
        try:
            return work(server)
        except ForkServerDied:
            self.drop(server)
        own = self._start()
        try:
            return work(own)
        except ForkServerDied as death:
            raise OSError(f"the {own.name} was killed twice ({death})") from death
        finally:
            own.close()

    def drop(self, server: Server | None) -> None:
        """Close `server`, or whichever there is; the next `get` starts another."""
        with self._lock:
            if self._server is None or (server is not None and server is not self._server):
                return
            held, self._server = self._server, None
        held.close()


def _answer(sock: socket.socket, timeout_s: float) -> dict[str, Any] | None:
    """Return the server's next message; None where there is none in time.

    Raises ForkServerDied.
    """
    poller = select.poll()
    try:
        poller.register(sock, select.POLLIN)
        if not poller.poll(max(0.0, timeout_s) * 1000):
            return None
        return channel.receive(sock)[0]
    except (channel.ChannelClosed, channel.ChannelViolation, ValueError) as error:  # ValueError: closed by us
        raise ForkServerDied(str(error)) from error

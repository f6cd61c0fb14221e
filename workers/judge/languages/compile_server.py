"""The compile server: a clean process, preloaded with the compilers, that forks one limited child for each compilation.

Importing torch, Triton and NVRTC takes seconds; a fork of a process that has them takes milliseconds. It is told what
to run over the socket whose descriptor is its first argument: a module of ours, whose `main` reads a request file and
writes an answer file. Each request comes with a reply socket of its own and a file for what the child prints; the
child's end, with everything that it started, is the reply. A message on the reply socket, or its closing, kills the
child. When the control socket closes everything here dies.

Children are confined, for one that compiles Triton imports the candidate. It holds no secret and sees no GPU:
FakeTensorMode would make a CUDA context in every child, beside what is timed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from warpsmith.workers.judge.machine import channel, process_control
from warpsmith.workers.judge.sandbox import network, sandbox

MODULES = ("warpsmith.workers.judge.languages.triton_child", "warpsmith.workers.judge.languages.cuda_child")
_NICENESS = 10
_MORE_TASKS = 256


def _import_modules() -> None:
    for module in MODULES:
        with contextlib.suppress(ImportError):  # a compiler that is not installed: who asks for it is told so
            importlib.import_module(module)


def _import_dynamo() -> None:
    # What entering FakeTensorMode imports, for seconds; entering it starts CUDA's own thread in some versions.
    for module in ("torch.fx.experimental.symbolic_shapes", "torch._dynamo", "torch._inductor.config"):
        importlib.import_module(module)


def _enter_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 - late, as all that is preloaded

    with FakeTensorMode():
        pass


def _hash_triton() -> None:
    for module in ("triton.runtime.cache", "triton.compiler.compiler"):
        with contextlib.suppress(ImportError):
            # A hash over Triton's own files, kept by the function; one of the two has it, by Triton's version.
            getattr(importlib.import_module(module), "triton_key", str)()


def _load_nvrtc() -> None:
    from warpsmith.kernels_db.runtime import CompileError, cuda  # noqa: PLC0415 - late, as all that is preloaded

    with contextlib.suppress(CompileError):
        cuda.toolchain()
        importlib.import_module("cuda.core")


_STEPS = (_import_modules, _import_dynamo, _enter_fake_tensors, _hash_triton, _load_nvrtc)


def _preload(skipped: Sequence[str]) -> None:
    """Take the steps of preloading, less those named.

    A step after which there is a second thread, in whatever version of a library, is undone by starting again without
    it: forking beside another thread would copy locks that nobody holds. Children then take that step themselves.
    """
    for step in _STEPS:
        if step.__name__ in skipped:
            continue
        step()
        if _threads() > 1:
            print(f"compile server: {step.__name__} starts a thread here, so it is not preloaded", file=sys.stderr)
            sys.stderr.flush()
            command = [sys.executable, "-P", "-m", "warpsmith.workers.judge.languages.compile_server", sys.argv[1]]
            os.execv(sys.executable, [*command, *skipped, step.__name__])  # noqa: S606 - ourselves
    gc.collect()
    gc.freeze()  # children share these pages; a collection would copy them all


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


@dataclass
class _Child:
    pidfd: int
    reply: socket.socket
    killed: bool = False


class _Server:
    def __init__(self, control: socket.socket, ability: sandbox.Ability) -> None:
        self.control = control
        self.ability = ability
        self.children: dict[int, _Child] = {}
        self.pid = os.getpid()
        self.base_bytes = process_control.virtual_bytes(self.pid)

    def serve(self) -> None:
        try:
            while True:
                poller = select.poll()
                poller.register(self.control, select.POLLIN)
                for child in self.children.values():
                    poller.register(child.pidfd, select.POLLIN)
                    if not child.killed:
                        poller.register(child.reply, select.POLLIN)
                ready = {fd for fd, _ in poller.poll()}
                for pid, child in list(self.children.items()):
                    if child.pidfd in ready:
                        self.bury(pid)
                    elif child.reply.fileno() in ready:
                        child.killed = True
                        with contextlib.suppress(channel.ChannelClosed):
                            channel.receive_raw(child.reply)  # left unread, it would cut the reply off
                        process_control.kill_session(pid)
                if self.control.fileno() in ready:
                    message, fds = channel.receive(self.control, max_fds=2)
                    self.fork(message, *fds)
        except channel.ChannelClosed:
            pass
        finally:
            for pid in list(self.children):
                process_control.kill_session(pid)
            process_control.kill_children(self.pid, spare=())

    def fork(self, request: dict[str, Any], reply_fd: int, output_fd: int) -> None:
        reply = socket.socket(fileno=reply_fd)
        pid = os.fork()
        if pid == 0:
            status = 70  # EX_SOFTWARE: left only by an exception below
            try:
                self.become_child(request, output_fd)
                status = run_module(str(request["module"]))
            finally:
                os._exit(status)
        os.close(output_fd)
        self.children[pid] = _Child(os.pidfd_open(pid), reply)

    def become_child(self, request: dict[str, Any], output_fd: int) -> None:
        process_control.begin_session(self.pid, output_fd)
        os.nice(_NICENESS)  # compilers yield to whoever times
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        tempfile.tempdir = None  # a cached value would point into the parent's directory
        limits = dict(request["limits"])
        # What is mapped already is not the child's doing.
        limits["AS"] += self.base_bytes
        limits["NPROC"] = process_control.user_tasks() + _MORE_TASKS
        process_control.set_limits(limits)
        process_control.drop_privileges()
        profile = sandbox.compiler_profile(request["directory"], request["environment"])
        sandbox.confine(profile, self.ability)

    def bury(self, pid: int) -> None:
        """Reap a child, kill what it left behind and report its end."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        child = self.children.pop(pid)
        os.close(child.pidfd)
        process_control.kill_children(self.pid, spare=self.children)
        with contextlib.suppress(channel.ChannelClosed):  # nobody waits any more
            channel.send(child.reply, {"code": os.waitstatus_to_exitcode(status)})
        child.reply.close()


def run_module(name: str) -> int:
    """Run `main` of one of MODULES as `python -m name request.json answer.json` would; returns the exit status."""
    sys.argv = [name, "request.json", "answer.json"]
    try:
        if name not in MODULES:
            raise ValueError(f"module: found {name!r}, expected one of {', '.join(MODULES)}")
        importlib.import_module(name).main()
    except BaseException:  # noqa: BLE001 - whatever the candidate raises, SystemExit too
        traceback.print_exc()
        return 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # beyond the limit of a file's size, or closed
                stream.flush()
    return 0


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    process_control.close_other_fds({0, 1, 2, control.fileno()})
    process_control.adopt_orphans()
    ability = sandbox.detect()
    network.leave(ability.network)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the referee's to handle
    _preload(sys.argv[2:])
    sandbox.toolchain()  # found once, for all children
    process_control.hide_memory()  # children inherit it: none can read or trace another
    channel.send(control, {"event": "ready", "threads": _threads()})
    _Server(control, ability).serve()


if __name__ == "__main__":
    main()

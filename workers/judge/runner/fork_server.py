"""The fork server: a clean process, preloaded with torch, from which every runner is forked.

It is a program of its own with a clean environment, so it can hold no secret, and it has one thread until it forks. It
listens to the referee on the socket whose descriptor is its argument: first it is told what else runners inherit, on a
GPU with the directory of Triton's own C module and the GPU's capability, then to fork a runner or to kill one. It
imports torch before it is told anything, at the same time as the referee does. It reports every runner's end. It adopts
orphaned descendants and kills them with their runner. When the referee ends, in whatever way, the socket closes and
everything here dies. When this process is killed, its runners die by their death signal and the referee adopts and
kills what they left.

What may start processes (compiled baselines; Triton on a GPU) can leave some behind where referee and fork server are
killed *at once*; what only has threads cannot.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import os
import select
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warpsmith.workers.judge.machine import channel, process_control
from warpsmith.workers.judge.runner import runner_process
from warpsmith.workers.judge.sandbox import network, sandbox


def _preload(modules: Sequence[str], triton: tuple[str, int] | None) -> None:
    for name in modules:
        importlib.import_module(name)
    if triton is not None:
        from warpsmith.workers.judge.runner import triton_runtime  # noqa: PLC0415 - only a GPU's runners launch

        directory, capability = triton
        triton_runtime.preload(Path(directory), capability)
    gc.collect()
    gc.freeze()  # runners share these pages; a collection would copy them all


class _Server:
    def __init__(self, control: socket.socket, ability: sandbox.Ability) -> None:
        self.control = control
        self.ability = ability
        self.runners: dict[int, int] = {}  # pid -> pidfd
        self.pid = os.getpid()

    def serve(self) -> None:
        poller = select.poll()
        poller.register(self.control, select.POLLIN)
        try:
            while True:
                for fd in self.runners.values():
                    poller.register(fd, select.POLLIN)
                ready = {fd for fd, _ in poller.poll()}
                for pid, fd in list(self.runners.items()):
                    if fd in ready:
                        poller.unregister(fd)
                        self.bury(pid)
                if self.control.fileno() in ready:
                    message, fds = channel.receive(self.control, max_fds=2)
                    if message["command"] == "fork":
                        self.fork(message["spec"], *fds)
                    elif message["command"] == "kill" and message["pid"] in self.runners:
                        process_control.kill_session(message["pid"])
        except channel.ChannelClosed:
            pass
        finally:
            for pid in list(self.runners):
                process_control.kill_session(pid)
            process_control.kill_children(self.pid, spare=())

    def fork(self, spec: dict[str, Any], control_fd: int, log_fd: int) -> None:
        pid = os.fork()
        if pid == 0:
            status = 70  # EX_SOFTWARE: left only by an exception below
            try:
                self.become_runner(spec, control_fd, log_fd)
                status = 0
            finally:
                os._exit(status)
        os.close(control_fd)
        os.close(log_fd)
        self.runners[pid] = os.pidfd_open(pid)
        channel.send(self.control, {"event": "forked", "pid": pid})

    def become_runner(self, spec: dict[str, Any], control_fd: int, log_fd: int) -> None:
        process_control.begin_session(self.pid, log_fd, [control_fd])
        os.chdir(spec["directory"])
        os.environ.update(spec["environment"])
        tempfile.tempdir = None  # a cached value would point into the parent's directory
        process_control.set_limits(spec["limits"])
        profile = sandbox.Profile.of(spec["profile"])
        sandbox.count_tasks(profile, self.ability)
        process_control.drop_privileges()
        runner_process.main(socket.socket(fileno=control_fd), lambda: sandbox.confine(profile, self.ability))

    def bury(self, pid: int) -> None:
        """Reap a runner, kill what it left behind and report its end."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        os.close(self.runners.pop(pid))
        process_control.kill_children(self.pid, spare=self.runners)
        channel.send(self.control, {"event": "exited", "pid": pid, "code": os.waitstatus_to_exitcode(status)})


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    process_control.close_other_fds({0, 1, 2, control.fileno()})
    process_control.adopt_orphans()
    ability = sandbox.detect()
    network.leave(ability.network)
    process_control.hide_memory()  # runners inherit it: none can read or trace another, this process or the referee
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the referee's to handle
    importlib.import_module("torch")
    try:
        message, _ = channel.receive(control)
    except channel.ChannelClosed:
        return  # the referee has ended before it knew its device
    _preload(message["modules"], message["triton"])
    sandbox.toolchain()  # found once, for all runners
    threads = len(os.listdir("/proc/self/task"))
    channel.send(control, {"event": "ready", "threads": threads, "ability": dataclasses.asdict(ability)})
    _Server(control, ability).serve()


if __name__ == "__main__":
    main()

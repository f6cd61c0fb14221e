"""The fork server: a preloaded server with torch, from which every runner is forked.

Before it is ready it is told what else runners inherit, on a GPU with the directory of Triton's own C module and the
GPU's capability. It imports torch before it is told anything, at the same time as the referee does.

What may start processes (compiled baselines; Triton on a GPU) can leave some behind where referee and fork server are
killed *at once*; what only has threads cannot.
"""

from __future__ import annotations

import functools
import importlib
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warpsmith.workers.judge.machine import channel, process_control
from warpsmith.workers.judge.machine.garbage import imports_kept
from warpsmith.workers.judge.preloaded import server
from warpsmith.workers.judge.runner import runner_process
from warpsmith.workers.judge.sandbox import sandbox


def _preload(modules: Sequence[str], triton: tuple[str, int] | None) -> None:
    for name in modules:
        importlib.import_module(name)
    if triton is not None:
        from warpsmith.workers.judge.runner import triton_runtime  # noqa: PLC0415 - only a GPU's runners launch

        directory, capability = triton
        triton_runtime.preload(Path(directory), capability)


def _become_runner(ability: sandbox.Ability, request: dict[str, Any], fds: list[int]) -> int:
    os.environ.update(request["environment"])
    process_control.set_limits(request["limits"])
    profile = sandbox.Profile.of(request["profile"])
    sandbox.count_tasks(profile, ability)
    process_control.drop_privileges()
    runner_process.main(socket.socket(fileno=fds[0]), lambda: sandbox.confine(profile, ability))
    return 0


def main() -> None:
    control, ability = server.begin()
    with imports_kept():
        importlib.import_module("torch")
    try:
        message, _ = channel.receive(control)
    except channel.ChannelClosed:
        return  # the referee has ended before it knew its device
    with imports_kept():
        _preload(message["modules"], message["triton"])
    server.serve(control, ability, functools.partial(_become_runner, ability))


if __name__ == "__main__":
    main()

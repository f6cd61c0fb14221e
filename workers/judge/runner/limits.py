"""The modes of runners, and the resource limits of each."""

from __future__ import annotations

from typing import Literal

import torch

from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.sandbox.sandbox import COMPILING

Mode = Literal["candidate", "float64", "eager", "compile", "max_autotune", "expert", "generate"]
"""The mode of a runner.

A candidate, the reference in one of four ways, an expert of an op, or a spec's own generator of inputs.
"""

_MIB = 1 << 20

MOST_PROCESSES = 512
"""Under one fork server, while a runner that may start compilers is at work."""


def runner_limits(base_virtual: int, memory_bytes: int, mode: Mode, cores: int, device: torch.device) -> dict[str, int]:
    """Return the resource limits of a runner.

    The referee watches resident memory; the limit on the address space is the backstop against code that allocates
    faster than it is watched, so it leaves room for thread stacks and allocator arenas. CUDA reserves address space for
    all memory of host and device, so there is no such backstop on a GPU. Compiled baselines and experts start compilers
    and write their output.
    """
    threads = 80 * _MIB * (cores + 4)
    limits = {"CORE": 0, "CPU": 1800 * cores, "NOFILE": 1024}
    compiles = mode in COMPILING
    if device.type == "cpu":
        room = 8192 * _MIB if compiles else 0
        limits["AS"] = base_virtual + 2 * memory_bytes + threads + 1024 * _MIB + room
    if compiles:
        return limits | {"FSIZE": 4096 * _MIB}
    return limits | {"FSIZE": 64 * _MIB, "NPROC": process_control.user_tasks() + 256}

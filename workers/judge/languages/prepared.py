"""What a language gives back: how a candidate compiled, and what its kernels use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

LIBRARIES_BYTES = 24 << 30
"""Address space that torch and LLVM map without using it."""


@dataclass(frozen=True)
class CompileLimits:
    """Limits of each compiler process: wall-clock seconds and bytes of address space."""

    seconds: float = 120.0
    memory_bytes: int = 4 << 30


class KernelReport(TypedDict):
    """What one kernel uses: registers of a thread, bytes spilled to local memory, bytes of static shared memory. None:
    not known (CPU).

    `signature` and `config` tell the compilations of one Triton kernel apart.
    """

    name: str
    registers: int | None
    spills: int | None
    shared: int | None
    signature: NotRequired[str]
    config: NotRequired[dict[str, object]]


class Prepared(TypedDict):
    """The compile report of a verdict. seconds: compiler time of this call; cached: nothing had to be compiled;
    binaries: digests of what was compiled, each once, sorted; launches: of a CUDA candidate, each different one that
    `run` makes on the workloads.
    """

    seconds: float
    log: str
    cached: bool
    kernels: list[KernelReport]
    binaries: list[str]
    launches: NotRequired[list[dict[str, Any]]]


def ptxas_reports(log: str) -> list[KernelReport]:
    """The kernels of a `ptxas -v` log."""
    reports: list[KernelReport] = []
    for line in log.splitlines():
        entry = re.search(r"Compiling entry function '([^']+)'", line)
        if entry:
            reports.append({"name": entry[1], "registers": None, "spills": None, "shared": 0})
        if not reports:
            continue
        spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if spills and reports[-1]["spills"] is None:
            reports[-1]["spills"] = int(spills[1])
        registers = re.search(r"Used (\d+) registers", line)
        if registers and reports[-1]["registers"] is None:
            reports[-1]["registers"] = int(registers[1])
            shared = re.search(r"(\d+) bytes smem", line)
            reports[-1]["shared"] = int(shared[1]) if shared else 0
    return reports

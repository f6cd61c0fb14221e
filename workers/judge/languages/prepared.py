"""What a language gives back: how a candidate compiled, and what its kernels use."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from warpsmith.kernels_db.runtime import CompileError

LIBRARIES_BYTES = 24 << 30
"""Address space that torch and LLVM map without using it."""


@dataclass(frozen=True)
class CompileLimits:
    """Limits of each compiler process: wall-clock seconds and bytes of address space."""

    seconds: float = 120.0
    memory_bytes: int = 4 << 30


class KernelReport(TypedDict):
    """The resources that one kernel uses.

    Registers of a thread, bytes spilled to local memory, bytes of static shared memory. None: not known (CPU).

    `losses`: what costs time according to ptxas, above all serialised `wgmma`. `signature` and `config` tell the
    compilations of one Triton kernel apart; `workload` is the first that asked for one.
    """

    name: str
    registers: int | None
    spills: int | None
    shared: int | None
    losses: NotRequired[list[str]]
    signature: NotRequired[str]
    config: NotRequired[dict[str, object]]
    workload: NotRequired[str]


class Prepared(TypedDict):
    """The compile report of a verdict.

    seconds: compiler time of this call; cached: nothing had to be compiled; binaries: digests of what was compiled,
    each once, sorted; launches: of a CUDA candidate, each different one that `run` makes on the workloads, with the
    first workload that makes it; compiler: of functions that are called by tensors, what names their compiler in the
    keys of its builds.
    """

    seconds: float
    log: str
    cached: bool
    kernels: list[KernelReport]
    binaries: list[str]
    launches: NotRequired[list[dict[str, Any]]]
    compiler: NotRequired[str]


class TrialError(CompileError):
    """`run` does not get through on `workload`, though the source may be well for others."""

    def __init__(self, message: str, log: str, workload: str) -> None:
        super().__init__(message, log)
        self.workload = workload


_LOSS = re.compile(r"Potential Performance Loss: (.+?) in (?:the )?function '([^']+)'\s*$")


def ptxas_reports(log: str) -> list[KernelReport]:
    """Return the kernels of a `ptxas -v` log."""
    reports: list[KernelReport] = []
    losses: dict[str, list[str]] = {}  # a line comes before the kernel that it is about
    for line in log.splitlines():
        entry = re.search(r"Compiling entry function '([^']+)'", line)
        if entry:
            reports.append({"name": entry[1], "registers": None, "spills": None, "shared": 0})
        if (loss := _LOSS.search(line)) and loss[1] not in losses.setdefault(loss[2], []):
            losses[loss[2]].append(loss[1])
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
    for report in reports:
        if report["name"] in losses:
            report["losses"] = losses[report["name"]]
    return reports

"""Nsight Compute's metrics that are asked for, and a table of them in words. Pure functions.

Source of names: NVIDIA's Nsight Compute CLI and Profiling Guide (metrics structure, stall reasons).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from warpsmith.kernels_db.job.documents import NsightKernel


class Metric(NamedTuple):
    """A metric by the name that Nsight Compute documents, and its meaning."""

    name: str
    tells: str


TIME = "gpu__time_duration.sum"
_SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
_DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
_L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
_L1 = "l1tex__throughput.avg.pct_of_peak_sustained_active"
_READ, _WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
_L2_HITS, _L1_HITS = "lts__t_sector_hit_rate.pct", "l1tex__t_sector_hit_rate.pct"
_LOADS = "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct"
_STORES = "smsp__sass_average_data_bytes_per_sector_mem_global_op_st.pct"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
_WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
_ISSUE = "smsp__issue_active.avg.pct_of_peak_sustained_active"
_TENSOR = "sm__inst_executed_pipe_tensor.sum"
_REGISTERS = "launch__registers_per_thread"
_WAVES = "launch__waves_per_multiprocessor"
_BY = "launch__occupancy_limit_"
_STALL, _PER_ISSUE = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"

_STALLS = {
    "long_scoreboard": "waiting for global or local memory",
    "short_scoreboard": "waiting for shared memory or special functions",
    "barrier": "waiting at a barrier of the block",
    "wait": "waiting for a dependent instruction of fixed latency",
    "math_pipe_throttle": "waiting for a busy arithmetic pipe",
    "mio_throttle": "the queue of shared memory and special instructions is full",
    "lg_throttle": "the queue of global and local memory instructions is full",
    "no_instruction": "waiting for instructions to be fetched",
}
_LIMITS = ("registers", "shared_mem", "warps", "blocks")

METRICS: tuple[Metric, ...] = (
    Metric(TIME, "the kernel's time under the profiler"),
    Metric(_SM, "how busy the busiest part of the multiprocessors is"),
    Metric(_DRAM, "how busy device memory is"),
    Metric(_L2, "how busy the L2 cache is"),
    Metric(_L1, "how busy the L1 cache is"),
    Metric(_READ, "bytes read from device memory: more than the inputs are means they are read again"),
    Metric(_WRITTEN, "bytes written to device memory"),
    Metric(_L2_HITS, "share of requests that L2 served"),
    Metric(_L1_HITS, "share of requests that L1 served"),
    Metric(_LOADS, "share of the loaded bytes that is used: low where loads do not coalesce"),
    Metric(_STORES, "share of the stored sectors that is filled: low where stores do not coalesce"),
    Metric(_CONFLICTS, "accesses to shared memory that had to be split for a bank"),
    Metric(_WARPS, "achieved occupancy"),
    Metric(_ISSUE, "share of cycles in which a scheduler issued an instruction"),
    Metric(_TENSOR, "instructions of the tensor cores"),
    Metric(_REGISTERS, "registers of a thread"),
    Metric(_WAVES, "how often the grid fills the device: a fraction above a whole number is a tail"),
    *(Metric(f"{_BY}{name}", f"blocks of a multiprocessor by its {name}") for name in _LIMITS),
    *(Metric(f"{_STALL}{name}{_PER_ISSUE}", f"warps {told}, for each issue") for name, told in _STALLS.items()),
)

MOST_LINES = 24
_SHOWN_KERNELS, _SHOWN_STALLS = 2, 3


def lines(kernels: Sequence[NsightKernel]) -> list[str]:
    """Return the table for a prompt, at most MOST_LINES lines, the most telling first.

    Names are as the runner reported them.
    """
    told: list[str] = []
    for kernel in kernels[:_SHOWN_KERNELS]:
        launches = f", mean of {kernel['launches']} launches" if kernel["launches"] > 1 else ""
        told.append(f"kernel {_one_line(kernel['name'])}{launches}:")
        told += [f"  {line}" for line in _explained(kernel["metrics"])]
    others = [_one_line(kernel["name"]) for kernel in kernels[_SHOWN_KERNELS:]]
    if others:
        told = [*told[: MOST_LINES - 1], f"shorter kernels, not shown: {', '.join(others)}"]
    return told[:MOST_LINES]


def _explained(found: dict[str, float]) -> list[str]:
    """Return one kernel's metrics: busy units, reasons why warps wait, memory, residency."""
    told = []
    if TIME in found:
        told.append(f"time {found[TIME]:.4g} us")
    busy = [(label, found[name]) for label, name in _BUSY if name in found]
    if busy:
        told.append("of its peak: " + ", ".join(f"{label} {share:.3g} %" for label, share in busy))
    told += _stalls(found)
    moved = [f"{label} {_bytes(found[name])}" for label, name in _MOVED if name in found]
    if moved:
        told.append(f"device memory: {', '.join(moved)}")
    for label, names in _SHARES:
        shares = [f"{part} {found[name]:.3g} %" for part, name in names if name in found]
        if shares:
            told.append(f"{label}: {', '.join(shares)}")
    told += _resident(found)
    told += [f"{label} {found[name]:.4g}" for label, name in _COUNTS if found.get(name)]
    return told


_BUSY = (("multiprocessors", _SM), ("device memory", _DRAM), ("L2", _L2), ("L1", _L1))
_MOVED = (("read", _READ), ("written", _WRITTEN))
_SHARES = (
    ("hits", (("L1", _L1_HITS), ("L2", _L2_HITS))),
    ("bytes used of each sector", (("loads", _LOADS), ("stores", _STORES))),
    ("schedulers issue in", (("", _ISSUE),)),
)
_COUNTS = (("bank conflicts of shared memory", _CONFLICTS), ("tensor core instructions", _TENSOR))


def _stalls(found: dict[str, float]) -> list[str]:
    """Return the reasons for which most warps wait."""
    stalls = [(found.get(f"{_STALL}{name}{_PER_ISSUE}", 0.0), name) for name in _STALLS]
    worst = [(warps, name) for warps, name in sorted(stalls, reverse=True)[:_SHOWN_STALLS] if warps >= 0.1]
    return [f"stalls: {warps:.3g} warps an issue {_STALLS[name]} ({name})" for warps, name in worst]


def _resident(found: dict[str, float]) -> list[str]:
    told = []
    if _WARPS in found:
        told.append(f"achieved occupancy {found[_WARPS]:.3g} %")
    if _REGISTERS in found:
        told.append(f"{found[_REGISTERS]:g} registers a thread")
    limits = {name: found[f"{_BY}{name}"] for name in _LIMITS if f"{_BY}{name}" in found}
    if limits:
        least = min(limits, key=lambda name: limits[name])
        told.append(f"{limits[least]:g} blocks a multiprocessor, by {least.replace('_', ' ')}")
    if _WAVES in found:
        told.append(f"{found[_WAVES]:.3g} waves")
    return [", ".join(told)] if told else []


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count:g} bytes"


def _one_line(name: str) -> str:
    return " ".join(name.split()).replace("`", "'")[:100]

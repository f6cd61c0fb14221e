"""Nsight Compute for a model to read: the metrics that are asked for, `ncu`'s command line, its answer as a small
table, and the table in words. Pure functions.

The answer comes from a process in which somebody else's code has run: it is bounded, read as data, and decides nothing.

Source of names and formats: NVIDIA's Nsight Compute CLI and Profiling Guide (metrics structure, stall reasons).
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from warpsmith.kernels_db.job import NsightKernel


class Metric(NamedTuple):
    """A metric by the name that Nsight Compute documents, and what it tells."""

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

MOST_LAUNCHES = 20
"""Launches that are profiled, each replayed several times: the first is ours."""
MOST_KERNELS = 8
MOST_BYTES = 4 << 20
LONGEST_NAME = 200
MOST_LINES = 24
_SHOWN_KERNELS, _SHOWN_STALLS = 2, 3

REMEDY = (
    "let everybody read the GPU's performance counters: `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in "
    "/etc/modprobe.d, then reload the driver or reboot; or give the judge's container CAP_SYS_ADMIN"
)
"""Where the driver keeps its counters from us (ERR_NVGPUCTRPERM)."""


class NoMetrics(Exception):  # noqa: N818 - named for what it is
    """There is no table in what `ncu` said; the message says why, with the remedy where one is known.

    unknown: metrics that this version or device does not have; without them it may work.
    """

    def __init__(self, message: str, unknown: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.unknown = tuple(unknown)


def command(ncu: str, log: str, program: Sequence[str], without: Collection[str] = ()) -> list[str]:
    """The command line that runs `program` under `ncu`, whose own words go to the file `log`.

    Only what lies between the program's cudaProfilerStart and cudaProfilerStop is profiled. The clocks stay as they
    are: locking them would disturb whoever times on the device.
    """
    names = ",".join(metric.name for metric in METRICS if metric.name not in without)
    return [
        ncu,
        *("--csv", "--page", "raw", "--log-file", log),
        *("--metrics", names, "--kernel-name-base", "demangled"),
        *("--launch-skip", "0", "--launch-count", str(MOST_LAUNCHES)),
        *("--target-processes", "application-only", "--profile-from-start", "off"),
        *("--clock-control", "none", "--replay-mode", "kernel"),
        *program,
    ]


def read(said: bytes) -> list[NsightKernel]:
    """The kernels in `ncu --csv --page raw`, what took longest first; means over a kernel's launches, microseconds,
    bytes and the metrics' own units. The first launch is the profiler's proof and none of the candidate's.

    Raises NoMetrics.
    """
    if len(said) > MOST_BYTES:
        raise NoMetrics(f"ncu's answer: found more than {MOST_BYTES} bytes, expected no more")
    text = said.decode("utf-8", "replace").replace("\0", "")
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID","Process ID"')), None)
    if start is None:
        raise _why(text)
    # A quoted name may hold anything but a line of ncu's own words.
    rows = _rows([line for line in lines[start:] if not line.startswith("==")])
    header, units = rows[0], rows[1] if len(rows) > 1 else []
    if "Kernel Name" not in header:
        raise NoMetrics(f"ncu's answer: found columns {', '.join(header[:8])}, expected one with the kernels' names")
    name_at = header.index("Kernel Name")
    launches = [row for row in rows[1:] if len(row) == len(header) and row[0].isdecimal() and row[0] != "0"]
    if not launches:
        raise _why(text, default="no kernel of the candidate's was profiled")
    found: dict[str, list[dict[str, float]]] = {}
    for row in launches[:MOST_LAUNCHES]:
        found.setdefault(row[name_at][:LONGEST_NAME], []).append(_measured(header, units, row))
    kernels: list[NsightKernel] = [
        {"name": name, "launches": len(measured), "metrics": _means(measured)} for name, measured in found.items()
    ]
    kernels.sort(key=lambda kernel: -kernel["launches"] * kernel["metrics"].get(TIME, 0.0))
    return kernels[:MOST_KERNELS]


def _rows(lines: list[str]) -> list[list[str]]:
    try:
        return list(csv.reader(lines))
    except csv.Error as error:
        raise NoMetrics(f"ncu's answer: found no CSV ({error})") from error


def _measured(header: Sequence[str], units: Sequence[str], row: Sequence[str]) -> dict[str, float]:
    """The numbers of one launch; what is absent or no number (`n/a`) is left out."""
    known = {metric.name for metric in METRICS}
    found = {}
    for position, name in enumerate(header):
        value = _number(row[position]) if name in known else None
        if value is not None:
            unit = units[position].strip() if len(units) == len(header) else ""
            found[name] = value * _UNITS.get(unit, 1.0)
    return found


_TIMES = {"nsecond": 1e-3, "ns": 1e-3, "usecond": 1.0, "us": 1.0, "msecond": 1e3, "ms": 1e3, "second": 1e6, "s": 1e6}
_SIZES = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}
_UNITS = _TIMES | _SIZES
"""To microseconds and to bytes. The row below the header names units; ncu scales them to the number."""

_LARGEST = 1e18


def _number(text: str) -> float | None:
    """A number with separators of thousands; None for anything else."""
    if not re.fullmatch(r"\s*-?[\d,]*\.?\d+(?:[eE][-+]?\d{1,3})?\s*", text, re.ASCII):
        return None
    value = float(text.replace(",", ""))
    return value if math.isfinite(value) and abs(value) < _LARGEST else None


def _means(measured: Sequence[dict[str, float]]) -> dict[str, float]:
    found = {}
    for metric in METRICS:
        values = [one[metric.name] for one in measured if metric.name in one]
        if values:
            found[metric.name] = float(f"{sum(values) / len(values):.6g}")
    return found


_UNKNOWN = re.compile(r"Failed to find metric (?:regex:\^)?([\w.\\]{1,200})")
_OWN_WORDS = re.compile(r"^==(?:ERROR|WARNING)==\s*(.+)$", re.MULTILINE)


def _why(text: str, default: str = "ncu gave no table") -> NoMetrics:
    """Why there is no table, in ncu's own words where it has some."""
    if "ERR_NVGPUCTRPERM" in text:
        return NoMetrics(f"the driver keeps its performance counters from ncu (ERR_NVGPUCTRPERM): {REMEDY}")
    known = {metric.name for metric in METRICS}
    named = [found.replace("\\", "") for found in _UNKNOWN.findall(text)]
    unknown = sorted({metric for found in named for metric in known if metric == found or _is_base(found, metric)})
    said = [line.strip()[:300] for line in _OWN_WORDS.findall(text)]
    return NoMetrics(f"{default}: {'; '.join(said[:3])}" if said else default, unknown)


def _is_base(found: str, metric: str) -> bool:
    """Some versions name a metric that they do not know without its suffix, and a dot or nothing behind."""
    return metric.startswith(found.rstrip(".") + ".")


# In words


def lines(kernels: Sequence[NsightKernel]) -> list[str]:
    """The table for a prompt, at most MOST_LINES lines, what explains most first. Names are as the runner told them."""
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
    """One kernel's metrics: what is busy, why warps wait, memory, residency."""
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
    """The reasons for which most warps wait."""
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

"""Nsight Compute for a model to read: metrics, `ncu`'s command line, its answer as a table.

The table also exists in words. Pure functions.

The answer comes from a process that has run untrusted code: it is bounded, read as data, and decides nothing.

Source of names and formats: NVIDIA's Nsight Compute CLI and Profiling Guide (metrics structure, stall reasons).
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Collection, Sequence

from warpsmith.kernels_db.job.documents import NsightKernel
from warpsmith.kernels_db.job.nsight_metrics import METRICS, TIME

MOST_LAUNCHES = 20
"""Launches that are profiled, each replayed several times: the first is ours."""
MOST_KERNELS = 8
MOST_BYTES = 4 << 20
LONGEST_NAME = 200

REMEDY = (
    "let everybody read the GPU's performance counters: `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in "
    "/etc/modprobe.d, then reload the driver or reboot; or give the judge's container CAP_SYS_ADMIN"
)
"""Where the driver keeps its counters from us (ERR_NVGPUCTRPERM)."""


class NoMetrics(Exception):  # noqa: N818 - named for what it is
    """There is no table in `ncu`'s output; the message says why.

    It names the remedy where one is known.

    unknown: metrics that this version or device does not have; without them it may work.
    """

    def __init__(self, message: str, unknown: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.unknown = tuple(unknown)


def command(ncu: str, log: str, program: Sequence[str], without: Collection[str] = ()) -> list[str]:
    """Return the command line that runs `program` under `ncu`; `ncu` writes its log to `log`.

    Only what lies between the program's cudaProfilerStart and cudaProfilerStop is profiled. The clocks stay as they
    are: locking them would disturb other timings on the device.
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
    """Read the kernels in `ncu --csv --page raw`, the longest first.

    The numbers are means over a kernel's launches, in microseconds, bytes and the metrics' own units. The first launch
    is the profiler's proof and not the candidate's.

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
    """Return the numbers of one launch, without absent ones and `n/a`."""
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
"""Factors to microseconds and to bytes.

The row below the header names units; ncu scales them to the number.
"""

_LARGEST = 1e18


def _number(text: str) -> float | None:
    """Read a number with separators of thousands; None for anything else."""
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
    """Check whether `found` is the name of `metric` without its suffix.

    Some versions print the name of an unknown metric without its suffix, with a dot or nothing after it.
    """
    return metric.startswith(found.rstrip(".") + ".")

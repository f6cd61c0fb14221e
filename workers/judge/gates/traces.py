"""Read Chrome traces of torch's profiler: a table of what ran, and a reduced trace.

The reduced trace holds no more than a viewer needs.

A trace comes from a runner, which has run untrusted code: it is bounded, read as data, and all names of machines,
processes and paths are left out. Pure functions.

Source of the fields: PyTorch's Kineto, `libkineto/src/output_json.cpp`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from warpsmith.kernels_db.job.documents import ProfileRow

MOST_BYTES = 8 << 20
MOST_EVENTS = 2000
MOST_ROWS = 60
LONGEST_NAME = 200
_LATEST = 1e18
"""Microseconds; what is no number of this size is no time."""

KINDS = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "gpu_memset": "copy",
    "user_annotation": "region",
    "cpu_op": "operator",
    "cuda_runtime": "driver",
    "cuda_driver": "driver",
}
"""The event kinds that are kept, by Kineto's category.

Device kernels, copies and fills; regions that the runner named; host operators; calls of the CUDA driver.
"""
_ORDER = ("kernel", "copy", "region", "operator", "driver")
_DETAILS = {
    "grid": "grid",
    "block": "block",
    "registers per thread": "registers",
    "shared memory": "shared_bytes",
    "est. achieved occupancy %": "occupancy",
    "stream": "stream",
}
_Event = dict[str, Any]


class BadTrace(ValueError):  # noqa: N818 - named for what it is
    """Bytes that are no trace."""


def read(document: object) -> list[_Event]:
    """Return the kept events of a trace in order of time. Raises BadTrace.

    Times are in microseconds since the first event.
    """
    listed = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise BadTrace("trace.traceEvents: found no list, expected events")
    events = [kept for event in listed if (kept := _kept(event)) is not None]
    events.sort(key=lambda event: float(event["ts"]))
    del events[MOST_EVENTS:]
    start = events[0]["ts"] if events else 0.0
    threads: dict[object, int] = {}
    for event in events:
        event["ts"] = round(event["ts"] - start, 3)
        event["tid"] = threads.setdefault((event["pid"], event["tid"]), len(threads))
    return events


def table(events: Sequence[Mapping[str, Any]]) -> list[ProfileRow]:
    """Return the table of what ran: the device's part first, and in it the longest first.

    A row: name, kind, count, times in microseconds; grid, block, registers, shared bytes and occupancy of a kernel's
    first launch.
    """
    found: dict[tuple[str, str], ProfileRow] = {}
    for event in events:
        key = KINDS[event["cat"]], str(event["name"])
        row = found.setdefault(key, {"name": key[1], "kind": key[0], "count": 0, "total_us": 0.0, "mean_us": 0.0})
        if row["count"] == 0 and key[0] == "kernel" and event["args"]:
            row["launch"] = {name: value for name, value in event["args"].items() if name != "stream"}
        row["count"] += 1
        row["total_us"] += float(event["dur"])
    for row in found.values():
        row["mean_us"] = round(row["total_us"] / row["count"], 3)
        row["total_us"] = round(row["total_us"], 3)
    return sorted(found.values(), key=lambda row: (_ORDER.index(row["kind"]), -row["total_us"]))[:MOST_ROWS]


def chrome(events: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the kept events as a document that chrome://tracing and Perfetto open."""
    names = [
        {"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}}
        for number, name in enumerate(("host", "device"))
    ]
    return {"displayTimeUnit": "ms", "traceEvents": [*names, *({"ph": "X", **event} for event in events)]}


def _kept(event: object) -> _Event | None:
    """Return one complete event of a known category, without private fields."""
    if not isinstance(event, dict) or event.get("ph") != "X" or event.get("cat") not in KINDS:
        return None
    name, begin, length = event.get("name"), event.get("ts"), event.get("dur")
    if not isinstance(name, str) or not _is_time(begin) or not _is_time(length):
        return None
    given = event.get("args")
    details = {
        ours: value
        for theirs, ours in _DETAILS.items()
        if isinstance(given, dict) and (value := _number(given.get(theirs))) is not None
    }
    thread = event.get("tid")
    return {
        "name": name[:LONGEST_NAME],
        "cat": event["cat"],
        "ts": float(begin),  # type: ignore[arg-type]  # _is_time said so
        "dur": float(length),  # type: ignore[arg-type]
        "pid": int(KINDS[event["cat"]] in ("kernel", "copy")),
        "tid": str(thread)[:LONGEST_NAME],
        "args": details,
    }


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LATEST


def _number(value: object) -> float | list[int] | None:
    """Return a finite number or up to three whole ones; None for anything else."""
    if isinstance(value, list):
        plain = len(value) <= 3 and all(isinstance(one, int) and not isinstance(one, bool) for one in value)
        return [int(one) for one in value] if plain else None
    return float(value) if _is_time(value) else None  # type: ignore[arg-type]

"""Say where a compiled model's time goes on a GPU: `python -m benchmarks.models --profile`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from warpsmith.workers.optimize.compiled.turns import wait

CALLS = 10
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
"""Kinds of events in a trace that take a GPU's time."""
LONGEST = 12
"""Kernels that are told by name."""


@dataclass(frozen=True)
class Span:
    """A kernel, a copy or a fill on the device, from `begun_us` to `ended_us`."""

    name: str
    begun_us: float
    ended_us: float


def spans_of(call: Callable[[], Any], device: torch.device) -> list[Span]:
    """Return what a GPU did in CALLS calls, in order; a CUDA graph's kernels one by one. None for a CPU."""
    call()
    wait(device)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as seen:
        for _ in range(CALLS):
            call()
        wait(device)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "trace.json"
        seen.export_chrome_trace(str(file))
        return read(json.loads(file.read_text("utf-8")))


def read(trace: dict[str, Any]) -> list[Span]:
    """Return what ran on a device, of a trace as Chrome shows it, in order."""
    events = [event for event in trace["traceEvents"] if event.get("cat") in ON_DEVICE]
    spans = [Span(event["name"], float(event["ts"]), float(event["ts"]) + float(event["dur"])) for event in events]
    return sorted(spans, key=lambda span: span.begun_us)


def told(spans: Sequence[Span]) -> list[str]:
    """Say by name what a call's microseconds went to, and how long the device had nothing to do.

    Where a kernel begins before the one ahead of it ends (dependent launches), the time of both counts once, with the
    one that ends it.
    """
    if not spans:
        return ["the profiler saw nothing on a GPU"]
    times: dict[str, float] = {}
    counts: dict[str, int] = {}
    busy, until = 0.0, spans[0].begun_us
    for span in spans:
        own = max(0.0, span.ended_us - max(span.begun_us, until))
        until = max(until, span.ended_us)
        times[span.name] = times.get(span.name, 0.0) + own
        counts[span.name] = counts.get(span.name, 0) + 1
        busy += own
    whole = until - spans[0].begun_us
    lines = [
        f"{whole / CALLS:.0f} us a call: {busy / CALLS:.0f} of work in {len(spans) / CALLS:.0f} launches, "
        f"{(whole - busy) / CALLS:.0f} between them"
    ]
    longest = sorted(times.items(), key=lambda each: -each[1])
    lines += [
        f"  {spent / CALLS:7.1f} us, {counts[name] / CALLS:4.0f} times: {name[:90]}"
        for name, spent in longest[:LONGEST]
    ]
    rest = longest[LONGEST:]
    if rest:
        count = sum(counts[name] for name, _ in rest)
        lines.append(
            f"  {sum(spent for _, spent in rest) / CALLS:7.1f} us, {count / CALLS:4.0f} times: {len(rest)} others"
        )
    return lines

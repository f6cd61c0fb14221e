"""Say where a compiled model's time goes on a GPU: `python -m benchmarks.models --profile`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

CALLS = 10
LONGEST = 12
"""Kernels that are told by name."""


@dataclass(frozen=True)
class Span:
    """A kernel, a copy or a fill on the device, from `begun_us` to `ended_us`."""

    name: str
    begun_us: float
    ended_us: float


def spans_of(call: Callable[[], Any]) -> list[Span]:
    """Return what the device did in CALLS calls, in order; a CUDA graph's kernels one by one."""
    call()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
    found = [
        Span(event.name, event.time_range.start, event.time_range.end)
        for event in seen.events() or ()
        if event.device_type is DeviceType.CUDA
    ]
    return sorted(found, key=lambda span: span.begun_us)


def told(spans: Sequence[Span]) -> list[str]:
    """Say by name what a call's microseconds went to, and how long the device had nothing to do.

    Where a kernel begins before the one ahead of it ends (dependent launches), the time of both counts once, with the
    one that ends it.
    """
    if not spans:
        return ["nothing ran on a GPU"]
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

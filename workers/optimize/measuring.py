"""Measure calls of a model by the clock, and its operators by torch's profiler."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from warpsmith.workers.optimize.compiled.turns import wait

CALLS = 5
"""Calls under the profiler, after two that wake threads and code."""
MOST_OPERATORS = 15


def operators(call: Callable[[], Any], device: torch.device) -> list[dict[str, Any]]:
    """List the operators of the model as it is, by their own time in one call.

    Name, calls and microseconds.
    """
    for _ in range(2):
        call()
    with _profiled(device) as profiler:
        for _ in range(CALLS):
            call()
        wait(device)
    rows = [
        {"name": event.key, "calls": event.count / CALLS, "self_us": round(_own_us(event, device) / CALLS, 3)}
        for event in profiler.key_averages()
        if event.key.startswith("aten::")
    ]
    return sorted(rows, key=lambda row: -row["self_us"])[:MOST_OPERATORS]


@contextmanager
def _profiled(device: torch.device) -> Iterator[profile]:
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with profile(activities=activities) as profiler:
            yield profiler


def _own_us(event: Any, device: torch.device) -> float:
    return float(event.self_device_time_total if device.type == "cuda" else event.self_cpu_time_total)

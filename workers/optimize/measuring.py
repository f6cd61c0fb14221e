"""Measure calls of a model by the clock, and its operators by torch's profiler."""

from __future__ import annotations

import random
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from warpsmith.workers.judge.clock.timing import Plan, Samples, calls_per_block, interleave

CALLS = 5
"""Calls under the profiler, after two that wake threads and code."""
MOST_OPERATORS = 15
WARM_CALLS = 3
"""Calls of a variant that was just put in place before those that are timed."""
TIME_S = 6.0
FEWEST_ROUNDS, MOST_ROUNDS = 11, 61


def time_in_turns(variants: Mapping[str, Callable[[], Any]], device: torch.device, time_s: float = TIME_S) -> Samples:
    """Measure the variants in rounds, in a new random order each round.

    Returns medians of blocks of calls in microseconds, by variant. A variant's value is called with nothing and readies
    its calls: it returns the call that is timed.
    """
    rng = random.Random()  # noqa: S311 - the order of measurements
    longest = max(_once(_warmed(ready()), device) for ready in variants.values())
    calls = calls_per_block(longest)

    def block(name: str) -> float:
        call = _warmed(variants[name]())
        return statistics.median(_once(call, device) for _ in range(calls))

    plan = Plan(FEWEST_ROUNDS, MOST_ROUNDS, time_s, 1, 0.0, 0.0)
    return interleave(list(variants), block, plan=plan, candidate=None, rng=rng)


def time_each(call: Callable[[], Any], device: torch.device, ready: Callable[[], None], time_s: float) -> float:
    """Measure a call that changes what the next one finds: median microseconds.

    ready: gives it what the first one found, before each call and outside of its time.
    """
    for _ in range(WARM_CALLS):
        ready()
        call()
    times: list[float] = []
    begun = time.monotonic()
    while len(times) < FEWEST_ROUNDS or (len(times) < MOST_ROUNDS and time.monotonic() - begun < time_s):
        ready()
        times.append(_once(call, device))
    ready()
    return statistics.median(times)


def _warmed(call: Callable[[], Any]) -> Callable[[], Any]:
    """Make the call a few times and return it.

    A kernel loads at its first call, and Python runs new code slower.
    """
    for _ in range(WARM_CALLS):
        call()
    return call


def _once(call: Callable[[], Any], device: torch.device) -> float:
    """Measure the microseconds of one call, until the device is idle."""
    _wait(device)
    begun = time.perf_counter_ns()
    call()
    _wait(device)
    return (time.perf_counter_ns() - begun) / 1e3


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def operators(call: Callable[[], Any], device: torch.device) -> list[dict[str, Any]]:
    """List the operators of the model as it is, by their own time in one call.

    Name, calls and microseconds.
    """
    for _ in range(2):
        call()
    with _profiled(device) as profiler:
        for _ in range(CALLS):
            call()
        _wait(device)
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

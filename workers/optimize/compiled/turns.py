"""Time calls in turns, by the clock: variants of a model, or a kernel and the code in whose place it would be."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from warpsmith.workers.judge.clock.timing import Plan, Samples, calls_per_block, interleave

WARM_CALLS = 3
"""Calls of a variant that was just put in place before those that are timed."""
TIME_S = 6.0
FEWEST_ROUNDS, MOST_ROUNDS = 11, 61


def time_in_turns(
    variants: Mapping[str, Callable[[], Any]],
    device: torch.device,
    time_s: float = TIME_S,
    clear: Callable[[Samples], bool] | None = None,
) -> Samples:
    """Measure the variants in rounds, in a new random order each round.

    Returns medians of blocks of calls in microseconds, by variant. A variant's value is called with nothing and readies
    its calls: it returns the call that is timed. clear: is asked once, after the fewest rounds, whether they will do:
    an interval that is looked at again and again until it says something says too much.
    """
    rng = random.Random()  # noqa: S311 - the order of measurements
    longest = max(_once(_warmed(ready()), device) for ready in variants.values())
    calls = calls_per_block(longest)

    def block(name: str) -> float:
        call = _warmed(variants[name]())
        return statistics.median(_once(call, device) for _ in range(calls))

    def rounds(fewest: int, most: int, seconds: float) -> Samples:
        plan = Plan(fewest, most, seconds, 1, 0.0, 0.0)
        return interleave(list(variants), block, plan=plan, candidate=None, rng=rng)

    if clear is None:
        return rounds(FEWEST_ROUNDS, MOST_ROUNDS, time_s)
    begun = time.monotonic()
    first = rounds(FEWEST_ROUNDS, FEWEST_ROUNDS, time_s)
    left = time_s - (time.monotonic() - begun)
    if left <= 0 or clear(first):
        return first
    more = rounds(1, MOST_ROUNDS - FEWEST_ROUNDS, left)
    return {name: first[name] + more[name] for name in first}


def time_each(call: Callable[[], Any], device: torch.device, ready: Callable[[], None], time_s: float) -> float:
    """Measure a call that changes what the next one finds: microseconds of the shortest.

    Others on the host only make calls longer. ready: gives it what the first one found, before each call and outside
    of its time.
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
    return min(times)


def _warmed(call: Callable[[], Any]) -> Callable[[], Any]:
    """Make the call a few times and return it.

    A kernel loads at its first call, and Python runs new code slower.
    """
    for _ in range(WARM_CALLS):
        call()
    return call


def _once(call: Callable[[], Any], device: torch.device) -> float:
    """Measure the microseconds of one call, until the device is idle."""
    wait(device)
    begun = time.perf_counter_ns()
    call()
    wait(device)
    return (time.perf_counter_ns() - begun) / 1e3


def wait(device: torch.device) -> None:
    """Wait until a GPU has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)

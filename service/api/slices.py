"""Work that takes seconds, in slices: between two of them no thread is held.

The work is a generator that yields wherever it may be put aside. Its slices run on a few threads of their own, so that
however much of it there is, other requests have theirs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TypeVar, cast

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

SLICE_S = 0.2
"""Seconds after which a slice ends at its generator's next `yield`."""

SLICING_THREADS = 2
WAITING_THREADS = 4
"""More than there may be analyses of imports at once: a further one is refused, not kept waiting."""

T = TypeVar("T")
_slicing: RunVar[CapacityLimiter] = RunVar("slicing")
_waiting: RunVar[CapacityLimiter] = RunVar("waiting")
_UNFINISHED = object()


async def run_sliced(work: Generator[None, None, T]) -> T:
    """Run the generator to its end and return its result; raises what it raises.

    Where the request is cancelled, the generator is closed, and a transaction in it rolled back.
    """
    limiter = _get(_slicing, SLICING_THREADS)
    try:
        while (result := await to_thread.run_sync(_advance, work, limiter=limiter)) is _UNFINISHED:
            pass
        return cast("T", result)
    finally:
        work.close()


async def run_apart(work: Callable[[], T]) -> T:
    """Run a function that waits for a process of its own, on threads for such functions."""
    return await to_thread.run_sync(work, limiter=_get(_waiting, WAITING_THREADS))


def _get(variable: RunVar[CapacityLimiter], threads: int) -> CapacityLimiter:
    """Get the event loop's limiter; a loop makes its own."""
    try:
        return variable.get()
    except LookupError:
        limiter = CapacityLimiter(threads)
        variable.set(limiter)
        return limiter


def _advance(work: Generator[None, None, T]) -> T | object:
    end = time.monotonic() + SLICE_S
    try:
        while time.monotonic() < end:
            next(work)
    except StopIteration as stop:
        return cast("T", stop.value)
    return _UNFINISHED

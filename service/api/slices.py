"""Work that takes seconds, in slices: between two of them no thread is held.

The work is a generator that yields wherever it may be put aside. Its slices run on a few threads of their own, so that
however much of it there is, other requests have theirs.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import TypeVar, cast

from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

SLICE_S = 0.2
"""Seconds after which a slice ends at its generator's next `yield`."""

SLICING_THREADS = 2
T = TypeVar("T")
_slicing: RunVar[CapacityLimiter] = RunVar("slicing")
_UNFINISHED = object()


async def run_sliced(work: Generator[None, None, T]) -> T:
    """Run the generator to its end and return its result; raises what it raises.

    Where the request is cancelled, the generator is closed, and a transaction in it rolled back.
    """
    limiter = _get_limiter()
    try:
        while (result := await to_thread.run_sync(_advance, work, limiter=limiter)) is _UNFINISHED:
            pass
        return cast("T", result)
    finally:
        work.close()


def _get_limiter() -> CapacityLimiter:
    """Get the event loop's limiter; a loop makes its own."""
    try:
        return _slicing.get()
    except LookupError:
        limiter = CapacityLimiter(SLICING_THREADS)
        _slicing.set(limiter)
        return limiter


def _advance(work: Generator[None, None, T]) -> T | object:
    end = time.monotonic() + SLICE_S
    try:
        while time.monotonic() < end:
            next(work)
    except StopIteration as stop:
        return cast("T", stop.value)
    return _UNFINISHED

"""A burst: several calls back to back on a GPU, each with cold caches and a device timing.

Before each call the L2 cache is flushed by writing a buffer several times its size, as is usual
(triton.testing.do_bench), so that a call finds none of its inputs there, and pays for writing back what it displaces.
The device waits first, so that the host has launched the whole burst before the first call begins: the time is the
device's work, not the launch. Right after one of the calls, outside of its time and before the next one is launched, a
digest of its results is taken: what the referee finds there afterwards has to have been there by then. Everything here
runs in the runner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from warpsmith.workers.judge.runner.digest import Digester, Seal

FLUSH_BYTES = 256 << 20
"""What triton.testing.do_bench writes; no GPU's L2 cache is half as large."""

HEAD_START_CYCLES, HEAD_START_CYCLES_A_CALL = 1_300_000, 300_000
"""Cycles that the device waits at the start of a burst, and for each call of it.

They take some 0.65 ms (0.15 ms of that for the launches of the digest) and 0.16 ms: the first are out of a cold cache,
and a compiled baseline takes an H200's host 60 to 140 us a call, longer than the flush. With 0.3 ms in all a kernel of
5 us read as 48 us; with 0.5 ms and more it reads the same (docs/judge.md).
"""

EMPTY = 255
"""The slot number of a call that runs nothing: it flushes and takes the time of nothing."""

_flush: list[torch.Tensor] = []
_events: list[torch.cuda.Event] = []
_digester: list[Digester] = []


def make_ready() -> None:
    """Allocate what every burst needs, and run each of its kernels once: the first of a process loads them."""
    seal = Seal(0, (1, 1, 1), ((0, 64),))
    made = Burst(bytes([EMPTY]), seal)
    scratch = torch.zeros(64, dtype=torch.uint8, device="cuda")
    made.go(lambda: None, [], [scratch])
    made.digest()


class Burst:
    """Calls on slots in an order, after one of which a digest is taken.

    Making it allocates all that `go` needs and waits for the device.
    """

    def __init__(self, order: bytes, seal: Seal) -> None:
        if not _flush:
            _flush.append(torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda"))
            _digester.append(Digester(torch.device("cuda")))
        while len(_events) < 2 * len(order):
            _events.append(torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
        self.order = order
        self._seal = seal
        self._taken: torch.Tensor | None = None
        self.late = 0  # calls that the device had reached before all of them was launched: it waited for the host
        torch.cuda.synchronize()

    def go(self, run: Callable[..., Any], slots: list[tuple[list[Any], list[Any]]], arenas: list[torch.Tensor]) -> Any:
        """Run the calls and wait for the device; returns the last call's result.

        `arenas`: the bytes of each slot. A digest is also taken, of slot 0, where nothing is run: it takes as long.
        """
        result = None
        flush, stop = _flush[0].zero_, iter(_events)
        torch.cuda._sleep(HEAD_START_CYCLES + HEAD_START_CYCLES_A_CALL * len(self.order))  # type: ignore[no-untyped-call]
        for place, number in enumerate(self.order):
            before, after = next(stop), next(stop)
            arguments = [] if number == EMPTY else slots[number][0]
            result = None
            flush()
            before.record()
            if number != EMPTY:
                result = run(*arguments)
            after.record()
            if number != EMPTY and before.query():  # type: ignore[no-untyped-call]
                self.late += 1
            if place == self._seal.fixed:
                self._taken = _digester[0].take(arenas[0 if number == EMPTY else number], self._seal)
        torch.cuda.synchronize()
        return result

    def digest(self) -> int:
        """Return the digest that was taken."""
        assert self._taken is not None
        return int(self._taken.item())

    def microseconds(self) -> list[float]:
        """Return the device's time of each call, in order."""
        pairs = zip(_events[0::2], _events[1::2], strict=False)
        return [before.elapsed_time(after) * 1e3 for (before, after), _ in zip(pairs, self.order, strict=False)]

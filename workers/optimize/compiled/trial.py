"""A graph with kernels beside the same graph without: the model's own first calls go to both in turns, and are timed.

What gains in each place by itself may lose in the graph: Inductor fuses nothing with an op, and neighbours share the
caches. No call is made for the clock's sake, since a graph may write to its arguments, and in the middle of a model
CUDA graphs hold results that another call would overwrite: each call is one of the user's, made once. On a GPU events
are recorded around it and read later, so nothing waits.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from warpsmith.workers.judge.clock.timing import ratio_with_interval

from .inductor import Compiled

WARM_ROUNDS = 4
"""Rounds that are not counted: a CUDA graph is recorded in the second call, code is loaded in the first."""
ROUNDS = 24
MOST_CALLS = 400
"""After so many calls without ROUNDS the kernels stay: from call to call sizes are too different to tell."""


@dataclass(frozen=True)
class Outcome:
    """How many times as fast the graph is with its kernels, with the 95 % interval."""

    ratio: float
    ci95: tuple[float, float]

    @property
    def gains(self) -> bool:
        """Whether it is surely faster."""
        return self.ci95[0] > 1

    def __str__(self) -> str:
        return f"{self.ratio:.2f}x [{self.ci95[0]:.2f}, {self.ci95[1]:.2f}]"


def read(file: Path) -> Outcome | None:
    """Return what was found of a graph before; None where no file says so."""
    try:
        found = json.loads(file.read_text("utf-8"))
        return Outcome(float(found["ratio"]), (float(found["ci95"][0]), float(found["ci95"][1])))
    except (OSError, ValueError, TypeError, KeyError, IndexError):
        return None


class Trial:
    """Calls two variants of a graph in turns until one of them may stay.

    outcome: None while they are tried, and where it cannot be told; `tried` says which.
    """

    def __init__(self, kernels: Compiled, plain: Compiled, device: torch.device, keep: Callable[[Any], None]) -> None:
        """keep: is given what was found, as JSON."""
        self._variants = {"kernels": kernels, "plain": plain}
        self._serve = self._try
        self._device, self._keep = device, keep
        self._lock = threading.Lock()
        self._calls = 0
        self._open: list[tuple[str, Any, _Span]] = []
        self._rounds: list[dict[str, _Span]] = []
        self.outcome: Outcome | None = None
        self.tried = False

    def call(self, *arguments: Any) -> Any:
        """Return the graph's results, by one variant or the other."""
        return self._serve(*arguments)

    def _try(self, *arguments: Any) -> Any:
        capturing = self._device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        if capturing or not self._lock.acquire(blocking=False):
            return self._variants["kernels"](*arguments)  # of a user's own CUDA graph, or another thread's
        try:
            if self.tried:  # by another thread, meanwhile
                return self._serve(*arguments)
            number, odd = divmod(self._calls, 2)
            name = "plain" if (number + odd) % 2 else "kernels"  # the first of all, and of every second round
            span = _Span(self._device)
            results = self._variants[name](*arguments)
            span.end()
            self._calls += 1
            self._note(name, _sizes(arguments), span)
            return results
        finally:
            self._lock.release()

    def _note(self, name: str, sizes: Any, span: _Span) -> None:
        self._open.append((name, sizes, span))
        if len(self._open) == 2:
            (_, one, _), (_, other, _) = self._open
            if one == other and self._calls > 2 * WARM_ROUNDS and len(self._rounds) < ROUNDS:
                self._rounds.append({name: span for name, _, span in self._open})
            self._open = []
        if len(self._rounds) >= ROUNDS:
            # Of calls without a pause the last has never ended when it is noted: those after the last that counts
            # are let go by.
            if not all(each.done() for each in self._rounds[ROUNDS - 1].values()):
                return
            times = {name: [each[name].us() for each in self._rounds] for name in self._variants}
            self.outcome = Outcome(*ratio_with_interval(times["plain"], times["kernels"], 0))
            self._keep(asdict(self.outcome))
            self._settle("kernels" if self.outcome.gains else "plain")
        elif self._calls >= MOST_CALLS:
            self._settle("kernels")

    def _settle(self, name: str) -> None:
        """Let one variant serve, and forget the other."""
        self._serve = self._variants[name]
        self.tried = True
        self._open, self._rounds = [], []
        self._variants = {"kernels": self._serve}  # for a thread that has begun to try


class _Span:
    """The time from here to `end`: on a GPU by events of the current stream, else by the clock."""

    def __init__(self, device: torch.device) -> None:
        self._device = device if device.type == "cuda" else None
        self._marks = [self._mark()]

    def _mark(self) -> Any:
        if self._device is None:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def end(self) -> None:
        """Note the end."""
        self._marks.append(self._mark())

    def done(self) -> bool:
        """Return whether the time can be told without waiting."""
        return self._device is None or bool(self._marks[1].query())

    def us(self) -> float:
        """Return microseconds, never 0."""
        begun, ended = self._marks
        spent = (ended - begun) * 1e6 if self._device is None else begun.elapsed_time(ended) * 1e3
        return max(float(spent), 1e-3)


def _sizes(arguments: tuple[Any, ...]) -> Any:
    """Return what of a call's arguments decides how long it takes."""
    return [tuple(each.shape) if isinstance(each, torch.Tensor) else each for each in arguments]

"""Show on a terminal where a judge's job is, while a command waits for its verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text

from warpsmith.kernels_db.job.documents import Progress
from warpsmith.service.cli.output import stderr
from warpsmith.service.documents.escaping import clean_line

LONGEST_ID = 40

DRAWN_PER_S = 1.0
"""Seldom: on a CPU, what draws takes time from what is timed."""

STARTS = "the judge starts"
"""Until the first gate: the judge imports torch."""

MEANINGS = {
    "gate": "reading the source",
    "compile": "compiling",
    "sandbox": "confining",
    "memory": "checking the memory",
    "reference": "running the reference",
    "admission": "trying wrong answers on the op",
    "screen": "checking results",
    "verify": "verifying",
    "time": "timing",
    "physics": "comparing with what the device can do",
}


def describe(where: Progress) -> str:
    """Describe a place in words: `timing: large (2 of 5 workloads)`."""
    words = MEANINGS.get(where["gate"], where["gate"])
    if not where["total"]:
        return words
    name = "a hold-out" if where["workload"] is None else clean_line(where["workload"], LONGEST_ID)
    return f"{words}: {name} ({where['number']} of {where['total']} workloads)"


class _Line:
    """The line that is shown, drawn anew as often as Live does."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.words = STARTS
        self._clock = clock
        self._start = clock()

    def __rich__(self) -> Text:
        return Text(f"{self.words}  {self._clock() - self._start:.0f} s", style="dim")


@contextmanager
def show_progress(
    console: Console = stderr, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[Progress], None] | None]:
    """Show a line on standard error while inside; yields what takes the progress, None where no terminal is there.

    The line is gone at the end: what stays is the verdict.
    """
    if not console.is_terminal:
        yield None
        return
    line = _Line(clock)

    def take(where: Progress) -> None:
        line.words = describe(where)

    with Live(line, console=console, refresh_per_second=DRAWN_PER_S, transient=True):
        yield take

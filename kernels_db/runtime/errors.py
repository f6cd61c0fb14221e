"""Errors of the runtime.

Building raises one error; calls raise TypeError and OverflowError that name the parameter.

    CompileError   a source that cannot become a kernel: compiler error, limit, flag, or a parameter that no argument
    fits
"""

from __future__ import annotations

LOG_LIMIT = 8000
"""Characters of a compiler's log that are kept: its head, where the first error stands, and its tail."""


class CompileError(Exception):
    """A kernel source could not be built. `message` is one line; `log` is the compiler's trimmed output, or empty."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.log = log


def trim_log(log: str, limit: int = LOG_LIMIT) -> str:
    """`log` without its middle, so that at most about `limit` characters remain."""
    if len(log) <= limit:
        return log
    head = limit * 3 // 4
    return f"{log[:head]}\n... {len(log) - limit} characters left out ...\n{log[head - limit :]}"

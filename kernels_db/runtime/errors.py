"""Errors of the runtime.

Calls also raise TypeError, OverflowError and ValueError that name the parameter.

    CompileError   a source that cannot become a kernel: compiler error, limit, flag, or a parameter that no argument
                   fits
      HostError    nothing can be built on this host, whatever the source: it has no compiler
        CacheError   or what is built cannot be kept: the cache is not ours to write
    LaunchError    a launch that the device refuses
"""

from __future__ import annotations

from typing import Literal

Cause = Literal["timeout", "memory", "died"]

LOG_LIMIT = 8000
"""Characters of a compiler's log that are kept: its head, where the first error stands, and its tail."""


class CompileError(Exception):
    """A kernel source could not be built. `message` is one line; `log` is the compiler's trimmed output, or empty.

    `cause`: where the compiler did not come to an end, what it ran out of, or "died"; a larger or an idler host may
    build the same source. None where the source is at fault.
    """

    def __init__(self, message: str, log: str = "", cause: Cause | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.log = log
        self.cause = cause


class HostError(CompileError):
    """This host can build nothing, which says nothing of the source. The message says what to do about it."""


class CacheError(HostError):
    """The kernel cache cannot be written. The message names the directory and the variable that names another."""


class LaunchError(RuntimeError):
    """A device refused a launch. The message names the kernel, and the limit where one is passed."""


def trim_log(log: str, limit: int = LOG_LIMIT) -> str:
    """`log` without its middle, so that at most about `limit` characters remain."""
    if len(log) <= limit:
        return log
    head = limit * 3 // 4
    return f"{log[:head]}\n... {len(log) - limit} characters left out ...\n{log[head - limit :]}"

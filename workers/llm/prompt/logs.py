"""Logs of compilers and interpreters as prompts show them: without noise and directories, of bounded length. Pure."""

from __future__ import annotations

import re

from warpsmith.kernels_db.job.documents import Failure
from warpsmith.workers.text import middle_cut, without_directories

MAX_LOG_LINES = 40
MAX_LOG_CHARS = 4_000


def first_error(failure: Failure) -> str:
    """Return the first line of a compiler's log that names an error, without the file's name."""
    for line in (failure.get("log") or "").splitlines():
        if match := re.search(r"(?:^|[:(])(\d+)(?::\d+|\))?:\s*(?:fatal )?error:\s*(.+)", line):
            return f"line {match[1]}: {match[2]}"
        if match := re.search(r"\berror:\s*(.+)", line):
            return match[1]
    return ""


_NOISE = re.compile(
    r"^\s*$|^In file included from|^\s+from |: note: (?:in expansion|this is the location)|^compilation terminated"
)


def trim_log(log: str) -> str:
    """Trim a compiler's or an interpreter's log of noise and directories.

    The lines around errors come first; the length is bounded.
    """
    lines = [without_directories(line.rstrip()) for line in log.splitlines() if not _NOISE.search(line)]
    errors = [number for number, line in enumerate(lines) if re.search(r"\berror\b|Error\b", line, re.IGNORECASE)]
    if len(lines) > MAX_LOG_LINES and errors:
        keep: set[int] = set()
        for number in errors:
            keep.update(range(number, min(number + 4, len(lines))))
            if len(keep) >= MAX_LOG_LINES:
                break
        lines = [lines[number] for number in sorted(keep)]
    if len(lines) > MAX_LOG_LINES:
        lines = [*lines[: MAX_LOG_LINES // 2], "[...]", *lines[-MAX_LOG_LINES // 2 :]]
    return middle_cut("\n".join(line[:300] for line in lines), MAX_LOG_CHARS)

"""Read what compute-sanitizer wrote: text, each line of its own behind `=========`. Pure functions.

The tool's process wrote it and no candidate can, but names in it are the candidate's: bounded, and read as data.

Source of the format: NVIDIA's Compute Sanitizer documentation (the output of each tool), versions 2022 to 2025.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

Tool = Literal["memcheck", "racecheck", "synccheck", "initcheck"]
TOOLS: tuple[Tool, ...] = get_args(Tool)

MOST_RECORDS = 20
"""Records that a tool is asked to print."""
MOST_BYTES = 1 << 20
LONGEST_LINE = 300

_MARK = "========="
_SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: ")
_REFUSED = re.compile(r"(?i)error: |device not supported|not supported on|unable to|internal .*error|no attachable")
_FOUND = re.compile(
    r"(?i)(invalid|misaligned|uninitialized) .*(read|write|atomic|access|memory)|(error: )?race reported between"
    r"|(potential )?(war|raw|waw) hazard|barrier error|divergent thread|out-of-range|invalid arguments"
    r"|stack overflow|illegal instruction"
)
"""First lines of records about a kernel. Others are about the host's calls, or the tool itself."""


@dataclass(frozen=True)
class Finding:
    """One record: its first line, and the lines that say where."""

    title: str
    details: tuple[str, ...]

    @property
    def line(self) -> str:
        """The record in one line."""
        return "; ".join([self.title, *self.details[:4]])


@dataclass(frozen=True)
class Report:
    """What a tool found in the candidate's own kernels; `refused`: why it looked at nothing, or not to the end."""

    findings: tuple[Finding, ...]
    refused: str | None = None


def command(program: str, tool: Tool, log: str, run: Collection[str]) -> list[str]:
    """Return the command line that runs `run` under a tool, whose report goes to the file `log`.

    Errors of the host's calls are left out: torch asks for things that it can do without. Only the process itself is
    looked at, whose start takes longer than the tool waits by itself.
    """
    only = ("--report-api-errors", "no") if tool == "memcheck" else ()
    return [
        program,
        *("--tool", tool, "--log-file", log, "--print-limit", str(MOST_RECORDS), "--print-level", "error"),
        *("--show-backtrace", "device", "--target-processes", "application-only", "--launch-timeout", "120"),
        *only,
        *run,
    ]


def read(said: bytes, kernels: Collection[str]) -> Report:
    """Read a tool's report. `kernels`: names of the candidate's own; records about others are left out."""
    if len(said) > MOST_BYTES:
        return Report((), f"found more than {MOST_BYTES} bytes, expected no more")
    lines = said.decode("utf-8", "replace").replace("\0", "").splitlines()
    own = re.compile(r"(?<![\w$])(" + "|".join(map(re.escape, sorted(kernels))) + r")(?![\w$])") if kernels else None
    found, refused = [], None
    for title, details in _records(lines):
        if _SUMMARY.match(title) or title.startswith("COMPUTE-SANITIZER"):
            continue
        if _FOUND.match(title):
            if own is not None and any(own.search(line) for line in (title, *details)):
                found.append(Finding(title, details))
        elif refused is None and _REFUSED.search(title):
            refused = title
    if not any(_SUMMARY.search(line) for line in lines) and refused is None:
        refused = "it wrote no summary"
    return Report(tuple(found[:MOST_RECORDS]), refused)


def _records(lines: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the first line of each record and those that are set in below it, until an empty line of the tool's."""
    title, details = "", []
    for line in lines:
        if not line.startswith(_MARK):
            continue  # what the program itself printed
        text = line[len(_MARK) :]
        if text.startswith("  ") and title:
            details.append(text.strip()[:LONGEST_LINE])
            continue
        if title:
            yield title, tuple(details)
        title, details = text.strip()[:LONGEST_LINE], []
    if title:
        yield title, tuple(details)

"""Read what compute-sanitizer wrote: text, each line of its own behind `=========`. Pure functions.

The tool's process wrote it and no candidate can, but names in it are the candidate's: bounded, and read as data.

Source of the format: NVIDIA's Compute Sanitizer documentation (the output of each tool), versions 2022 to 2025.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from warpsmith.kernels_db.job.languages import CUTE_KERNEL

Tool = Literal["memcheck", "racecheck", "synccheck", "initcheck"]
TOOLS: tuple[Tool, ...] = get_args(Tool)

MOST_RECORDS = 20
"""Records that a tool is asked to print."""
MOST_BYTES = 1 << 20
MOST_HAZARDS = 20_000
"""Hazards that racecheck is asked to list: a byte of shared memory each."""
MOST_HAZARD_BYTES = 16 << 20
LONGEST_LINE = 300

_MARK = "========="
_SUMMARY = re.compile(r"(ERROR|RACECHECK) SUMMARY: ")
_REFUSED = re.compile(r"(?i)error: |device not supported|not supported on|unable to|internal .*error|no attachable")
_FOUND = re.compile(
    r"(?i)(invalid|misaligned|uninitialized) .*(read|write|atomic|access|memory)|(error: )?race reported between"
    r"|(error: )?(potential )?(war|raw|waw) hazard|barrier error|divergent thread|out-of-range|invalid arguments"
    r"|stack overflow|illegal instruction"
)
"""First lines of records about a kernel. Others are about the host's calls, or the tool itself."""
_READER = re.compile(r"Read Thread \((\d+),0,0\) ")
_PLACE = re.compile(r"\bat (\S+\+0x[0-9a-f]+)")
_UNKNOWN_YET = "Incoming Value : ?"
"""What an asynchronous copy writes is not known when it is issued."""


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


def command(program: str, tool: Tool, log: str, run: Collection[str], *, hazards: bool = False) -> list[str]:
    """Return the command line that runs `run` under a tool, whose report goes to the file `log`.

    hazards: have racecheck list each pair of accesses, thread by thread, in place of a line for each pair of
    instructions.

    Errors of the host's calls are left out: torch asks for things that it can do without. Only the process itself is
    looked at, whose start takes longer than the tool waits by itself.
    """
    only = ("--report-api-errors", "no") if tool == "memcheck" else ()
    if hazards:
        only = ("--racecheck-report", "hazard")
    return [
        program,
        *(
            "--tool",
            tool,
            "--log-file",
            log,
            "--print-limit",
            str(MOST_HAZARDS if hazards else MOST_RECORDS),
            "--print-level",
            "error",
        ),
        *("--show-backtrace", "device", "--target-processes", "application-only", "--launch-timeout", "120"),
        *only,
        *run,
    ]


def read(said: bytes, kernels: Collection[str]) -> Report:
    """Read a tool's report. `kernels`: names of the candidate's own; records about others are left out."""
    if len(said) > MOST_BYTES:
        return Report((), f"found more than {MOST_BYTES} bytes, expected no more")
    lines = said.decode("utf-8", "replace").replace("\0", "").splitlines()
    own = _naming(kernels) if kernels else None
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


def arriving_lane(said: bytes, kernels: Collection[str], races: Collection[Finding]) -> int | None:
    """Return the one lane of every warp whose reads racecheck found in order, where all others' are overwritten.

    So it reports a stage that one lane releases for its warp (`__syncwarp(); if (lane == 0) arrive(empty);`, as CUTLASS
    does): it orders by an mbarrier what the arriving thread did before, and does not follow the `__syncwarp` through
    which the other lanes come before it (measured with 2025.3.1; `--racecheck-indirect-barrier-dependency` changes
    nothing). Without the `__syncwarp` it reports the same. None where any hazard is of another kind: no asynchronous
    copy over what was read, in blocks of two dimensions, or where every lane has one; and where the list has no end, or
    lacks a pair of instructions of `races`.

    said: the report of `command(..., hazards=True)`, cut off after `MOST_HAZARDS`. races: what a run without found; it
    names each pair of instructions.
    """
    if len(said) > MOST_HAZARD_BYTES:
        return None
    records = list(_records(said.decode("utf-8", "replace").replace("\0", "").splitlines()))
    if len(races) >= MOST_RECORDS or not any(_SUMMARY.match(title) for title, _ in records):
        return None
    named = _naming(kernels)
    left = {_places((race.title, line)) for race in races for line in race.details if _PLACE.search(line)}
    lanes: set[int] = set()
    for title, details in records:
        if not _FOUND.match(title) or not any(named.search(line) for line in (title, *details)):
            continue
        reader = next((found for line in details if (found := _READER.match(line))), None)
        if "WAR hazard" not in title or reader is None or not any(line.endswith(_UNKNOWN_YET) for line in details):
            return None
        lanes.add(int(reader[1]) % 32)
        left.discard(_places(line for line in details if "Thread (" in line))
    if left:
        return None
    left_out = set(range(32)) - lanes
    return left_out.pop() if len(left_out) == 1 else None


def _places(lines: Iterable[str]) -> frozenset[str]:
    """Return the instructions that lines name: a kernel and its offset, `add+0x550`."""
    return frozenset(_PLACE.findall("\n".join(lines)))


def _naming(kernels: Collection[str]) -> re.Pattern[str]:
    """Return the pattern that finds any of these kernels' names, alone or as CuTe DSL writes them."""
    names = "|".join(map(re.escape, sorted(kernels)))
    return re.compile(rf"(?<![\w$])({names}|{CUTE_KERNEL}(?:{names})_[\w$]+)(?![\w$])")


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

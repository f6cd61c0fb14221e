"""A bundle's directory: written for the other host, and read when it has come back."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from warpsmith.kernels_db.job.bundle import HEADER, JOBS, UNJUDGED, VERDICTS, VERIFICATIONS, BundleHeader
from warpsmith.service.documents.bundles import BundleDocument

README = "README.txt"
JUDGE = "judge"
JUDGE_BESIDE = "cd DIR && PYTHONPATH=judge python -m warpsmith.workers.judge ."
JUDGE_ABOVE = "cd DIR/.. && PYTHONPATH=judge python -m warpsmith.workers.judge sr_*"
JUDGE_INSTALLED = "python -m warpsmith.workers.judge DIR      (with Warpsmith installed there)"
CHUNK_BYTES = 1 << 20
CHUNK_LINES = 500
LARGEST_FILE = 1 << 30
"""Largest size of verdicts.jsonl and unjudged.jsonl, bytes."""

_README = """\
Judge jobs of Warpsmith ({count}) for {op} on {target} (bundle {id}, search {search_id}).

1. Take this directory to a host that has the device, with Python 3.11 or newer, torch and numpy
   (for Triton and Gluon candidates triton, for CUDA candidates cuda-core, for CuTe DSL candidates
   nvidia-cutlass-dsl and cuda-core, for TileLang candidates tilelang, nvidia-cuda-cccl and cuda-core,
   for C++ candidates g++; where builds.jsonl is there, CuTe DSL and TileLang candidates need cuda-core alone),
   and there:

       {judge}

   It can be interrupted and started again; finished verdicts stay in verdicts.jsonl. Of the best candidate that it
   screened it does the full verification as well.
   Leave the device to it: other work there spoils the timing.

2. Bring the directory back, or verdicts.jsonl and unjudged.jsonl, and:

       warpsmith merge DIR

Jobs that will not come back are given back to the service's own judges by

       warpsmith bundle --drop {id}

These files run kernels of others on your host, confined as far as it allows. They hold no key.
"""


class BadFolder(ValueError):  # noqa: N818 - named for what is wrong
    """The directory cannot be written or read as a bundle."""


def check_free(directory: Path) -> None:
    """Raise BadFolder where a bundle in `directory` would replace files."""
    if directory.exists() and not directory.is_dir():
        raise BadFolder(f"--output: found {directory}, which is a file, expected a new directory")
    if directory.exists() and any(directory.iterdir()):
        raise BadFolder(f"--output: found {directory}, which is not empty, expected a new directory")


def write_bundle(directory: Path, bundle: BundleDocument, *, judged_by: str) -> None:
    """Write the bundle's files; bundle.json comes last and marks a finished directory.

    judged_by: the command that README.txt gives to judge it, one of JUDGE_BESIDE, JUDGE_ABOVE, JUDGE_INSTALLED.
    """
    header: BundleHeader = {
        "format": bundle.format,
        "version": bundle.version,
        "id": bundle.id,
        "search_id": bundle.search_id,
        "op": bundle.op,
        "target": bundle.target,
        "created_at": bundle.created_at,
        "count": bundle.count,
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / JOBS).write_text("".join(f"{line}\n" for line in bundle.jobs), encoding="utf-8")
    if bundle.verifications:
        lines = "".join(f"{line}\n" for line in bundle.verifications)
        (directory / VERIFICATIONS).write_text(lines, encoding="utf-8")
    (directory / README).write_text(_README.format(**header, judge=judged_by), encoding="utf-8")
    draft = directory / f".{HEADER}"
    draft.write_text(json.dumps(header, indent=2) + "\n", encoding="utf-8")
    os.replace(draft, directory / HEADER)


def find_bundle_directories(path: Path) -> list[Path]:
    """Find the bundles in `path`: itself, or those directly below it, as `warpsmith bundle --all` wrote them."""
    below = (
        []
        if not path.is_dir() or (path / HEADER).exists()
        else sorted(each.parent for each in path.glob(f"*/{HEADER}"))
    )
    return below or [path]


def find_returned_files(path: Path) -> list[Path]:
    """Find the files to merge; raises BadFolder.

    They are verdicts.jsonl of a directory and, where there is one, its unjudged.jsonl; or `path` itself, if a file.
    """
    if not path.is_dir():
        return [path]
    verdicts, unjudged = path / VERDICTS, path / UNJUDGED
    if not verdicts.is_file():
        raise BadFolder(
            f"DIR: found no {VERDICTS} in {path}, expected one: python -m warpsmith.workers.judge {path} writes it"
        )
    return [verdicts, unjudged] if unjudged.is_file() else [verdicts]


def read_lines(file: Path) -> tuple[list[bytes], bool]:
    """Read the lines of the file, and whether an unfinished last one was left out.

    Raises BadFolder, OSError.
    """
    size = file.stat().st_size
    if size > LARGEST_FILE:
        raise BadFolder(f"DIR: found {size} bytes in {file}, expected at most {LARGEST_FILE}")
    *lines, torn = file.read_bytes().split(b"\n")
    return lines, bool(torn.strip())


def split_lines(lines: list[bytes]) -> Iterator[tuple[int, bytes]]:
    """Split lines into requests, each with the number of lines before it.

    A line that is larger than a request's limit goes alone.
    """
    start, size = 0, 0
    for number, line in enumerate(lines):
        if number > start and (size + len(line) > CHUNK_BYTES or number - start == CHUNK_LINES):
            yield start, b"\n".join(lines[start:number]) + b"\n"
            start, size = number, 0
        size += len(line) + 1
    if start < len(lines):
        yield start, b"\n".join(lines[start:]) + b"\n"

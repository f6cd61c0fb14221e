"""The files that the judge of a bundle writes.

They are verdicts.jsonl, and unjudged.jsonl for what has no verdict.

A line is on the disk before the next job begins. verdicts.jsonl only grows; unjudged.jsonl is of one run, the last.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from warpsmith.kernels_db.job.bundle import (
    LONGEST_REASON,
    VERDICTS,
    SignedJob,
    SignedUnjudged,
    SignedVerdict,
    digest,
    ticket_of,
)
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.job.strict_json import read_strictly
from warpsmith.workers.judge.protocol.client import JobRefused, JudgeError, JudgeTimeout
from warpsmith.workers.judge.protocol.contract import check


class BadDirectory(ValueError):  # noqa: N818 - named for what is wrong
    """The directory is no bundle that can be judged here.

    The message has a line for each thing that is wrong.
    """


@contextmanager
def opened_verdicts(path: Path) -> Iterator[tuple[BinaryIO, dict[str, Verdict]]]:
    """Open the file for appending, locked; return it and the verdicts that it has, by their jobs' nonces.

    Raises BadDirectory.

    An unfinished last line is cut off: its writer was killed.
    """
    try:
        file = path.open("a+b", buffering=0)
    except OSError as error:
        raise BadDirectory(f"{path.name}: found {error}, expected a file that can be written") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadDirectory(f"{path.name}: found another judge at work on it, expected none") from None
        except OSError as error:  # some file systems of clusters have no locks
            say(f"{path.name} cannot be locked ({error}): see to it that only one judge works on it")
        file.seek(0)
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole != len(content):
            say(f"{path.name}: the last line was not finished; it is cut off and its job is judged again")
            file.truncate(whole)
        yield file, dict(_read(line, number) for number, line in enumerate(content[:whole].split(b"\n")[:-1], 1))


def opened_unjudged(path: Path) -> BinaryIO:
    """Open the file and empty it: what an earlier run could not judge is tried again.

    Raises BadDirectory.
    """
    try:
        return path.open("wb", buffering=0)
    except OSError as error:
        raise BadDirectory(f"{path.name}: found {error}, expected a file that can be written") from None


def append_verdict(file: BinaryIO, job: SignedJob, verdict: Verdict, screened: Verdict | None = None) -> None:
    """Write the verdict on a job; `screened`: of a verification that came along, the verdict on its screening."""
    signed = {**ticket_of(job), "signature": job["signature"], "verdict": verdict, "host": _host()}
    line = cast("SignedVerdict", signed)
    if screened is not None:
        line["screening_digest"] = digest(screened)
    _append(file, line)


def append_unjudged(file: BinaryIO, job: SignedJob, error: JudgeError) -> None:
    """Write why there is no verdict on a job."""
    kind: Literal["refused", "timeout", "died"] = "died"
    if isinstance(error, JobRefused):
        kind = "refused"
    elif isinstance(error, JudgeTimeout):
        kind = "timeout"
    reason = str(error)
    if len(reason) > LONGEST_REASON:  # of what a judge wrote before it fell, the end says most
        reason = "..." + reason[3 - LONGEST_REASON :]
    line: SignedUnjudged = {
        **ticket_of(job),
        "signature": job["signature"],
        "unjudged": {"kind": kind, "reason": reason},
        "host": _host(),
    }
    _append(file, line)


def _read(line: bytes, number: int) -> tuple[str, Verdict]:
    try:
        document = read_strictly(line.decode())
        check(SignedVerdict, document, "")
        return str(document["nonce"]), cast("Verdict", document["verdict"])
    except ValueError as error:
        raise BadDirectory(f"{VERDICTS}: line {number}, {error}; remove that line to have its job judged") from None


def _host() -> dict[str, str]:
    """Return this host's description of itself."""
    return {
        "name": platform.node(),
        "system": platform.platform(),
        "judged_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _append(file: BinaryIO, line: SignedVerdict | SignedUnjudged) -> None:
    """Write one line, and have it on the disk before anything else happens."""
    raw: Any = memoryview(json.dumps(line, allow_nan=False).encode() + b"\n")
    while raw:
        raw = raw[file.write(raw) :]
    os.fsync(file.fileno())


def say(text: str) -> None:
    """Print a line for the person who started the judge."""
    print(text, file=sys.stderr, flush=True)

"""`python -m workers.judge`: one job a line in, one verdict a line out, diagnostics on standard error. Ends at end of
input.

`--die-with-parent PID`: be killed when the thread of process PID that started this one ends.
WARPSMITH_JUDGE_CACHE names the cache directory (default: the user's cache, warpsmith/judge). A broken line gets an
error line back: {"id", "error": {"field", "found", "expected"}}.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from workers.judge import process_control

_IDLE_S = 10.0


def cache_directory() -> Path:
    """The judge's cache in force."""
    named = os.environ.get("WARPSMITH_JUDGE_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "warpsmith" / "judge"


def _terminate(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _lines(fd: int, idle: Any) -> Iterator[str]:
    """Lines from a descriptor as they come; `idle()` is called every _IDLE_S of waiting."""
    pending = b""
    while True:
        while not select.select([fd], [], [], _IDLE_S)[0]:
            idle()
        block = os.read(fd, 1 << 20)
        if not block:
            if pending.strip():
                yield pending.decode(errors="replace")
            return
        *lines, pending = (pending + block).split(b"\n")
        for line in lines:
            if line.strip():
                yield line.decode(errors="replace")


def main() -> int:
    """Serve until the end of input; returns the exit status."""
    arguments = argparse.ArgumentParser(prog="python -m workers.judge", description="Judge jobs from standard input.")
    arguments.add_argument("--die-with-parent", type=int, metavar="PID")
    parent = arguments.parse_args().die_with_parent
    if parent is not None:
        process_control.die_with_parent(parent)
    process_control.hide_memory()
    process_control.adopt_orphans()
    signal.signal(signal.SIGTERM, _terminate)
    # The referee's own threads must sleep at once: one that spins after a copy takes a core from the contender that is
    # timed.
    os.environ["GOMP_SPINCOUNT"] = "0"
    # Imported late: the lines above must stand before anything slow does.
    from workers.judge.door import BrokenJob, parse_job  # noqa: PLC0415
    from workers.judge.referee import Referee, cores_available  # noqa: PLC0415

    door = os.dup(1)
    os.dup2(2, 1)  # whatever prints, the door carries verdicts alone
    referee = Referee(cache_directory(), cores_available())
    try:
        for line in _lines(0, referee.end_idle):
            try:
                answer: Any = referee.judge(referee.prepare(parse_job(line)))
            except BrokenJob as broken:
                answer = {
                    "id": broken.id,
                    "error": {"field": broken.field, "found": broken.found, "expected": broken.expected},
                }
            raw = json.dumps(answer, allow_nan=False).encode() + b"\n"
            while raw:
                raw = raw[os.write(door, raw) :]
    except KeyboardInterrupt:
        return 130
    finally:
        referee.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Starts a recording of the whole process where `WARPSMITH_RECORD` says so.

vLLM and SGLang call `start` in each of their processes (entry points `vllm.general_plugins` and `sglang.srt.plugins`);
`python -m warpsmith.workers.recording` calls it for any other. It imports nothing before it knows that it is wanted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warpsmith.workers.recording.tally import ProcessFile

VARIABLE = "WARPSMITH_RECORD"
"""Where to record: a path such as `calls.json`; each process writes a file of its own beside it."""

FUNCTIONS = "WARPSMITH_RECORD_FUNCTIONS"
"""`1`: record torch's functions as well, in the thread that starts the recording."""

_started: list[ProcessFile] = []


def start() -> None:
    """Record this process from now on, where `WARPSMITH_RECORD` is set. Never raises; a second call does nothing."""
    path = os.environ.get(VARIABLE)
    if not path or _started:
        return
    try:
        _start(Path(path).absolute(), functions=os.environ.get(FUNCTIONS, "") not in ("", "0"))
    except Exception as error:  # noqa: BLE001 - a recording never breaks its process
        sys.stderr.write(f"{VARIABLE}: nothing is recorded ({type(error).__name__}: {error})\n")


def _start(path: Path, *, functions: bool) -> None:
    from warpsmith.workers.recording.hooks import Hooks, read  # noqa: PLC0415 - needs torch
    from warpsmith.workers.recording.tally import ProcessFile, Tally  # noqa: PLC0415 - only where it is wanted

    tally = Tally(read)
    file = ProcessFile(tally, path)
    Hooks(tally, None, functions, seen=file.watch).start()
    _started.append(file)

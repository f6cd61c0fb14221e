"""Runs a compiler: bounded in time, memory and output, in a session of its own that dies as a whole."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LOG_BYTES = 256 * 1024
_FILE_BYTES = 256 * 1024 * 1024

# The limits are set by a shell that then becomes the compiler: code between fork and exec of a threaded process is not
# safe.
_LIMITED = 'ulimit -c 0 && ulimit -v "$1" && ulimit -t "$2" && ulimit -f "$3" && shift 3 && exec "$@"'


@dataclass(frozen=True)
class Finished:
    """How a command ended. `timed_out`: it was killed after its time; `log`: the start of its standard output and
    error, together.
    """

    returncode: int
    log: str
    timed_out: bool


def run_limited(
    command: Sequence[str],
    *,
    cwd: Path,
    timeout_s: float,
    memory_bytes: int,
    variables: Mapping[str, str] | None = None,
) -> Finished:
    """Run `command` in `cwd` with an environment of PATH, TMPDIR and `variables` alone.

    Args:
        timeout_s: wall-clock seconds; then the whole process group is killed. CPU seconds are limited alike, so that an
            orphan ends too.
        memory_bytes: address space of each process.
        variables: added to that environment.

    Raises:
        FileNotFoundError: there is no such command.
    """
    environment = {"PATH": os.environ.get("PATH", os.defpath), "TMPDIR": str(cwd), "LC_ALL": "C", **(variables or {})}
    limits = [str(memory_bytes // 1024), str(int(timeout_s) + 2), str(_FILE_BYTES // 512)]
    output = cwd / "output"
    with output.open("wb") as sink:
        process = subprocess.Popen(
            ["/bin/sh", "-c", _LIMITED, "sh", *limits, *command],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        timed_out = not _wait(process, timeout_s)
    with output.open("rb") as file:
        log = file.read(_LOG_BYTES).decode("utf-8", "replace")
    if process.returncode == 127 and "not found" in log:
        raise FileNotFoundError(f"no such command: {shlex.join(command[:1])}")
    return Finished(process.returncode, log, timed_out)


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Wait for the command, then kill what is left of its process group; False when its time was over.

    The command is reaped last: until then its process id, which names the group, cannot belong to anybody else.
    """
    descriptor = os.pidfd_open(process.pid)
    try:
        ended = bool(select.select([descriptor], [], [], timeout_s)[0])
    finally:
        os.close(descriptor)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return ended

"""This process's program server, shared by all threads: runs a program in a confined child.

It is started when a program is first run, and started again when it died.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warpsmith import IMPORT_ROOT
from warpsmith.kernels_db.runtime.process import Finished
from warpsmith.workers.judge.machine.timing_guard import QUIET
from warpsmith.workers.judge.preloaded.client import ForkServerDied, PreloadedServer, Shared
from warpsmith.workers.judge.sandbox.sandbox import Confinement, Profile, expected

_MODULE = "warpsmith.workers.judge.preloaded.program_server"
_FILE_BYTES = 256 * 1024 * 1024
_LOG_BYTES = 256 * 1024


@dataclass(frozen=True)
class Program:
    """A command with what it may do.

    command: its first word is a path. environment: all that it inherits. memory_bytes: address space of each of its
    processes; None leaves it as it is. fixed_addresses: its memory lies where it always does, which sanitizers ask for.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    profile: Profile
    memory_bytes: int | None
    fixed_addresses: bool = False


class ProgramServer(PreloadedServer):
    """One server process. Thread-safe. Close it."""

    def __init__(self) -> None:
        """Start the process without waiting for it."""
        self._home = tempfile.TemporaryDirectory(prefix="warpsmith-programs-")
        home = Path(self._home.name)
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C",
            "HOME": str(home),
            "TMPDIR": str(home),
            "PYTHONPATH": str(IMPORT_ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONNOUSERSITE": "1",
        }
        super().__init__(_MODULE, environment, home)

    def run(self, program: Program, place: Path, seconds: float) -> Finished:
        """Run a program in directory `place`, whose file `output` gets what it prints.

        When it has ended, or its time is over, it is gone with everything that it started. Raises ForkServerDied.
        """
        limits = {"CPU": int(seconds) + 2, "FSIZE": _FILE_BYTES, "CORE": 0}
        if program.memory_bytes is not None:
            limits["AS"] = program.memory_bytes
        request: dict[str, Any] = {
            "directory": str(place),
            "command": list(program.command),
            "environment": dict(program.environment),
            "profile": program.profile.document(),
            "limits": limits,
            "fixed_addresses": program.fixed_addresses,
        }
        path = place / "output"
        with path.open("wb") as output:
            child = self.fork(request, output.fileno())
        with contextlib.closing(child):
            code = child.exit_code(seconds)
            timed_out = code is None
            ended = child.kill() if code is None else code
        with path.open("rb") as file:
            return Finished(ended, file.read(_LOG_BYTES).decode("utf-8", "replace"), timed_out)

    def confinement(self, profile: Profile) -> Confinement:
        """Return the confinement of a program with this profile here. Raises ForkServerDied."""
        return expected(profile, self.ready())

    def close(self) -> None:
        """End the server and every program."""
        super().close()
        self._home.cleanup()


_SHARED = Shared(ProgramServer)


def run(program: Program, place: Path, seconds: float) -> Finished:
    """`ProgramServer.run` on this process's server. From any thread.

    Raises OSError where the servers of two tries die.
    """
    with QUIET.resting():
        return _SHARED.use(lambda server: server.run(program, place, seconds))


def confinement(profile: Profile) -> Confinement | None:
    """Return the confinement of programs with this profile; None where this process has run none."""
    server = _SHARED.running()
    try:
        return server.confinement(profile) if server is not None else None
    except ForkServerDied:
        return None


def close() -> None:
    """End this process's server, if there is one."""
    _SHARED.drop(None)


atexit.register(close)

"""The referee's handle on one launcher, and through it on a tool and all that the tool starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from warpsmith.workers.judge.machine import process_control
from warpsmith.workers.judge.nsight.launcher import TIMED_OUT

GRACE_S = 15.0
"""Seconds for a launcher to end what is under it."""
_MODULE = "warpsmith.workers.judge.nsight.launcher"


class Launch:
    """A launcher, from its start to its end. Close it: nothing of it is left then, whatever it was at."""

    def __init__(self, spec: Path, environment: Mapping[str, str], output: int) -> None:
        """Start it, see `launcher`; what is printed goes to the descriptor `output`. Raises OSError."""
        control, self._ours = os.pipe2(os.O_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", _MODULE, str(control), str(spec), str(output)],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[control, output],
                start_new_session=True,
            )
        except BaseException:
            os.close(self._ours)
            raise
        finally:
            os.close(control)
        process_control.own_children.add(self._process.pid)

    def wait(self, seconds: float) -> int:
        """Wait for its end; return its exit status, TIMED_OUT where it takes longer."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return TIMED_OUT

    def close(self) -> None:
        """End it with all that is under it."""
        os.close(self._ours)  # it kills all under it, and ends
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        if self._process.poll() is None:
            process_control.kill_session(self._process.pid)
            self._process.wait()
        process_control.own_children.discard(self._process.pid)

    def __enter__(self) -> Launch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

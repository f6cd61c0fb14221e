"""Analyses in a separate process, for the command line and the API. Standard library only."""

from __future__ import annotations

import itertools
import os
import sys
from types import TracebackType
from typing import Any, Self

from warpsmith.kernels_db.job.documents import SandboxLevel
from warpsmith.kernels_db.job.file_analysis import Analysis, AnalysisFailed
from warpsmith.workers.judge.protocol.client import judge_environment
from warpsmith.workers.judge.protocol.connection import Connection

START_S = 90.0
"""Longest wait for the process besides the file's own time: torch's start."""

_CLOSE_S = 10.0


class Analyser:
    """Analyses requests, one after another, in one process with a clean environment. Close it.

    Each file runs in a sandbox of its own. The process starts with the first request, and again where it ended or was
    ended. It also ends with the thread that asked it first.
    """

    def __init__(self, minimum: SandboxLevel | None, seconds: float = 60.0) -> None:
        """Run no file in a sandbox below `minimum`, and end an analysis that takes longer than `seconds`."""
        self._limits = {"minimum": minimum, "seconds": seconds}
        self._patience_s = START_S + seconds
        self._numbers = itertools.count()
        self._connection: Connection | None = None

    def __call__(self, request: dict[str, Any]) -> Analysis:
        """Return the answer to a request. Raises AnalysisFailed."""
        if self._connection is None or not self._connection.running:
            self.close()
            command = [sys.executable, "-P", "-m", "warpsmith.workers.judge.analysis"]
            command += ["--die-with-parent", str(os.getpid())]
            self._connection = Connection(command, lambda home: judge_environment(home, home), None)
        waiting = self._connection.ask({"id": str(next(self._numbers)), "request": request} | self._limits)
        if not waiting.done.wait(self._patience_s):
            self._connection.kill()
            raise AnalysisFailed("timeout", f"no answer within {self._patience_s:g} s")
        answer = waiting.document
        if answer is None:
            assert waiting.end is not None
            said = waiting.end.text.strip().splitlines()
            raise AnalysisFailed("host", f"the analysis ended with status {waiting.end.status}: {said[-1]}")
        if "failed" in answer:
            raise AnalysisFailed(str(answer["failed"]["kind"]), str(answer["failed"]["message"]))
        return Analysis(answer["answer"], str(answer["sandbox"]))

    def close(self) -> None:
        """End the process."""
        if self._connection is not None:
            self._connection.finish(_CLOSE_S)
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

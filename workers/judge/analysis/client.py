"""Analyses in a separate process, for the command line and the API. Standard library only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.job.documents import SandboxLevel
from warpsmith.kernels_db.job.file_analysis import Analysis, AnalysisFailed
from warpsmith.workers.judge.protocol.client import judge_environment

START_S = 90.0
"""Longest wait for the process besides the file's own time: torch's start."""


def analyser(minimum: SandboxLevel | None, seconds: float = 60.0) -> Callable[[dict[str, Any]], Analysis]:
    """Return a function that analyses a request in a fresh process with a clean environment.

    It refuses to run a file in a sandbox below `minimum`, and ends an analysis that takes longer than `seconds`.
    """

    def analyse(request: dict[str, Any]) -> Analysis:
        with tempfile.TemporaryDirectory(prefix="warpsmith-analysis-") as home:
            answer = _asked({"minimum": minimum, "seconds": seconds, "request": request}, Path(home))
        if "failed" in answer:
            raise AnalysisFailed(str(answer["failed"]["kind"]), str(answer["failed"]["message"]))
        return Analysis(answer["answer"], str(answer["sandbox"]))

    return analyse


def _asked(document: dict[str, Any], home: Path) -> dict[str, Any]:
    timeout_s = START_S + document["seconds"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "warpsmith.workers.judge.analysis", "--die-with-parent", str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=judge_environment(home, home),
        cwd=home,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(json.dumps(document).encode(), timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise AnalysisFailed("timeout", f"no answer within {timeout_s:g} s") from None
    if process.returncode != 0:
        said = err.decode(errors="replace").strip().splitlines()
        raise AnalysisFailed("host", f"the analysis ended with status {process.returncode}: {said[-1] if said else ''}")
    answer: dict[str, Any] = json.loads(out)
    return answer

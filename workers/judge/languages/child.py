"""Runs one of the judge's own modules in a limited process and reads its answer, a JSON document in a file."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from kernels_db.runtime import CompileError
from kernels_db.runtime.cache import CACHE_VARIABLE
from kernels_db.runtime.errors import trim_log
from kernels_db.runtime.process import run_limited
from workers.judge.languages.prepared import CompileLimits

_ROOT = Path(__file__).resolve().parents[3]
_ANSWER_BYTES = 1 << 20


def ask(
    module: str, request: dict[str, Any], *, cache_dir: Path, limits: CompileLimits, variables: dict[str, str]
) -> dict[str, Any]:
    """Run `python -m module request.json answer.json` in an empty directory and return the answer.

    An answer of the form {"error", "log"} is raised. The module may import the candidate, so its answer is only
    believed as a report: it decides nothing about a result.

    Raises:
        CompileError: the module said so, or died, or ran out of time or memory.
    """
    cache_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="compile-") as name:
        place = Path(name)
        (place / "request.json").write_text(json.dumps(request))
        paths = [str(_ROOT), *(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)]
        finished = run_limited(
            [sys.executable, "-m", module, "request.json", "answer.json"],
            cwd=place,
            timeout_s=limits.seconds,
            memory_bytes=limits.memory_bytes,
            variables={
                "PYTHONPATH": os.pathsep.join(paths),
                "PYTHONDONTWRITEBYTECODE": "1",
                "HOME": name,
                CACHE_VARIABLE: str(cache_dir),
                **variables,
            },
        )
        if finished.timed_out:
            raise CompileError(f"compiling took longer than {limits.seconds:g} s", trim_log(finished.log))
        answer = place / "answer.json"
        if not answer.is_file() or answer.stat().st_size > _ANSWER_BYTES:
            reason = (
                "ran out of memory" if "MemoryError" in finished.log else f"ended with status {finished.returncode}"
            )
            raise CompileError(f"the compiling process {reason}", trim_log(finished.log))
        try:
            document = json.loads(answer.read_text())
        except ValueError as error:
            raise CompileError("the compiling process gave no readable answer", trim_log(finished.log)) from error
    if not isinstance(document, dict) or "error" in document:
        said = document if isinstance(document, dict) else {"error": "no readable answer", "log": ""}
        raise CompileError(str(said["error"])[:1000], trim_log(str(said.get("log", ""))))
    return document

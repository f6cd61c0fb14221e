"""Run one of the judge's own modules in a limited child of the compile server.

It reads the child's answer, a JSON document in a file.
"""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warpsmith.kernels_db.runtime import CompileError, HostError
from warpsmith.kernels_db.runtime.cache import CACHE_VARIABLE
from warpsmith.kernels_db.runtime.errors import Cause, trim_log
from warpsmith.workers.judge.languages import compile_service
from warpsmith.workers.judge.languages.prepared import CompileLimits, TrialError

_ANSWER_BYTES = 1 << 20
_LOG_BYTES = 256 * 1024


def ask(
    module: str, request: dict[str, Any], *, cache_dir: Path, limits: CompileLimits, variables: Mapping[str, str]
) -> dict[str, Any]:
    """Run `main` of `module` (request.json, answer.json) in an empty directory.

    Returns the answer. From any thread.

    An answer of the form {"error", "log"} is raised, one with "host" as a HostError, one with "workload" as a
    TrialError. The module may import the candidate, so its answer is only believed as a report: it decides nothing
    about a result.

    Raises:
        CompileError: the module said so, or died, or ran out of time or memory; `cause` tells those apart.
        HostError: the module said that nothing can be built here.
        OSError: the host does not let compilers run.
    """
    cache_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="compile-") as name:
        place = Path(name)
        (place / "request.json").write_text(json.dumps(request))
        code, timed_out = compile_service.run(module, place, {CACHE_VARIABLE: str(cache_dir), **variables}, limits)
        with (place / "output").open("rb") as file:
            log = file.read(_LOG_BYTES).decode("utf-8", "replace")
        if timed_out:
            raise CompileError(f"compiling took longer than {limits.seconds:g} s", trim_log(log), "timeout")
        answer = place / "answer.json"
        if not answer.is_file() or answer.stat().st_size > _ANSWER_BYTES:
            cause = _cause(code, log)
            reason = "ran out of memory" if cause == "memory" else f"ended with status {code}"
            raise CompileError(f"the compiling process {reason}", trim_log(log), cause)
        try:
            document = json.loads(answer.read_text())
        except ValueError as error:
            raise CompileError("the compiling process gave no readable answer", trim_log(log)) from error
    if not isinstance(document, dict) or "error" in document:
        said = document if isinstance(document, dict) else {"error": "no readable answer", "log": ""}
        message, log = str(said["error"])[:1000], trim_log(str(said.get("log", "")))
        if "workload" in said:
            raise TrialError(message, log, str(said["workload"])[:200])
        raise (HostError if said.get("host") is True else CompileError)(message, log)
    return document


def _cause(code: int, log: str) -> Cause | None:
    """Return why a process left no answer; None where the compiler itself crashed.

    A source can make the compiler crash.

    A module that raises instead of answering (status 1 or more) could not import what it needs: what the candidate
    raises is in an answer.
    """
    if any(word in log for word in ("MemoryError", "bad_alloc", "Cannot allocate memory")):
        return "memory"
    if code == -signal.SIGXCPU:
        return "timeout"
    return "died" if code > 0 or code == -signal.SIGKILL else None

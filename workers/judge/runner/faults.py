"""The faults of a runner, told apart: how its process ended, and what its runner said.

The words come from untrusted code: data for a reader, bounded in length.
"""

from __future__ import annotations

import json
import signal
from typing import Any

from warpsmith.workers.judge.runner.commands import LONGEST_TEXT

_BROKEN_CONTRACTS = ("outputs", "shape", "dtype", "state", "floating_point_environment")
"""Kinds that a runner itself may name."""

_MEMORY_TYPES = ("MemoryError",)
_CONTEXT_WORDS = (
    "illegal memory access",
    "illegal instruction",
    "misaligned address",
    "unspecified launch failure",
    "device-side assert",
    "hardware stack error",
    "launch timed out",
    "ILLEGAL_ADDRESS",
    "ILLEGAL_INSTRUCTION",
    "MISALIGNED_ADDRESS",
    "LAUNCH_FAILED",
    "LAUNCH_TIMEOUT",
    "ERROR_ASSERT",
    "HARDWARE_STACK_ERROR",
)
"""In CUDA's names for errors after which a context is of no more use."""

_MEMORY_WORDS = ("can't allocate memory", "bad_alloc", "out of memory", "Cannot allocate memory")


class RunnerFault(Exception):  # noqa: N818 - named for what happened
    """A runner failed by its own doing.

    `kind` and `details` fill the verdict's failure; `runner` is its name; `external` marks an end by SIGKILL that the
    referee did not order: another process may have caused it, and one more try is worth it.
    """

    def __init__(self, runner: str, kind: str, message: str, *, external: bool = False, **details: Any) -> None:
        super().__init__(message)
        self.runner = runner
        self.kind = kind
        self.external = external
        self.details = details


def ended(name: str, code: int, log: str, *, closing: bool = False) -> RunnerFault:
    """Return the fault of a process that ended with `code`, negative for a signal.

    `log` is the end of what it wrote. closing: in a call whose buffers are closed to writes as `run` returns.
    """
    if code >= 0:
        found, message = f"exit code {code}", f"the process ended with exit code {code}"
        return RunnerFault(name, "crash", message, log=log, found=found, expected="a return")
    found = signal.Signals(-code).name if -code in signal.valid_signals() else f"signal {-code}"
    if any(word in log for word in _MEMORY_WORDS):
        return RunnerFault(name, "memory", f"ran out of memory ({found})", log=log, found=found, expected="a return")
    external = -code == signal.SIGKILL
    message = f"killed by {found}"
    if closing and -code == signal.SIGSEGV:
        message += ", which also ends a process that writes to closed memory: to its buffers when `run` has returned"
    return RunnerFault(name, "crash", message, external=external, log=log, found=found, expected="a return")


def reported(name: str, error: object) -> RunnerFault:
    """Return the fault that a runner described.

    Its words are data for a reader and are bounded by the channel.
    """
    if not isinstance(error, dict):
        return RunnerFault(name, "protocol", "the runner reported a failure that is no object")
    kind = error.get("kind")
    text = _text(error.get("message", ""))
    details: dict[str, Any] = {key: _bounded(error[key]) for key in ("found", "expected") if key in error}
    if error.get("type") in _MEMORY_TYPES or any(word in text for word in _MEMORY_WORDS):
        return RunnerFault(name, "memory", f"ran out of memory: {text}" if text else "ran out of memory", **details)
    if any(word in text for word in _CONTEXT_WORDS):
        lines = text.splitlines()
        return RunnerFault(name, "crash", f"broke its CUDA context: {lines[0]}", found=lines[0], expected="a return")
    if error.get("type") == "ContractError":
        return RunnerFault(name, kind if kind in _BROKEN_CONTRACTS else "raises", text, **details)
    return RunnerFault(
        name, "raises", f"{_text(error.get('type'))}: {text}", log=_text(error.get("trace", "")), **details
    )


def _bounded(value: object) -> object:
    """Return a value that a verdict may carry.

    A scalar or a flat list of scalars stays as it is, anything else becomes the beginning of its text. The code that
    builds and reads verdicts recurses, and a runner may nest as deeply as its message is long.
    """
    flat = value if isinstance(value, list) else [value]
    if any(isinstance(item, list | dict) for item in flat) or len(json.dumps(value)) > LONGEST_TEXT:
        return _text(value)
    return value


def _text(value: object) -> str:
    """Return the beginning of a value's text: of a text itself, of anything else as JSON."""
    try:
        text = value if isinstance(value, str) else json.dumps(value)
    except RecursionError:
        text = f"a {type(value).__name__} nested too deeply to show"
    return text[:LONGEST_TEXT]

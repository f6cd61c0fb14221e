"""Keep a benchmark's rows in a file while it runs: a run that is ended leaves those that it had."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

REASON = 200
"""Letters of a message that a row has."""


def write(file: Path, rows: Sequence[Any]) -> None:
    """Write rows (dataclasses) as JSON in one go: a process that is ended here leaves the rows of before."""
    beside = file.with_name(f".{file.name}.new")
    beside.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
    os.replace(beside, file)


def reason(error: BaseException) -> str:
    """Return what an error says in one line: its name and the first line of its message, which may be pages.

    Of one that PyTorch's compiler met and wrapped, that of the error itself.
    """
    while isinstance(inner := getattr(error, "inner_exception", None), BaseException):
        error = inner
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first[:REASON]}" if first else type(error).__name__

"""Requests for facts about a file that only running it shows.

Standard library only. The importers read files and run nothing; where shapes, dtypes or outputs depend on the
file's code, they ask an `Analyse`. `warpsmith.workers.judge.analysis` answers it in a sandboxed process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Analysis:
    """An answer, and the level of the sandbox in which it was found."""

    answer: dict[str, Any]
    sandbox: str


class AnalysisFailed(Exception):  # noqa: N818 - named for what happened
    """The file could not be analysed. `kind`: raises, timeout, memory, crash, sandbox, host."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


Analyse = Callable[[dict[str, Any]], Analysis]
"""A function that answers a request about files. Raises AnalysisFailed.

The request has `task` (module or task), the files' texts, and further fields by task.
"""

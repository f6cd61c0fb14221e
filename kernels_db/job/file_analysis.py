"""What can be known of a file only by running it, asked of somebody who may. Standard library only.

The importers read files and run nothing; where shapes, dtypes or outputs depend on what a file does, they ask an
`Analyse`. `warpsmith.workers.judge.analysis` answers it in a sandboxed process.
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
"""Takes a request (`task`: module or task; the files' texts; the rest by task). Raises AnalysisFailed."""

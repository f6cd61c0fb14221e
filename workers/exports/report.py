"""The result of an export's verification, as JSON and for a reader."""

from __future__ import annotations

import json
import os
import re
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["passed", "failed", "skipped"]
JSON_NAME, TEXT_NAME = "verification.json", "VERIFICATION.md"
NAMES = (JSON_NAME, TEXT_NAME)
"""The files that a verification leaves in the project directory."""

KERNEL_CHECK = "eager"


@dataclass(frozen=True)
class Row:
    """One check. seconds: of wall-clock time."""

    check: str
    outcome: Outcome
    detail: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Report:
    """A verification.

    `environment` says where the checks ran: versions, device, how the process was cut off. `kernel`, `target` and
    `source_digest` are those of each kernel of the package, with commas between them.
    """

    package: str
    kernel: str
    target: str
    source_digest: str
    verified_at: str
    rows: list[Row]
    environment: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether no check failed; what this machine could not check is skipped, and says so."""
        return all(row.outcome != "failed" for row in self.rows)

    @property
    def kernel_ran(self) -> bool:
        """Whether the kernel's own results were held against PyTorch here.

        Without its device they cannot be.
        """
        return any(row.check == KERNEL_CHECK and row.outcome == "passed" for row in self.rows)

    def count(self, outcome: Outcome) -> int:
        """Count the checks with this outcome."""
        return sum(row.outcome == outcome for row in self.rows)

    def document(self) -> dict[str, Any]:
        """Write the report as JSON."""
        return {"passed": self.passed, "kernel_ran": self.kernel_ran, **asdict(self)}

    def summary(self) -> str:
        """Write one line: how many checks ended how."""
        word = (
            "NOT verified" if not self.passed else "verified" if self.kernel_ran else "verified, but the kernel not run"
        )
        counts = ", ".join(f"{self.count(each)} {each}" for each in ("passed", "failed", "skipped") if self.count(each))
        return f"{self.package}: {word} ({counts})"

    def text(self) -> str:
        """Write the report as Markdown."""
        lines = [
            f"# Verification of {_plain(self.package)}",
            "",
            f"{_plain(self.summary())}, on {_plain(self.verified_at)}.",
            f"Kernel {_code(self.kernel)} for {_code(self.target)}, source SHA-256 {_code(self.source_digest)}.",
            "",
            "The checks ran in fresh processes with a clean environment, where Warpsmith could not be imported.",
            "",
            "| check | outcome | |",
            "|---|---|---|",
            *(f"| {_plain(row.check)} | {_plain(row.outcome)} | {_plain(row.detail)} |" for row in self.rows),
            "",
            *(f"- {_plain(name)}: {_plain(str(value))}" for name, value in self.environment.items() if value),
        ]
        return "\n".join(lines).rstrip() + "\n"

    def write(self, directory: Path) -> None:
        """Write both forms into `directory`, in place of an earlier verification's."""
        _replace(directory / JSON_NAME, json.dumps(self.document(), indent=1) + "\n")
        _replace(directory / TEXT_NAME, self.text())


def _replace(path: Path, text: str) -> None:
    """Put a new file at `path`; an older one goes.

    Where that is a link, its target stays as it is.
    """
    handle, unfinished = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        Path(unfinished).chmod(0o644)
        os.replace(unfinished, path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise


def _line(text: str) -> str:
    """Put `text` in one line of printable characters: the words of an export are foreign."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _plain(text: str) -> str:
    """Escape `text` so that Markdown shows nothing but its letters."""
    return re.sub(r"([\\`\[\]<>|&])", r"\\\1", _line(text))


def _code(text: str) -> str:
    """Write `text` as a code span, which a backtick cannot end."""
    return f"`{_line(text).replace('`', chr(39))}`"

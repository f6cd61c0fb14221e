"""An importer's result from a set of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Imported:
    """A spec's document, not yet checked, with notes, sandbox and sizes.

    The notes are for the reader; the sandbox is the one in which it was analysed, None where nothing was run. The sizes
    are those of the file with which its spec was compared with it, by name; none where it was at its own. `small` is
    the document of the spec with them, None without.
    """

    document: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    sandbox: str | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    small: dict[str, Any] | None = None


def drawn_apart(names: Sequence[str], function: str) -> list[str]:
    """Return the note on inputs that the file draws in one call, and the spec each in its own."""
    if len(names) < 2:
        return []
    return [
        f"{function} draws {', '.join(names)} in one call; here each is drawn by its own, independently of the others"
    ]

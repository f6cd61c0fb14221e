"""What ships of what other machines found: decisions on regions, and traced references.

Both have the names that they have in the user's own cache, made of versions, devices and configurations: what was found
under others is not looked at. A package for a model has none. `python -m benchmarks.known` writes the files.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import torch

DIRECTORY = Path(__file__).parent / "known"
DECISIONS, REFERENCES = "decisions", "references"


def decisions(name: str) -> dict[str, Any]:
    """Return decisions by region as plain data, of the cache's file of this name; none where none ship."""
    return _part(DIRECTORY / decisions_file(name), DECISIONS)


def reference(name: str) -> dict[str, Any]:
    """Return the patterns of a reference by lead as plain data, of the cache's file of this name."""
    found = _references(DIRECTORY / references_file()).get(name, {})
    return found if isinstance(found, dict) else {}


def decisions_file(name: str) -> str:
    """Return the name of the file with the decisions of a file of the cache."""
    return f"decisions.{name}.json"


def references_file() -> str:
    """Return the name of the file with the references that were traced by this version of PyTorch."""
    return f"references.{torch.__version__}.json"


@functools.cache
def _references(file: Path) -> dict[str, Any]:
    return _part(file, REFERENCES)


def _part(file: Path, part: str) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text("utf-8"))[part]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}

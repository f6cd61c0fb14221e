"""Readers of the files and documents that options name or hold.

Errors never repeat their content: it may be a key, put into the wrong file or where its variable's name belongs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from warpsmith.service.client.errors import misuse

KINDS = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}


def read_text(option: str, path: Path) -> str:
    """Read the text of the file that `option` names; ends with misuse where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        misuse(option, str(path), f"a file that can be read ({error.strerror})")
    except UnicodeDecodeError as error:
        misuse(option, f"{path}, byte {error.start} of which is not UTF-8", "a text file")


def read_object(option: str, path: Path, expected: str) -> dict[str, Any]:
    """Read the JSON object in the file that `option` names.

    Ends with misuse that names file, line and column where it cannot be read.
    """
    return parse_object(option, read_text(option, path), expected, str(path))


def parse_object(option: str, text: str, expected: str, where: str = "a document") -> dict[str, Any]:
    """Parse `text` as a JSON object; errors say that it comes from `where`."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        misuse(option, f"{where}, which is not JSON at line {error.lineno}, column {error.colno}", expected)
    except (ValueError, RecursionError):  # integers of thousands of digits, nesting
        misuse(option, f"{where}, which is not JSON that can be read", expected)
    if not isinstance(document, dict):
        misuse(option, f"{where}, which holds {KINDS.get(type(document), 'a number')}", expected)
    return document


def make_directory(option: str, directory: Path) -> None:
    """Make the directory that `option` names, or that of its file; ends with misuse on failure."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        misuse(option, str(directory), f"a directory that is there or can be made ({error.strerror})")

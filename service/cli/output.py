"""Output of commands, and their exit codes.

Standard output carries results, standard error progress and errors. Under `--json` standard output is one JSON
document, an error's included. Exit codes: 0 done (`judge`: accepted), 1 failed (`judge`: not accepted), 2 misuse.

Models, ops' authors and other clients wrote much of the text: control characters in it never reach the terminal.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from warpsmith.service.documents.escaping import clean_text, escape_json

WIDEST = 400

stdout = Console(soft_wrap=True, highlight=False, emoji=False)
stderr = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)


def print_json(value: object) -> None:
    """Print one JSON document on standard output; models and lists of models are converted."""
    sys.stdout.write(escape_json(json.dumps(plain(value), ensure_ascii=False, indent=2)) + "\n")


def plain(value: object) -> Any:
    """Return `value` with every model turned into a document."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def print_wide(picture: Table | Tree) -> None:
    """Print a table or a tree at its natural width, uncut on any terminal.

    Text of others in it must have passed `escaping.clean_line`.
    """
    Console(width=WIDEST, highlight=False, emoji=False).print(picture)


def fit(line: str) -> str:
    """Cut a line of a list to the terminal's width; elsewhere it stays whole."""
    columns = shutil.get_terminal_size().columns
    return line if not sys.stdout.isatty() or len(line) <= columns else line[: columns - 3].rstrip() + "..."


def say(text: str) -> None:
    """Print a line on standard error."""
    stderr.print(clean_text(text), markup=False)


def tell(text: str) -> None:
    """Print a line of the result on standard output, changed by `escaping.clean_text` alone."""
    sys.stdout.write(clean_text(text) + "\n")

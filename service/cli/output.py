"""What commands say and how they end.

Standard output carries results, standard error progress and errors. Under `--json` standard output is one JSON
document, an error's included. Exit codes: 0 done (`judge`: accepted), 1 it did not come off (`judge`: not accepted),
2 misuse.

Much of what is said was written by models, by ops' authors or by other clients: nothing of it steers the terminal.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from warpsmith.service.documents.escaping import escaped, visible

WIDEST = 400

stdout = Console(soft_wrap=True, highlight=False, emoji=False)
stderr = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)


def print_json(value: object) -> None:
    """One JSON document on standard output; models and lists of models are understood."""
    sys.stdout.write(escaped(json.dumps(plain(value), ensure_ascii=False, indent=2)) + "\n")


def plain(value: object) -> Any:
    """`value` with every model turned into a document."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def print_wide(picture: Table | Tree) -> None:
    """A table or a tree on standard output at its natural width: nothing is cut, whatever the terminal's width. What
    others wrote stands in it as `foreign.seen` leaves it."""
    Console(width=WIDEST, highlight=False, emoji=False).print(picture)


def say(text: str) -> None:
    """A line on standard error."""
    stderr.print(visible(text), markup=False)


def tell(text: str) -> None:
    """A line of the result on standard output, as it is but for `foreign.visible`."""
    sys.stdout.write(visible(text) + "\n")

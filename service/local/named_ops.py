"""The op that a command or a tool names: the one way from its id or name to its spec.

A name is looked for in the service's store first, then among the examples that ship.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors
from warpsmith.kernels_db.spec.near_misses import suggest
from warpsmith.kernels_db.spec.op import Op, load_op, parse_op
from warpsmith.service.client.errors import misuse
from warpsmith.service.local.examples import list_examples

if TYPE_CHECKING:  # `judge` runs where the client's packages are not installed
    from warpsmith.service.client.http import Client

STORED = "op_"
"""How the id of a stored op begins."""

EXPECTED = f"a spec file that exists, or the id ({STORED}...) or name of an op"
MOST_SHOWN = 40
MOST_READ = 200
"""Stored ops whose names an error lists, and among which it looks for near misses."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
"""Of an op."""


@dataclass(frozen=True)
class NamedOp:
    """An op that was found by id or name; `place` says where, `id` is None for an example."""

    op: Op
    id: str | None
    place: str


def read_op_file(text: str, field: str, expected: str = EXPECTED) -> Op | None:
    """Read the spec in the file that `text` names; None where there is no such file and `text` may be a name or id.

    Ends with misuse of `field` where it is neither.
    """
    path = Path(text)
    if path.exists() and not path.is_dir():
        if path.suffix == ".py":
            misuse(field, text, "an op spec, in YAML or JSON: a candidate's file comes after it")
        return _load_file(path)
    if not NAME.fullmatch(text):
        misuse(field, text, f"{expected}{suggest(path.stem, list_examples())}")
    return None


def _load_file(path: Path) -> Op:
    """Read a spec; what is wrong with the file as a whole is said by its name. Raises SpecErrors."""
    try:
        return load_op(path)
    except SpecErrors as error:
        named = [
            SpecError(str(path), one.found, one.expected, one.line) if one.field == "document" else one
            for one in error.errors
        ]
        raise SpecErrors(named) from None


def find_op(client: Client | None, text: str, field: str, expected: str = EXPECTED) -> NamedOp:
    """Find an op by id or name; `client` is None where no service answers.

    Ends with misuse of `field` where the name is unknown, or that of several stored ops.
    """
    if client is not None and text.startswith(STORED):
        return _fetch(client, text)
    if not NAME.fullmatch(text):
        _refuse(client, text, field, expected)
    stored = [] if client is None else client.ops(name=text)
    if len(stored) > 1:
        ids = [f"{one.id} (stored {_day(one.created_at)}, digest {one.digest[:12]})" for one in stored]
        misuse(field, text, f"one op, but {len(stored)} stored ops have this name; the id of one: {_shorten(ids)}")
    if client is not None and stored:
        return _fetch(client, stored[0].id)
    example = list_examples().get(text)
    if example is None:
        _refuse(client, text, field, expected)
    return NamedOp(load_op(example), None, f"the example {example}")


def require_op(client: Client, text: str, field: str) -> None:
    """End with misuse of `field` where no op with this id or name is stored or ships."""
    if text.startswith(STORED):
        client.op(text)
    elif not NAME.fullmatch(text) or not (client.ops(name=text, most=1) or text in list_examples()):
        _refuse(client, text, field, f"the id ({STORED}...) or name of an op")


def _fetch(client: Client, op_id: str) -> NamedOp:
    found = client.op(op_id)
    return NamedOp(parse_op(found.spec), found.id, f"{found.id} of {client.url}")


def _refuse(client: Client | None, text: str, field: str, expected: str) -> NoReturn:
    stored = [] if client is None else sorted({one.name for one in client.ops(most=MOST_READ)})
    examples = list(list_examples())
    there = "no service answers" if client is None else f"stored: {_shorten(stored)}"
    meant = suggest(Path(text).stem, [*stored, *examples])
    # The likely name first: after two lists of names nobody finds it.
    misuse(field, text, f"{expected}{f'{meant} ' if meant else '; '}{there}; examples: {_shorten(examples)}")


def _shorten(names: list[str]) -> str:
    more = f" and {len(names) - MOST_SHOWN} more" if len(names) > MOST_SHOWN else ""
    return f"{', '.join(names[:MOST_SHOWN])}{more}" if names else "none"


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).date().isoformat()

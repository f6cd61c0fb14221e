"""Read JSON strictly, and check what both databases can keep. Standard library only."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
"""The characters that neither PostgreSQL nor UTF-8 takes: NUL and lone surrogates."""

Location = tuple[int | str, ...]
"""Where a value is: the names and positions that lead to it."""


class NotJson(ValueError):  # noqa: N818 - named for what was found
    """Text that is not JSON. `str()` reads "found the key 'a' twice, expected each key once"."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(f"found {found}, expected {expected}")
        self.found, self.expected = found, expected


def read_strictly(text: str, levels: int = 64) -> Any:
    """Read the document in `text`.

    Raises NotJson, for NaN, infinities and a name given twice as well. Numbers too large for a float become
    infinite, and only nesting that cannot be read is refused, for which the error expects at most `levels`: `walk`
    checks both.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except NotJson:
        raise
    except json.JSONDecodeError as error:
        raise NotJson(
            f"text that is not JSON ({error.msg}, line {error.lineno}, column {error.colno})", "JSON"
        ) from None
    except RecursionError:
        raise NotJson("more levels", f"at most {levels} levels of nesting") from None
    except ValueError:
        raise NotJson("a number of thousands of digits", "numbers of at most 64 bits") from None


def _refuse_constant(name: str) -> NoReturn:
    raise NotJson(name, "a finite number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise NotJson(f"the key {name[:100]!r} twice", "each key once")
        members[name] = value
    return members


def count_values(document: Any, most: int) -> int:
    """Count the values of a document, keys included; stops counting soon after `most`."""
    count, pending = 1, [document]
    while pending and count <= most:
        value = pending.pop()
        if isinstance(value, dict):
            count += 2 * len(value)
            pending.extend(item for item in value.values() if isinstance(item, dict | list | tuple))
        elif isinstance(value, list | tuple):
            count += len(value)
            pending.extend(item for item in value if isinstance(item, dict | list | tuple))
    return count


def walk(document: Any) -> Iterator[tuple[Location, int, Any]]:
    """Yield every value with its location and level, without recursion.

    A key is a value of its own, called "(name)".
    """
    pending: list[tuple[Location, int, Any]] = [((), 0, document)]
    while pending:
        location, level, value = pending.pop()
        yield location, level, value
        if isinstance(value, dict):
            pending.extend(((*location, str(name)[:100]), level + 1, item) for name, item in value.items())
            pending.extend(((*location, "(name)"), level, name) for name in value)
        elif isinstance(value, list):
            pending.extend(((*location, position), level + 1, item) for position, item in enumerate(value))


def is_storable(document: Any, levels: int) -> bool:
    """Check what `walk` and `expected_scalar` would of every value, without saying where one is wrong.

    It takes a quarter of their time, and most documents are right.
    """
    found = [document]
    for _ in range(levels + 1):
        below: list[Any] = []
        for value in found:
            if isinstance(value, dict):
                if any(expected_scalar(name) is not None for name in value):
                    return False
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
            elif expected_scalar(value) is not None:
                return False
        if not below:
            return True
        found = below
    return False


def expected_scalar(value: Any) -> str | None:
    """Return the expectation in place of a value that holds no others.

    None where JSON and both databases can keep it.
    """
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return "text without NUL or lone surrogates" if UNSTORABLE.search(value) else None
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else "an integer of at most 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else "a finite number"
    return "text, a number, true, false, null, a list or a mapping"

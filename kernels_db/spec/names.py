"""Names of a format as names of an op spec."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from warpsmith.kernels_db.spec import expr

LONGEST = 128


def identifier(text: str, default: str) -> str:
    """Return `text` as a name of the spec, or `default` where no character is left.

    Other characters become `_`. "1_Square matrix.multiply" is "square_matrix_multiply" with a number in front left
    out.
    """
    name = re.sub(r"[^A-Za-z0-9_]+", "_", text)
    name = re.sub(r"_+", "_", name).strip("_").lstrip("0123456789_")[:LONGEST]
    if not name:
        return default
    return f"{name}_" if keyword.iskeyword(name) or name in expr.FUNCTIONS else name


class Names:
    """Names that are given out once each."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # by the name before it, the next number that may be free

    def new(self, name: str) -> str:
        """Return the name, with a number where it is taken."""
        chosen, base = name, name[: LONGEST - 5]
        while chosen in self._taken:
            number = self._numbers.get(base, 2)
            self._numbers[base] = number + 1
            chosen = f"{base}_{number}"
        self._taken.add(chosen)
        return chosen


def unique(names: Iterable[str]) -> list[str]:
    """Return the names, each later one of a kind with a number: ["x", "x"] is ["x", "x_2"]."""
    given = Names()
    return [given.new(name) for name in names]

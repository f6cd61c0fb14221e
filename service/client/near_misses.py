"""Known names that are like one that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MOST = 3


def suggest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean a or b?`, or an empty text where no known name is like `word`."""
    names = {_plain(name): name for name in known}
    found = get_close_matches(_plain(word), names, n=MOST)
    return f"; did you mean {' or '.join(names[each] for each in found)}?" if found else ""


def _plain(word: str) -> str:
    return word.lower().replace("-", "_")

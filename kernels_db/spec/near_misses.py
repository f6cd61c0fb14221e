"""Known names that are like one that is not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType

MOST = 3

LONGEST_WORD = 128
"""Characters of a word that is compared: the comparison takes time that grows with their square."""

_NO_ALIASES: Mapping[str, str] = MappingProxyType({})


def one_of(word: object, known: Iterable[str]) -> str:
    """Return `one of a, b, c`, and which of them is like `word` where one is."""
    names = list(known)
    return f"one of {', '.join(names)}{suggest(word, names)}"


def suggest(word: object, known: Iterable[str], aliases: Mapping[str, str] = _NO_ALIASES) -> str:
    """Return `; did you mean a or b?`, or an empty text where no known name is like `word`.

    `aliases`: names of known ones elsewhere, in lower case. What is no text is like nothing.
    """
    if not isinstance(word, str) or len(word) > LONGEST_WORD:
        return ""
    names = {_plain(name): name for name in known}
    plain = _plain(word)
    alias = aliases.get(plain)
    found = [alias] if alias is not None else [names[each] for each in get_close_matches(plain, names, n=MOST)]
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _plain(word: str) -> str:
    return word.strip().lower().replace("-", "_")

"""Known names that are like one that is not known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from itertools import islice
from types import MappingProxyType

MOST = 3

LONGEST_WORD = 32
"""Characters of a word that is compared: the comparison takes time that grows with their square."""

MOST_COMPARED = 64
"""Names that one word is compared with: 32 characters each take 8 ms together at most."""

MOST_WORDS = 16
"""Words of one document that are compared: its further errors say what is known alone."""

_CUTOFF = 0.6
"""Of difflib's ratio, 2 * common characters / characters of both: its own default."""

_NO_ALIASES: Mapping[str, str] = MappingProxyType({})

_words_left: ContextVar[int | None] = ContextVar("_words_left", default=None)
"""How many more words of the document in work are compared; None outside of any."""


@contextmanager
def few_suggestions() -> Iterator[None]:
    """Compare at most `MOST_WORDS` words inside, for a document may have any number of wrong ones.

    Inside another such block that one's words count.
    """
    if _words_left.get() is not None:
        yield
        return
    token = _words_left.set(MOST_WORDS)
    try:
        yield
    finally:
        _words_left.reset(token)


def one_of(word: object, known: Iterable[str]) -> str:
    """Return `one of a, b, c`, and which of them is like `word` where one is."""
    names = list(known)
    return f"one of {', '.join(names)}{suggest(word, names)}"


def suggest(word: object, known: Iterable[str], aliases: Mapping[str, str] = _NO_ALIASES) -> str:
    """Return `; did you mean a or b?`, or an empty text where no known name is like `word`.

    `aliases`: names of known ones elsewhere, in lower case. What is no text, is long, or comes after the words that
    `few_suggestions` allows, is like nothing; of the known names the first that have about its length are compared.
    """
    if not isinstance(word, str) or len(word) > LONGEST_WORD:
        return ""
    plain = _plain(word)
    alias = aliases.get(plain)
    found = [alias] if alias is not None else _compared(plain, known)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _compared(plain: str, known: Iterable[str]) -> list[str]:
    left = _words_left.get()
    if left is not None:
        if left < 1:
            return []
        _words_left.set(left - 1)
    near = (name for name in known if len(name) <= LONGEST_WORD and _may_be_like(len(plain), len(name)))
    names = {_plain(name): name for name in islice(near, MOST_COMPARED)}
    return [names[each] for each in get_close_matches(plain, names, n=MOST, cutoff=_CUTOFF)]


def _may_be_like(one: int, other: int) -> bool:
    """Whether texts of these lengths reach the cutoff where the shorter is all in the longer."""
    return 2 * min(one, other) >= _CUTOFF * (one + other)


def _plain(word: str) -> str:
    return word.strip().lower().replace("-", "_")

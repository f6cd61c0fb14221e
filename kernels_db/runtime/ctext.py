"""C-family source as text: comments dropped, preprocessor lines found, tokens read. Nothing is preprocessed.

Every pattern consumes what it starts, closed or not, so that each function is linear in the length of its input.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple

# GCC joins lines across white space after the backslash, too.
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")
_LEXEME = re.compile(
    r"""
      (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\((?:.*?\)(?P=delimiter)"|.*\Z))
    | (?P<literal>"(?:\\.|[^"\\\n])*"?)
    | (?P<word>[A-Za-z_]\w*|\.?[0-9](?:'?\w|\.|(?<=[eEpP])[+-])*)
    | (?P<char>'(?:\\.|[^'\\\n])*'?)
    | (?P<comment>//[^\n]*|/\*(?:.*?\*/|.*\Z))
    | (?P<mark>::|\[\[|\]\]|\S)
    """,
    re.DOTALL | re.VERBOSE,
)
_DIRECTIVE = re.compile(r"^[ \t]*(?:\#|%:)[ \t]*(\w*)(.*)$", re.MULTILINE)


class Directive(NamedTuple):
    """A preprocessor line, continuation lines joined: `#include <cmath>` is ("include", "<cmath>")."""

    line: int
    name: str
    text: str


def directives(source: str) -> list[Directive]:
    """The preprocessor lines of `source`, by line."""
    text, joins = _spliced(source)
    text = _without_comments(text)
    found = []
    line, last = 1, 0
    for match in _DIRECTIVE.finditer(text):
        line += text.count("\n", last, match.start(1))
        last = match.start(1)
        found.append(Directive(line + bisect_right(joins, last), match[1], match[2].strip()))
    return found


def tokens(source: str) -> list[str]:
    """The tokens of `source` without comments and preprocessor lines; a literal is one token, a raw string an empty
    one.
    """
    text = _DIRECTIVE.sub("", _without_comments(_spliced(source)[0]))
    return ['""' if m["raw"] is not None else m[0] for m in _LEXEME.finditer(text) if m["comment"] is None]


def canonical(source: str) -> str:
    """`source` without comments and layout: equal for two sources that differ in those alone."""
    parts: list[str] = []
    for line in _without_comments(_spliced(source)[0]).split("\n"):
        joined = " ".join(m[0] for m in _LEXEME.finditer(line) if m["comment"] is None)
        # A preprocessor line ends where its line ends, so it keeps a line of its own.
        parts.append(f"\n{joined}\n" if joined.startswith(("#", "% :")) else joined)
    return re.sub(r"\s*\n\s*", "\n", " ".join(part for part in parts if part)).strip()


def _spliced(source: str) -> tuple[str, list[int]]:
    """`source` with continued lines joined, even inside a word as the compiler does, and the place of each join."""
    pieces = _CONTINUED.split(source)
    joins = list(accumulate(len(piece) for piece in pieces[:-1]))
    return "".join(pieces), joins


def _without_comments(text: str) -> str:
    """`text` with each comment blanked, so that everything else keeps its place."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match["comment"] is None else re.sub(r"[^\n]", " ", match[0])

    return _LEXEME.sub(blank, text)

"""C-family source as text: comments dropped, preprocessor lines found, tokens read. Nothing is preprocessed.

Every pattern consumes what it starts, closed or not, so that each function is linear in the length of its input.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_JOIN = "\x00"  # stands for a line continuation, so that a preprocessor line is one line

_LEXEME = re.compile(
    r"""
      (?P<raw>(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\((?:.*?\)(?P=delimiter)"|.*\Z))
    | (?P<literal>"(?:\\.|[^"\\\n])*"?)
    | (?P<word>[A-Za-z_]\w*|\.?[0-9](?:'?\w|\.|(?<=[eEpP])[+-])*)
    | (?P<char>'(?:\\.|[^'\\\n])*'?)
    | (?P<comment>//[^\n]*|/\*(?:.*?\*/|.*\Z))
    | (?P<mark>::|\[\[|\]\]|[^\s\x00])
    """,
    re.DOTALL | re.VERBOSE,
)
_DIRECTIVE = re.compile(r"^[ \t\x00]*(?:\#|%:)[ \t\x00]*(\w*)(.*)$", re.MULTILINE)


class Directive(NamedTuple):
    """A preprocessor line, continuation lines joined: `#include <cmath>` is ("include", "<cmath>")."""

    line: int
    name: str
    text: str


def directives(source: str) -> list[Directive]:
    """The preprocessor lines of `source`, by line."""
    text = _without_comments(source)
    found = []
    line, last = 1, 0
    for match in _DIRECTIVE.finditer(text):
        line += text.count("\n", last, match.start(1)) + text.count(_JOIN, last, match.start(1))
        last = match.start(1)
        found.append(Directive(line, match[1], match[2].replace(_JOIN, " ").strip()))
    return found


def tokens(source: str) -> list[str]:
    """The tokens of `source` without comments and preprocessor lines; a literal is one token, a raw string an empty
    one.
    """
    text = _DIRECTIVE.sub("", _without_comments(source))
    return ['""' if m["raw"] is not None else m[0] for m in _LEXEME.finditer(text) if m["comment"] is None]


def canonical(source: str) -> str:
    """`source` without comments and layout: equal for two sources that differ in those alone."""
    text = _without_comments(source)
    parts: list[str] = []
    for line in text.split("\n"):
        joined = " ".join(m[0] for m in _LEXEME.finditer(line) if m["comment"] is None)
        # A preprocessor line ends where its line ends, so it keeps a line of its own.
        parts.append(f"\n{joined}\n" if joined.startswith(("#", "% :")) else joined)
    return re.sub(r"\s*\n\s*", "\n", " ".join(part for part in parts if part)).strip()


def _without_comments(source: str) -> str:
    """`source` with each comment replaced by a space and its line breaks, and each continuation by the join mark."""
    text = source.replace(_JOIN, " ").replace("\r\n", "\n").replace("\\\n", _JOIN)

    def blank(match: re.Match[str]) -> str:
        if match["comment"] is None:
            return match[0]
        return " " + "\n" * match[0].count("\n") + _JOIN * match[0].count(_JOIN)

    return _LEXEME.sub(blank, text)

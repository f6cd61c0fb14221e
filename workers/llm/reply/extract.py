"""Find JSON objects, code blocks and the end of a model's thoughts in arbitrary text.

Pure and linear in its length. No regular expression here can match the same characters in two ways, and a second try
from another place has a bound on how much of the text it may read.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from warpsmith.kernels_db.job.python_parsing import parse_module

MAX_OBJECT_CHARS = 40_000
MAX_OBJECT_TRIES = 200
MAX_LONG_CHARS = 2_000_000
"""Characters that may be read of one reply, all tries together, to name its objects above MAX_OBJECT_CHARS."""
MAX_MENDED_CHARS = 400_000
"""Characters that mending may read in one reply, all its tries together.

Mending repairs text that is almost JSON.
"""

_THOUGHTS = re.compile(r"\s*<(think|thinking|thought|thoughts|reasoning)>", re.IGNORECASE)
_END_OF_THOUGHTS = re.compile(r"</(think|thinking|thought|thoughts|reasoning)>[ \t]*\n", re.IGNORECASE)


def without_thoughts(text: str) -> str | None:
    """Cut the thoughts that `text` begins with, as <think>...</think>.

    None where these do not end. Some servers cut off the tag that opens them, so a closing one at the end of a line
    ends them too.
    """
    start = 0
    while opened := _THOUGHTS.match(text, start):
        closed = re.compile(f"</{opened[1]}>", re.IGNORECASE).search(text, opened.end())
        if closed is None:
            return None
        start = closed.end()
    closed = _END_OF_THOUGHTS.search(text, start)
    if closed and f"<{closed[1].lower()}>" not in text[start : closed.start()].lower() and text[closed.end() :].strip():
        start = closed.end()
    return text[start:]


# JSON

_OBJECT = re.compile(r'\{(?=\s*["/])')
_SPECIAL = re.compile(r'["/\[\]{}]')
_STRING_PART = re.compile(r'[^"\\]+')
_KNOWN_ESCAPE = re.compile(r'["\\/bfnrt]|u[0-9a-fA-F]{4}')


def objects(
    text: str, keys: frozenset[str], on_long: Callable[[dict[str, Any], int], None] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of `text` that have one of `keys`, in order.

    In a list, in a wrapper, in or out of a fence, with prose around; the complete ones of a list that was cut short.
    One of more than MAX_OBJECT_CHARS is none: `on_long` is called with it, where it has all `keys`, and its length.
    """
    decoder = json.JSONDecoder(strict=False)
    position, mendable, long = 0, MAX_MENDED_CHARS, MAX_LONG_CHARS if on_long else 0
    for _ in range(MAX_OBJECT_TRIES):
        found = _OBJECT.search(text, position)
        if found is None:
            return
        start = found.start()
        window = text[start : start + MAX_OBJECT_CHARS]
        value, length = _decoded(decoder, window)
        if value is None and on_long and long > 0 and len(window) == MAX_OBJECT_CHARS:
            rest = text[start : start + long]
            whole, taken = _decoded(decoder, rest)
            long -= taken or len(rest)
            if isinstance(whole, dict) and keys <= whole.keys():  # a wrapper may have a title, too
                on_long(whole, taken)
                position = start + taken
                continue
        if value is None and mendable > 0:
            mended, length = _mended(window[:mendable])
            mendable -= length
            value = _whole(decoder, mended)
        if isinstance(value, dict) and not keys.isdisjoint(value):
            yield value
            position = start + length
        else:
            position = start + 1  # a wrapper, or something else: look inside


def _decoded(decoder: json.JSONDecoder, text: str) -> tuple[Any, int]:
    with suppress(ValueError, RecursionError):
        return decoder.raw_decode(text)
    return None, 0


def _whole(decoder: json.JSONDecoder, text: str) -> Any:
    with suppress(ValueError, RecursionError):
        return decoder.decode(text)
    return None


def _mended(text: str) -> tuple[str, int]:
    """Mend the object that `text` begins with; also returns the characters it took.

    Comments and trailing commas, which models add to JSON, go; escapes that JSON does not know are doubled.
    """
    out: list[str] = []
    depth, i = 0, 0
    while i < len(text):
        special = _SPECIAL.search(text, i)
        at = special.start() if special else len(text)
        out.append(text[i:at])
        if special is None:
            return "".join(out), at
        char, i = text[at], at + 1
        if char == '"':
            piece, i = _string(text, i)
        elif text.startswith("//", at):
            piece, i = " ", _after(text, "\n", i + 1)
        elif text.startswith("/*", at):
            piece, i = " ", _after(text, "*/", i + 1)
        else:
            piece = char
        if char in "]}":
            _drop_comma(out)
        depth += (char in "[{") - (char in "]}")
        out.append(piece)
        if depth == 0:
            break
    return "".join(out), i


def _string(text: str, start: int) -> tuple[str, int]:
    """Mend the JSON string whose content begins at `start`; also returns the index after it."""
    out = ['"']
    i = start
    while i < len(text) and text[i] != '"':
        if text[i] == "\\":
            known = _KNOWN_ESCAPE.match(text, i + 1)
            out.append(text[i : i + 2] if known else "\\" + text[i : i + 2])
            i += 2
        else:
            part = _STRING_PART.match(text, i)
            assert part is not None  # neither a quote nor a backslash is here
            out.append(part[0])
            i = part.end()
    out.append('"')
    return "".join(out), i + 1


def _after(text: str, mark: str, start: int) -> int:
    found = text.find(mark, start)
    return len(text) if found < 0 else found + len(mark)


def _drop_comma(out: list[str]) -> None:
    """Drop a comma, and blanks after it, from the end of `out`."""
    while out:
        kept = out.pop().rstrip()
        if kept:
            out.append(kept.removesuffix(","))
            return


# Code


@dataclass(frozen=True)
class Block:
    """The text of a fenced block, and whether its fence was closed."""

    text: str
    closed: bool


_FENCE = re.compile(r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)$")
_RUN = re.compile(r"^def run\s*\(", re.MULTILINE)


def blocks(text: str) -> Iterator[Block]:
    """Yield fenced blocks as CommonMark has them.

    A fence closes with at least as many of the same character; the last may stay open.
    """
    fence: str | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if fence is None:
            if match and not (match["fence"][0] == "`" and "`" in match["info"]):
                fence, lines = match["fence"], []
        elif match and match["fence"].startswith(fence) and not match["info"].strip():
            yield Block("\n".join([*lines, ""]), closed=True)
            fence = None
        else:
            lines.append(line)
    if fence is not None:
        yield Block("\n".join([*lines, ""]), closed=False)


def defines_run(source: str) -> bool:
    """Check whether a line of `source` begins the definition of `run`."""
    return _RUN.search(source) is not None


def is_python(text: str) -> bool:
    """Check whether `text` parses as Python."""
    try:
        with warnings.catch_warnings():  # an invalid escape in a model's string is not this process's warning
            warnings.simplefilter("ignore")
            parse_module(text)
    except (SyntaxError, ValueError):
        return False
    return True

"""Text that a model, an op's author or a person wrote, made fit to stand inside our own: on one line, without
characters that steer a terminal or turn the reading direction, and never markup."""

from __future__ import annotations

import json
import re
import unicodedata

_STEERING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of characters that are not themselves seen: controls, formats (bidirectional ones among them), surrogates,
private use, unassigned, separators of lines."""

_OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Of these, the categories that a terminal or an editor obeys rather than shows."""

_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
"""Noncharacters around foreign text while a sentence is put together; `seen` leaves neither of them in any text."""

_MARKED = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")
_MARKUP = re.compile(r"([!-/:-@\[-`{-~])")  # ASCII punctuation, all of which Markdown lets a backslash take literally


def seen(text: str, limit: int) -> str:
    """`text` on one line of at most `limit` characters, all of them visible."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(" " if c.isspace() else "" if unicodedata.category(c) in _STEERING else c for c in text)
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."


def visible(text: str) -> str:
    """`text` with its lines and tabs as they are, every other character that steers a terminal or turns the reading
    direction replaced by U+FFFD."""
    if text.isascii() and text.isprintable():
        return text
    return "".join("\ufffd" if c not in "\n\t" and unicodedata.category(c) in _OBEYED else c for c in text)


def escaped(document: str) -> str:
    """JSON with the same characters escaped, which changes nothing of what it says: they stand in strings alone."""
    if document.isascii() and "\x7f" not in document:
        return document  # the encoder has escaped the controls of ASCII
    return "".join(_json_escape(c) if c != "\n" and unicodedata.category(c) in _OBEYED else c for c in document)


def _json_escape(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


def said(text: object, limit: int = 200) -> str:
    """Foreign text as it may stand in a sentence that `as_text` or `as_markdown` will render."""
    return f"{_OPEN}{seen(str(text), limit)}{_CLOSE}"


def quoted(text: object, limit: int = 200) -> str:
    """As `said`, in quotation marks that the text itself cannot close."""
    inner = re.sub("[\u201c\u201d\u201e\u201f]", '"', str(text))
    return f"\u201c{said(inner, limit)}\u201d"


def as_text(sentence: str) -> str:
    """The sentence as plain text."""
    return _MARKED.sub(r"\1", sentence)


def as_markdown(sentence: str) -> str:
    """The sentence as Markdown, in which foreign text is literal."""
    return _MARKED.sub(lambda match: _MARKUP.sub(r"\\\1", match[1]), sentence)

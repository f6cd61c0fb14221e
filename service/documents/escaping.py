"""Escaping of text of models, ops' authors and persons, for use inside our own text.

The result is on one line, without characters that control a terminal or turn the reading direction, and never markup.
"""

from __future__ import annotations

import json
import re
import unicodedata

_STEERING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Categories of invisible characters.

Controls, formats (bidirectional ones among them), surrogates, private use, unassigned, separators of lines.
"""

_OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Of these, the categories of characters that a terminal or an editor obeys."""

_OPEN, _CLOSE = "\ufdd0", "\ufdd1"
"""Noncharacters around text of others inside a sentence; `clean_line` removes both from any text."""

_MARKED = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")
_MARKUP = re.compile(r"([!-/:-@\[-`{-~])")  # ASCII punctuation, all of which Markdown lets a backslash take literally


def clean_line(text: str, limit: int) -> str:
    """Return `text` on one line of at most `limit` characters, all of them visible."""
    if not (text.isascii() and text.isprintable()):
        text = "".join(" " if c.isspace() else "" if unicodedata.category(c) in _STEERING else c for c in text)
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3].rstrip() + "..."


def clean_text(text: str) -> str:
    """Replace characters that control a terminal or the reading direction by U+FFFD.

    Line feeds and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join("\ufffd" if c not in "\n\t" and unicodedata.category(c) in _OBEYED else c for c in text)


def escape_json(document: str) -> str:
    """Escape the same characters in JSON; its meaning stays, since they occur in strings alone."""
    if document.isascii() and "\x7f" not in document:
        return document  # the encoder has escaped the controls of ASCII
    return "".join(_escape_character(c) if c != "\n" and unicodedata.category(c) in _OBEYED else c for c in document)


def _escape_character(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


def mark_foreign(text: object, limit: int = 200) -> str:
    """Mark text of others for a sentence that `render_text` or `render_markdown` will render."""
    return f"{_OPEN}{clean_line(str(text), limit)}{_CLOSE}"


def quote_foreign(text: object, limit: int = 200) -> str:
    """Mark text of others in quotation marks that the text itself cannot close."""
    inner = re.sub("[\u201c\u201d\u201e\u201f]", '"', str(text))
    return f"\u201c{mark_foreign(inner, limit)}\u201d"


def render_text(sentence: str) -> str:
    """Render the sentence as plain text."""
    return _MARKED.sub(r"\1", sentence)


def render_markdown(sentence: str) -> str:
    """Render the sentence as Markdown, in which text of others is literal."""
    return _MARKED.sub(lambda match: _MARKUP.sub(r"\\\1", match[1]), sentence)

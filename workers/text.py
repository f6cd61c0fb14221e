"""Make text from outside fit for the database and for a prompt."""

from __future__ import annotations

import re

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(text: str) -> str:
    """Replace NUL and lone surrogates in `text` by U+FFFD.

    PostgreSQL and UTF-8 take neither.
    """
    return _UNSTORABLE.sub("\ufffd", text)


def one_line(text: str, limit: int = 200) -> str:
    """Put `text` on one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def middle_cut(text: str, limit: int) -> str:
    """Cut the middle out of `text` so that at most about `limit` characters remain.

    The beginning and the end are kept; the text between them says how much was left out.
    """
    if len(text) <= limit:
        return text
    head, tail = text[: limit * 2 // 3], text[-(limit // 3) :]
    return f"{head}\n[... {len(text) - len(head) - len(tail)} characters left out ...]\n{tail}"


_PATH = re.compile(r"(?:(?<=-[IL])|(?<![\w.]))(?:/[\w.+@-]+)+/[\w.+@-]+/?")


def without_directories(text: str) -> str:
    """Reduce each absolute path in `text` to its file's name: directories here are private."""
    return _PATH.sub(lambda match: file_of_path(match[0]), text)


def file_of_path(path: str) -> str:
    """Return the last part of an absolute path; `~` for a home directory, which names a person."""
    parts = path.removeprefix("file://").strip("/").split("/")
    return "~" if len(parts) == 2 and parts[0] in {"home", "Users"} else parts[-1]

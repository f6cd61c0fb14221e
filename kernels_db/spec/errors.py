"""The errors of a bad document: the field, what was found and what was expected."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from typing import Any

LONGEST_FOUND = 200

LONGEST_FIELD = 500
"""Characters of a field that an error shows; the names of a good spec make none so long."""

MAX_ERRORS = 100
"""Errors of one document that are told; the last of more says that there are more."""

MAX_LISTED = 40
"""Names that an error lists."""

_ENCODER = json.JSONEncoder(default=repr, skipkeys=True)


class SpecError(ValueError):
    """One bad field.

    `found` is a JSON scalar, shortened where it is long, as `field` is; containers are shown as shortened JSON text.
    `line`: of the text that was read, from 1; None where there was none or the field has no place in it. `str()`
    reads "inputs[1].dtype (line 7): found 'float31', expected one of ...".
    """

    def __init__(self, field: str, found: object, expected: str, line: int | None = None) -> None:
        self.field = _shortened(field, LONGEST_FIELD)
        self.found = shown(found)
        self.expected = expected
        self.line = line
        super().__init__(self.field, self.found, expected, line)

    def __str__(self) -> str:
        found = "nothing" if self.found is None else repr(self.found)
        return f"{placed(self.field, self.line)}: found {found}, expected {self.expected}"


class SpecErrors(ValueError):  # noqa: N818  several of SpecError
    """Every bad field of one document; `errors` is never empty."""

    def __init__(self, errors: list[SpecError]) -> None:
        if not errors:
            raise ValueError("SpecErrors needs at least one error")
        self.errors = errors
        super().__init__(errors)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


def placed(field: str, line: int | None) -> str:
    """Return the field with its line, where that is known: `inputs[1].dtype (line 7)`."""
    return field if line is None else f"{field} (line {line})"


def listed(names: Iterable[str]) -> str:
    """Return the first names for an error; "none" where there are none."""
    found = list(islice(names, MAX_LISTED + 1))
    return ", ".join(found[:MAX_LISTED]) + (", ..." if len(found) > MAX_LISTED else "") if found else "none"


def limited(errors: Iterable[SpecError]) -> list[SpecError]:
    """Return the first errors; where there are more than `MAX_ERRORS`, the last one says so."""
    found = list(islice(errors, MAX_ERRORS + 1))
    if len(found) > MAX_ERRORS:
        found[MAX_ERRORS - 1 :] = [SpecError("document", f"more than {MAX_ERRORS} errors", "these mended first")]
    return found


def shown(value: object) -> Any:
    """Return `value` as a JSON scalar for errors: containers as JSON text, long text shortened."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else f"an integer of {value.bit_length()} bits"
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, str):
        text = value
    elif isinstance(value, dict | list | tuple):
        text = _beginning(value)
    else:
        text = repr(value)
    text = text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\0")
    return _shortened(text, LONGEST_FOUND)


def _shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _beginning(value: object) -> str:
    """Return the beginning of a container's JSON text; the rest, which may be long, is not written."""
    text = ""
    for part in _ENCODER.iterencode(value):
        text += part[: LONGEST_FOUND + 1]
        if len(text) > LONGEST_FOUND:
            break
    return text

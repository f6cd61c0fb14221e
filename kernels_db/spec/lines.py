"""Finds the lines of a text on which the fields that an error names stand."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from warpsmith.kernels_db.spec.document import compose
from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors

_LAST_STEP = re.compile(r"(\.[^.\[\]]*|\[\d+\])$")


def with_lines(errors: SpecErrors, text: str | bytes) -> SpecErrors:
    """Return the errors of the spec in `text` with the line of each.

    A field that is missing has the line of the part that lacks it. The errors come back as they are where the text
    has one line, or cannot be read as YAML.
    """
    if len(text.splitlines()) < 2:
        return errors
    try:
        root = compose(text)
    except SpecErrors:  # JSON with what YAML refuses, or the very text whose error this is
        return errors
    lines = dict(_lines(root, "")) if root is not None else {}
    return SpecErrors([SpecError(e.field, e.found, e.expected, _line(e.field, lines)) for e in errors.errors])


def _line(field: str, lines: dict[str, int]) -> int | None:
    while field and field not in lines:
        shorter = _LAST_STEP.sub("", field)
        field = shorter if shorter != field else ""
    return lines.get(field)


def _lines(node: yaml.Node, path: str) -> Iterator[tuple[str, int]]:
    """Yield the path and the line of each field; that of a mapping's member is the line of its key."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                below = f"{path}.{key.value}" if path else key.value
                yield below, key.start_mark.line + 1
                yield from _lines(value, below)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield f"{path}[{index}]", item.start_mark.line + 1
            yield from _lines(item, f"{path}[{index}]")

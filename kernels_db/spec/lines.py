"""Finds the lines of a text on which the fields that an error names stand."""

from __future__ import annotations

import re
from itertools import islice
from typing import TypeAlias

import yaml

from warpsmith.kernels_db.spec.document import MAX_BYTES, compose
from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors


def with_lines(errors: SpecErrors, text: str | bytes) -> SpecErrors:
    """Return the errors of the spec in `text` with the line of each.

    A field that is missing has the line of the part that lacks it. The errors come back as they are where the text
    has one line, cannot be read as YAML, or is longer than a document may be.
    """
    if len(text) > MAX_BYTES or len(text.splitlines()) < 2:
        return errors
    try:
        root = compose(text)
    except SpecErrors:  # JSON with what YAML refuses, or the very text whose error this is
        return errors
    if root is None:
        return errors
    members: _Members = {}
    found = [SpecError(e.field, e.found, e.expected, _line(e.field, root, members)) for e in errors.errors]
    return SpecErrors(found)


_Members: TypeAlias = dict[yaml.Node, dict[str, tuple[yaml.Node, yaml.Node]]]
"""The key and the value of each member of the mappings that were walked through, by the key's text."""

_MOST_PARTS = 32
"""A key of more parts is not looked for: it may hold any number of what parts two steps."""

_END_OF_STEP = re.compile(r"[.\[]")


def _line(field: str, root: yaml.Node, members: _Members) -> int | None:
    """Walk down to `field` as far as the text has it, and return the line there; None where it has not the first step.

    The line of a mapping's member is that of its key. The path of no other node is made, for a text may have a long
    key above many of them.
    """
    line: int | None = None
    node = root
    rest = field
    while rest:
        found = _member(node, rest, members) if isinstance(node, yaml.MappingNode) else _item(node, rest)
        if found is None:
            break
        place, node, rest = found
        line = place.start_mark.line + 1
        rest = rest.removeprefix(".")
    return line


def _member(mapping: yaml.MappingNode, path: str, members: _Members) -> tuple[yaml.Node, yaml.Node, str] | None:
    """Return the key with which `path` begins, the longest of several, its value, and the rest of the path."""
    if mapping not in members:
        members[mapping] = {key.value: (key, value) for key, value in mapping.value if isinstance(key, yaml.ScalarNode)}
    ends = [match.start() for match in islice(_END_OF_STEP.finditer(path), _MOST_PARTS)]
    for end in [len(path), *reversed(ends)]:
        if (member := members[mapping].get(path[:end])) is not None:
            return *member, path[end:]
    return None


def _item(node: yaml.Node, path: str) -> tuple[yaml.Node, yaml.Node, str] | None:
    """Return the item of a list that `path` begins with, twice, and the rest of the path."""
    index, bracket, rest = path[1:].partition("]")
    if not isinstance(node, yaml.SequenceNode) or not path.startswith("[") or not bracket or not index.isdecimal():
        return None
    if len(index) > len(str(len(node.value))) or int(index) >= len(node.value):
        return None
    item = node.value[int(index)]
    return item, item, rest

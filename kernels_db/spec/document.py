"""Reads text as a plain document: YAML or JSON, with limits.

It has no aliases, duplicate keys or values that JSON cannot hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NoReturn

import yaml

from warpsmith.kernels_db.job.strict_json import NotJson, expected_scalar, read_strictly
from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32

_CORE_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("map", "seq", "str", "int", "float", "bool", "null")}


def read_document(text: str | bytes) -> Any:
    """Return the document in `text`: JSON where it starts with a brace, YAML otherwise.

    Raises SpecErrors with the place.
    """
    if isinstance(text, str):
        text = text.encode("utf-8", "surrogatepass")
    if len(text) > MAX_BYTES:
        _refuse(f"{len(text)} bytes", f"at most {MAX_BYTES} bytes (1 MiB)")
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        _refuse(f"byte {text[error.start]:#04x} at offset {error.start}", "UTF-8 text")
    try:
        document = read_strictly(decoded, MAX_DEPTH) if decoded.lstrip().startswith("{") else _read_yaml(decoded)
    except NotJson as error:
        _refuse(error.found, error.expected)
    check_plain(document)
    return document


def check_plain(document: Any) -> None:
    """Raise SpecErrors where a document cannot be stored.

    It holds values that JSON and both databases cannot keep, or nests deeper than 32.
    """
    errors = list(_unplain(document, "", 0))
    if errors:
        raise SpecErrors(errors)


def _refuse(found: object, expected: str) -> NoReturn:
    raise SpecErrors([SpecError("document", found, expected)])


def _unplain(value: Any, path: str, depth: int) -> Iterator[SpecError]:
    if depth > MAX_DEPTH:
        yield SpecError(path, "more levels", f"at most {MAX_DEPTH} levels of nesting")
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str) and expected_scalar(key) is None:
                yield from _unplain(item, f"{path}.{key}" if path else key, depth + 1)
            else:
                yield SpecError(path or "document", f"the key {key!r}", "keys that are text (quote them), without NUL")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _unplain(item, f"{path}[{index}]", depth + 1)
    elif (expected := expected_scalar(value)) is not None:
        yield SpecError(path or "document", value, expected)


class _SpecLoader(yaml.SafeLoader):
    """SafeLoader without the features that a spec does not need.

    These are aliases (they can blow up), tags, dates, duplicate keys, nesting.
    """

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        # The stubs leave PyYAML's parser untyped.
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent):
            _refuse(f"an alias ({_place(event.start_mark)})", "YAML without aliases")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            _refuse(f"more levels ({_place(event.start_mark)})", f"at most {MAX_DEPTH} levels of nesting")
        node = super().compose_node(parent, index)
        self.depth -= 1
        if node is not None and node.tag not in _CORE_TAGS:
            _refuse(f"the tag {node.tag!r} ({_place(node.start_mark)})", "YAML without tags")
        if isinstance(node, yaml.MappingNode):
            _refuse_repeated_keys(node)
        return node


def _refuse_repeated_keys(mapping: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in mapping.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                _refuse(f"the key {key.value!r} twice ({_place(key.start_mark)})", "each key once")
            seen.add(key.value)


# Dates stay text; numbers such as 1e-5, which YAML 1.1 reads as text, are numbers as in JSON.
_SpecLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _CORE_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_SpecLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _place(mark: Any) -> str:
    return "at an unknown place" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"


def _read_yaml(text: str) -> Any:
    try:
        loader = _SpecLoader(text)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        _refuse(f"{error.problem or 'a mistake'} ({_place(error.problem_mark)})", "YAML")
    except yaml.reader.ReaderError as error:
        _refuse(f"the character {error.character!r} at offset {error.position}", "YAML: printable characters")
    except SpecErrors:
        raise
    except (ValueError, KeyError, IndexError, RecursionError) as error:
        _refuse(f"a value that cannot be read ({error})", "YAML")

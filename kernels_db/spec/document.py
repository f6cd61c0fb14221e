"""Reads text as a plain document: YAML or JSON, with limits.

It has no aliases, duplicate keys or values that JSON cannot hold.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import yaml
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.resolver import Resolver

from warpsmith.kernels_db.job.strict_json import NotJson, count_values, expected_scalar, read_strictly
from warpsmith.kernels_db.spec.basic_types import MAX_PYTHON
from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors, limited

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32

MAX_VALUES = 30_000
"""Values in one document, keys included: with libyaml they take half a second at most."""

MAX_TEXT = 128 * 1024
"""Characters of all other texts in a spec, expressions among them; its `origin` does not count."""

_PYTHON_FIELDS = ("reference", "source", "experts")

MAX_BYTES_WITHOUT_LIBYAML = 64 * 1024
"""Of YAML where PyYAML was built without libyaml: its own parser takes about 0.1 ms for each value."""

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
    if (found := count_values(document, MAX_VALUES)) > MAX_VALUES:
        _refuse(f"{found} values", f"at most {MAX_VALUES} values, keys included")
    errors = limited(SpecError(_path(steps), found, expected) for steps, found, expected in _unplain(document, 0))
    if errors:
        raise SpecErrors(errors)


def check_size(document: dict[str, Any]) -> None:
    """Raise SpecErrors where reading a spec would take long: its text, or the Python in it, is too much.

    The files that `origin` keeps are not read and do not count.
    """
    text = python = 0
    pending = [(name, value) for name, value in document.items() if name != "origin"]
    while pending:
        name, value = pending.pop()
        if isinstance(value, str):
            python += len(value) if name in _PYTHON_FIELDS else 0
            text += len(value) if name not in _PYTHON_FIELDS else 0
        elif isinstance(value, dict):
            pending.extend((name if name in _PYTHON_FIELDS else key, item) for key, item in value.items())
        elif isinstance(value, list | tuple):
            pending.extend((name, item) for item in value)
    if text > MAX_TEXT:
        _refuse(f"{text} characters of text", f"at most {MAX_TEXT}, without `origin` and Python")
    if python > MAX_PYTHON:
        _refuse(f"{python} characters of Python", f"at most {MAX_PYTHON} in all sources together")


def _refuse(found: object, expected: str) -> NoReturn:
    raise SpecErrors([SpecError("document", found, expected)])


def _path(steps: Iterable[str]) -> str:
    return "".join(steps).removeprefix(".") or "document"


def _unplain(value: Any, depth: int) -> Iterator[tuple[tuple[str, ...], object, str]]:
    """Yield the steps to each bad value, what was found and what was expected.

    The paths of good ones are not made, for a long key may stand above many of them.
    """
    if depth > MAX_DEPTH:
        yield (), "more levels", f"at most {MAX_DEPTH} levels of nesting"
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str) and expected_scalar(key) is None:
                for steps, found, expected in _unplain(item, depth + 1):
                    yield (f".{key}", *steps), found, expected
            else:
                yield (), f"the key {key!r}", "keys that are text (quote them), without NUL"
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            for steps, found, expected in _unplain(item, depth + 1):
                yield (f"[{index}]", *steps), found, expected
    elif (wanted := expected_scalar(value)) is not None:
        yield (), value, wanted


class _SpecComposer(Composer, SafeConstructor, Resolver):
    """Composer of PyYAML's SafeLoader without the features that a spec does not need.

    These are aliases (they can blow up), tags, dates, duplicate keys, nesting, more than `MAX_VALUES` values.
    """

    depth = 0
    values = 0

    def __init__(self) -> None:
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        # The stubs leave PyYAML's parsers untyped.
        event: yaml.Event = self.peek_event()  # type: ignore[attr-defined]
        if isinstance(event, yaml.AliasEvent):
            _refuse(f"an alias ({_place(event.start_mark)})", "YAML without aliases")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            _refuse(f"more levels ({_place(event.start_mark)})", f"at most {MAX_DEPTH} levels of nesting")
        self.values += 1
        if self.values > MAX_VALUES:
            _refuse(f"more values ({_place(event.start_mark)})", f"at most {MAX_VALUES} values, keys included")
        node = super().compose_node(parent, index)
        self.depth -= 1
        if node is not None and node.tag not in _CORE_TAGS:
            _refuse(f"the tag {node.tag!r} ({_place(node.start_mark)})", "YAML without tags")
        if isinstance(node, yaml.MappingNode):
            _refuse_repeated_keys(node)
        return node


class _PureLoader(_SpecComposer, yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """Reads with PyYAML's own parser."""

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)
        _SpecComposer.__init__(self)


_Loader: Any = _PureLoader
if yaml.__with_libyaml__:
    from yaml.cyaml import CParser  # type: ignore[attr-defined] # the stubs leave it out

    class _LibyamlLoader(_SpecComposer, CParser):
        """Reads with libyaml, a hundred times as fast."""

        def __init__(self, text: str) -> None:
            CParser.__init__(self, text)
            _SpecComposer.__init__(self)

    _Loader = _LibyamlLoader


def _refuse_repeated_keys(mapping: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in mapping.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in seen:
                _refuse(f"the key {key.value!r} twice ({_place(key.start_mark)})", "each key once")
            seen.add(key.value)


# Dates stay text; numbers such as 1e-5, which YAML 1.1 reads as text, are numbers as in JSON.
_SpecComposer.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _CORE_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_SpecComposer.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def _place(mark: Any, text: str | None = None) -> str:
    """Describe a place; libyaml puts the end of `text` on a line of its own, beyond the last."""
    if mark is None:
        return "at an unknown place"
    line, column = mark.line, mark.column
    if text is not None and line > (last := text.count("\n")):
        line, column = last, len(text) - text.rfind("\n") - 1
    return f"line {line + 1}, column {column + 1}"


def compose(text: str | bytes) -> yaml.Node | None:
    """Return the nodes of a document, each with its place in the text. Raises SpecErrors where it is no YAML."""
    decoded = text if isinstance(text, str) else text.decode("utf-8-sig", "replace")
    node: yaml.Node | None = _load(decoded, _Loader, lambda loader: loader.get_single_node())
    return node


def _read_yaml(text: str, loader_of: Any = None) -> Any:
    return _load(text, loader_of or _Loader, lambda loader: loader.get_single_data())


def _load(text: str, loader_of: Any, read: Callable[[Any], Any]) -> Any:
    if len(text) > MAX_BYTES_WITHOUT_LIBYAML and not yaml.__with_libyaml__:
        expected = f"at most {MAX_BYTES_WITHOUT_LIBYAML} characters of YAML where PyYAML is without libyaml, or JSON"
        _refuse(f"{len(text)} characters", expected)
    try:
        loader = loader_of(text)
        try:
            return read(loader)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        _refuse(f"{error.problem or 'a mistake'} ({_place(error.problem_mark, text)})", "YAML")
    except yaml.reader.ReaderError as error:
        _refuse(f"the character {error.character!r} at offset {error.position}", "YAML: printable characters")
    except SpecErrors:
        raise
    except (ValueError, KeyError, IndexError, RecursionError) as error:
        _refuse(f"a value that cannot be read ({error})", "YAML")

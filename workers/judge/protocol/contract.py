"""Check a document against the TypedDicts of `kernels_db.job`.

So the contract is written once. Standard library only.
"""

from __future__ import annotations

import json
import types
from typing import Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints, is_typeddict

_JSON_NAMES: dict[Any, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    type(None): "null",
    dict: "an object",
    list: "a list",
}


class BrokenDocument(ValueError):  # noqa: N818 - named for what happened
    """A document that is not what it should be; `field` is the path of what is wrong."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        super().__init__(f"{field}: found {found!r}, expected {expected}")
        self.field, self.found, self.expected = field, found, expected


def check(kind: Any, value: Any, path: str) -> None:
    """Raise BrokenDocument unless `value` is of the annotated `kind`.

    Names that `kind` does not have are ignored.
    """
    origin = get_origin(kind)
    if kind is Any:
        return
    if is_typeddict(kind):
        _check_object(kind, value, path)
    elif origin in (Union, types.UnionType):
        _check_union(get_args(kind), value, path)
    elif origin is Literal:
        if value not in get_args(kind):
            raise BrokenDocument(path, short(value), f"one of {', '.join(get_args(kind))}")
    elif origin is list:
        _check_plain(list, value, path)
        for position, item in enumerate(value):
            check(get_args(kind)[0], item, f"{path}[{position}]")
    elif origin is dict:
        _check_plain(dict, value, path)
        for key, item in value.items():
            check(get_args(kind)[1], item, f"{path}.{key}")
    else:
        _check_plain(kind, value, path)


def short(value: object) -> object:
    """Return the part of a value that a message may quote."""
    text = value if isinstance(value, str) else json.dumps(value)
    return value if len(text) <= 200 else text[:200] + "..."


def _check_object(kind: Any, value: Any, path: str) -> None:
    _check_plain(dict, value, path or "(line)")
    for name, declared in get_type_hints(kind, include_extras=True).items():
        optional = get_origin(declared) is NotRequired
        inner = get_args(declared)[0] if get_origin(declared) in (NotRequired, Required) else declared
        field = f"{path}.{name}" if path else name
        if name in value:
            check(inner, value[name], field)
        elif not optional:
            raise BrokenDocument(field, None, "this field")


def _check_union(kinds: tuple[Any, ...], value: Any, path: str) -> None:
    if value is None and type(None) in kinds:
        return
    present = [kind for kind in kinds if kind is not type(None)]
    if len(present) == 1:
        check(present[0], value, path)
    elif not any(_is_plain(kind, value) for kind in present):
        raise BrokenDocument(path, short(value), " or ".join(_JSON_NAMES[kind] for kind in kinds))


def _is_plain(kind: type, value: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _check_plain(kind: Any, value: Any, path: str) -> None:
    if not _is_plain(kind, value):
        raise BrokenDocument(path, short(value), _JSON_NAMES[kind])

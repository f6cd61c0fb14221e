"""Turns Pydantic's errors into SpecErrors.

Each has the field as it is written in the document, and what was found and expected.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from warpsmith.kernels_db.spec.errors import SpecError, limited
from warpsmith.kernels_db.spec.near_misses import one_of, suggest

_EXPECTED = {
    "missing": "a value: the field is required",
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "string_pattern_mismatch": "text that matches {pattern}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
    "too_short": "at least {min_length} items",
    "too_long": "at most {max_length} items",
    "literal_error": "{expected}",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "union_tag_invalid": "one of {expected_tags}",
    "spec": "{expected}",
    "extra_forbidden": "no field of this name",
}
"""The expectation of each of Pydantic's errors; the others keep Pydantic's own message."""


_QUOTED = re.compile(r"'([^']*)'")
"""One of the texts that Pydantic lists for a literal."""


class Place(NamedTuple):
    """The place of an error in a document.

    The field, the types that the field may have, and the types of the object that contains it.
    """

    field: str
    types: list[Any]
    container: list[Any]


def expected_of(detail: Mapping[str, Any]) -> str:
    """Return the expectation of one of Pydantic's errors, as the end of "found X, expected Y"."""
    kind = detail["type"]
    if kind in _EXPECTED:
        expected = _EXPECTED[kind].format(**detail.get("ctx", {}))
        if kind == "literal_error":
            expected += suggest(detail["input"], _QUOTED.findall(expected))
        return expected
    return str(detail["msg"]).removeprefix("Value error, ").removeprefix("Input should be ")


def converted(error: ValidationError, model: type[BaseModel], document: Mapping[str, Any]) -> list[SpecError]:
    """Return every error of validating `document` as `model`."""
    details = error.errors(include_url=False)
    return limited(_converted(detail, model, document) for detail in details if not _is_echo(detail))


def _is_echo(detail: ErrorDetails) -> bool:
    """Check whether a list counts as too short only because its members are malformed.

    That is reported already.
    """
    return detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]


def _converted(detail: ErrorDetails, model: type[BaseModel], document: Mapping[str, Any]) -> SpecError:
    kind, found = detail["type"], detail["input"]
    place = _locate(detail["loc"], model, document)
    field = place.field
    expected = expected_of(detail)
    if kind == "missing":
        found = None
    elif kind == "extra_forbidden":
        found = detail["loc"][-1]
        expected = _expected_fields(detail["loc"][-1], _fields(place.container))
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        field = f"{field}.kind"
        found = found.get("kind") if isinstance(found, Mapping) else found
        tags = _tags(place.types)
        expected = one_of(found, tags)
    return SpecError(field or "document", found, expected)


def expected_in(detail: Mapping[str, Any], model: type[BaseModel], document: Any) -> str:
    """Return the expectation of one of Pydantic's errors of validating `document` as `model`.

    Other than `expected_of` it lists the fields that there are where one is unknown.
    """
    if detail["type"] != "extra_forbidden":
        return expected_of(detail)
    return _expected_fields(detail["loc"][-1], _fields(_locate(detail["loc"], model, document).container))


def _expected_fields(found: object, known: Sequence[str]) -> str:
    return f"one of the fields {', '.join(known)}{suggest(found, known)}" if known else "no fields"


def _locate(location: Sequence[int | str], model: type[BaseModel], document: Any) -> Place:
    """Follow `location` down the document.

    It leaves out the tags and markers that Pydantic puts into the location.
    """
    place = Place("", [model], [])
    value = document
    for step in location:
        if step == "[key]":
            continue
        if isinstance(step, str) and _is_tag(step, value, place.types):
            chosen = [member for member in _models(place.types) if _tag(member) == step]
            place = place._replace(types=chosen)
            continue
        field = f"{place.field}[{step}]" if isinstance(step, int) else f"{place.field}.{step}".lstrip(".")
        place = Place(field, _below(place.types, step), place.types)
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list | tuple) and isinstance(step, int):
            value = value[step]
    return place


def _is_tag(step: str, value: Any, candidates: Iterable[Any]) -> bool:
    """Check whether `step` is a tag of a union rather than a field of the document.

    Pydantic chose the union's member by it.
    """
    return isinstance(value, Mapping) and value.get("kind") == step and len(_tags(candidates)) > 1


def _members(annotation: Any) -> list[Any]:
    """Return the types in an annotation, without Annotated, unions and None."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for option in get_args(annotation) for member in _members(option)]
    return [] if annotation is type(None) else [annotation]


def _below(candidates: Iterable[Any], step: int | str) -> list[Any]:
    """Return the types that one step reaches from `candidates`."""
    found: list[Any] = []
    for member in (member for candidate in candidates for member in _members(candidate)):
        if isinstance(member, type) and issubclass(member, BaseModel):
            field = member.model_fields.get(str(step))
            found += [] if field is None else [field.annotation]
        elif get_origin(member) is dict:
            found.append(get_args(member)[1])
        elif get_origin(member) is tuple:
            found.append(get_args(member)[0])
    return found


def _models(candidates: Iterable[Any]) -> list[type[BaseModel]]:
    members = (member for candidate in candidates for member in _members(candidate))
    return [member for member in members if isinstance(member, type) and issubclass(member, BaseModel)]


def _fields(candidates: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(name for model in _models(candidates) for name in model.model_fields))


def _tags(candidates: Iterable[Any]) -> list[str]:
    return [tag for model in _models(candidates) if (tag := _tag(model)) is not None]


def _tag(model: type[BaseModel]) -> str | None:
    """Return the value of `kind` that chooses `model` in a union; None where it is in none."""
    field = model.model_fields.get("kind")
    return None if field is None else str(get_args(field.annotation)[0])

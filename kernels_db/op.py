"""Load an op spec from YAML, JSON or a parsed document; a bad one is refused with every bad field at once.

This is the door to the spec: other packages import its names from here.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from kernels_db.spec import Axis, Input, Op, Output, State, Workload
from kernels_db.spec_checks import check, parts_of
from kernels_db.spec_document import check_plain, read_document
from kernels_db.spec_errors import SpecError, SpecErrors
from kernels_db.target import Target

__all__ = [
    "Axis",
    "Input",
    "Op",
    "Output",
    "SpecError",
    "SpecErrors",
    "State",
    "Target",
    "Workload",
    "load_op",
    "parse_op",
]


def load_op(source: str | bytes | Path) -> Op:
    """Read a spec from YAML or JSON text, or from the file that a Path names.

    Raises SpecErrors with all that is wrong, OSError where the file cannot be read.
    """
    return parse_op(read_document(source.read_bytes() if isinstance(source, Path) else source))


def parse_op(document: Mapping[str, Any]) -> Op:
    """The same from a parsed document."""
    if not isinstance(document, dict):
        raise SpecErrors([SpecError("document", document, "a mapping with the fields of an op spec")])
    check_plain(document)
    op = None
    errors: list[SpecError] = []
    try:
        op = Op.model_validate(document)
    except ValidationError as error:
        errors = [_converted(detail, document) for detail in error.errors(include_url=False)]
    told = {error.field for error in errors}
    errors += [error for error in check(parts_of(document)) if error.field not in told]
    if op is None or errors:
        raise SpecErrors(errors)
    return op


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
}
"""What each of Pydantic's errors expected; what stands not here keeps Pydantic's own message."""


def _converted(detail: ErrorDetails, document: Mapping[str, Any]) -> SpecError:
    """One of Pydantic's errors with the field as it is written in the document."""
    kind, found, context = detail["type"], detail["input"], detail.get("ctx", {})
    path, annotation = _locate(detail["loc"], document)
    expected = _EXPECTED[kind].format(**context) if kind in _EXPECTED else detail["msg"]
    if kind == "missing":
        found = None
    elif kind == "extra_forbidden":
        expected = f"one of the fields {', '.join(_fields(annotation))}"
        found = f"the field {detail['loc'][-1]!r}"
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        path = f"{path}.kind"
        found = found.get("kind") if isinstance(found, Mapping) else found
        if kind == "union_tag_not_found":
            expected = f"one of {', '.join(map(repr, _tags(annotation)))}"
    return SpecError(path or "document", found, expected)


def _locate(location: Sequence[int | str], document: Any) -> tuple[str, list[Any]]:
    """The path as text, without the union tags and markers that Pydantic adds, and the types of what contains the last step."""
    path = ""
    value: Any = document
    annotations: list[Any] = [Op]
    container = annotations
    for step in location:
        if isinstance(step, str) and (step == "[key]" or _is_tag(step, value, annotations)):
            continue
        container = annotations
        annotations = list(_below(annotations, step))
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list | tuple) and isinstance(step, int):
            value = value[step]
    return path, container if location and path else annotations


def _is_tag(step: str, value: Any, annotations: Iterable[Any]) -> bool:
    """Whether `step` is the tag by which Pydantic chose a member of a union, rather than a field of the document."""
    return isinstance(value, Mapping) and value.get("kind") == step and len(_tags(annotations)) > 1


def _members(annotation: Any) -> list[Any]:
    """The types that an annotation stands for, without Annotated, unions and None."""
    if get_origin(annotation) is Annotated:
        return _members(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return [member for option in get_args(annotation) for member in _members(option)]
    return [] if annotation is type(None) else [annotation]


def _below(annotations: Iterable[Any], step: int | str) -> list[Any]:
    found: list[Any] = []
    for member in (member for annotation in annotations for member in _members(annotation)):
        if isinstance(member, type) and issubclass(member, BaseModel):
            field = member.model_fields.get(str(step))
            found += [] if field is None else [field.annotation]
        elif get_origin(member) is dict:
            found.append(get_args(member)[1])
        elif get_origin(member) is tuple:
            found.append(get_args(member)[0])
    return found


def _models(annotations: Iterable[Any]) -> list[type[BaseModel]]:
    members = (member for annotation in annotations for member in _members(annotation))
    return [member for member in members if isinstance(member, type) and issubclass(member, BaseModel)]


def _fields(annotations: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(name for model in _models(annotations) for name in model.model_fields))


def _tags(annotations: Iterable[Any]) -> list[str]:
    return [
        get_args(model.model_fields["kind"].annotation)[0]
        for model in _models(annotations)
        if "kind" in model.model_fields
    ]

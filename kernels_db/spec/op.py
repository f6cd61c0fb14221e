"""Loads an op spec from YAML, JSON or a parsed document.

A bad one is refused with every bad field at once. This is the entry to the spec: other packages import its
names from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from warpsmith.kernels_db.spec.checks import check
from warpsmith.kernels_db.spec.document import check_plain, check_size, read_document
from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors, limited
from warpsmith.kernels_db.spec.field_errors import converted
from warpsmith.kernels_db.spec.lines import with_lines
from warpsmith.kernels_db.spec.near_misses import few_suggestions
from warpsmith.kernels_db.spec.parts import named_dtypes, parts_of
from warpsmith.kernels_db.spec.schema import Op, Workload
from warpsmith.kernels_db.spec.target import Target
from warpsmith.kernels_db.spec.tensors import Axis, Input, Output, State

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

    Raises SpecErrors with all that is wrong and the lines of it, OSError where the file cannot be read.
    """
    text = source.read_bytes() if isinstance(source, Path) else source
    try:
        return parse_op(read_document(text))
    except SpecErrors as error:
        raise with_lines(error, text) from None


def parse_op(document: Mapping[str, Any]) -> Op:
    """Load the same from a parsed document."""
    if not isinstance(document, dict):
        # A file of another kind may hold secrets, so its content is not shown.
        found = None if document is None else f"a {type(document).__name__}"
        raise SpecErrors([SpecError("document", found, "a mapping with the fields of an op spec")])
    check_plain(document)
    check_size(document)
    op = None
    errors: list[SpecError] = []
    with few_suggestions():
        try:
            op = Op.model_validate(document, context=named_dtypes(document))
        except ValidationError as error:
            errors = converted(error, Op, document)
        told = {error.field for error in errors}
        errors = limited([*errors, *(error for error in check(parts_of(document)) if error.field not in told)])
    if op is None or errors:
        raise SpecErrors(errors)
    return op

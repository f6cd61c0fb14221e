"""Documents of imports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warpsmith.kernels_db.store.tables import ImportRow
from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.imports import ImportDocument, ImportResult
from warpsmith.service.documents.problem_document import ProblemDocument
from warpsmith.service.documents.problems import (
    URN,
    ImportLost,
    InternalError,
    InvalidPool,
    InvalidSpec,
    Problem,
)

FAULTS: Mapping[str, type[Problem]] = {
    kind.slug: kind for kind in (InvalidPool, InvalidSpec, ImportLost, InternalError)
}


def make_import_document(row: ImportRow) -> ImportDocument:
    """Make the document of an import."""
    given = {name: getattr(row, name) for name in ImportDocument.model_fields if name not in ("result", "problem")}
    return ImportDocument(
        **given,
        result=None if row.result is None else ImportResult(**row.result),
        problem=None if row.problem is None else _make_problem(row.problem),
    )


def _make_problem(kept: Mapping[str, Any]) -> ProblemDocument:
    kind = FAULTS[kept["fault"]]
    errors = [FieldError(**error) for error in kept["errors"]] or None
    return ProblemDocument(
        type=URN + kind.slug, title=kind.title, status=kind.code, detail=kept["detail"], errors=errors
    )

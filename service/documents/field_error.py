"""One bad field of a request or a document, as every answer tells it; apart from the problems, which need FastAPI."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class FieldError(BaseModel):
    """One bad field."""

    field: str = Field(
        description="Path of the field, as in `op.inputs[1].dtype`, `query.limit` or `header.Idempotency-Key`"
    )
    found: Any = Field(None, description="What was found there; long values are shortened")
    expected: str = Field(description="What would be accepted")

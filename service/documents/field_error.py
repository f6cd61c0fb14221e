"""The document of one bad field; kept apart from the problems, which need FastAPI."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class FieldError(BaseModel):
    """One bad field."""

    field: str = Field(
        description="Path of the field, as in `op.inputs[1].dtype`, `query.limit` or `header.Idempotency-Key`"
    )
    found: Any = Field(None, description="The value found there; long values are shortened")
    expected: str = Field(description="A description of values that are accepted")
    line: int | None = Field(None, description="Of an op spec that came as text: the line of the field, from 1")

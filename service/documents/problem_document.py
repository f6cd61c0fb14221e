"""The body of every error: needs no web framework, so that clients read it."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.quotas import QuotaDocument


class ProblemDocument(BaseModel):
    """The body of every error (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:warpsmith:problem:invalid-input",
                    "title": "A field is wrong",
                    "status": 422,
                    "detail": "budget.candidates: found 0, expected a whole number above 0",
                    "errors": [{"field": "budget.candidates", "found": 0, "expected": "a whole number above 0"}],
                }
            ]
        }
    )

    type: str = Field(description="Stable URN of the kind of problem")
    title: str = Field(description="The kind of problem in a few words")
    status: int = Field(description="The HTTP status again")
    detail: str = Field(description="This occurrence, for people")
    errors: list[FieldError] | None = Field(None, description="The bad fields, where fields are at fault")
    error_id: str | None = Field(None, description="Names an internal error in the server's log")
    replaced_by: str | None = Field(None, description="Of an ask that expired: the open ask to answer instead")
    answered_by: str | None = Field(None, description="Of an ask that was answered before: who answered it")
    answered_at: float | None = Field(None, description="When that answer came")
    quota: QuotaDocument | None = Field(None, description="Of a team that has reached a quota: what is used of it")

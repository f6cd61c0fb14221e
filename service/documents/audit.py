"""Documents of the audit log."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

Refusal = Literal["403", "404", "409", "429"]
"""The status of what was understood and not done. A wrong body is no action."""

AuditResult = Literal["done", "unchanged", Refusal]
"""What became of a request: `unchanged` found it done."""


class AuditDocument(BaseModel):
    """One change that a caller made or was refused."""

    id: int
    created_at: float
    team: str | None
    key_prefix: str | None = Field(description="Of the caller's API key; null where no key was needed")
    key_name: str | None = Field(description="The key's name; of a host that joins with a token, the host's")
    action: str = Field(description="The operation's id in the OpenAPI document, or a command on the database")
    object_id: str | None = Field(description="The row that it was about")
    source: str = Field(description="The caller's address, or `command line`")
    result: str = Field(description="done, unchanged, or the status of the refusal (403, 404, 409, 429)")

"""Documents of ops."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class OpSummary(BaseModel):
    """An op without its spec."""

    id: str
    name: str
    digest: str = Field(description="SHA-256 of the canonical spec; the same spec is stored once")
    created_at: float


class OpDocument(OpSummary):
    """An op with its spec."""

    spec: dict[str, Any]

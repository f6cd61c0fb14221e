"""Document of a pool of recorded replies."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


class PoolDocument(BaseModel):
    """A recorded pool of model replies."""

    id: str
    digest: str
    header: dict[str, Any]
    replies: int
    created_at: float

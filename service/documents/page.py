"""One page of a list, and the key that continues it."""

from __future__ import annotations

from typing import Generic, TypeVar

from pydantic import BaseModel, Field

Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    """One page of a list, newest first."""

    items: list[Item]
    next: str | None = Field(None, description="Give it as `after` for the next page; null on the last one")

"""Helpers of all views: read rows and their JSON columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import NodeRow, SearchRow

Row = TypeVar("Row", NodeRow, SearchRow)


def fetch_by_id(session: Session, table: type[Row], ids: set[str]) -> dict[str, Row]:
    """Fetch rows by their ids."""
    return {row.id: row for row in session.scalars(select(table).where(table.id.in_(ids)))} if ids else {}


def read_title(idea: Mapping[str, Any] | None) -> str | None:
    """Read the idea in one line."""
    title = (idea or {}).get("title")
    return str(title) if title else None


def make_interval(low: float | None, high: float | None) -> list[float] | None:
    """Make a confidence interval; None where one end is missing."""
    return [low, high] if low is not None and high is not None else None


Document = TypeVar("Document", bound=BaseModel)


def make_document(schema: type[Document], row: object) -> Document:
    """Make a document whose fields have the names of the row's columns."""
    return schema(**{name: getattr(row, name) for name in schema.model_fields})

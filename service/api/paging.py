"""Paging by key: parameters of every list, and refusal of unknown cursors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from fastapi import Query
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.listing import BadCursor, Page
from warpsmith.service.documents.problems import InvalidInput

Row = TypeVar("Row")

Limit = Annotated[int, Query(ge=1, le=200, description="Items on one page")]
After = Annotated[str | None, Query(max_length=512, description="The `next` of the page before")]

Word = Annotated[str, Query(min_length=1, max_length=128, pattern=r"^[\x20-\x7e]+$")]
"""A filter's value: printable ASCII, as the names of ops and every id are."""

Text = Annotated[str, Query(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""Words to look for in what people wrote: any characters but controls."""


def page(
    read: Callable[..., Page[Row]], session: Session, *, limit: int, after: str | None, **filters: Any
) -> Page[Row]:
    """Read a page with `read`; raises InvalidInput for a broken cursor."""
    try:
        return read(session, limit=limit, after=after, **filters)
    except BadCursor as error:
        raise InvalidInput.one("query.after", after, "the `next` of the page before") from error

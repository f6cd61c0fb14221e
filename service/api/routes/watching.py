"""Routes for watching a search: its tree in rows, its progress, its attempts in time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from warpsmith.kernels_db.store.tables import SearchRow
from warpsmith.service.api.context import ServiceDependency
from warpsmith.service.api.paging import After
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.problems import InvalidInput, NotFound, document_problems
from warpsmith.service.views.mattered import MatteredDocument, make_mattered
from warpsmith.service.views.watch import (
    ProgressDocument,
    TimelineAttempt,
    TreeRows,
    list_timeline,
    make_progress,
    make_tree_rows,
)

router = APIRouter(prefix="/v1/searches", tags=["searches"])


@router.get(
    "/{search_id}/tree/rows",
    summary="The tree in rows",
    response_model=TreeRows,
    responses=document_problems(NotFound, InvalidInput),
)
def get_tree_rows(
    search_id: str,
    service: ServiceDependency,
    *,
    after_seq: Annotated[int, Query(ge=-1, le=2**31 - 1, description="Only nodes with a higher `seq`")] = -1,
    limit: Annotated[int, Query(ge=1, le=5000, description="Rows on one page")] = 2500,
    updated_since: Annotated[
        float | None, Query(ge=0, le=1e11, description="Only nodes that changed since: the `as_of` of an answer before")
    ] = None,
) -> Response:
    """Get the tree for a drawing, light enough for thousands of nodes, with the best path."""
    with service.db.reading() as session:
        row = service.row(session, SearchRow, search_id, "search")
        found = make_tree_rows(session, row, after_seq, limit, updated_since)
    # Serialised here: the framework would check each of thousands of rows again.
    return Response(found.model_dump_json(exclude_unset=True), media_type="application/json")


@router.get("/{search_id}/progress", summary="The progress", responses=document_problems(NotFound))
def get_progress(search_id: str, service: ServiceDependency) -> ProgressDocument:
    """Get the progress of a search.

    That is the best so far against candidates, time and cost; verdicts by gate; spend against limits; what it waits
    for."""
    with service.db.reading() as session:
        row = service.row(session, SearchRow, search_id, "search")
        return make_progress(session, row, service.alive_after_s)


@router.get(
    "/{search_id}/mattered",
    summary="What mattered",
    response_model=MatteredDocument,
    responses=document_problems(NotFound),
)
def get_mattered(search_id: str, service: ServiceDependency) -> Response:
    """Get what mattered in a search: how much its techniques and its tunables explain, and every swept configuration.

    Tunables of one name in several candidates count as one; each sweep's times are relative to its chosen
    configuration. The answer may be 15 s old, which its `as_of` tells."""

    def make() -> bytes:
        with service.db.reading() as session:
            row = service.row(session, SearchRow, search_id, "search")
            return make_mattered(session, row).model_dump_json().encode()

    with service.db.reading() as session:
        row = service.row(session, SearchRow, search_id, "search")
        key, changed_at = (row.id, row.state), row.updated_at  # one that has ended is told of as it ended
    return Response(service.mattered.get_or_make(key, changed_at, make), media_type="application/json")


@router.get(
    "/{search_id}/attempts", summary="The attempts in time", responses=document_problems(NotFound, InvalidInput)
)
def list_attempts(
    search_id: str,
    service: ServiceDependency,
    limit: Annotated[int, Query(ge=1, le=2000, description="Attempts on one page")] = 500,
    after: After = None,
) -> Page[TimelineAttempt]:
    """List every execution of a step with its worker and its times, in the order of opening."""
    with service.db.reading() as session:
        row = service.row(session, SearchRow, search_id, "search")
        if after is not None and not service.is_id(after):
            raise InvalidInput.one("query.after", after, "the `next` of the page before")
        found, following = list_timeline(session, row, after, limit)
        return Page(items=found, next=following)

"""A search as it is watched: its tree in rows, its progress, its attempts in time."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import Response

from warpsmith.kernels_db.store.tables import SearchRow
from warpsmith.service.api.context import ServiceDependency
from warpsmith.service.api.paging import After
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.problems import InvalidInput, NotFound, documented
from warpsmith.service.views.watch import ProgressDocument, TimelineAttempt, TreeRows, attempts, progress, tree_rows

router = APIRouter(prefix="/v1/searches", tags=["searches"])


@router.get(
    "/{search_id}/tree/rows",
    summary="The tree in rows",
    response_model=TreeRows,
    responses=documented(NotFound, InvalidInput),
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
    """What a drawing of the tree needs, light enough for thousands of nodes, with the path to the best."""
    with service.db.reading() as session:
        row = service.row(session, SearchRow, search_id, "search")
        found = tree_rows(session, row, after_seq, limit, updated_since)
    # Written here: the framework would take each of thousands of rows apart and check it again.
    return Response(found.model_dump_json(exclude_unset=True), media_type="application/json")


@router.get("/{search_id}/progress", summary="The progress", responses=documented(NotFound))
def get_progress(search_id: str, service: ServiceDependency) -> ProgressDocument:
    """The best so far against candidates, time and cost; verdicts by gate; spend against limits; what it waits for."""
    with service.db.reading() as session:
        row = service.row(session, SearchRow, search_id, "search")
        return progress(session, row, service.alive_after_s)


@router.get("/{search_id}/attempts", summary="The attempts in time", responses=documented(NotFound, InvalidInput))
def list_attempts(
    search_id: str,
    service: ServiceDependency,
    limit: Annotated[int, Query(ge=1, le=2000, description="Attempts on one page")] = 500,
    after: After = None,
) -> Page[TimelineAttempt]:
    """Every execution of a step with its worker and its times, in the order in which they were opened."""
    with service.db.reading() as session:
        row = service.row(session, SearchRow, search_id, "search")
        if after is not None and not service.is_id(after):
            raise InvalidInput.one("query.after", after, "the `next` of the page before")
        found, following = attempts(session, row, after, limit)
        return Page(items=found, next=following)

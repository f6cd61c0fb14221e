"""The route that compares searches of one op."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from warpsmith.kernels_db.store.tables import OpRow, SearchRow
from warpsmith.kernels_db.store.teams import may_read
from warpsmith.service.api.context import Asker, ServiceDependency, make_unknown
from warpsmith.service.documents.comparison import ComparisonDocument
from warpsmith.service.documents.problems import InvalidInput, NotFound, document_problems
from warpsmith.service.views.comparison import make_comparison

MOST_COMPARED = 8

router = APIRouter(prefix="/v1/searches", tags=["searches"])


@router.get("/compare", summary="Compare searches", responses=document_problems(NotFound, InvalidInput))
def compare_searches(
    service: ServiceDependency,
    asker: Asker,
    search: Annotated[
        list[str],
        Query(
            min_length=2,
            max_length=MOST_COMPARED,
            description="Ids of searches of one op, each once",
            json_schema_extra={"uniqueItems": True},
        ),
    ],
) -> ComparisonDocument:
    """Compare searches of one op: the best so far, what differed, what each technique came to.

    Searches of different ops are refused: a speed-up of one says nothing of another."""
    if len(set(search)) < len(search):
        raise InvalidInput.one("query.search", ", ".join(search), "each search once")
    with service.db.reading() as session:
        rows = [service.row(session, SearchRow, search_id, "search") for search_id in search]
        for row in rows:
            if not may_read(session, [row.team], asker.reads):
                raise make_unknown(SearchRow, row.id, "search")
        names = dict.fromkeys(session.get_one(OpRow, row.op_id).name for row in rows)
        if len(names) > 1:
            raise InvalidInput.one("query.search", f"searches of {', '.join(names)}", "searches of one op")
        return make_comparison(session, rows)

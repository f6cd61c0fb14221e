"""Routes of tries: have a candidate judged for a node before it is answered, and read what came of it."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field

from warpsmith.kernels_db.store import listing
from warpsmith.kernels_db.store.tables import NodeRow, TryRow
from warpsmith.service.api.bodies import StrictBody, StrictRoute
from warpsmith.service.api.context import Asker, ServiceDependency
from warpsmith.service.api.paging import After, Limit, page
from warpsmith.service.api.routes.asks import LONGEST_REPLY
from warpsmith.service.api.routes.steering import convert_refusals
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.problems import (
    InvalidInput,
    NotFound,
    QuotaReached,
    StorageFull,
    WrongState,
    document_problems,
    document_problems_with_body,
)
from warpsmith.service.documents.tries import TryDocument, TryLevel, TrySummary
from warpsmith.service.views.tries import make_try_document, make_try_summary
from warpsmith.workers.steps.trying import ask_try

router = APIRouter(prefix="/v1", tags=["nodes"], route_class=StrictRoute)


class TryRequest(StrictBody):
    """A candidate to be tried."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"source": "def run(x, y): ...", "level": "compile"}]})

    source: str = Field(
        min_length=1, max_length=LONGEST_REPLY, description="One Python file in the language of the node's search"
    )
    level: TryLevel = Field("screen", description="How far the judge goes; `compile` takes no device seconds")
    asked_by: str | None = Field(None, min_length=1, max_length=128, description="Who tries; kept with the try")


@router.post(
    "/nodes/{node_id}/tries",
    status_code=202,
    summary="Try a candidate for a node",
    response_model=TryDocument,
    responses=document_problems_with_body(NotFound, WrongState, QuotaReached, StorageFull),
)
def create_try(node_id: str, body: TryRequest, service: ServiceDependency, asker: Asker) -> JSONResponse:
    """Have a judge worker judge a candidate, before the node is answered with it: one of the search's target, at level
    `compile` any that compiles for it.

    Nothing of the tree changes: the try stays with the node as history. Ask for it again until it is `done` or
    `failed`. What it holds of the device counts on the budget's `try_seconds` and on nothing else of the search, and it
    spends device seconds of the search's team. 409 where these seconds are spent, where the search has ended, where
    no live worker compiles it, and while several of its tries wait or run; 429 where the
    team's quota of the day is used up."""
    with service.db.writing() as session:
        service.row(session, NodeRow, node_id, "node")
        by = asker.name if body.asked_by is None else body.asked_by
        with convert_refusals():
            row, messages = ask_try(session, node_id, body.source, body.level, service.db.now(), by)
        document = make_try_document(session, row)
    service.outbox.send_tries(messages)
    return JSONResponse(document.model_dump(mode="json"), 202, {"Location": f"/v1/tries/{document.id}"})


@router.get("/nodes/{node_id}/tries", summary="A node's tries", responses=document_problems(NotFound, InvalidInput))
def list_tries(node_id: str, service: ServiceDependency, *, limit: Limit = 50, after: After = None) -> Page[TrySummary]:
    """List a node's tries, newest first; they go with their search."""
    with service.db.reading() as session:
        service.row(session, NodeRow, node_id, "node")
        found = page(listing.list_tries, session, limit=limit, after=after, node_id=node_id)
        return Page(items=[make_try_summary(row) for row in found.items], next=found.next)


@router.get("/tries/{try_id}", summary="One try", responses=document_problems(NotFound))
def get_try(try_id: str, service: ServiceDependency) -> TryDocument:
    """Get a try with its code, and what the judge found once it is done."""
    with service.db.reading() as session:
        return make_try_document(session, service.row(session, TryRow, try_id, "try"))

"""Routes of asks: model requests of agent mode that wait for an answer."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field

from warpsmith.kernels_db.store import listing
from warpsmith.kernels_db.store.tables import AskRow
from warpsmith.service.api.bodies import StrictBody, StrictRoute
from warpsmith.service.api.context import Asker, ServiceDependency
from warpsmith.service.api.paging import After, Limit, Word, page
from warpsmith.service.documents.asks import AskDocument, AskState, AskSummary
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.problems import (
    AskClosed,
    InvalidInput,
    NotFound,
    StorageFull,
    document_problems,
    document_problems_with_body,
)
from warpsmith.service.views.asks import make_ask_document, make_ask_summaries
from warpsmith.workers import steps

LONGEST_REPLY = 1_000_000

router = APIRouter(prefix="/v1/asks", tags=["asks"], route_class=StrictRoute)


class AskAnswer(StrictBody):
    """The answer to an ask, in place of a model's reply."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"reply": "## Idea 1\nFuse the two loops ...", "answered_by": "a person"}]}
    )

    reply: str = Field(
        min_length=1, max_length=LONGEST_REPLY, description="The reply, in the form that the ask's prompt asks for"
    )
    answered_by: str = Field("unnamed", min_length=1, max_length=128, description="Who answered; recorded in the pool")


@router.get("", summary="List asks", responses=document_problems(InvalidInput))
def list_asks(
    service: ServiceDependency,
    asker: Asker,
    *,
    state: AskState | None = None,
    search_id: Annotated[Word | None, Query(description="Only asks of this search")] = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[AskSummary]:
    """List asks, newest first."""
    with service.db.reading() as session:
        found = page(
            listing.list_asks, session, limit=limit, after=after, state=state, search_id=search_id, team=asker.reads
        )
        return Page(items=make_ask_summaries(session, found.items), next=found.next)


@router.get("/{ask_id}", summary="One ask", responses=document_problems(NotFound))
def get_ask(ask_id: str, service: ServiceDependency) -> AskDocument:
    """Get an ask with its prompt; an expired one names the ask that replaced it."""
    with service.db.reading() as session:
        row = service.row(session, AskRow, ask_id, "ask")
        return make_ask_document(session, row, steps.replacement(session, row))


@router.post(
    "/{ask_id}/answer",
    summary="Answer an ask",
    responses=document_problems_with_body(NotFound, AskClosed, StorageFull),
)
def answer_ask(ask_id: str, answer: AskAnswer, service: ServiceDependency) -> AskDocument:
    """Give the search the reply that it waits for.

    The first answer counts; the same one again changes nothing. 409 where the ask is not open: `answered_by` and
    `answered_at` name the first answer, `replaced_by` names the open ask that replaced an expired one; both are absent
    once nothing waits for an answer.
    """
    with service.db.reading() as session:
        service.row(session, AskRow, ask_id, "ask")
    try:
        messages = steps.tell(service.db, ask_id, answer.reply, answer.answered_by, service.db.now())
    except steps.AskClosed as closed:
        raise AskClosed(
            str(closed),
            replaced_by=closed.replaced_by,
            answered_by=closed.answered_by,
            answered_at=closed.answered_at,
        ) from closed
    service.outbox.send(messages)
    return get_ask(ask_id, service)

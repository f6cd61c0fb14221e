"""Routes of re-verifications: have stored kernels judged again, and read the results."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field
from sqlalchemy import ColumnElement, func, select

from warpsmith.kernels_db.store import listing
from warpsmith.kernels_db.store.reverification_due import DAY_S, due, last_judged, presents
from warpsmith.kernels_db.store.tables import SHIPPED, KernelRow, ReverificationRow
from warpsmith.service.api.bodies import StrictBody, StrictRoute
from warpsmith.service.api.context import Asker, ServiceDependency
from warpsmith.service.api.paging import After, Limit, page
from warpsmith.service.api.submission import parse_target
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.problems import (
    InvalidInput,
    NotFound,
    QuotaReached,
    StorageFull,
    document_problems,
    document_problems_with_body,
)
from warpsmith.service.documents.reverifications import (
    ReverificationBatch,
    ReverificationDocument,
    ReverificationSummary,
)
from warpsmith.service.views.reverifications import make_reverification_document, make_reverification_summaries
from warpsmith.workers import reverification

MOST_AT_ONCE = 500

router = APIRouter(prefix="/v1", tags=["kernels"], route_class=StrictRoute)

Word = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[\x20-\x7e]+$")]


class ReverifyRequest(StrictBody):
    """Filters of the kernels to judge again; without any, all."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"target": "cpu", "due": True}]})

    op: Word | None = Field(None, description="Only kernels of the op with this name or id")
    target: Word | None = Field(None, description="Only kernels for this target")
    due: bool = Field(
        False,
        description="Only kernels not yet judged on their target's present device and versions, or not for "
        "WARPSMITH_REVERIFY_PERIOD_DAYS",
    )
    limit: int = Field(200, ge=1, le=MOST_AT_ONCE, description="How many at most; the longest unjudged come first")


@router.post(
    "/kernels/{kernel_id}/reverify",
    status_code=202,
    summary="Have a kernel judged again",
    response_model=ReverificationDocument,
    responses=document_problems(NotFound, QuotaReached, StorageFull),
)
def reverify_kernel(kernel_id: str, service: ServiceDependency, asker: Asker) -> JSONResponse:
    """Have a judge worker verify the kernel in full on its present device and versions.

    One re-verification of a kernel runs at a time: a further request returns the same one. It spends device seconds of
    the caller's team: 429 where its quota of the day is used up."""
    with service.db.writing() as session:
        service.row(session, KernelRow, kernel_id, "kernel")
        row, new = reverification.ask(
            session, kernel_id, service.db.now(), cause="asked", by=asker.name, team=asker.team
        )
        document = make_reverification_document(session, row)
        messages = [reverification.message(row)] if new else []
    service.outbox.send_reverifications(messages)
    return JSONResponse(document.model_dump(mode="json"), 202, {"Location": f"/v1/reverifications/{document.id}"})


@router.post(
    "/kernels/reverify",
    status_code=202,
    summary="Have kernels judged again",
    responses=document_problems_with_body(QuotaReached, StorageFull),
)
def reverify_kernels(body: ReverifyRequest, service: ServiceDependency, asker: Asker) -> ReverificationBatch:
    """Have every matching kernel of the caller's team, and shipped one, judged again, the longest unjudged first.

    They spend device seconds of the caller's team: 429 where its quota of the day is used up."""
    now = service.db.now()
    wanted = None if body.target is None else str(parse_target(body.target, "target"))
    filters: list[ColumnElement[bool]] = []
    if asker.reads is not None:
        filters.append(KernelRow.team.in_((asker.team, SHIPPED)))
    if body.due:
        with service.db.reading() as session:  # before the write, which blocks all other writers
            known = presents(session, None if wanted is None else [wanted])
        filters.append(due(known, now, service.settings.reverify_period_days * DAY_S))
    with service.db.writing() as session:
        if body.op is not None:
            filters.append(KernelRow.op_id.in_(listing.op_ids(body.op)))
        if wanted is not None:
            filters.append(KernelRow.target == wanted)
        matching = session.scalar(select(func.count()).select_from(KernelRow).where(*filters)) or 0
        chosen = session.scalars(
            select(KernelRow.id).where(*filters).order_by(last_judged(), KernelRow.id).limit(body.limit)
        ).all()
        # Locked in one order, so that two concurrent requests cannot block each other.
        asked = [
            reverification.ask(session, each, now, cause="asked", by=asker.name, team=asker.team)
            for each in sorted(chosen)
        ]
        messages = [reverification.message(row) for row, new in asked if new]
        batch = ReverificationBatch(
            asked=len(messages),
            under_way=len(asked) - len(messages),
            left=matching - len(asked),
            items=make_reverification_summaries(session, [row for row, _ in asked]),
        )
    service.outbox.send_reverifications(messages)
    return batch


@router.get(
    "/kernels/{kernel_id}/reverifications",
    summary="A kernel's re-verifications",
    responses=document_problems(NotFound, InvalidInput),
)
def list_reverifications(
    kernel_id: str, service: ServiceDependency, *, limit: Limit = 50, after: After = None
) -> Page[ReverificationSummary]:
    """List a kernel's re-verifications, newest first, running ones too; none is ever deleted."""
    with service.db.reading() as session:
        service.row(session, KernelRow, kernel_id, "kernel")
        found = page(listing.list_reverifications, session, limit=limit, after=after, kernel_id=kernel_id)
        return Page(items=make_reverification_summaries(session, found.items), next=found.next)


@router.get(
    "/reverifications/{reverification_id}", summary="One re-verification", responses=document_problems(NotFound)
)
def get_reverification(reverification_id: str, service: ServiceDependency) -> ReverificationDocument:
    """Get a re-verification with its verdict."""
    with service.db.reading() as session:
        row = service.row(session, ReverificationRow, reverification_id, "reverification")
        return make_reverification_document(session, row)

"""Re-verifications: stored kernels judged anew, asked for and read."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field
from sqlalchemy import ColumnElement, func, select

from warpsmith.kernels_db.store import listing
from warpsmith.kernels_db.store.reverification_due import DAY_S, due, last_judged, presents
from warpsmith.kernels_db.store.tables import KernelRow, ReverificationRow
from warpsmith.service.api.bodies import StrictBody, StrictRoute
from warpsmith.service.api.context import Asker, ServiceDependency
from warpsmith.service.api.paging import After, Limit, page
from warpsmith.service.api.submission import parse_target
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.problems import (
    InvalidInput,
    NotFound,
    StorageFull,
    documented,
    documented_with_body,
)
from warpsmith.service.documents.reverifications import (
    ReverificationBatch,
    ReverificationDocument,
    ReverificationSummary,
)
from warpsmith.service.views.reverifications import reverification_document, reverification_summaries
from warpsmith.workers import reverification
from warpsmith.workers.queue import dispatch

MOST_AT_ONCE = 500

router = APIRouter(prefix="/v1", tags=["kernels"], route_class=StrictRoute)

Word = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[\x20-\x7e]+$")]


class ReverifyRequest(StrictBody):
    """Which kernels to judge anew; without any filter all."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"target": "cpu", "due": True}]})

    op: Word | None = Field(None, description="Only kernels of the op with this name or id")
    target: Word | None = Field(None, description="Only kernels for this target")
    due: bool = Field(
        False,
        description="Only kernels that nobody has judged under what their target has now, or not for "
        "WARPSMITH_REVERIFY_PERIOD_DAYS",
    )
    limit: int = Field(200, ge=1, le=MOST_AT_ONCE, description="How many at most; the longest unjudged come first")


@router.post(
    "/kernels/{kernel_id}/reverify",
    status_code=202,
    summary="Have a kernel judged anew",
    response_model=ReverificationDocument,
    responses=documented(NotFound, StorageFull),
)
def reverify_kernel(kernel_id: str, service: ServiceDependency, asker: Asker) -> JSONResponse:
    """Has a judge worker verify the kernel in full, under the versions and on the device that it has now. One of a
    kernel is under way at a time: asked for meanwhile, that one is answered."""
    with service.db.writing() as session:
        service.row(session, KernelRow, kernel_id, "kernel")
        row, new = reverification.ask(session, kernel_id, time.time(), cause="asked", by=asker)
        document = reverification_document(session, row)
        messages = [reverification.message(row)] if new else []
    dispatch.send_reverifications(service.celery, messages)
    return JSONResponse(document.model_dump(mode="json"), 202, {"Location": f"/v1/reverifications/{document.id}"})


@router.post(
    "/kernels/reverify",
    status_code=202,
    summary="Have kernels judged anew",
    responses=documented_with_body(StorageFull),
)
def reverify_kernels(body: ReverifyRequest, service: ServiceDependency, asker: Asker) -> ReverificationBatch:
    """The same for every kernel that matches, the longest unjudged first."""
    now = time.time()
    wanted = None if body.target is None else str(parse_target(body.target, "target"))
    filters: list[ColumnElement[bool]] = []
    if body.due:
        with service.db.reading() as session:  # before the write, which everybody waits for
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
        # Locked in one order, whoever asks: two that ask at once wait for each other and never both.
        asked = [reverification.ask(session, each, now, cause="asked", by=asker) for each in sorted(chosen)]
        messages = [reverification.message(row) for row, new in asked if new]
        batch = ReverificationBatch(
            asked=len(messages),
            under_way=len(asked) - len(messages),
            left=matching - len(asked),
            items=reverification_summaries(session, [row for row, _ in asked]),
        )
    dispatch.send_reverifications(service.celery, messages)
    return batch


@router.get(
    "/kernels/{kernel_id}/reverifications",
    summary="How often and with what result a kernel was judged anew",
    responses=documented(NotFound, InvalidInput),
)
def list_reverifications(
    kernel_id: str, service: ServiceDependency, *, limit: Limit = 50, after: After = None
) -> Page[ReverificationSummary]:
    """A kernel's re-verifications, newest first; those that are under way, too. None is ever forgotten."""
    with service.db.reading() as session:
        service.row(session, KernelRow, kernel_id, "kernel")
        found = page(listing.list_reverifications, session, limit=limit, after=after, kernel_id=kernel_id)
        return Page(items=reverification_summaries(session, found.items), next=found.next)


@router.get("/reverifications/{reverification_id}", summary="One re-verification", responses=documented(NotFound))
def get_reverification(reverification_id: str, service: ServiceDependency) -> ReverificationDocument:
    """A re-verification with its verdict."""
    with service.db.reading() as session:
        row = service.row(session, ReverificationRow, reverification_id, "reverification")
        return reverification_document(session, row)

"""Routes of nodes' profiles: request one, read the latest."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from warpsmith.kernels_db.store.profiles import ask_profile, latest_profile
from warpsmith.kernels_db.store.tables import NodeRow, ProfileRow, SearchRow
from warpsmith.service.api.context import ServiceDependency
from warpsmith.service.documents.problems import (
    InvalidInput,
    NotFound,
    QuotaReached,
    StorageFull,
    WrongState,
    document_problems,
)
from warpsmith.service.documents.profiles import ProfileDocument
from warpsmith.workers.queue_names import judge_queue
from warpsmith.workers.steps import check_device

router = APIRouter(prefix="/v1/nodes", tags=["nodes"])


@router.post(
    "/{node_id}/profile",
    status_code=202,
    summary="Ask for a profile",
    response_model=ProfileDocument,
    responses=document_problems(NotFound, WrongState, QuotaReached, StorageFull),
)
def request_profile(node_id: str, service: ServiceDependency) -> JSONResponse:
    """Have a judge worker run a few calls of the node's candidate under a profiler.

    One profile of a node is made at a time: a further request returns the same one. It takes the device for a moment,
    counts towards no budget and changes nothing of the search, which may have ended. It spends device seconds of the
    search's team: 429 where its quota of the day is used up. 409 where the node has no code."""
    now = service.db.now()
    with service.db.writing() as session:
        service.row(session, NodeRow, node_id, "node")
        try:
            row, announce = ask_profile(session, node_id, now)
        except ValueError as error:
            raise WrongState.one("node", str(error), "a node that has code") from error
        search = session.get_one(SearchRow, row.search_id)
        if announce:
            check_device(session, search.team, now)
        target = search.target
        document = make_profile_document(row, trace=False)
    if announce:
        service.outbox.send_profile(document.id, judge_queue(target))
    return JSONResponse(document.model_dump(mode="json"), 202, {"Location": f"/v1/nodes/{node_id}/profile"})


@router.get("/{node_id}/profile", summary="The latest profile", responses=document_problems(NotFound, InvalidInput))
def get_profile(
    node_id: str,
    service: ServiceDependency,
    *,
    trace: Annotated[bool, Query(description="Whether to answer the Chrome trace, too")] = False,
) -> ProfileDocument:
    """Get the node's latest profile, finished or not. 404 where none was requested."""
    with service.db.reading() as session:
        service.row(session, NodeRow, node_id, "node")
        row = latest_profile(session, node_id)
        if row is None:
            raise NotFound(f"profile: found none of node {node_id}, expected one that was asked for (POST)")
        return make_profile_document(row, trace=trace)


def make_profile_document(row: ProfileRow, *, trace: bool) -> ProfileDocument:
    """Make the document of a profile."""
    stored = row.document
    return ProfileDocument(
        id=row.id,
        node_id=row.node_id,
        search_id=row.search_id,
        state=row.state,
        reason=stored.get("reason"),
        device=stored.get("device"),
        workload=stored.get("workload"),
        calls=stored.get("calls"),
        rows=stored.get("rows", []),
        nsight=stored.get("nsight"),
        trace=row.trace if trace else None,
        created_at=row.created_at,
    )

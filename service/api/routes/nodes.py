"""Nodes of the tree: reading, marking, branching."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import NodeRow, SearchRow
from warpsmith.service.api.bodies import StrictBody, StrictRoute
from warpsmith.service.api.context import Asker, Service, ServiceDependency
from warpsmith.service.api.idempotency import Answer, OnceDependency
from warpsmith.service.api.paging import Word
from warpsmith.service.api.routes.steering import refusals
from warpsmith.service.api.submission import SearchRequest, check_submission
from warpsmith.service.documents.nodes import NodeDocument, NodeSummary, SourceDocument
from warpsmith.service.documents.problems import (
    IdempotencyReuse,
    InvalidInput,
    InvalidPool,
    MissingSetting,
    NotFound,
    StorageFull,
    WrongState,
    documented,
    documented_with_body,
)
from warpsmith.service.documents.searches import SearchDocument
from warpsmith.service.views import searches
from warpsmith.service.views.nodes import node_document, node_summary
from warpsmith.service.views.report import ReportDocument, report
from warpsmith.service.views.rows import idea_title
from warpsmith.workers.steps import steering

MARK_PROBLEMS = documented(NotFound, WrongState, StorageFull)

router = APIRouter(prefix="/v1/nodes", tags=["nodes"], route_class=StrictRoute)


class BranchRequest(StrictBody):
    """What the new search has of its own; what is left out is the old search's."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{}, {"budget": {"candidates": 40}, "policy": {"name": "idea_beam", "rounds": 3}}]
        },
    )

    policy: dict[str, Any] | None = Field(None, description="As in POST /v1/searches")
    budget: dict[str, Any] | None = Field(None, description="As in POST /v1/searches; nothing of it is spent yet")
    model: dict[str, Any] | None = Field(None, description="As in POST /v1/searches")


@router.get("/{node_id}", summary="One node", responses=documented(NotFound))
def get_node(node_id: str, service: ServiceDependency) -> NodeDocument:
    """A node with its idea, source, verdicts, attempts and model calls (prompts and replies as they were)."""
    with service.db.reading() as session:
        row = service.row(session, NodeRow, node_id, "node")
        best_id = session.scalar(select(SearchRow.best_node_id).where(SearchRow.id == row.search_id))
        return node_document(session, row, best_id)


@router.get("/{node_id}/source", summary="A node's code", responses=documented(NotFound))
def get_source(node_id: str, service: ServiceDependency) -> SourceDocument:
    """The code of a node alone, without its history: to compare another's with."""
    with service.db.reading() as session:
        row = service.row(session, NodeRow, node_id, "node")
        return SourceDocument(
            id=row.id, seq=row.seq, title=idea_title(row.idea), language=row.language, source=row.source
        )


@router.get("/{node_id}/report", summary="What the judge measured", responses=documented(NotFound, InvalidInput))
def get_report(
    node_id: str,
    service: ServiceDependency,
    verdict: Annotated[Word | None, Query(description="A verdict of the node; default is the one it stands by")] = None,
) -> ReportDocument:
    """A verdict in full: failure, compiler's log, registers and spills, and for every workload errors against their
    limits, times of all contenders with intervals, and where they stand under the roofline, beside the node's parent
    and the champion. Left out, it is the newest full verification that was passed, else the newest verdict of all. 404
    where nothing was judged."""
    with service.db.reading() as session:
        row = service.row(session, NodeRow, node_id, "node")
        found = report(session, row, verdict)
        if found is None:
            what = "a verdict" if verdict is None else f"verdict {verdict}"
            raise NotFound(f"report: found no such verdict of node {node_id}, expected {what} of the judge on it")
        return found


@router.post("/{node_id}/pin", summary="Pin a node", responses=MARK_PROBLEMS)
def pin_node(node_id: str, service: ServiceDependency, asker: Asker) -> NodeSummary:
    """The node is a parent of every round to come, once it is accepted. A node has one mark: pinning lifts a ban. 409
    where the search has ended."""
    return _mark(service, node_id, "pinned", True, asker)


@router.delete("/{node_id}/pin", summary="Unpin a node", responses=MARK_PROBLEMS)
def unpin_node(node_id: str, service: ServiceDependency, asker: Asker) -> NodeSummary:
    """Leaves the node to the policy again; nothing happens where it is not pinned."""
    return _mark(service, node_id, "pinned", False, asker)


@router.post("/{node_id}/ban", summary="Ban a node", responses=MARK_PROBLEMS)
def ban_node(node_id: str, service: ServiceDependency, asker: Asker) -> NodeSummary:
    """The node is never again a parent, nor repaired, judged, verified, the best or the winner. What runs for it is
    finished; a request that waits for an answer is withdrawn for good; what builds on it stays. 409 on the root and
    where the search has ended."""
    return _mark(service, node_id, "banned", True, asker)


@router.delete("/{node_id}/ban", summary="Unban a node", responses=MARK_PROBLEMS)
def unban_node(node_id: str, service: ServiceDependency, asker: Asker) -> NodeSummary:
    """Takes a ban back, and the node's work up where it was left, but for a request that was withdrawn; nothing happens
    where it is not banned."""
    return _mark(service, node_id, "banned", False, asker)


def _mark(service: Service, node_id: str, mark: steering.Mark, wanted: bool, asker: str | None) -> NodeSummary:
    with service.db.reading() as session:
        search_id = service.row(session, NodeRow, node_id, "node").search_id
    documents: list[NodeSummary] = []

    def answer(session: Session, nodes: Sequence[NodeRow]) -> None:
        best_id = session.get_one(SearchRow, search_id).best_node_id
        documents.append(node_summary(nodes[0], best_id))

    with refusals():
        steering.mark_node(service.db, node_id, mark, wanted, time.time(), by=asker, also=answer)
    service.advance(search_id)
    return documents[-1]


@router.post(
    "/{node_id}/branch",
    status_code=202,
    summary="Branch a new search",
    response_model=SearchDocument,
    responses=documented_with_body(NotFound, WrongState, InvalidPool, MissingSetting, IdempotencyReuse, StorageFull),
)
def branch_node(
    node_id: str, body: BranchRequest, once: OnceDependency, service: ServiceDependency, asker: Asker
) -> JSONResponse:
    """Starts a new search of the same op and target, whose tree begins with this node's candidate beside the
    reference: it is judged anew, as a contender of round 0. The old search may have ended. 409 where the node has no
    code."""
    with service.db.reading() as session:
        stored = once.stored(session)
        if stored is not None:
            return stored.response()
        node = service.row(session, NodeRow, node_id, "node")
        old = session.get_one(SearchRow, node.search_id)
        request = SearchRequest(
            op_id=old.op_id,
            target=old.target,
            language=old.language,
            policy=old.policy if body.policy is None else body.policy,
            budget=old.budget if body.budget is None else body.budget,
            model=old.model if body.model is None else body.model,
        )
        submission = check_submission(service, session, request)
    answers: list[Answer] = []

    def answer(session: Session, search_id: str) -> None:
        session.flush()
        document = searches.search_document(session, session.get_one(SearchRow, search_id), service.alive_after_s)
        answers.append(Answer.of(202, document, Location=f"/v1/searches/{search_id}"))
        once.record(session, answers[-1])

    def create() -> Answer:
        with refusals():
            search_id = steering.branch(
                service.db,
                node_id,
                policy=submission.policy,
                budget=submission.budget,
                model=submission.model,
                now=time.time(),
                by=asker,
                also=answer,
            )
        service.advance(search_id)
        return answers[-1]

    return once.guard(service.db, create).response()

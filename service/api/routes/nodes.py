"""Routes of nodes: reading, marking, branching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import NodeRow, SearchRow
from warpsmith.service.api.auth import Caller
from warpsmith.service.api.bodies import StrictBody, StrictRoute
from warpsmith.service.api.context import Asker, Service, ServiceDependency
from warpsmith.service.api.idempotency import Answer, OnceDependency
from warpsmith.service.api.paging import Word
from warpsmith.service.api.routes.steering import convert_refusals
from warpsmith.service.api.submission import SearchRequest, check_submission
from warpsmith.service.documents.nodes import NodeDocument, NodeSummary, SourceDocument
from warpsmith.service.documents.problems import (
    IdempotencyReuse,
    InvalidInput,
    InvalidPool,
    MissingSetting,
    NotFound,
    QuotaReached,
    StorageFull,
    WrongState,
    document_problems,
    document_problems_with_body,
)
from warpsmith.service.documents.searches import SearchDocument
from warpsmith.service.views import searches
from warpsmith.service.views.nodes import make_node_document, make_node_summary
from warpsmith.service.views.report import ReportDocument, make_report
from warpsmith.service.views.rows import read_title
from warpsmith.workers.steps import NewSearch, steering

MARK_PROBLEMS = document_problems(NotFound, WrongState, StorageFull)

router = APIRouter(prefix="/v1/nodes", tags=["nodes"], route_class=StrictRoute)


class BranchRequest(StrictBody):
    """Settings of the new search; those left out are the old search's."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{}, {"budget": {"candidates": 40}, "policy": {"name": "idea_beam", "rounds": 3}}]
        },
    )

    policy: dict[str, Any] | None = Field(None, description="As in POST /v1/searches")
    budget: dict[str, Any] | None = Field(None, description="As in POST /v1/searches; nothing of it is spent yet")
    model: dict[str, Any] | None = Field(None, description="As in POST /v1/searches")


@router.get("/{node_id}", summary="One node", responses=document_problems(NotFound))
def get_node(node_id: str, service: ServiceDependency) -> NodeDocument:
    """Get a node with its idea, source, verdicts, attempts and model calls."""
    with service.db.reading() as session:
        row = service.row(session, NodeRow, node_id, "node")
        best_id = session.scalar(select(SearchRow.best_node_id).where(SearchRow.id == row.search_id))
        return make_node_document(session, row, best_id)


@router.get("/{node_id}/source", summary="A node's code", responses=document_problems(NotFound))
def get_source(node_id: str, service: ServiceDependency) -> SourceDocument:
    """Get the code of a node alone, without its history, for comparisons."""
    with service.db.reading() as session:
        row = service.row(session, NodeRow, node_id, "node")
        return SourceDocument(
            id=row.id, seq=row.seq, title=read_title(row.idea), language=row.language, source=row.source
        )


@router.get("/{node_id}/report", summary="The judge's report", responses=document_problems(NotFound, InvalidInput))
def get_report(
    node_id: str,
    service: ServiceDependency,
    verdict: Annotated[Word | None, Query(description="A verdict of the node; default is its deciding one")] = None,
) -> ReportDocument:
    """Get a verdict in full, beside the node's parent and the champion.

    It holds the failure, the compiler's log, registers and spills, and for every workload errors against their limits,
    times of all contenders with intervals, and their places under the roofline. By default it is the newest full
    verification that was passed, else the newest verdict of all. 404 where nothing was judged."""
    with service.db.reading() as session:
        row = service.row(session, NodeRow, node_id, "node")
        found = make_report(session, row, verdict)
        if found is None:
            what = "a verdict" if verdict is None else f"verdict {verdict}"
            raise NotFound(f"report: found no such verdict of node {node_id}, expected {what} of the judge on it")
        return found


@router.post("/{node_id}/pin", summary="Pin a node", responses=MARK_PROBLEMS)
def pin_node(node_id: str, service: ServiceDependency, asker: Asker) -> NodeSummary:
    """Make the node a parent in every later round, once it is accepted.

    A node has one mark: pinning lifts a ban. 409 where the search has ended."""
    return _mark(service, node_id, "pinned", True, asker)


@router.delete("/{node_id}/pin", summary="Unpin a node", responses=MARK_PROBLEMS)
def unpin_node(node_id: str, service: ServiceDependency, asker: Asker) -> NodeSummary:
    """Leave the node to the policy again; nothing happens where it is not pinned."""
    return _mark(service, node_id, "pinned", False, asker)


@router.post("/{node_id}/ban", summary="Ban a node", responses=MARK_PROBLEMS)
def ban_node(node_id: str, service: ServiceDependency, asker: Asker) -> NodeSummary:
    """Exclude the node: it is never again a parent, repaired, judged, verified, best or winner.

    Steps that a worker does are finished; what is queued or in a bundle is taken back, and a request that waits for an
    answer is withdrawn for good; nodes built on it stay. 409 on the root and where the search has ended."""
    return _mark(service, node_id, "banned", True, asker)


@router.delete("/{node_id}/ban", summary="Unban a node", responses=MARK_PROBLEMS)
def unban_node(node_id: str, service: ServiceDependency, asker: Asker) -> NodeSummary:
    """Take a ban back and continue the node's work, except for a withdrawn request.

    Nothing happens where it is not banned."""
    return _mark(service, node_id, "banned", False, asker)


def _mark(service: Service, node_id: str, mark: steering.Mark, wanted: bool, asker: Caller) -> NodeSummary:
    with service.db.reading() as session:
        search_id = service.row(session, NodeRow, node_id, "node").search_id
    documents: list[NodeSummary] = []

    def answer(session: Session, nodes: Sequence[NodeRow]) -> None:
        best_id = session.get_one(SearchRow, search_id).best_node_id
        documents.append(make_node_summary(nodes[0], best_id))

    with convert_refusals():
        steering.mark_node(service.db, node_id, mark, wanted, service.db.now(), by=asker.name, also=answer)
    service.advance(search_id)
    return documents[-1]


@router.post(
    "/{node_id}/branch",
    status_code=202,
    summary="Branch a new search",
    response_model=SearchDocument,
    responses=document_problems_with_body(
        NotFound, WrongState, InvalidPool, MissingSetting, IdempotencyReuse, QuotaReached, StorageFull
    ),
)
def branch_node(
    node_id: str, body: BranchRequest, once: OnceDependency, service: ServiceDependency, asker: Asker
) -> JSONResponse:
    """Start a new search of the same op and target with this node's candidate.

    Its tree begins with the candidate beside the reference: it is judged again, as a contender of round 0. The old
    search may have ended. 409 where the node has no code."""
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
        submission = check_submission(service, session, request, asker)
    answers: list[Answer] = []

    def answer(session: Session, new: NewSearch) -> None:
        document = searches.make_new_search_document(session, new.search, new.op)
        answers.append(Answer.of(202, document, Location=f"/v1/searches/{new.search.id}"))
        once.record(session, answers[-1])

    def create() -> Answer:
        with convert_refusals():
            search_id = steering.branch(
                service.db,
                node_id,
                policy=submission.policy,
                budget=submission.budget,
                model=submission.model,
                now=service.db.now(),
                team=asker.team,
                model_name=submission.model_name,
                by=asker.name,
                also=answer,
            )
        service.advance(search_id)
        return answers[-1]

    return once.guard(service.db, create).response()

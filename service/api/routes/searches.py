"""Routes of searches: submit, watch, pause, resume, cancel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, cast

from fastapi import APIRouter, Header, Query
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from fastapi.sse import EventSourceResponse
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from warpsmith.kernels_db.store import audit, listing, records
from warpsmith.kernels_db.store.pool_file import dump_pool
from warpsmith.kernels_db.store.tables import SearchRow
from warpsmith.service.api.bodies import StrictRoute
from warpsmith.service.api.context import Asker, Service, ServiceDependency, make_unknown
from warpsmith.service.api.idempotency import Answer, OnceDependency
from warpsmith.service.api.labels import Tag
from warpsmith.service.api.paging import After, Limit, Text, Word, page
from warpsmith.service.api.streams import BATCH, read_batch
from warpsmith.service.api.submission import SearchRequest, check_submission, estimate_submission, parse_target
from warpsmith.service.documents.nodes import TreePage
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.problems import (
    IdempotencyReuse,
    InvalidInput,
    InvalidPool,
    InvalidSpec,
    MissingSetting,
    NotFound,
    QuotaReached,
    StorageFull,
    TooManyStreams,
    WrongState,
    document_problems,
    document_problems_with_body,
)
from warpsmith.service.documents.searches import (
    DeletedSearch,
    EstimateDocument,
    EventDocument,
    EventPage,
    ForecastDocument,
    SearchDocument,
    SearchState,
    SearchSummary,
    StoryDocument,
    TagDocument,
)
from warpsmith.service.story import tell
from warpsmith.service.story.document import make_story_document
from warpsmith.service.story.gather import gather
from warpsmith.service.views import searches
from warpsmith.service.views.nodes import list_node_summaries
from warpsmith.workers import steps, tracing
from warpsmith.workers.llm.estimate import Forecast, one_line

NDJSON = "application/x-ndjson"
LARGEST_ID = 2**63 - 1
STREAM_ITEM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "The event's id, for Last-Event-ID"},
        "event": {"type": "string", "description": "The event's type, such as `node.judged`"},
        "data": {"type": "string", "contentMediaType": "application/json", "description": "An EventDocument"},
        "retry": {"type": "integer", "minimum": 0},
    },
}

router = APIRouter(prefix="/v1/searches", tags=["searches"], route_class=StrictRoute)


@router.post(
    "",
    status_code=202,
    summary="Submit a search",
    response_model=SearchDocument,
    responses=document_problems_with_body(
        InvalidSpec, InvalidPool, MissingSetting, IdempotencyReuse, QuotaReached, StorageFull
    ),
)
def create_search(body: SearchRequest, once: OnceDependency, service: ServiceDependency, asker: Asker) -> JSONResponse:
    """Store a search and have the workers begin; `Location` names it.

    A search that cannot run is refused here with the bad field."""
    with service.db.reading() as session:
        stored = once.stored(session)
        if stored is not None:
            return stored.response()
        submission = check_submission(service, session, body, asker)
    answers: list[Answer] = []

    def answer(session: Session, new: steps.NewSearch) -> None:
        document = searches.make_new_search_document(session, new.search, new.op)
        answers.append(Answer.of(202, document, Location=f"/v1/searches/{new.search.id}"))
        once.record(session, answers[0])
        audit.add_due(session)

    def create() -> Answer:
        following = steps.Following()
        steps.create_search(
            service.db,
            submission.op,
            submission.target,
            language=submission.language,
            policy=submission.policy,
            budget=submission.budget,
            model=submission.model,
            seeds=submission.seeds,
            team=asker.team,
            model_name=submission.model_name,
            labels={"name": body.name, "tags": body.tags, "notes": body.notes},
            traceparent=tracing.traceparent(),
            now=service.db.now(),
            also=answer,
            following=following,
        )
        service.outbox.send(following.messages or ())
        return answers[0]

    return once.guard(service.db, create).response()


@router.post(
    "/estimate",
    summary="Estimate a search",
    responses=document_problems_with_body(InvalidSpec, InvalidPool, MissingSetting),
)
def estimate_search(body: SearchRequest, service: ServiceDependency, asker: Asker) -> EstimateDocument:
    """Estimate the cost of a search: calls, tokens and US dollars, expected and at worst.

    The body is that of a submission; nothing is stored, and no key is needed."""
    with service.db.reading() as session:
        found = estimate_submission(service, session, body, asker)
    return EstimateDocument(
        expected=_make_forecast(found.expected),
        worst=_make_forecast(found.worst),
        sweep_seconds=found.sweep_seconds,
        unpriced=list(found.unpriced),
        assumptions=list(found.assumptions),
        summary=one_line(found),
    )


def _make_forecast(found: Forecast) -> ForecastDocument:
    return ForecastDocument(**asdict(found))


@router.get("", summary="List searches", responses=document_problems(InvalidInput))
def list_searches(
    service: ServiceDependency,
    asker: Asker,
    *,
    state: Annotated[
        list[SearchState] | None, Query(max_length=6, description="Only searches in one of these states")
    ] = None,
    op: Annotated[Word | None, Query(description="Only searches of the op with this name or id")] = None,
    target: Annotated[Word | None, Query(description="Only searches on this target")] = None,
    text: Annotated[
        Text | None, Query(description="Part of the op's name, the id, the reason, the name, notes, model or a tag")
    ] = None,
    tag: Annotated[
        list[Tag] | None, Query(max_length=steps.MOST_TAGS, description="Only searches with each of these tags")
    ] = None,
    archived: Annotated[
        listing.Archived, Query(description="`no` leaves archived searches out, `yes` lists them alone")
    ] = "no",
    sort: Annotated[listing.SearchSort, Query(description="Sort key; searches without a value come last")] = "created",
    order: Annotated[listing.Order, Query(description="From the largest or newest, or from the smallest")] = "desc",
    limit: Limit = 50,
    after: After = None,
) -> Page[SearchSummary]:
    """List searches, newest first unless they are sorted otherwise."""
    wanted = None if target is None else str(parse_target(target, "query.target"))
    with service.db.reading() as session:
        found = page(
            listing.list_searches,
            session,
            limit=limit,
            after=after,
            state=state or (),
            op=op,
            target=wanted,
            text=text,
            tags=tag or (),
            archived=archived,
            sort=sort,
            order=order,
            team=asker.reads,
        )
        return Page(items=searches.make_search_summaries(session, found.items), next=found.next)


@router.get("/tags", summary="List tags")
def list_tags(service: ServiceDependency, asker: Asker) -> list[TagDocument]:
    """List the tags of the searches that are not archived, by name."""
    with service.db.reading() as session:
        return [TagDocument(tag=tag, searches=count) for tag, count in listing.list_tags(session, team=asker.reads)]


@router.get("/{search_id}", summary="One search", responses=document_problems(NotFound))
def get_search(search_id: str, service: ServiceDependency) -> SearchDocument:
    """Get a search with its progress.

    That is its state, round, best so far against each baseline, spend, and what it waits for."""
    with service.db.reading() as session:
        row = service.row(session, SearchRow, search_id, "search")
        return searches.make_search_document(session, row, service.alive_after_s)


@router.get(
    "/{search_id}/tree",
    summary="The tree",
    response_model=TreePage,
    responses=document_problems(NotFound, InvalidInput),
)
def get_tree(
    search_id: str,
    service: ServiceDependency,
    after_seq: Annotated[int, Query(ge=-1, le=2**31 - 1, description="Only nodes with a higher `seq`")] = -1,
    limit: Annotated[int, Query(ge=1, le=1000, description="Nodes on one page")] = 500,
) -> Response:
    """Get the nodes by rising `seq`; `parent_id` links them, and parents come before children."""
    with service.db.reading() as session:
        row = service.row(session, SearchRow, search_id, "search")
        nodes = list_node_summaries(session, search_id, row.best_node_id, after_seq, limit + 1)
        found = TreePage.model_construct(
            search_id=search_id,
            state=cast("SearchState", row.state),
            nodes=nodes[:limit],
            next_after_seq=nodes[limit - 1].seq if len(nodes) > limit else None,
        )
    # Serialised here: the framework would check each of the nodes again.
    return Response(found.model_dump_json(), media_type="application/json")


@router.get("/{search_id}/story", summary="The story", responses=document_problems(NotFound))
def get_story(search_id: str, service: ServiceDependency) -> StoryDocument:
    """Get the search in prose; of a running search, so far.

    It says what was asked and tried, what worked, what failed and why, what the winner does and how far from the limit
    it is, what it cost, who steered, why it ended."""
    with service.db.reading() as session:
        row = service.row(session, SearchRow, search_id, "search")
        return make_story_document(row, tell(gather(session, row, service.alive_after_s)))


@router.get(
    "/{search_id}/events",
    summary="The events",
    response_model=EventPage,
    responses={
        200: {
            "description": "Server-sent events (`data` is an EventDocument), or one page of them (`format=json`)",
            "content": {EventSourceResponse.media_type: {"itemSchema": STREAM_ITEM}},
        },
        **document_problems(NotFound, InvalidInput, TooManyStreams),
    },
)
async def get_events(
    search_id: str,
    service: ServiceDependency,
    asker: Asker,
    *,
    form: Annotated[
        str,
        Query(
            alias="format",
            pattern="^(sse|json)$",
            description="`sse` streams until the search ends; `json` answers one page",
        ),
    ] = "sse",
    after: Annotated[int, Query(ge=0, le=LARGEST_ID, description="Only events with a higher id")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="Events on one page (`format=json`)")] = BATCH,
    last_event_id: Annotated[
        int,
        Header(
            alias="Last-Event-ID",
            ge=0,
            le=LARGEST_ID,
            description="Sent by a client that resumes a stream; wins over `after` unless 0",
        ),
    ] = 0,
) -> Response:
    """Get the events of a search, in order.

    The stream ends after the event that ends the search, and when its key is revoked; Last-Event-ID resumes a dropped
    one."""
    start = last_event_id or after
    batch = (
        await run_in_threadpool(read_batch, service.db, search_id, start, limit) if service.is_id(search_id) else None
    )
    if batch is None:
        raise make_unknown(SearchRow, search_id, "search")
    if form == "json":
        items: list[EventDocument] = [searches.make_event_document(row) for row in batch.events]
        following = None if batch.ended else (items[-1].id if items else start)
        return Response(EventPage(items=items, next_after=following).model_dump_json(), media_type="application/json")
    service.streams.check()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return EventSourceResponse(service.streams.events(search_id, start, asker.prefix), headers=headers)


@router.get(
    "/{search_id}/pool",
    summary="The recorded replies as a pool",
    response_class=PlainTextResponse,
    responses={
        200: {"description": "A pool file", "content": {NDJSON: {"schema": {"type": "string"}}}},
        **document_problems(NotFound),
    },
)
def export_pool(search_id: str, service: ServiceDependency) -> Response:
    """Export every model reply of the search as JSON lines, to replay it without a model."""
    with service.db.reading() as session:
        service.row(session, SearchRow, search_id, "search")
        pool = records.export_pool(session, search_id)
    headers = {"Content-Disposition": f'attachment; filename="{pool.header.op}-{search_id}.jsonl"'}
    return Response(dump_pool(pool), media_type=NDJSON, headers=headers)


@router.post("/{search_id}/pause", summary="Pause", responses=document_problems(NotFound, WrongState, StorageFull))
def pause_search(search_id: str, service: ServiceDependency, asker: Asker) -> SearchDocument:
    """Open no further steps; running ones are finished. 409 where the search has ended."""
    return _change(service, search_id, lambda now: steps.pause(service.db, search_id, "on request", now, by=asker.name))


@router.post("/{search_id}/resume", summary="Resume", responses=document_problems(NotFound, WrongState, StorageFull))
def resume_search(search_id: str, service: ServiceDependency, asker: Asker) -> SearchDocument:
    """Go on where the search was paused. 409 unless it is paused."""
    return _change(service, search_id, lambda now: steps.resume(service.db, search_id, now, by=asker.name))


@router.post("/{search_id}/cancel", summary="Cancel", responses=document_problems(NotFound, WrongState, StorageFull))
def cancel_search(search_id: str, service: ServiceDependency, asker: Asker) -> SearchDocument:
    """End the search; its results stay. 409 where it ended otherwise."""
    return _change(service, search_id, lambda now: steps.cancel(service.db, search_id, now, by=asker.name))


@router.delete("/{search_id}", summary="Delete", responses=document_problems(NotFound, WrongState, StorageFull))
def delete_search(search_id: str, service: ServiceDependency) -> DeletedSearch:
    """Delete a search that has ended, with its nodes, code, verdicts, prompts, replies and events. 409 before.

    Kernels that it kept stay, with code, evidence and lineage, and so do counterexamples, ops, pools, what was spent,
    and the audit log. Files that were exported are the user's own."""
    with service.db.reading() as session:
        service.row(session, SearchRow, search_id, "search")
    try:
        found = steps.delete_search(service.db, search_id, service.db.now())
    except steps.WrongState as error:
        raise WrongState.one(error.what, error.found, error.expected) from error
    return DeletedSearch(id=found.search_id, nodes=found.nodes, kernels=list(found.kernels))


def _change(service: Service, search_id: str, change: Callable[[float], list[steps.Message] | None]) -> SearchDocument:
    with service.db.reading() as session:
        service.row(session, SearchRow, search_id, "search")
    try:
        messages = change(service.db.now())
    except steps.WrongState as error:
        raise WrongState.one(error.what, error.found, error.expected) from error
    service.outbox.send(messages or [])
    return get_search(search_id, service)

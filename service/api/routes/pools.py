"""Routes of pools: recorded model replies, from which searches replay."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from warpsmith.kernels_db.spec.errors import shown
from warpsmith.kernels_db.store import listing, records
from warpsmith.kernels_db.store.pool_file import PoolError, parse_pool_stepwise
from warpsmith.kernels_db.store.tables import PoolRow
from warpsmith.service.api.auth import Caller
from warpsmith.service.api.bodies import Body, RawBody
from warpsmith.service.api.context import Asker, Service, ServiceDependency
from warpsmith.service.api.idempotency import Answer, Once, OnceDependency
from warpsmith.service.api.paging import After, Limit, Word, page
from warpsmith.service.api.slices import run_sliced
from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.pools import PoolDocument
from warpsmith.service.documents.problems import (
    BodyTooLarge,
    IdempotencyReuse,
    InvalidInput,
    InvalidPool,
    MalformedBody,
    NotFound,
    StorageFull,
    UnsupportedMedia,
    document_problems,
)
from warpsmith.service.views.rows import make_document

NDJSON = "application/x-ndjson"
EXAMPLE_LINES = (
    {
        "format": "warpsmith-pool",
        "version": 1,
        "op": "add_relu",
        "op_digest": "0f" * 32,
        "target": "cpu:x86_64",
        "language": "cpp",
        "answered_by": "a person",
        "recorded_at": 1767225600.0,
        "warpsmith_version": "0.1.0",
        "policy": {"name": "idea_beam"},
        "budget": {"candidates": 12},
    },
    {
        "request": "a1" * 32,
        "ordinal": 0,
        "kind": "ideate",
        "summary": "ideas on the reference",
        "reply": "...",
        "finish_reason": "stop",
        "model": None,
        "prompt_tokens": None,
        "completion_tokens": None,
        "latency_s": None,
    },
)
EXAMPLE = "".join(json.dumps(line) + "\n" for line in EXAMPLE_LINES)
POOL_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "A pool file: a header line, then one reply a line",
        "content": {NDJSON: {"schema": {"type": "string"}, "examples": {"pool": {"value": EXAMPLE}}}},
    }
}

router = APIRouter(prefix="/v1/pools", tags=["pools"])


@router.post(
    "",
    status_code=201,
    summary="Store a pool",
    response_model=PoolDocument,
    responses={
        200: {"model": PoolDocument, "description": "This pool was stored before; the answer is the stored pool"},
        **document_problems(MalformedBody, BodyTooLarge, UnsupportedMedia, InvalidPool, IdempotencyReuse, StorageFull),
    },
    openapi_extra=POOL_BODY,
)
async def create_pool(body: Body, once: OnceDependency, service: ServiceDependency, asker: Asker) -> JSONResponse:
    """Store recorded model replies (JSON lines).

    The same pool is stored once: 201 the first time, 200 afterwards."""
    body.require(NDJSON)
    answer = await run_sliced(_store(body, once, service, asker))
    return answer.response()


def _store(body: RawBody, once: Once, service: Service, asker: Caller) -> Generator[None, None, Answer]:
    try:
        pool = yield from parse_pool_stepwise(body.data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise MalformedBody(f"The body is not UTF-8: byte {error.start} is {body.data[error.start]:#04x}") from error
    except PoolError as error:
        wrong = FieldError(field=f"line {error.line}, {error.field}", found=shown(error.found), expected=error.expected)
        raise InvalidPool([wrong]) from error

    digest = yield from pool.digest_stepwise()

    def work(session: Session) -> Generator[None, None, Answer]:
        row, created = yield from records.add_pool_stepwise(session, pool, digest, team=asker.team)
        return Answer.of(201 if created else 200, make_document(PoolDocument, row), Location=f"/v1/pools/{row.id}")

    return (yield from once.run_stepwise(service.db, work))


@router.get("", summary="List pools", responses=document_problems(InvalidInput))
def list_pools(
    service: ServiceDependency,
    asker: Asker,
    *,
    op: Annotated[Word | None, Query(description="Only pools recorded for an op of this name")] = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[PoolDocument]:
    """List pools, newest first."""
    with service.db.reading() as session:
        found = page(listing.list_pools, session, limit=limit, after=after, op=op, team=asker.reads)
        return Page(items=[make_document(PoolDocument, row) for row in found.items], next=found.next)


@router.get("/{pool_id}", summary="One pool", responses=document_problems(NotFound))
def get_pool(pool_id: str, service: ServiceDependency) -> PoolDocument:
    """Get a pool's header and the number of its replies."""
    with service.db.reading() as session:
        return make_document(PoolDocument, service.row(session, PoolRow, pool_id, "pool"))

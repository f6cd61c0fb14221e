"""Routes of pools: recorded model replies, from which searches replay."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from warpsmith.kernels_db.store import listing
from warpsmith.kernels_db.store.tables import PoolRow
from warpsmith.service.api.bodies import Body
from warpsmith.service.api.context import Asker, ServiceDependency
from warpsmith.service.api.idempotency import OnceDependency
from warpsmith.service.api.imports import accept
from warpsmith.service.api.paging import After, Limit, Word, page
from warpsmith.service.documents.imports import ImportDocument
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.pools import PoolDocument
from warpsmith.service.documents.problems import (
    BodyTooLarge,
    IdempotencyReuse,
    InvalidInput,
    MalformedBody,
    NotFound,
    StorageFull,
    TooManyImports,
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
    status_code=202,
    summary="Import a pool",
    response_model=ImportDocument,
    responses=document_problems(
        MalformedBody, BodyTooLarge, UnsupportedMedia, IdempotencyReuse, TooManyImports, StorageFull
    ),
    openapi_extra=POOL_BODY,
)
def create_pool(body: Body, once: OnceDependency, service: ServiceDependency, asker: Asker) -> JSONResponse:
    """Have a model worker store recorded model replies (JSON lines); the same pool is stored once.

    `GET /v1/imports/{id}` has the progress, and the pool or the errors."""
    body.require(NDJSON)
    try:
        body.data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"The body is not UTF-8: byte {error.start} is {body.data[error.start]:#04x}") from error
    return accept(service, once, asker, "pool", body.data).response()


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

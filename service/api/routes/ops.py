"""Routes of ops: store, check, list and get specs."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from warpsmith.kernels_db.spec.op import Op, SpecErrors, load_op, parse_op
from warpsmith.kernels_db.store import listing, records
from warpsmith.kernels_db.store.tables import OpRow
from warpsmith.service.api.bodies import JSON, Body, RawBody, parse_json
from warpsmith.service.api.context import Asker, ServiceDependency
from warpsmith.service.api.handlers import convert_spec_error
from warpsmith.service.api.idempotency import Answer, OnceDependency
from warpsmith.service.api.paging import After, Limit, Word, page
from warpsmith.service.api.spec_check import CheckedSpec, check_spec
from warpsmith.service.api.submission import ADD_RELU
from warpsmith.service.documents.ops import CounterexampleDocument, OpDocument, OpSummary
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.problems import (
    BodyTooLarge,
    IdempotencyReuse,
    InvalidInput,
    InvalidSpec,
    MalformedBody,
    NotFound,
    StorageFull,
    UnsupportedMedia,
    document_problems,
)
from warpsmith.service.views.ops import make_op_document, make_op_summary
from warpsmith.service.views.rows import make_document

YAML_TYPES = ("application/yaml", "application/x-yaml", "text/yaml")
SPEC_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "An op spec (docs/op-spec.md) as JSON or YAML",
        "content": {
            JSON: {"schema": {"$ref": "#/components/schemas/Op"}, "examples": {"add_relu": {"value": ADD_RELU}}},
        },
    }
}

SPEC_TEXT: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "An op spec (docs/op-spec.md) as text, YAML or JSON; it may be wrong",
        "content": {
            YAML_TYPES[0]: {"schema": {"type": "string"}, "examples": {"add_relu": {"value": json.dumps(ADD_RELU)}}},
        },
    }
}

MOST_NAMES = 2000

router = APIRouter(prefix="/v1/ops", tags=["ops"])


@router.post(
    "",
    status_code=201,
    summary="Store an op",
    response_model=OpDocument,
    responses={
        200: {"model": OpDocument, "description": "This spec was stored before; the answer is the stored op"},
        **document_problems(MalformedBody, BodyTooLarge, UnsupportedMedia, InvalidSpec, IdempotencyReuse, StorageFull),
    },
    openapi_extra=SPEC_BODY,
)
def create_op(body: Body, once: OnceDependency, service: ServiceDependency, asker: Asker) -> JSONResponse:
    """Store an op spec, JSON or YAML by its Content-Type.

    The same spec is stored once: 201 the first time, 200 afterwards."""
    op = read_spec(body)

    def work(session: Session) -> Answer:
        row, created = records.add_op(session, op, team=asker.team)
        return Answer.of(201 if created else 200, make_op_document(row), Location=f"/v1/ops/{row.id}")

    return once.run(service.db, work).response()


@router.post(
    "/validate",
    summary="Check an op spec",
    responses=document_problems(BodyTooLarge, UnsupportedMedia),
    openapi_extra=SPEC_TEXT,
)
def validate_op(body: Body, service: ServiceDependency, asker: Asker) -> CheckedSpec:
    """Check a spec, JSON or YAML, without storing it.

    Returns every bad field with found and expected, or the spec's content. A bad spec is no error of the request."""
    body.require(JSON, *YAML_TYPES)
    with service.db.reading() as session:
        return check_spec(session, body.data, asker.reads)


@router.get("", summary="List ops", responses=document_problems(InvalidInput))
def list_ops(
    service: ServiceDependency,
    asker: Asker,
    *,
    name: Annotated[Word | None, Query(description="Only ops of this name")] = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[OpSummary]:
    """List ops, newest first."""
    with service.db.reading() as session:
        found = page(listing.list_ops, session, limit=limit, after=after, name=name, team=asker.reads)
        return Page(items=[make_op_summary(row) for row in found.items], next=found.next)


@router.get("/names", summary="List names of ops", responses=document_problems(InvalidInput))
def list_op_names(
    service: ServiceDependency,
    asker: Asker,
    *,
    having: Annotated[
        listing.HeldByOp | None,
        Query(description="Only ops with searches that are not archived, with archived ones, or with kernels"),
    ] = None,
) -> list[str]:
    """List the names of ops, each once, in the order of the alphabet: what a filter offers.

    Of more than 2,000 names those of the newest ops."""
    with service.db.reading() as session:
        return sorted(listing.list_op_names(session, limit=MOST_NAMES, having=having, team=asker.reads))


@router.get("/{op_id}", summary="One op", responses=document_problems(NotFound))
def get_op(op_id: str, service: ServiceDependency) -> OpDocument:
    """Get an op with its spec."""
    with service.db.reading() as session:
        return make_op_document(service.row(session, OpRow, op_id, "op"))


@router.get(
    "/{op_id}/counterexamples", summary="Counterexamples of an op", responses=document_problems(NotFound, InvalidInput)
)
def list_counterexamples(
    op_id: str,
    service: ServiceDependency,
    asker: Asker,
    *,
    device: Annotated[Literal["cpu", "cuda"] | None, Query(description="Only those of this type of device")] = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[CounterexampleDocument]:
    """List inputs on which verifications found candidates of the op wrong, newest first.

    Later candidates on the same type of device are asked some of them before anything else."""
    with service.db.reading() as session:
        service.row(session, OpRow, op_id, "op")
        wanted = {"op_id": op_id, "device": device, "team": asker.reads}
        found = page(listing.list_counterexamples, session, limit=limit, after=after, **wanted)
        items = [make_document(CounterexampleDocument, row) for row in found.items]
        return Page(items=items, next=found.next)


def read_spec(body: RawBody) -> Op:
    """Read the op in a body; raises UnsupportedMedia, MalformedBody, InvalidSpec."""
    body.require(JSON, *YAML_TYPES)
    try:
        return parse_op(parse_json(body.data)) if body.media_type == JSON else load_op(body.data)
    except SpecErrors as error:
        raise convert_spec_error(error) from error

"""Ops: what can be searched for."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from warpsmith.kernels_db.spec.document import read_document
from warpsmith.kernels_db.spec.op import Op, SpecErrors, parse_op
from warpsmith.kernels_db.store import listing, records
from warpsmith.kernels_db.store.tables import OpRow
from warpsmith.service.api.bodies import JSON, Body, RawBody, parse_json
from warpsmith.service.api.context import ServiceDependency
from warpsmith.service.api.handlers import spec_problem
from warpsmith.service.api.idempotency import Answer, OnceDependency
from warpsmith.service.api.paging import After, Limit, Word, page
from warpsmith.service.api.spec_check import CheckedSpec, checked
from warpsmith.service.api.submission import ADD_RELU
from warpsmith.service.documents.ops import OpDocument, OpSummary
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
    documented,
)
from warpsmith.service.views.ops import op_document, op_summary

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

router = APIRouter(prefix="/v1/ops", tags=["ops"])


@router.post(
    "",
    status_code=201,
    summary="Store an op",
    response_model=OpDocument,
    responses={
        200: {"model": OpDocument, "description": "This spec was stored before; the answer is the stored op"},
        **documented(MalformedBody, BodyTooLarge, UnsupportedMedia, InvalidSpec, IdempotencyReuse, StorageFull),
    },
    openapi_extra=SPEC_BODY,
)
def create_op(body: Body, once: OnceDependency, service: ServiceDependency) -> JSONResponse:
    """Stores an op spec, JSON or YAML by its Content-Type. The same spec is stored once: 201 the first time, 200
    afterwards."""
    op = read_spec(body)

    def work(session: Session) -> Answer:
        row, created = records.add_op(session, op)
        return Answer.of(201 if created else 200, op_document(row), Location=f"/v1/ops/{row.id}")

    return once.run(service.db, work).response()


@router.post(
    "/validate",
    summary="Look at an op spec",
    responses=documented(BodyTooLarge, UnsupportedMedia),
    openapi_extra=SPEC_TEXT,
)
def validate_op(body: Body, service: ServiceDependency) -> CheckedSpec:
    """Whether a spec, JSON or YAML, is one that could be stored: every bad field with what was found and expected, or
    what the spec says. Nothing is stored, and a bad spec is no error of the request."""
    body.require(JSON, *YAML_TYPES)
    with service.db.reading() as session:
        return checked(session, body.data)


@router.get("", summary="List ops", responses=documented(InvalidInput))
def list_ops(
    service: ServiceDependency,
    name: Annotated[Word | None, Query(description="Only ops of this name")] = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[OpSummary]:
    """Ops, newest first."""
    with service.db.reading() as session:
        found = page(listing.list_ops, session, limit=limit, after=after, name=name)
        return Page(items=[op_summary(row) for row in found.items], next=found.next)


@router.get("/{op_id}", summary="One op", responses=documented(NotFound))
def get_op(op_id: str, service: ServiceDependency) -> OpDocument:
    """An op with its spec."""
    with service.db.reading() as session:
        return op_document(service.row(session, OpRow, op_id, "op"))


def read_spec(body: RawBody) -> Op:
    """The op in a body. Raises UnsupportedMedia, MalformedBody, InvalidSpec."""
    body.require(JSON, *YAML_TYPES)
    try:
        return parse_op(parse_json(body.data) if body.media_type == JSON else read_document(body.data))
    except SpecErrors as error:
        raise spec_problem(error) from error

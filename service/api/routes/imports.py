"""Routes of imports: uploads that a worker reads, and the files of other formats among them."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field

from warpsmith.kernels_db.formats.shared.files import MOST_BYTES, MOST_FILES, RawFile, check_files
from warpsmith.kernels_db.store import listing
from warpsmith.kernels_db.store.tables import ImportRow
from warpsmith.service.api.bodies import StrictBody, StrictRoute
from warpsmith.service.api.context import Asker, ServiceDependency
from warpsmith.service.api.idempotency import OnceDependency
from warpsmith.service.api.imports import accept
from warpsmith.service.api.paging import After, Limit, page
from warpsmith.service.documents.imports import ImportDocument
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.problems import (
    IdempotencyReuse,
    InvalidInput,
    InvalidSpec,
    NotFound,
    StorageFull,
    TooManyImports,
    document_problems,
    document_problems_with_body,
)
from warpsmith.service.views.imports import make_import_document
from warpsmith.workers.imports import encode_files

DEFINITION = {
    "name": "double",
    "op_type": "pointwise",
    "axes": {"n": {"type": "const", "value": 4096}},
    "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
    "reference": "def run(x):\n    return x + x\n",
}
"""A file of FlashInfer-Bench."""


class ImportFile(StrictBody):
    """One file; exactly one of `text` and `base64`."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["text"]}, {"required": ["base64"]}]})

    path: str = Field(min_length=1, max_length=1024, description="Relative, with `/`; files name each other by it")
    text: str | None = Field(None, max_length=MOST_BYTES, description="Its content, where that is text")
    base64: str | None = Field(None, max_length=2 * MOST_BYTES, description="Its content otherwise")


class ImportRequest(StrictBody):
    """Files that belong together."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"files": [{"path": "definition.json", "text": json.dumps(DEFINITION)}]}]}
    )

    files: list[ImportFile] = Field(min_length=1, max_length=MOST_FILES)
    format: Literal["kernelbench", "flashinfer-bench", "gpu-mode", "robust-kbench"] | None = Field(
        None, description="Recognised from the files' content where it is left out"
    )


router = APIRouter(prefix="/v1", route_class=StrictRoute)


@router.post(
    "/ops/import",
    status_code=202,
    summary="Import an op",
    tags=["ops"],
    response_model=ImportDocument,
    responses=document_problems_with_body(InvalidSpec, IdempotencyReuse, TooManyImports, StorageFull),
)
def import_files(body: ImportRequest, once: OnceDependency, service: ServiceDependency, asker: Asker) -> JSONResponse:
    """Have a model worker store the op of files of KernelBench, FlashInfer-Bench or GPU MODE (docs/formats.md).

    Facts that only running the files can give are found in a sandboxed process. `GET /v1/imports/{id}` has the
    progress, and the op or the errors."""
    files = [_decode_file(position, item) for position, item in enumerate(body.files)]
    check_files(files)
    return accept(service, once, asker, "op", encode_files(files, body.format)).response()


@router.get("/imports", summary="List imports", tags=["imports"], responses=document_problems(InvalidInput))
def list_imports(
    service: ServiceDependency,
    asker: Asker,
    *,
    state: Annotated[
        Literal["pending", "running", "done", "failed"] | None, Query(description="Only imports in this state")
    ] = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[ImportDocument]:
    """List imports, newest first; one that ended is kept for a week."""
    with service.db.reading() as session:
        found = page(listing.list_imports, session, limit=limit, after=after, state=state, team=asker.reads)
        return Page(items=[make_import_document(row) for row in found.items], next=found.next)


@router.get("/imports/{import_id}", summary="One import", tags=["imports"], responses=document_problems(NotFound))
def get_import(import_id: str, service: ServiceDependency) -> ImportDocument:
    """Get an import: how far a worker has come, what it stored, or why it failed."""
    with service.db.reading() as session:
        return make_import_document(service.row(session, ImportRow, import_id, "import"))


def _decode_file(position: int, item: ImportFile) -> RawFile:
    field = f"files[{position}]"
    if (item.text is None) == (item.base64 is None):
        raise InvalidInput.one(field, "both or none of text and base64", "exactly one of them")
    if item.text is not None:
        return RawFile(item.path, item.text.encode("utf-8"))
    try:
        return RawFile(item.path, base64.b64decode(item.base64 or "", validate=True))
    except (binascii.Error, ValueError) as error:
        raise InvalidInput.one(f"{field}.base64", item.base64, "base64") from error

"""The route that imports ops from files of other formats."""

from __future__ import annotations

import base64
import binascii
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field
from sqlalchemy.orm import Session

from warpsmith.kernels_db.formats.op_import import import_op
from warpsmith.kernels_db.formats.shared.files import MOST_BYTES, MOST_FILES, RawFile
from warpsmith.kernels_db.job.documents import SandboxLevel
from warpsmith.kernels_db.job.file_analysis import Analyse, Analysis
from warpsmith.kernels_db.store import records
from warpsmith.service.api.auth import Caller
from warpsmith.service.api.bodies import StrictBody, StrictRoute
from warpsmith.service.api.context import Asker, Service, ServiceDependency
from warpsmith.service.api.idempotency import Answer, Once, OnceDependency
from warpsmith.service.api.slices import run_apart
from warpsmith.service.documents.ops import OpDocument
from warpsmith.service.documents.problems import (
    IdempotencyReuse,
    InvalidInput,
    InvalidSpec,
    StorageFull,
    TooManyImports,
    document_problems_with_body,
)
from warpsmith.service.views.ops import make_op_document
from warpsmith.workers.judge.analysis.client import analyser
from warpsmith.workers.judging import machine

LEAST_CONFINEMENT: SandboxLevel = "confined"
"""Least sandbox of an imported file, even where judges take less: it must not read the service's files."""

MOST_AT_ONCE = 2
"""Files that one process of the API runs at once; each takes up to a minute, and memory."""

_running = threading.BoundedSemaphore(MOST_AT_ONCE)

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
    format: Literal["kernelbench", "flashinfer-bench", "gpu-mode"] | None = Field(
        None, description="Recognised from the files' content where it is left out"
    )


class ImportedOpDocument(OpDocument):
    """A stored op that was imported; its spec's `origin` keeps the files byte for byte."""

    format: str
    notes: list[str] = Field(description="Notes on how the files were read")
    sandbox: str | None = Field(description="The level at which the files were run; null where nothing was run")


router = APIRouter(prefix="/v1/ops", tags=["ops"], route_class=StrictRoute)


@router.post(
    "/import",
    status_code=201,
    summary="Import an op",
    response_model=ImportedOpDocument,
    responses={
        200: {"model": ImportedOpDocument, "description": "This op was stored before; the answer is the stored op"},
        **document_problems_with_body(InvalidSpec, IdempotencyReuse, TooManyImports, StorageFull),
    },
)
async def import_files(
    body: ImportRequest, once: OnceDependency, service: ServiceDependency, asker: Asker
) -> JSONResponse:
    """Store the op of files of KernelBench, FlashInfer-Bench or GPU MODE (docs/formats.md).

    Nothing of them runs in this process; facts that only running them can give are found in a sandboxed one."""
    answer = await run_apart(lambda: _import(body, once, service, asker))
    return answer.response()


def _import(body: ImportRequest, once: Once, service: Service, asker: Caller) -> Answer:
    files = [_decode_file(position, item) for position, item in enumerate(body.files)]
    with service.db.reading() as session:
        stored = once.stored(session)
    if stored is not None:
        return stored
    found = import_op(files, body.format, _make_analyser(service.settings.sandbox_minimum))

    def work(session: Session) -> Answer:
        row, created = records.add_op(session, found.op, team=asker.team)
        source = {"format": found.format, "notes": found.notes, "sandbox": found.sandbox}
        document = ImportedOpDocument(**make_op_document(row).model_dump(), **source)
        return Answer.of(201 if created else 200, document, Location=f"/v1/ops/{row.id}")

    return once.run(service.db, work)


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


def _make_analyser(minimum: SandboxLevel | None) -> Analyse | None:
    """Make the function that runs a file in a sandbox, at least confined; None without torch."""
    if not machine.installed("torch"):
        return None
    stricter: SandboxLevel = "isolated" if minimum == "isolated" else LEAST_CONFINEMENT
    run = analyser(stricter)

    def analyse(request: dict[str, Any]) -> Analysis:
        with _take_slot():
            return run(request)

    return analyse


@contextmanager
def _take_slot() -> Iterator[None]:
    if not _running.acquire(blocking=False):
        raise TooManyImports(f"{MOST_AT_ONCE} imports are being analysed here; try again when one of them is done")
    try:
        yield
    finally:
        _running.release()

"""Kernels: verified winners and their packages."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from kernels_db import store
from kernels_db.export.package import ExportedKernel, build
from kernels_db.models import KernelRow, OpRow
from service import views
from service.api.paging import After, Limit, Word, page
from service.context import ServiceDependency
from service.problems import InvalidInput, NotFound, documented
from service.schemas import KernelDocument, KernelSummary, Page
from service.submit import parse_target

CHUNK = 64 * 1024
ZIP = "application/zip"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold: two exports of one kernel are the same bytes."""

router = APIRouter(prefix="/v1/kernels", tags=["kernels"])


@router.get("", summary="List kernels", responses=documented(InvalidInput))
def list_kernels(
    service: ServiceDependency,
    op: Annotated[Word | None, Query(description="Only kernels of the op with this name or id")] = None,
    target: Annotated[Word | None, Query(description="Only kernels for this target")] = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[KernelSummary]:
    """Kernels, newest first."""
    wanted = None if target is None else str(parse_target(target, "query.target"))
    with service.db.reading() as session:
        found = page(store.list_kernels, session, limit=limit, after=after, op=op, target=wanted)
        names = views.op_names(session, {row.op_id for row in found.items})
        return Page(items=[views.kernel_summary(row, names[row.op_id]) for row in found.items], next=found.next)


@router.get("/{kernel_id}", summary="One kernel", responses=documented(NotFound))
def get_kernel(kernel_id: str, service: ServiceDependency) -> KernelDocument:
    """A kernel with its source, envelope, evidence and lineage."""
    with service.db.reading() as session:
        row = service.row(session, KernelRow, kernel_id, "kernel")
        return views.kernel_document(row, views.op_names(session, {row.op_id})[row.op_id])


@router.get(
    "/{kernel_id}/export",
    summary="A kernel's package",
    response_class=StreamingResponse,
    responses={
        200: {"description": "A zip archive", "content": {ZIP: {"schema": {"type": "string", "format": "binary"}}}},
        **documented(NotFound),
    },
)
def export_kernel(kernel_id: str, service: ServiceDependency) -> StreamingResponse:
    """The kernel as an importable package (zip): a PyTorch op, its guards, the PyTorch fallback and the evidence."""
    with service.db.reading() as session:
        row = service.row(session, KernelRow, kernel_id, "kernel")
        op = session.get_one(OpRow, row.op_id)
    with tempfile.TemporaryDirectory(prefix="warpsmith-export-") as directory:
        project = build(exported(row, op), Path(directory))
        archive = zip_directory(project)
    headers = {"Content-Disposition": f'attachment; filename="{project.name}.zip"', "Content-Length": str(len(archive))}
    return StreamingResponse(_chunks(archive), media_type=ZIP, headers=headers)


def exported(row: KernelRow, op: OpRow) -> ExportedKernel:
    """What an exporter needs of a stored kernel."""
    return ExportedKernel(
        id=row.id,
        spec=op.spec,
        target=row.target,
        language=row.language,
        source=row.source,
        source_digest=row.source_digest,
        envelope=row.envelope,
        evidence=row.evidence,
        lineage=row.lineage,
    )


def zip_directory(project: Path) -> bytes:
    """The directory as a zip whose names start with the directory's own; the same content gives the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in project.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(str(path.relative_to(project.parent)), EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def _chunks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]

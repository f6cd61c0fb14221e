"""Kernels: verified winners and their packages."""

from __future__ import annotations

import io
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from sqlalchemy.orm import Session

from warpsmith.kernels_db import store
from warpsmith.kernels_db.due import DAY_S, DRIFTED, presents
from warpsmith.kernels_db.due import due as is_due
from warpsmith.kernels_db.export.joining import joined
from warpsmith.kernels_db.export.kernel import ExportedKernel
from warpsmith.kernels_db.export.registry import named
from warpsmith.kernels_db.job import tier_of
from warpsmith.kernels_db.models import KernelRow, OpRow
from warpsmith.kernels_db.spec_errors import SpecErrors
from warpsmith.service.api.paging import After, Limit, Word, page
from warpsmith.service.context import ServiceDependency
from warpsmith.service.field_error import FieldError
from warpsmith.service.kernel_views import FORMATS, kernel_document, kernel_summaries
from warpsmith.service.problems import InvalidInput, NotExpressible, NotFound, brief, documented
from warpsmith.service.schemas import KernelDocument, KernelSummary, Page
from warpsmith.service.submit import parse_target
from warpsmith.workers.candidate.normalise import normalised_digest

CHUNK = 64 * 1024
MOST_OTHERS = 31
"""Kernels in one export beside the first."""
FORMAT_PATTERN = f"^({'|'.join(each.name for each in FORMATS)})$"
ZIP = "application/zip"
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold: two exports of one kernel are the same bytes."""

Standing = Literal["verified", "holds", "drifted", "wrong", "slower", "uncompilable"]

router = APIRouter(prefix="/v1/kernels", tags=["kernels"])


@router.get("", summary="List kernels", responses=documented(InvalidInput))
def list_kernels(
    service: ServiceDependency,
    *,
    op: Annotated[Word | None, Query(description="Only kernels of the op with this name or id")] = None,
    target: Annotated[Word | None, Query(description="Only kernels for this target")] = None,
    language: Annotated[Word | None, Query(description="Only kernels in this language")] = None,
    text: Annotated[Word | None, Query(description="Only kernels of ops whose name holds this text")] = None,
    reverification: Annotated[
        Standing | None,
        Query(description="Only kernels with this state (`reverification.state`), or any that means drifted"),
    ] = None,
    due: Annotated[bool, Query(description="Only kernels that are to be judged anew")] = False,
    sort: Annotated[store.KernelSort, Query(description="What to sort by; what has no value comes last")] = "created",
    order: Annotated[store.Order, Query(description="From the largest or newest, or from the smallest")] = "desc",
    limit: Limit = 50,
    after: After = None,
) -> Page[KernelSummary]:
    """Kernels, newest first unless they are sorted otherwise."""
    wanted = None if target is None else str(parse_target(target, "query.target"))
    period_s = service.settings.reverify_period_days * DAY_S
    with service.db.reading() as session:
        known = presents(session)
        found = page(
            store.list_kernels,
            session,
            limit=limit,
            after=after,
            op=op,
            target=wanted,
            language=language,
            text=text,
            standing=standings(reverification),
            due=is_due(known, time.time(), period_s) if due else None,
            sort=sort,
            order=order,
        )
        return Page(items=kernel_summaries(session, found.items, known, period_s), next=found.next)


def standings(wanted: Standing | None) -> tuple[str, ...]:
    """What a filter's value stands for."""
    return DRIFTED if wanted == "drifted" else () if wanted is None else (wanted,)


@router.get("/{kernel_id}", summary="One kernel", responses=documented(NotFound))
def get_kernel(kernel_id: str, service: ServiceDependency) -> KernelDocument:
    """A kernel with its source, envelope, evidence and lineage."""
    with service.db.reading() as session:
        row = service.row(session, KernelRow, kernel_id, "kernel")
        known = presents(session, [row.target])
        return kernel_document(session, row, known, service.settings.reverify_period_days * DAY_S)


@router.get(
    "/{kernel_id}/export",
    summary="A kernel in an export format",
    response_class=StreamingResponse,
    responses={
        200: {"description": "A zip archive", "content": {ZIP: {"schema": {"type": "string", "format": "binary"}}}},
        **documented(NotFound, InvalidInput, NotExpressible),
    },
)
def export_kernel(
    kernel_id: str,
    service: ServiceDependency,
    form: Annotated[
        str,
        Query(alias="format", pattern=FORMAT_PATTERN, description="One of `formats`"),
    ] = FORMATS[0].name,
    others: Annotated[
        list[str] | None,
        Query(alias="with", max_length=MOST_OTHERS, description="Other kernels of the same op, by id, for one export"),
    ] = None,
) -> StreamingResponse:
    """The kernel as a zip of one directory, by default an importable package: a PyTorch op, its guards, the PyTorch
    fallback and the evidence. The kernel's document lists the formats. A format that cannot say the op refuses it, and
    names each part of the spec for which it has no room. `with` adds other kernels of the same op, for other shapes,
    targets or dtypes: the op then picks one at each call."""
    asked = {"path.kernel_id": kernel_id, **{f"query.with[{n}]": other for n, other in enumerate(others or ())}}
    with service.db.reading() as session:
        kernels = [exported(session, service.row(session, KernelRow, each, "kernel")) for each in asked.values()]
    for field, kernel in zip(asked, kernels, strict=True):
        if tier_of(kernel.language) == "sandbox":  # no search keeps one
            expected = "a kernel whose host code a gate has read: an export promises as much"
            raise InvalidInput.one(field, f"{kernel.id} in {kernel.language}", expected)
        if normalised_digest(kernel.source) != kernel.source_digest:
            raise InvalidInput.one(field, kernel.id, "a kernel whose evidence is of the source that it has")
    _one_op(asked, kernels)
    with tempfile.TemporaryDirectory(prefix="warpsmith-export-") as directory:
        try:
            project = named(form).write(kernels, Path(directory))
        except SpecErrors as error:
            found = [FieldError(field=f"op.{e.field}", found=brief(e.found), expected=e.expected) for e in error.errors]
            raise NotExpressible(found) from None
        archive = zip_directory(project)
    headers = {"Content-Disposition": f'attachment; filename="{project.name}.zip"', "Content-Length": str(len(archive))}
    return StreamingResponse(_chunks(archive), media_type=ZIP, headers=headers)


def _one_op(asked: Iterable[str], kernels: Sequence[ExportedKernel]) -> None:
    """Raise InvalidInput, with the fields of the request, where the kernels cannot stand in one export."""
    try:
        joined(kernels)
    except SpecErrors as error:
        fields = {f"kernels[{position}]": field for position, field in enumerate(asked)}
        raise InvalidInput(
            [FieldError(field=fields[e.field], found=brief(e.found), expected=e.expected) for e in error.errors]
        ) from None


def exported(session: Session, row: KernelRow) -> ExportedKernel:
    """What an exporter needs of a stored kernel."""
    return ExportedKernel(
        id=row.id,
        spec=session.get_one(OpRow, row.op_id).spec,
        target=row.target,
        language=row.language,
        source=row.source,
        source_digest=row.source_digest,
        envelope=row.envelope,
        evidence=row.evidence,
        lineage=row.lineage,
        verified_at=datetime.fromtimestamp(row.verified_at, UTC).isoformat(timespec="seconds"),
        prompts=row.prompts
        or store.answered_calls(session, [step["node_id"] for step in row.lineage if "node_id" in step]),
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

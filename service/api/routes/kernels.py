"""Kernels: verified winners and their packages."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from warpsmith.kernels_db.store import listing
from warpsmith.kernels_db.store.reverification_due import DAY_S, DRIFTED, presents
from warpsmith.kernels_db.store.reverification_due import due as is_due
from warpsmith.kernels_db.store.tables import KernelRow
from warpsmith.service.api.context import ServiceDependency
from warpsmith.service.api.kernel_export import archive_of, check_exportable, exported
from warpsmith.service.api.paging import After, Limit, Word, page
from warpsmith.service.api.submission import parse_target
from warpsmith.service.documents.kernels import KernelDocument, KernelSummary
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.problems import InvalidInput, NotExpressible, NotFound, documented
from warpsmith.service.views.kernels import FORMATS, kernel_document, kernel_summaries

CHUNK = 64 * 1024
MOST_OTHERS = 31
"""Kernels in one export beside the first."""
FORMAT_PATTERN = f"^({'|'.join(each.name for each in FORMATS)})$"
ZIP = "application/zip"

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
    sort: Annotated[listing.KernelSort, Query(description="What to sort by; what has no value comes last")] = "created",
    order: Annotated[listing.Order, Query(description="From the largest or newest, or from the smallest")] = "desc",
    limit: Limit = 50,
    after: After = None,
) -> Page[KernelSummary]:
    """Kernels, newest first unless they are sorted otherwise."""
    wanted = None if target is None else str(parse_target(target, "query.target"))
    period_s = service.settings.reverify_period_days * DAY_S
    with service.db.reading() as session:
        known = presents(session)
        found = page(
            listing.list_kernels,
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
    check_exportable(asked, kernels)
    name, archive = archive_of(kernels, form)
    headers = {"Content-Disposition": f'attachment; filename="{name}.zip"', "Content-Length": str(len(archive))}
    return StreamingResponse(_chunks(archive), media_type=ZIP, headers=headers)


def _chunks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]

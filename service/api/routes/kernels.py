"""Routes of kernels: verified winners and their exports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from warpsmith.kernels_db.store import listing, reverification_due
from warpsmith.kernels_db.store.reverification_due import DAY_S, DRIFTED, presents
from warpsmith.kernels_db.store.tables import KernelRow
from warpsmith.kernels_db.store.teams import may_read
from warpsmith.service.api.context import Asker, ServiceDependency, make_unknown
from warpsmith.service.api.kernel_export import check_exportable, collect_kernel, make_archive, refuse_formats
from warpsmith.service.api.paging import After, Limit, Word, page
from warpsmith.service.api.submission import parse_target
from warpsmith.service.documents.kernels import KernelDocument, KernelSummary
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.problems import InvalidInput, NotExpressible, NotFound, document_problems
from warpsmith.service.views.kernels import FORMATS, make_kernel_document, make_kernel_summaries

CHUNK = 64 * 1024
MOST_OTHERS = 31
"""Kernels in one export beside the first."""
FORMAT_PATTERN = f"^({'|'.join(each.name for each in FORMATS)})$"
ZIP = "application/zip"

Standing = Literal["verified", "holds", "drifted", "wrong", "slower", "uncompilable"]

router = APIRouter(prefix="/v1/kernels", tags=["kernels"])


@router.get("", summary="List kernels", responses=document_problems(InvalidInput))
def list_kernels(
    service: ServiceDependency,
    asker: Asker,
    *,
    op: Annotated[Word | None, Query(description="Only kernels of the op with this name or id")] = None,
    target: Annotated[Word | None, Query(description="Only kernels for this target")] = None,
    language: Annotated[Word | None, Query(description="Only kernels in this language")] = None,
    text: Annotated[Word | None, Query(description="Only kernels of ops whose name holds this text")] = None,
    reverification: Annotated[
        Standing | None,
        Query(description="Only kernels with this state (`reverification.state`), or any that means drifted"),
    ] = None,
    due: Annotated[bool, Query(description="Only kernels that are due for re-verification")] = False,
    sort: Annotated[listing.KernelSort, Query(description="Sort key; kernels without a value come last")] = "created",
    order: Annotated[listing.Order, Query(description="From the largest or newest, or from the smallest")] = "desc",
    limit: Limit = 50,
    after: After = None,
) -> Page[KernelSummary]:
    """List kernels, newest first unless they are sorted otherwise."""
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
            standing=expand_standing(reverification),
            due=reverification_due.due(known, service.db.now(), period_s) if due else None,
            sort=sort,
            order=order,
            team=asker.reads,
        )
        return Page(items=make_kernel_summaries(session, found.items, known, period_s), next=found.next)


def expand_standing(wanted: Standing | None) -> tuple[str, ...]:
    """Expand a filter's value to the states that it means."""
    return DRIFTED if wanted == "drifted" else () if wanted is None else (wanted,)


@router.get("/{kernel_id}", summary="One kernel", responses=document_problems(NotFound))
def get_kernel(kernel_id: str, service: ServiceDependency) -> KernelDocument:
    """Get a kernel with its source, envelope, evidence and lineage."""
    with service.db.reading() as session:
        row = service.row(session, KernelRow, kernel_id, "kernel")
        known = presents(session, [row.target])
        period_s = service.settings.reverify_period_days * DAY_S
        return make_kernel_document(session, row, known, period_s, refuse_formats(collect_kernel(session, row)))


@router.get(
    "/{kernel_id}/export",
    summary="A kernel in an export format",
    response_class=StreamingResponse,
    responses={
        200: {"description": "A zip archive", "content": {ZIP: {"schema": {"type": "string", "format": "binary"}}}},
        **document_problems(NotFound, InvalidInput, NotExpressible),
    },
)
def export_kernel(
    kernel_id: str,
    service: ServiceDependency,
    asker: Asker,
    *,
    form: Annotated[
        str,
        Query(alias="format", pattern=FORMAT_PATTERN, description="One of `formats`"),
    ] = FORMATS[0].name,
    others: Annotated[
        list[str] | None,
        Query(alias="with", max_length=MOST_OTHERS, description="Other kernels of the same op, by id, for one export"),
    ] = None,
    import_name: Annotated[
        Word | None,
        Query(
            alias="name",
            description="The import name in place of one with a hash, such as `warpsmith_gelu_tanh`: a later kernel is "
            "a later version of it",
        ),
    ] = None,
) -> StreamingResponse:
    """Export the kernel as a zip of one directory, by default an importable package.

    The package holds a PyTorch op, its guards, the PyTorch fallback and the evidence. The kernel's document lists the
    formats. A format that cannot express the op refuses it, and names each part of the spec for which it has no room.
    `with` adds other kernels of the same op, for other shapes, targets or dtypes: the op then picks one at each
    call."""
    asked = {"path.kernel_id": kernel_id, **{f"query.with[{n}]": other for n, other in enumerate(others or ())}}
    with service.db.reading() as session:
        rows = [service.row(session, KernelRow, each, "kernel") for each in asked.values()]
        for row in rows:
            if not may_read(session, [row.team], asker.reads):
                raise make_unknown(KernelRow, row.id, "kernel")
        kernels = [collect_kernel(session, row) for row in rows]
    check_exportable(asked, kernels)
    name, archive = make_archive(kernels, form, import_name)
    headers = {"Content-Disposition": f'attachment; filename="{name}.zip"', "Content-Length": str(len(archive))}
    return StreamingResponse(_split_chunks(archive), media_type=ZIP, headers=headers)


def _split_chunks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), CHUNK):
        yield data[start : start + CHUNK]

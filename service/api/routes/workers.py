"""The route of workers."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy import select

from warpsmith.kernels_db.store.tables import WorkerRow
from warpsmith.service.api.context import ServiceDependency
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.system import WorkerDocument
from warpsmith.service.views.workers import make_worker_document

MOST = 1000

router = APIRouter(prefix="/v1/workers", tags=["workers"])


@router.get("", summary="List workers")
def list_workers(service: ServiceDependency) -> Page[WorkerDocument]:
    """List the workers that reported in with their devices, the latest first.

    At most 1000, on one page."""
    now = service.db.now()
    with service.db.reading() as session:
        rows = session.scalars(select(WorkerRow).order_by(WorkerRow.seen_at.desc(), WorkerRow.name).limit(MOST))
        return Page(items=[make_worker_document(row, now, service.alive_after_s) for row in rows])

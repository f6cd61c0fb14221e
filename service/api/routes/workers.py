"""Routes of workers."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import ConfigDict, Field
from sqlalchemy import select

from warpsmith.kernels_db.spec.errors import shown
from warpsmith.kernels_db.store.tables import WorkerRow
from warpsmith.service.api.bodies import StrictBody, StrictRoute
from warpsmith.service.api.context import Asker, ServiceDependency
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.problems import NotFound, StorageFull, document_problems_with_body
from warpsmith.service.documents.system import DrainedWorkers, WorkerDocument
from warpsmith.service.views.workers import list_worker_documents
from warpsmith.workers.queue.heartbeat import drain

MOST = 1000

router = APIRouter(prefix="/v1/workers", tags=["workers"], route_class=StrictRoute)


class DrainBody(StrictBody):
    """Which workers are to drain."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "gpu7"}]})

    name: str = Field(min_length=1, max_length=128, description="Of a worker, or of a host: all of its workers")


@router.get("", summary="List workers")
def list_workers(service: ServiceDependency, asker: Asker) -> Page[WorkerDocument]:
    """List the workers that reported in with their devices, the latest first.

    At most 1000, on one page."""
    now = service.db.now()
    with service.db.reading() as session:
        rows = session.scalars(select(WorkerRow).order_by(WorkerRow.seen_at.desc(), WorkerRow.name).limit(MOST))
        found = list_worker_documents(session, rows.all(), asker.reads, now, service.alive_after_s)
    return Page(items=found)


@router.post("/drain", summary="Drain workers", responses=document_problems_with_body(NotFound, StorageFull))
def drain_workers(body: DrainBody, service: ServiceDependency) -> DrainedWorkers:
    """Tell a worker, or all of a host, to end what it has in hand, to take nothing more, and then to end.

    What restarts a worker that has ended starts it again: `warpsmith worker` does not. For administrators."""
    now = service.db.now()
    with service.db.writing() as session:
        names = drain(session, body.name, now - service.alive_after_s, now)
        if not names:
            raise NotFound(f"name: found {shown(body.name)!r}, expected a worker or host that does steps and is alive")
    return DrainedWorkers(names=names)

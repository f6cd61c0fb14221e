"""Documents of workers from their rows."""

from __future__ import annotations

from warpsmith.kernels_db.store.tables import WorkerRow
from warpsmith.service.documents.system import WorkerDocument


def make_worker_document(row: WorkerRow, now: float, alive_after_s: float) -> WorkerDocument:
    """Make the document of a worker, alive for `alive_after_s` seconds after its last report."""
    return WorkerDocument(
        name=row.name,
        role=row.role,
        target=row.target,
        alive=row.seen_at >= now - alive_after_s,
        facts=row.facts,
        started_at=row.started_at,
        seen_at=row.seen_at,
    )

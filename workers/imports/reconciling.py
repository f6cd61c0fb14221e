"""Bring back imports that crashes lost: their leases ran out, or their messages reached no worker."""

from __future__ import annotations

from sqlalchemy import or_, select

from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import ImportRow
from warpsmith.workers.imports.rows import end_with_fault, message
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps.reconciling import LARGEST_ROUND
from warpsmith.workers.steps.values import Message


def reconcile(db: Database, now: float, settings: Settings) -> list[Message]:
    """Run one round and return the messages to send.

    An import whose worker died each time it was tried fails, and says so.
    """
    wanted = or_(leases.expired(ImportRow, now), leases.unsent(ImportRow, now, settings.resend_after_s))
    with db.reading() as session:
        found = session.scalars(select(ImportRow.id).where(wanted).order_by(ImportRow.id).limit(LARGEST_ROUND)).all()
    messages = []
    for row_id in found:
        with db.writing() as session:
            row = session.scalar(select(ImportRow).where(ImportRow.id == row_id, wanted).with_for_update())
            if row is None:  # another process was faster
                continue
            if row.state == "running" and not leases.return_expired(row, settings.max_tries):
                reason = f"gave up after {row.tries} tries: its worker died or stalled each time; send it again"
                end_with_fault(row, "import-lost", reason, now)
                continue
            row.sent_at = now
            messages.append(message(row))
    return messages

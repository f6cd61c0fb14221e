"""Bringing back re-verifications that crashes lost: leases that ran out, messages that nobody got."""

from __future__ import annotations

from sqlalchemy import or_, select

from kernels_db.db import Database
from kernels_db.models import KernelRow, ReverificationRow
from workers.reverification.finding import Finding
from workers.reverification.rows import end, message
from workers.settings import Settings
from workers.steps.reconciling import LARGEST_ROUND, message_lost
from workers.steps.values import Message


def reconcile(db: Database, now: float, settings: Settings) -> list[Message]:
    """One round; returns the messages to send. A re-verification whose worker died each time it was tried ends without
    a result."""
    expired = (ReverificationRow.state == "running") & (ReverificationRow.lease_expires_at < now)
    unsent = (ReverificationRow.state == "pending") & or_(
        ReverificationRow.sent_at.is_(None), message_lost(ReverificationRow, now, settings)
    )
    with db.reading() as session:
        query = select(ReverificationRow.id, ReverificationRow.kernel_id).where(or_(expired, unsent))
        found = session.execute(query.order_by(ReverificationRow.id).limit(LARGEST_ROUND)).tuples().all()
    messages = []
    for row_id, kernel_id in found:
        with db.writing() as session:
            kernel = session.get_one(KernelRow, kernel_id, with_for_update=True)
            row = session.scalar(
                select(ReverificationRow).where(ReverificationRow.id == row_id, or_(expired, unsent)).with_for_update()
            )
            if row is None:  # somebody was faster
                continue
            if row.state == "running" and row.tries >= settings.max_tries:
                reason = f"gave up after {row.tries} tries: the judge or its worker died each time"
                end(kernel, row, Finding("unknown", reason), None, now)
                continue
            row.state, row.owner, row.lease_expires_at = "pending", None, None
            row.sent_at = now
            messages.append(message(row))
    return messages

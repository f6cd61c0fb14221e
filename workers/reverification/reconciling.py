"""Bring back re-verifications that crashes lost.

Their leases ran out, or their messages reached no worker.
"""

from __future__ import annotations

from sqlalchemy import or_, select

from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.reverification_due import DAY_S
from warpsmith.kernels_db.store.tables import KernelRow, ReverificationRow
from warpsmith.workers.reverification.finding import Finding
from warpsmith.workers.reverification.rows import end, message
from warpsmith.workers.reverification.schedule import judges
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps.reconciling import LARGEST_ROUND
from warpsmith.workers.steps.values import Message

WAITS_S = 7 * DAY_S
"""So long one waits for a judge of its target to come; then it ends without a result."""


def reconcile(db: Database, now: float, settings: Settings) -> list[Message]:
    """Run one round and return the messages to send.

    They go to targets with a judge that lives: without one they would only fill the broker. A re-verification whose
    worker died each time it was tried ends without a result, and so does one that found no judge in time.
    """
    expired = leases.expired(ReverificationRow, now)
    unsent = leases.unsent(ReverificationRow, now, settings.resend_after_s)
    nobody = (ReverificationRow.state == "pending") & (ReverificationRow.created_at < now - WAITS_S)
    with db.reading() as session:
        alive = {target for target, _ in judges(session, now)}
        unsent &= ReverificationRow.target.in_(alive)
        nobody &= ReverificationRow.target.not_in(alive)
        wanted = or_(expired, unsent, nobody)
        query = select(ReverificationRow.id, ReverificationRow.kernel_id).where(wanted)
        found = session.execute(query.order_by(ReverificationRow.id).limit(LARGEST_ROUND)).tuples().all()
    messages = []
    for row_id, kernel_id in found:
        with db.writing() as session:
            kernel = session.get_one(KernelRow, kernel_id, with_for_update=True)
            row = session.scalar(
                select(ReverificationRow).where(ReverificationRow.id == row_id, wanted).with_for_update()
            )
            if row is None:  # another process was faster
                continue
            if row.state == "running":
                if not leases.return_expired(row, settings.max_tries):
                    reason = f"gave up after {row.tries} tries: the judge or its worker died each time"
                    end(kernel, row, Finding("unknown", reason), None, now)
                    continue
            elif row.target not in alive:
                reason = f"gave up: no judge of {row.target} came within {WAITS_S / DAY_S:g} days"
                end(kernel, row, Finding("unknown", reason), None, now)
                continue
            row.sent_at = now if row.target in alive else None
            if row.sent_at is not None:
                messages.append(message(row))
    return messages

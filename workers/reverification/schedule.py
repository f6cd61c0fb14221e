"""The periodic check of the library: a few kernels that are due are judged again.

The kernels with the oldest verdicts go first.

It asks for few at a time on each target, so that searches, which share the judges, wait for little; what is left over
comes with the next check. Only targets with a live judge are checked.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, exists, func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.reverification_due import DAY_S, due, last_judged, presents
from warpsmith.kernels_db.store.tables import KernelRow, ReverificationRow, WorkerRow
from warpsmith.workers.reverification.rows import OPEN, ask, message
from warpsmith.workers.settings import ALIVE_AFTER_S, Settings
from warpsmith.workers.steps.values import Message

AT_ONCE = 4
"""Re-verifications of one target that the schedule has open."""

UNKNOWN_AGAIN_S = DAY_S
"""Seconds of rest for a kernel after a re-verification that came to nothing.

For as long no other kernel is judged only to learn the judge's versions.
"""


def sweep(db: Database, now: float, settings: Settings) -> list[Message]:
    """Ask for re-verifications of what is due; returns the messages to send.

    Two at once do no harm.
    """
    with db.reading() as session:
        chosen = [
            kernel_id
            for target, started_at in judges(session, now)
            for kernel_id in _chosen(session, target, started_at, now, settings)
        ]
    messages = []
    for kernel_id in chosen:
        with db.writing() as session:
            row, new = ask(session, kernel_id, now, cause="schedule")
            if new:
                messages.append(message(row))
    return messages


def judges(session: Session, now: float) -> list[tuple[str, float]]:
    """Return every target with a live judge, and when the latest of its judges started."""
    alive = WorkerRow.role == "judge", WorkerRow.seen_at >= now - ALIVE_AFTER_S
    query = select(WorkerRow.target, func.max(WorkerRow.started_at)).where(*alive, WorkerRow.target.is_not(None))
    return [(target, at) for target, at in session.execute(query.group_by(WorkerRow.target)).tuples() if target]


def _chosen(session: Session, target: str, started_at: float, now: float, settings: Settings) -> list[str]:
    of_target = ReverificationRow.target == target, ReverificationRow.state.in_(OPEN)
    open_now = session.scalar(select(func.count()).select_from(ReverificationRow).where(*of_target)) or 0
    if open_now >= AT_ONCE:
        return []
    free = select(KernelRow.id).where(KernelRow.target == target, ~_resting(now)).order_by(last_judged(), KernelRow.id)
    known = presents(session, [target])
    condition = due(known, now, settings.reverify_period_days * DAY_S)
    found = list(session.scalars(free.where(condition).limit(AT_ONCE - open_now)))
    if found or open_now:
        return found
    latest = known.get(target)
    if latest is not None and latest.own and latest.at >= started_at:
        return []
    if session.scalar(select(_of_no_use(target, max(started_at, now - UNKNOWN_AGAIN_S)))):
        return []
    # A judge has started since the target's newest verdict, and may have come with other versions: one kernel tells.
    return list(session.scalars(free.limit(1)))


def _of_no_use(target: str, since: float) -> ColumnElement[bool]:
    """Check in SQL whether a re-verification on the target came to nothing since then.

    Another kernel would come to nothing, too.
    """
    row = ReverificationRow
    return exists().where(row.target == target, row.outcome == "unknown", row.finished_at >= since)


def _resting(now: float) -> ColumnElement[bool]:
    """Check in SQL whether the kernel's re-verification is under way, or lately came to nothing."""
    row = ReverificationRow
    lately = (row.outcome == "unknown") & (row.finished_at > now - UNKNOWN_AGAIN_S)
    return exists().where(row.kernel_id == KernelRow.id, row.state.in_(OPEN) | lately)

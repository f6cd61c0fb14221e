"""Holding an attempt: claim, renew, give up."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import select

from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, NodeRow, SearchRow, TurnRow
from warpsmith.kernels_db.store.teams import insert_for
from warpsmith.workers.steps.endings import fail_step
from warpsmith.workers.steps.rows import held, lock_search
from warpsmith.workers.steps.values import Work
from warpsmith.workers.steps.work import build_work


class Turn(NamedTuple):
    """A step of a queue that several teams wait for, taken by one of them."""

    queue: str
    team: str


def claim(
    db: Database, attempt_id: str, owner: str, lease_s: float, now: float, turn: Turn | None = None
) -> Work | None:
    """Take a pending attempt for `lease_s` seconds.

    Returns None where it cannot be taken (taken already, done, put off, paused).

    `owner` must differ between claims, so that a worker that lost its lease cannot pass for the one that has it now.
    `turn`: the team's turn that this is (`turns`), recorded with it.
    """
    with db.writing() as session:
        search_id = session.scalar(select(AttemptRow.search_id).where(AttemptRow.id == attempt_id))
        if search_id is None:
            return None
        search = lock_search(session, search_id)
        if search.state != "running":
            return None
        due = AttemptRow.not_before <= now
        if not leases.claim(session, AttemptRow, attempt_id, owner, lease_s, now, due, error=None):
            return None
        if turn is not None:
            row = insert_for(session, TurnRow).values(queue=turn.queue, team=turn.team, taken_at=now)
            session.execute(row.on_conflict_do_update(index_elements=["queue", "team"], set_={"taken_at": now}))
    # What the step needs is read without the lock: in a tree of thousands that takes a good part of a second.
    with db.reading() as session:
        attempt = session.get_one(AttemptRow, attempt_id)
        search = session.get_one(SearchRow, search_id)
        return build_work(session, search, session.get_one(NodeRow, attempt.node_id), attempt)


def renew(db: Database, attempt_id: str, owner: str, lease_s: float, now: float) -> bool:
    """Hold the lease for another `lease_s` seconds; False: it was lost, stop."""
    with db.writing() as session:
        return leases.renew(session, AttemptRow, attempt_id, owner, lease_s, now)


def give_up(db: Database, attempt_id: str, owner: str, error: str, now: float) -> bool:
    """Fail a step that cannot be done at all (the judge refuses the job, say).

    Its branch ends. Returns False when the lease was lost.
    """
    with db.writing() as session:
        work = held(session, attempt_id, owner)
        if work is None:
            return False
        fail_step(session, work, error, now)
        return True

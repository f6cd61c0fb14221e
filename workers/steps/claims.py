"""Holding an attempt: claim, renew, give up."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, NodeRow, SearchRow, TurnRow
from warpsmith.kernels_db.store.teams import insert_for
from warpsmith.workers.steps.budget_clock import start_clock
from warpsmith.workers.steps.endings import fail_step
from warpsmith.workers.steps.rows import held
from warpsmith.workers.steps.sweeping import reserve_sweep
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
        if not claim_row(session, attempt_id, owner, lease_s, now, turn):
            return None
    return read_work(db, attempt_id)


def claim_row(
    session: Session, attempt_id: str, owner: str, lease_s: float, now: float, turn: Turn | None = None
) -> bool:
    """Do what `claim` does, in a transaction of the caller; what the step needs is read after its end."""
    of_attempt = select(SearchRow).join(AttemptRow, AttemptRow.search_id == SearchRow.id)
    locked = of_attempt.where(AttemptRow.id == attempt_id).with_for_update(of=SearchRow)
    search = session.scalar(locked.execution_options(populate_existing=True))
    if search is None or search.state != "running":
        return False
    due = AttemptRow.not_before <= now
    if not leases.claim(session, AttemptRow, attempt_id, owner, lease_s, now, due, error=None):
        return False
    if search.budget.get("sweep_seconds") is not None:
        reserve_sweep(session, search, session.get_one(AttemptRow, attempt_id, populate_existing=True))
    start_clock(search, now)  # it may have stood still for want of the model that is asked again now
    if turn is not None:
        row = insert_for(session, TurnRow).values(queue=turn.queue, team=turn.team, taken_at=now)
        session.execute(row.on_conflict_do_update(index_elements=["queue", "team"], set_={"taken_at": now}))
    return True


def read_work(db: Database, attempt_id: str) -> Work:
    """Read what a claimed step needs, without the search's lock: in a large tree that takes a good part of a second."""
    query = (
        select(AttemptRow, SearchRow, NodeRow)
        .join(SearchRow, SearchRow.id == AttemptRow.search_id)
        .join(NodeRow, NodeRow.id == AttemptRow.node_id)
        .where(AttemptRow.id == attempt_id)
    )
    with db.reading() as session:
        attempt, search, node = session.execute(query).tuples().one()
        return build_work(session, search, node, attempt)


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

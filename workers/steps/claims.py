"""Holding an attempt: claim, renew, give up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import BindParameter, and_, bindparam, exists, func, select
from sqlalchemy.orm import Session, aliased

from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, NodeRow, OpRow, SearchRow, TeamRow, TurnRow
from warpsmith.kernels_db.store.teams import insert_for
from warpsmith.workers.steps.budget_clock import start_clock
from warpsmith.workers.steps.endings import fail_step
from warpsmith.workers.steps.quotas import find_reached_quota
from warpsmith.workers.steps.rows import Also, ending, lock_search
from warpsmith.workers.steps.sweeping import reserve_sweep
from warpsmith.workers.steps.values import Work
from warpsmith.workers.steps.work import Place, build_work

RUNS = exists().where(SearchRow.state == "running", SearchRow.team == TeamRow.name).correlate(TeamRow)
"""Of a TeamRow: a search of the team runs."""

# Built once, as every statement that each step executes: to build one takes as long as to execute it.
_NAMED = (
    select(
        AttemptRow.id,
        AttemptRow.search_id,
        AttemptRow.kind,
        AttemptRow.state,
        AttemptRow.not_before,
        SearchRow.op_id,
        SearchRow.target,
        SearchRow.team,
        SearchRow.state,
        SearchRow.running_since,
        SearchRow.budget,
        select(func.count()).select_from(TeamRow).where(RUNS).scalar_subquery(),
    )
    .join(SearchRow, SearchRow.id == AttemptRow.search_id)
    .where(AttemptRow.id == bindparam("attempt_id"))
    .with_for_update(of=SearchRow)
)
_NOW: BindParameter[float] = bindparam("now")
_TAKE = leases.taking(
    AttemptRow,
    bindparam("attempt_id"),
    bindparam("taker"),
    bindparam("until"),
    _NOW,
    AttemptRow.not_before <= _NOW,
    error=None,
)
_ROOT = aliased(NodeRow)
_OF_STEP = (
    select(AttemptRow, SearchRow, NodeRow, TeamRow, OpRow.spec, _ROOT.id)
    .join(SearchRow, SearchRow.id == AttemptRow.search_id)
    .join(NodeRow, NodeRow.id == AttemptRow.node_id)
    .join(_ROOT, and_(_ROOT.search_id == SearchRow.id, _ROOT.seq == 0))
    .join(TeamRow, TeamRow.name == SearchRow.team, isouter=True)
    .join(OpRow, OpRow.id == SearchRow.op_id)
    .where(AttemptRow.id == bindparam("attempt_id"))
)


class Turn(NamedTuple):
    """A step of a queue that several teams wait for, taken by one of them."""

    queue: str
    team: str


class Named(NamedTuple):
    """A step as a message names it, its search's row locked; `teams`: how many have searches that run.

    The search is as it is now. The step may have changed while the lock was waited for: `claim_step` looks again.
    """

    attempt_id: str
    search_id: str
    kind: str
    state: str
    not_before: float
    op_id: str
    target: str
    team: str
    search_state: str
    running_since: float | None
    budget: dict[str, Any]
    teams: int

    def is_due(self, now: float) -> bool:
        """Check whether it can be claimed, as far as is known."""
        return self.state == "pending" and self.not_before <= now and self.search_state == "running"


def claim(
    db: Database, attempt_id: str, owner: str, lease_s: float, now: float, turn: Turn | None = None
) -> Work | None:
    """Take a pending attempt for `lease_s` seconds.

    Returns None where it cannot be taken (taken already, done, put off, paused).

    `owner` must differ between claims, so that a worker that lost its lease cannot pass for the one that has it now.
    `turn`: the team's turn that this is (`turns`), recorded with it.
    """
    with db.writing() as session:
        named = lock_named(session, attempt_id)
        if named is None or not claim_step(session, named, owner, lease_s, now, turn):
            return None
    return read_work(db, attempt_id, now)


def lock_named(session: Session, attempt_id: str) -> Named | None:
    """Return the step of this id, its search's row locked until the transaction ends; None where there is none."""
    found = session.connection().execute(_NAMED, {"attempt_id": attempt_id}).one_or_none()
    return None if found is None else Named._make(found)


def claim_step(
    session: Session, named: Named, owner: str, lease_s: float, now: float, turn: Turn | None = None
) -> bool:
    """Do what `claim` does, in a transaction of the caller; what the step needs is read after its end."""
    if named.search_state != "running":
        return False
    values = {"attempt_id": named.attempt_id, "taker": owner, "until": now + lease_s, "now": now}
    if not leases.changed_one(session.connection().execute(_TAKE, values)):
        return False
    sweeps = named.budget.get("sweep_seconds") is not None
    if sweeps or named.running_since is None:
        search = lock_search(session, named.search_id)
        if sweeps:
            reserve_sweep(session, search, session.get_one(AttemptRow, named.attempt_id, populate_existing=True))
        start_clock(search, now)  # it may have stood still for want of the model that is asked again now
    if turn is not None:
        row = insert_for(session, TurnRow).values(queue=turn.queue, team=turn.team, taken_at=now)
        session.execute(row.on_conflict_do_update(index_elements=["queue", "team"], set_={"taken_at": now}))
    return True


def read_work(db: Database, attempt_id: str, now: float) -> Work:
    """Read what a claimed step needs, without the search's lock: in a large tree that takes a good part of a second."""
    with db.reading() as session:
        attempt, search, node, team, *place = session.execute(_OF_STEP, {"attempt_id": attempt_id}).one()
        work = build_work(session, search, node, attempt, Place(*place))
        reached = find_reached_quota(session, team, work, now)
        return work if reached is None else replace(work, reached=reached)


def renew(db: Database, attempt_id: str, owner: str, lease_s: float, now: float) -> bool:
    """Hold the lease for another `lease_s` seconds; False: it was lost, stop."""
    with db.writing() as session:
        return leases.renew(session, AttemptRow, attempt_id, owner, lease_s, now)


def give_up(db: Database, attempt_id: str, owner: str, error: str, now: float, also: Also | None = None) -> bool:
    """Fail a step that cannot be done at all (the judge refuses the job, say).

    Its branch ends. Returns False when the lease was lost. `also`: as `ending`.
    """
    with ending(db, attempt_id, owner, now, also) as (session, work):
        if work is None:
            return False
        fail_step(session, work, error, now)
        return True

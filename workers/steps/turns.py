"""Turns between teams: which waiting step a worker takes when a message tells it that one waits.

A message names a step, but only says that its queue has one more. Where searches of several teams run, the team is
served that waits in the queue and had no step of it for longest: with the step that the message names, if it is of that
team, else with another of the team's. So one team's hundreds of steps do not hold up another's first, whatever order
the broker keeps. A step whose message brought another team forward is taken with a later message, its own or that of
the step that went first.

Teams take turns by steps, whatever each step takes.
"""

from __future__ import annotations

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, SearchRow, TeamRow, TurnRow
from warpsmith.workers.steps.claims import Turn, claim_row, read_work
from warpsmith.workers.steps.rows import message
from warpsmith.workers.steps.values import Work

MODEL_KINDS = ("ideate", "code")
JUDGE_KINDS = ("judge", "verify")
MOST_TRIES = 20
"""Steps that other workers may take first before a worker gives up; the reconciler sends again what is left."""


def take(db: Database, attempt_id: str, owner: str, lease_s: float, now: float) -> Work | None:
    """Take the step whose turn it is in the queue of this message, as `claims.claim`; None where none waits.

    It is chosen and claimed in one transaction, which reads what may have changed again under the search's lock.
    """
    for _ in range(MOST_TRIES):
        with db.writing() as session:
            chosen = _choose(session, attempt_id, now)
            if chosen is None:
                return None
            chosen_id, turn = chosen
            claimed = claim_row(session, chosen_id, owner, lease_s, now, turn)
        if claimed:
            return read_work(db, chosen_id)
    return None


def _choose(session: Session, attempt_id: str, now: float) -> tuple[str, Turn | None] | None:
    """Return the step to take, and the turn that this is; no turn where one team's searches run alone."""
    of_step = (AttemptRow.kind, AttemptRow.state, AttemptRow.not_before)
    of_search = (SearchRow.target, SearchRow.team, SearchRow.state)
    runs = exists().where(SearchRow.state == "running", SearchRow.team == TeamRow.name)
    teams = select(func.count()).select_from(TeamRow).where(runs.correlate(TeamRow)).scalar_subquery()
    query = select(*of_step, *of_search, teams).join(SearchRow, SearchRow.id == AttemptRow.search_id)
    named = session.execute(query.where(AttemptRow.id == attempt_id)).one_or_none()
    if named is None:
        return None
    kind, state, not_before, target, team, search_state, count = named
    is_due = state == "pending" and not_before <= now and search_state == "running"
    if is_due and count == 1:
        return attempt_id, None
    running = session.scalars(select(TeamRow.name).where(runs)).all()
    queue = message(attempt_id, kind, target).queue
    turns = select(TurnRow.team, TurnRow.taken_at).where(TurnRow.queue == queue)
    served = dict(session.execute(turns).tuples().all())
    for name in sorted(running, key=lambda name: (served.get(name, 0.0), name)):
        chosen = attempt_id if is_due and name == team else _find_waiting(session, name, kind, target, now)
        if chosen is not None:
            return chosen, Turn(queue, name) if len(running) > 1 else None
    return None


def _find_waiting(session: Session, team: str, kind: str, target: str, now: float) -> str | None:
    """Return a step of the team that waits in the queue of steps of this kind.

    Not the oldest: that would read all of them, 30 ms where 10,000 wait. Each has its own message as well.
    """
    query = (
        select(AttemptRow.id)
        .join(SearchRow, SearchRow.id == AttemptRow.search_id)
        .where(SearchRow.state == "running", SearchRow.team == team)
        .where(AttemptRow.state == "pending", AttemptRow.not_before <= now)
        .limit(1)
    )
    if kind in MODEL_KINDS:
        query = query.where(AttemptRow.kind.in_(MODEL_KINDS))
    else:
        query = query.where(AttemptRow.kind.in_(JUDGE_KINDS), SearchRow.target == target)
    return session.scalar(query)

"""Turns between teams: which waiting step a worker takes when a message tells it that one waits.

A message names a step, but only says that its queue has one more. Where steps of several teams wait in the queue, the
team that had none for longest is served: the step that the message names if it is of that team, else the team's oldest.
So one team's hundreds of steps do not hold up another's first, whatever order the broker keeps. A step whose message
brought another team forward is taken with a later message, its own or that of the step that went first.

Teams take turns by steps, whatever each step takes.
"""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, SearchRow, TurnRow
from warpsmith.workers.steps.claims import Turn, claim
from warpsmith.workers.steps.rows import message
from warpsmith.workers.steps.values import Work

MODEL_KINDS = ("ideate", "code")
JUDGE_KINDS = ("judge", "verify")
MOST_TRIES = 20
"""Steps that other workers may take first before a worker gives up; the reconciler sends again what is left."""


def take(db: Database, attempt_id: str, owner: str, lease_s: float, now: float) -> Work | None:
    """Take the step whose turn it is in the queue of this message, as `claims.claim`; None where none waits."""
    for _ in range(MOST_TRIES):
        with db.reading() as session:
            chosen = _choose(session, attempt_id, now)
        if chosen is None:
            return None
        chosen_id, turn = chosen
        work = claim(db, chosen_id, owner, lease_s, now, turn)
        if work is not None:
            return work
    return None


def _choose(session: Session, attempt_id: str, now: float) -> tuple[str, Turn | None] | None:
    """Return the step to take, and the turn that this is; no turn where one team waits alone."""
    of_step = (AttemptRow.kind, AttemptRow.state, AttemptRow.not_before)
    of_search = (SearchRow.target, SearchRow.team, SearchRow.state)
    query = select(*of_step, *of_search).join(SearchRow, SearchRow.id == AttemptRow.search_id)
    named = session.execute(query.where(AttemptRow.id == attempt_id)).one_or_none()
    if named is None:
        return None
    kind, state, not_before, target, team, search_state = named
    is_due = state == "pending" and not_before <= now and search_state == "running"
    running = select(SearchRow.team).where(SearchRow.state == "running").distinct().limit(2)
    if is_due and len(session.scalars(running).all()) == 1:
        return attempt_id, None
    oldest = _list_oldest(session, kind, target, now)
    if not oldest:
        return None
    queue = message(attempt_id, kind, target).queue
    if len(oldest) > 1:
        turns = select(TurnRow.team, TurnRow.taken_at).where(TurnRow.queue == queue)
        served = dict(session.execute(turns).tuples().all())
        chosen = min(oldest, key=lambda name: (served.get(name, 0.0), oldest[name]))
    else:
        (chosen,) = oldest
    turn = Turn(queue, chosen) if len(oldest) > 1 else None
    return attempt_id if is_due and chosen == team else oldest[chosen], turn


def _list_oldest(session: Session, kind: str, target: str, now: float) -> dict[str, str]:
    """Return the oldest waiting step of each team in the queue of steps of this kind; ids rise with time."""
    query = (
        select(SearchRow.team, func.min(AttemptRow.id))
        .join(SearchRow, SearchRow.id == AttemptRow.search_id)
        .where(AttemptRow.state == "pending", AttemptRow.not_before <= now, SearchRow.state == "running")
        .group_by(SearchRow.team)
    )
    if kind in MODEL_KINDS:
        query = query.where(AttemptRow.kind.in_(MODEL_KINDS))
    else:
        query = query.where(AttemptRow.kind.in_(JUDGE_KINDS), SearchRow.target == target)
    return dict(session.execute(query).tuples().all())

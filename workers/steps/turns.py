"""Turns between teams: which waiting step a worker takes when a message tells it that one waits.

A message names a step, but only says that its queue has one more. Where searches of several teams run, the team is
served that waits in the queue and had no step of it for longest: with the step that the message names, if it is of that
team, else with another of the team's. So one team's hundreds of steps do not hold up another's first, whatever order
the broker keeps. A step whose message brought another team forward is taken with a later message, its own or that of
the step that went first.

Teams take turns by steps, whatever each step takes. Where a judge names its GPU's memory, a step that is too large for
it is set aside, and one that is too large for other judges goes first (`placement`).
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, SearchRow, TeamRow, TurnRow
from warpsmith.workers.steps.claims import RUNS, Named, Turn, claim, claim_step, lock_named, read_work
from warpsmith.workers.steps.placement import Room, read_room, set_aside
from warpsmith.workers.steps.rows import message
from warpsmith.workers.steps.values import Work

MODEL_KINDS = ("ideate", "code")
JUDGE_KINDS = ("judge", "verify")
MOST_TRIES = 20
"""Steps that other workers may take first before a worker gives up; the reconciler sends again what is left."""


def take(
    db: Database, attempt_id: str, owner: str, lease_s: float, now: float, device_bytes: int | None = None
) -> Work | None:
    """Take the step whose turn it is in the queue of this message, as `claims.claim`; None where none waits.

    `device_bytes`: the memory of the GPU that it is for; None: of no GPU, or unknown.

    The named step is chosen and claimed in one transaction, under its search's lock. Another is claimed in its own: a
    transaction that held two searches' locks could wait for one that holds them the other way round.
    """
    room = None if device_bytes is None else read_room(db, attempt_id, device_bytes, now)
    for _ in range(MOST_TRIES):
        with db.writing() as session:
            named = lock_named(session, attempt_id)
            chosen = None if named is None else _choose(session, named, now, room)
            if named is None or chosen is None:
                return None
            chosen_id, turn = chosen
            claimed = chosen_id == attempt_id and claim_step(session, named, owner, lease_s, now, turn)
        if claimed:
            return read_work(db, attempt_id, now)
        if chosen_id != attempt_id and (work := claim(db, chosen_id, owner, lease_s, now, turn)) is not None:
            return work
    return None


def _choose(session: Session, named: Named, now: float, room: Room | None) -> tuple[str, Turn | None] | None:
    """Return the step to take, and the turn that this is; no turn where one team's searches run alone."""
    if room is None or named.kind not in JUDGE_KINDS:
        return _choose_by_team(session, named, now)
    is_due, is_too_large = named.is_due(now), named.op_id in room.too_large
    chosen = _choose_by_team(session, named, now, among=room.only_here) if room.only_here else None
    if chosen is None:
        chosen = _choose_by_team(session, named, now, without=room.too_large)
    if is_due and is_too_large:
        set_aside(session, named.attempt_id, named.op_id, room, now)
    elif is_due and chosen is not None and chosen[0] != named.attempt_id:
        # The message of the step that goes first may reach a device that is too small for this one.
        of_message = AttemptRow.id == named.attempt_id, AttemptRow.state == "pending"
        session.execute(update(AttemptRow).where(*of_message).values(sent_at=None))
    return chosen


def _choose_by_team(
    session: Session,
    named: Named,
    now: float,
    *,
    among: Collection[str] | None = None,
    without: Collection[str] = (),
) -> tuple[str, Turn | None] | None:
    """Do what `_choose` does, for searches of the ops `among`, or of all ops, but `without` some."""
    is_due = named.is_due(now) and named.op_id not in without and (among is None or named.op_id in among)
    if is_due and named.teams == 1:
        return named.attempt_id, None
    running = session.scalars(select(TeamRow.name).where(RUNS)).all()
    queue = message(named.attempt_id, named.kind, named.target).queue
    turns = select(TurnRow.team, TurnRow.taken_at).where(TurnRow.queue == queue)
    served = dict(session.execute(turns).tuples().all())
    for name in sorted(running, key=lambda name: (served.get(name, 0.0), name)):
        of_message = is_due and name == named.team
        chosen = named.attempt_id if of_message else _find_waiting(session, name, named, now, among, without)
        if chosen is not None:
            return chosen, Turn(queue, name) if len(running) > 1 else None
    return None


def _find_waiting(
    session: Session, team: str, named: Named, now: float, among: Collection[str] | None, without: Collection[str]
) -> str | None:
    """Return a step of the team that waits in the queue of the named one.

    Not the oldest: that would read all of them, 30 ms where 10,000 wait. Each has its own message as well.
    """
    query = (
        select(AttemptRow.id)
        .join(SearchRow, SearchRow.id == AttemptRow.search_id)
        .where(SearchRow.state == "running", SearchRow.team == team)
        .where(AttemptRow.state == "pending", AttemptRow.not_before <= now)
        .limit(1)
    )
    if among is not None:
        query = query.where(SearchRow.op_id.in_(among))
    if without:
        query = query.where(SearchRow.op_id.not_in(without))
    if named.kind in MODEL_KINDS:
        query = query.where(AttemptRow.kind.in_(MODEL_KINDS))
    else:
        query = query.where(AttemptRow.kind.in_(JUDGE_KINDS), SearchRow.target == named.target)
    return session.scalar(query)

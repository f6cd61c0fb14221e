"""Bring back lost work of searches.

That is: expired leases, lost messages, asks without an answer, searches that do not move.

A round looks for what needs it without locks, then sees to each search in a transaction of its own; the work of a round
is bounded, and the rest comes with the next.
"""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy import ColumnElement, and_, exists, or_, select
from sqlalchemy.orm import Session, aliased

from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AskRow, AttemptRow, NodeRow, SearchRow
from warpsmith.workers.search.policy import next_steps
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps.asks import issue_again, overdue
from warpsmith.workers.steps.bans import take_back_all
from warpsmith.workers.steps.endings import fail_step
from warpsmith.workers.steps.growth import Decide, grow
from warpsmith.workers.steps.outages import resting, take_up
from warpsmith.workers.steps.rows import OPEN, Held, add_event, lock_search, message, put_back
from warpsmith.workers.steps.values import Message, UnknownSearch

LARGEST_ROUND = 200
"""Searches seen to, and attempts per search sent again, in one round."""


def reconcile(db: Database, now: float, settings: Settings, decide: Decide = next_steps) -> list[Message]:
    """Run one round and return the messages to send."""
    with db.reading() as session:
        search_ids = _searches(session, now, settings)
    messages: list[Message] = []
    for search_id in search_ids:
        with suppress(UnknownSearch), db.writing() as session:  # deleted meanwhile
            messages += _see_to(session, lock_search(session, search_id), now, settings, decide)
    return messages


def _searches(session: Session, now: float, settings: Settings) -> list[str]:
    alive = SearchRow.state.in_(("queued", "running"))
    any_open = exists().where(AttemptRow.search_id == SearchRow.id, AttemptRow.state.in_(OPEN))
    expired = select(AttemptRow.search_id).where(leases.expired(AttemptRow, now))
    others = (
        select(AttemptRow.search_id)
        .join(SearchRow, SearchRow.id == AttemptRow.search_id)
        .where(alive, or_(_unsent(now, settings), _answered(), _unanswered(now)))
    )
    found: dict[str, None] = {}
    for query in (expired, others, select(SearchRow.id).where(alive, ~any_open)):
        found.update(dict.fromkeys(session.scalars(query.distinct().limit(LARGEST_ROUND))))
    found.update(dict.fromkeys(resting(session, now, LARGEST_ROUND)))
    return list(found)


def _unsent(now: float, settings: Settings) -> ColumnElement[bool]:
    """Pending, due, and its message never sent or lost."""
    return and_(leases.unsent(AttemptRow, now, settings.resend_after_s), AttemptRow.not_before <= now)


def _answered() -> ColumnElement[bool]:
    """Waiting, though no ask of it is open."""
    ask = aliased(AskRow)
    open_ask = exists().where(ask.attempt_id == AttemptRow.id, ask.state == "open")
    return and_(AttemptRow.state == "waiting", ~open_ask)


def _unanswered(now: float) -> ColumnElement[bool]:
    """Return the condition that an attempt waits for an ask whose time ran out.

    The query starts at the attempt: asks are kept, and have no index by their state.
    """
    return and_(AttemptRow.state == "waiting", exists().where(AskRow.attempt_id == AttemptRow.id, overdue(now)))


def _see_to(session: Session, search: SearchRow, now: float, settings: Settings, decide: Decide) -> list[Message]:
    if search.state in ENDED:
        return []
    of_search = AttemptRow.search_id == search.id
    expired = select(AttemptRow).where(of_search, leases.expired(AttemptRow, now))
    for attempt in session.scalars(expired.with_for_update()).all():
        _expire(session, search, attempt, now, settings)
        if search.state in ENDED:
            return []
    for attempt in session.scalars(select(AttemptRow).where(of_search, _answered())).all():
        put_back(attempt)
    session.flush()
    take_back_all(session, search, now)
    take_up(session, search, now, settings)
    if search.state == "paused":
        return []  # its asks stay open, and can be answered
    issue_again(session, search, now, settings.ask_expires_s, LARGEST_ROUND)
    unsent = select(AttemptRow).where(of_search, _unsent(now, settings)).order_by(AttemptRow.created_at, AttemptRow.id)
    messages = []
    for attempt in session.scalars(unsent.limit(LARGEST_ROUND)).all():
        attempt.sent_at = now
        messages.append(message(attempt.id, attempt.kind, search.target))
    session.flush()
    still_open = select(AttemptRow.id).where(of_search, AttemptRow.state.in_(OPEN)).limit(1)
    if session.scalar(still_open) is None:
        messages += grow(session, search, now, decide)
    return messages


def _expire(session: Session, search: SearchRow, attempt: AttemptRow, now: float, settings: Settings) -> None:
    node = session.get_one(NodeRow, attempt.node_id)
    tries, owner = attempt.tries, attempt.owner
    if not leases.return_expired(attempt, settings.max_tries):
        fail_step(session, Held(search, node, attempt), f"gave up after {tries} tries: a worker died each time", now)
        return
    add_event(
        session,
        search,
        "attempt.expired",
        now,
        node,
        kind=attempt.kind,
        owner=owner,
        tries=tries,
        reason="the worker gave no sign of life",
    )

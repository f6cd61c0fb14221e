"""Holding an attempt: claim, renew, put off, wait for an answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from sqlalchemy import CursorResult, select, update

from kernels_db.db import Database, new_id
from kernels_db.models import AskRow, AttemptRow, NodeRow
from workers.model.base import ModelRequest
from workers.model.text import storable
from workers.steps.endings import fail_step, pause_search
from workers.steps.rows import add_event, held, lock_search, message, plain, put_back, record_calls
from workers.steps.values import Message, ModelCall, Work, WrongState
from workers.steps.work import build_work


def claim(db: Database, attempt_id: str, owner: str, lease_s: float, now: float) -> Work | None:
    """Take a pending attempt for `lease_s` seconds; None where it is not to be had (taken, done, put off, paused).

    `owner` must differ between claims, so that a worker that lost its lease cannot pass for the one that has it now.
    """
    with db.writing() as session:
        search_id = session.scalar(select(AttemptRow.search_id).where(AttemptRow.id == attempt_id))
        if search_id is None:
            return None
        search = lock_search(session, search_id)
        if search.state != "running":
            return None
        taken = session.execute(
            update(AttemptRow)
            .where(AttemptRow.id == attempt_id, AttemptRow.state == "pending", AttemptRow.not_before <= now)
            .values(
                state="running",
                owner=owner,
                lease_expires_at=now + lease_s,
                tries=AttemptRow.tries + 1,
                started_at=now,
                error=None,
            )
        )
        if cast("CursorResult[object]", taken).rowcount != 1:
            return None
        attempt = session.get_one(AttemptRow, attempt_id)
        return build_work(session, search, session.get_one(NodeRow, attempt.node_id), attempt)


def renew(db: Database, attempt_id: str, owner: str, lease_s: float, now: float) -> bool:
    """Hold the lease for another `lease_s` seconds; False: it was lost, stop."""
    with db.writing() as session:
        renewed = session.execute(
            update(AttemptRow)
            .where(AttemptRow.id == attempt_id, AttemptRow.state == "running", AttemptRow.owner == owner)
            .values(lease_expires_at=now + lease_s)
        )
        return cast("CursorResult[object]", renewed).rowcount == 1


def defer(
    db: Database,
    attempt_id: str,
    owner: str,
    reason: str,
    delay_s: float,
    calls: Iterable[ModelCall],
    now: float,
    *,
    max_deferrals: int = 6,
    final: bool = False,
) -> bool:
    """The model is unavailable: the attempt becomes pending again, not before `delay_s` from now.

    More than `max_deferrals` of them in a row, or `final` (waiting will not help), pause the search with the reason.
    False when the lease was lost.
    """
    with db.writing() as session:
        work = held(session, attempt_id, owner)
        if work is None:
            return False
        record_calls(session, work, calls, now)
        attempt = work.attempt
        put_back(attempt)
        attempt.deferrals += 1
        attempt.not_before = now + delay_s
        attempt.error = storable(reason)
        add_event(
            session,
            work.search,
            "attempt.deferred",
            now,
            work.node,
            kind=attempt.kind,
            reason=reason,
            deferrals=attempt.deferrals,
            until=attempt.not_before,
        )
        if work.search.state == "running" and (final or attempt.deferrals > max_deferrals):
            pause_search(session, work.search, reason, now)
        return True


def give_up(db: Database, attempt_id: str, owner: str, error: str, now: float) -> bool:
    """The step cannot be done at all (the judge refuses the job, say): its branch ends. False when the lease was
    lost."""
    with db.writing() as session:
        work = held(session, attempt_id, owner)
        if work is None:
            return False
        fail_step(session, work, error, now)
        return True


def wait_for_answer(db: Database, attempt_id: str, owner: str, request: ModelRequest, now: float) -> bool:
    """Open an ask for `request` and let the attempt wait for its answer. False when the lease was lost.

    Calls are recorded when the step completes: answers stay with the attempt, so it makes the earlier calls again.
    """
    with db.writing() as session:
        work = held(session, attempt_id, owner)
        if work is None:
            return False
        ask = session.scalar(
            select(AskRow).where(
                AskRow.attempt_id == attempt_id, AskRow.request == request.identity, AskRow.ordinal == request.ordinal
            )
        )
        put_back(work.attempt)
        if ask is not None and ask.state == "answered":
            return True  # it came in between: pending, and the reconciler sends it
        work.attempt.state = "waiting"
        if ask is None:
            ask = AskRow(
                id=new_id("ak"),
                search_id=work.search.id,
                node_id=work.node.id,
                attempt_id=attempt_id,
                kind=request.kind,
                request=request.identity,
                ordinal=request.ordinal,
                created_at=now,
            )
            session.add(ask)
        ask.state = "open"
        ask.reply = None
        ask.messages = plain(list(request.messages))
        session.flush()
        add_event(
            session, work.search, "ask.opened", now, work.node, ask_id=ask.id, kind=ask.kind, summary=request.summary
        )
        return True


def tell(db: Database, ask_id: str, reply: str, answered_by: str | None, now: float) -> list[Message]:
    """Answer an ask; its attempt becomes pending. Raises LookupError, or WrongState where the ask is not open."""
    with db.writing() as session:
        search_id = session.scalar(select(AskRow.search_id).where(AskRow.id == ask_id))
        if search_id is None:
            raise LookupError(f"ask: found {ask_id!r}, expected the id of an ask")
        search = lock_search(session, search_id)
        ask = session.get_one(AskRow, ask_id)
        if ask.state != "open":
            raise WrongState(f"ask {ask_id}", ask.state, "open")
        ask.state = "answered"
        ask.reply = storable(reply)
        ask.answered_by = None if answered_by is None else storable(answered_by)
        ask.answered_at = now
        attempt = session.get_one(AttemptRow, ask.attempt_id)
        node = session.get_one(NodeRow, ask.node_id)
        add_event(session, search, "ask.answered", now, node, ask_id=ask.id, answered_by=ask.answered_by)
        if attempt.state != "waiting":
            return []
        put_back(attempt)
        if search.state != "running":
            return []
        attempt.sent_at = now
        return [message(attempt.id, attempt.kind, search.target)]

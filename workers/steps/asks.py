"""Asks: a model request of agent mode waits for an answer, and expires when none comes.

    open ──> answered                     `tell`; the first answer counts
    open ──> expired, and the next issue  `issue_again`: the same request under a new id, so nothing is lost
    open ──> withdrawn                    the search ended, or its node was banned
    answered ──> withdrawn                the answer could not be read and the request starts over, as the next issue

At most one issue of a request is open or answered at any time: its attempt waits while one is open. Where the search's
baselines came meanwhile the attempt is taken up again, and an open ask gets the request that it has now.
"""

from __future__ import annotations

import time

from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import AskRow, AttemptRow, NodeRow, SearchRow, VerdictRow
from warpsmith.workers.llm.base import ModelRequest
from warpsmith.workers.steps.bans import take_back
from warpsmith.workers.steps.budget_clock import set_clock
from warpsmith.workers.steps.rows import (
    Also,
    add_event,
    ending,
    lock_search,
    message,
    plain,
    put_back,
)
from warpsmith.workers.steps.values import Message, WrongState
from warpsmith.workers.text import storable

LONGEST_LIFE_S = 24 * 3600.0
"""The longest life of an issue in seconds.

Each issue lives twice as long as the one before, up to this: a forgotten search fills no database.
"""


class AskClosed(WrongState):
    """The ask takes no answer any more.

    replaced_by: the open ask of the same request, None where no request waits for its answer. answered_by, answered_at:
    the source of the answer in force, and since when.
    """

    def __init__(
        self,
        ask: AskRow,
        *,
        replaced_by: str | None = None,
        answered_by: str | None = None,
        answered_at: float | None = None,
    ) -> None:
        super().__init__(f"ask {ask.id}", ask.state, "open" if replaced_by is None else f"{replaced_by}, which is open")
        self.replaced_by = replaced_by
        self.answered_by = answered_by
        self.answered_at = answered_at

    def __str__(self) -> str:
        """Return who was first, or where the answer can still be given."""
        if self.replaced_by is not None:
            return f"{super().__str__()} and asks the same: answer that one"
        if self.answered_at is None:
            return f"{super().__str__()}; nothing waits for its answer any more"
        at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.answered_at))
        return f"{super().__str__()}; the first answer stands, by {self.answered_by or 'somebody unnamed'} at {at}"


def wait_for_answer(
    db: Database,
    attempt_id: str,
    owner: str,
    request: ModelRequest,
    now: float,
    expires_s: float = 0.0,
    also: Also | None = None,
) -> bool:
    """Open an ask for `request` that lives `expires_s` seconds, and let the attempt wait for it.

    0 seconds: it never expires. For a banned node no ask is opened, and the step is taken back.

    False when the lease was lost. Calls are recorded when the step completes: answers stay with the attempt, so it
    makes the earlier calls again. An ask of the same request that is open already keeps its id, and gets the messages
    of `request`.
    """
    with ending(db, attempt_id, owner, now, also) as (session, work):
        if work is None:
            return False
        put_back(work.attempt)
        last = _last_issue(session, attempt_id, request.identity, request.ordinal)
        if last is not None and last.state == "answered":
            return True  # it came in between: pending, and the reconciler sends it
        work.attempt.state = "waiting"
        if work.node.mark == "banned":  # since it was claimed
            take_back(session, work.search, work.node, now)
            return True
        if last is not None and last.state == "open":
            last.messages = plain(list(request.messages))
        else:
            ask = AskRow(
                search_id=work.search.id,
                node_id=work.node.id,
                attempt_id=attempt_id,
                kind=request.kind,
                request=request.identity,
                ordinal=request.ordinal,
                messages=plain(list(request.messages)),
                issue=0 if last is None else last.issue + 1,
            )
            _open(session, work.search, work.node, ask, now, expires_s, summary=request.summary)
        if _came_since(session, work.attempt):  # pending: it asks again, now with them
            work.attempt.state = "pending"
        return True


def _came_since(session: Session, attempt: AttemptRow) -> bool:
    """Check whether the search's baselines came since the attempt was claimed, too late for the request just built."""
    of_root = (NodeRow.search_id == attempt.search_id, NodeRow.seq == 0)
    found = select(VerdictRow.id).join(NodeRow, NodeRow.id == VerdictRow.node_id).where(*of_root)
    return session.scalar(found.where(VerdictRow.created_at > attempt.started_at).limit(1)) is not None


def tell(db: Database, ask_id: str, reply: str, answered_by: str | None, now: float) -> list[Message]:
    """Answer an ask; its attempt becomes pending.

    The same reply again changes nothing and is no error.

    Raises LookupError, or AskClosed where the ask is not open: the first answer counts.
    """
    with db.writing() as session:
        search_id = session.scalar(select(AskRow.search_id).where(AskRow.id == ask_id))
        if search_id is None:
            raise LookupError(f"ask: found {ask_id!r}, expected the id of an ask")
        search = lock_search(session, search_id)
        ask = session.get_one(AskRow, ask_id)
        if ask.state == "answered" and ask.reply == storable(reply):
            return []
        if ask.state != "open":
            raise _closed(session, ask)
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
        set_clock(session, search, now)
        if search.state != "running":
            return []
        attempt.sent_at = now
        return [message(attempt.id, attempt.kind, search.target)]


def overdue(now: float) -> ColumnElement[bool]:
    """Open asks whose time ran out."""
    return and_(AskRow.state == "open", AskRow.expires_at <= now)


def issue_again(session: Session, search: SearchRow, now: float, expires_s: float, limit: int) -> None:
    """Let at most `limit` overdue asks of the search expire, and open the next issue of each."""
    query = select(AskRow).where(AskRow.search_id == search.id, overdue(now)).order_by(AskRow.expires_at, AskRow.id)
    for old in session.scalars(query.limit(limit)).all():
        node = session.get_one(NodeRow, old.node_id)
        old.state = "expired"
        ask = AskRow(
            search_id=old.search_id,
            node_id=old.node_id,
            attempt_id=old.attempt_id,
            kind=old.kind,
            request=old.request,
            ordinal=old.ordinal,
            messages=old.messages,
            issue=old.issue + 1,
        )
        opened = _open(session, search, node, ask, now, expires_s, replaces=old.id)
        add_event(session, search, "ask.expired", now, node, ask_id=old.id, kind=old.kind, replaced_by=opened)
    set_clock(session, search, now)


def replacement(session: Session, ask: AskRow) -> str | None:
    """Return the open ask of the same request.

    None where `ask` is open itself, or nothing waits for its answer.
    """
    last = _last_issue(session, ask.attempt_id, ask.request, ask.ordinal)
    return last.id if last is not None and last.state == "open" and last.id != ask.id else None


def _open(
    session: Session, search: SearchRow, node: NodeRow, ask: AskRow, now: float, expires_s: float, **payload: str
) -> str:
    """Store the ask as open and announce it; its id."""
    ask.id = new_id("ak")
    ask.state = "open"
    ask.created_at = now
    life_s = min(expires_s * 2.0 ** min(ask.issue, 60), max(expires_s, LONGEST_LIFE_S))
    ask.expires_at = now + life_s if life_s else None
    session.add(ask)
    session.flush()
    add_event(session, search, "ask.opened", now, node, ask_id=ask.id, kind=ask.kind, issue=ask.issue, **payload)
    return ask.id


def _last_issue(session: Session, attempt_id: str, request: str, ordinal: int) -> AskRow | None:
    query = select(AskRow).where(AskRow.attempt_id == attempt_id, AskRow.request == request, AskRow.ordinal == ordinal)
    return session.scalar(query.order_by(AskRow.issue.desc()).limit(1))


def _closed(session: Session, ask: AskRow) -> AskClosed:
    last = _last_issue(session, ask.attempt_id, ask.request, ask.ordinal)
    if last is not None and last.state == "answered":
        return AskClosed(ask, answered_by=last.answered_by, answered_at=last.answered_at)
    return AskClosed(ask, replaced_by=replacement(session, ask))

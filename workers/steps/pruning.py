"""Retention: what a search that ended long ago no longer needs.

    events      that told watchers of single steps (`DETAILS`); what they said is in the rows of nodes and attempts
    prompts     the text of requests to models, which is most of what a search stores

All else stays: nodes with their code, attempts, verdicts, the replies of models (a pool can be exported from them),
the events that a story, a chart or a kernel is told from, kernels with their evidence, and the audit log, which has a
retention of its own.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from sqlalchemy import CursorResult, Delete, Update, delete, select, update
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AskRow, EventRow, ModelCallRow, SearchRow
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.steps.rows import lock_search
from warpsmith.workers.steps.values import EventType, UnknownSearch

DETAILS: tuple[EventType, ...] = (
    "ask.expired",
    "ask.opened",
    "attempt.deferred",
    "attempt.expired",
    "attempt.failed",
    "node.closed",
    "node.coded",
    "node.created",
    "node.tried",
    "round.started",
)

MOST_SEARCHES = 200
"""Searches that one call sees to, each in a transaction of its own."""


@dataclass(frozen=True)
class Pruned:
    """How many searches were pruned, and the events deleted and prompts emptied in them."""

    searches: int = 0
    events: int = 0
    prompts: int = 0

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(self.searches + other.searches, self.events + other.events, self.prompts + other.prompts)


def prune(db: Database, before: float, now: float, most: int = MOST_SEARCHES) -> Pruned:
    """Prune the searches that ended before that time, at most `most` of them, the oldest first; each is pruned once.

    Where there are as many, more may be left: call it again.
    """
    due = (SearchRow.pruned_at.is_(None), SearchRow.updated_at < before, SearchRow.state.in_(ENDED))
    with db.reading() as session:
        found = session.scalars(select(SearchRow.id).where(*due).order_by(SearchRow.updated_at).limit(most)).all()
    total = Pruned()
    for search_id in found:
        with suppress(UnknownSearch), db.writing() as session:  # deleted meanwhile
            search = lock_search(session, search_id)
            if search.pruned_at is None:
                total += _prune(session, search, now)
    return total


def _prune(session: Session, search: SearchRow, now: float) -> Pruned:
    search.pruned_at = now
    events = _count(session, delete(EventRow).where(EventRow.search_id == search.id, EventRow.type.in_(DETAILS)))
    calls = _count(session, update(ModelCallRow).where(ModelCallRow.search_id == search.id).values(messages=[]))
    asks = _count(session, update(AskRow).where(AskRow.search_id == search.id).values(messages=[]))
    return Pruned(1, events, calls + asks)


def _count(session: Session, change: Delete | Update) -> int:
    return cast("CursorResult[object]", session.execute(change)).rowcount

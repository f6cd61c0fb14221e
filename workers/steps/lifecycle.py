"""A search as a whole: created, advanced, paused, resumed, cancelled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from warpsmith.kernels_db.spec.op import Op, Target
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.table_base import fill_defaults
from warpsmith.kernels_db.store.tables import DEFAULT_TEAM, AttemptRow, EventRow, NodeRow, SearchRow
from warpsmith.workers.search.budget import parse_budget
from warpsmith.workers.search.policy import next_steps, parse_policy
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.steps.admission import admit
from warpsmith.workers.steps.endings import end, pause_search
from warpsmith.workers.steps.growth import Decide, grow
from warpsmith.workers.steps.labels import Labels, add_tags
from warpsmith.workers.steps.outages import again_at
from warpsmith.workers.steps.rows import add_event, lock_search, message, signed, spend, write_new
from warpsmith.workers.steps.seeding import count_seeds, plant_seeds
from warpsmith.workers.steps.values import Message, WrongState


class Following:
    """Opens the steps that follow a step in the transaction that ends it: the `also` of its end.

    Of a new search it opens the first ones. `messages` are to be sent after the commit; None where it was not called,
    and `advance` is to be.
    """

    def __init__(self, decide: Decide = next_steps) -> None:
        self._decide = decide
        self.messages: list[Message] | None = None

    def __call__(self, session: Session, search: SearchRow, now: float) -> None:
        """Do what `advance` does, for a search that the transaction has locked."""
        self.messages = grow(session, search, now, self._decide)


@dataclass(frozen=True)
class NewSearch:
    """A search that a transaction stores, with its root node and its op's name; its rows are not written yet.

    A statement before they are would write them in no order: what is asked of it is asked of the rows.
    """

    search: SearchRow
    root: NodeRow
    op: str


def create_search(
    db: Database,
    op: Op,
    target: Target,
    *,
    language: str,
    policy: Mapping[str, Any],
    budget: Mapping[str, Any],
    model: Mapping[str, Any],
    now: float,
    seeds: int = 0,
    team: str = DEFAULT_TEAM,
    model_name: str | None = None,
    labels: Labels | None = None,
    traceparent: str | None = None,
    also: Callable[[Session, NewSearch], None] | None = None,
    following: Following | None = None,
) -> str:
    """Store the op, a queued search and its root node; returns the search's id.

    `policy`, `budget` and `model` are documents; a bad policy or budget raises SpecError, a quota of
    `team` of which nothing is left QuotaReached. `seeds`: stored kernels for
    similar ops that the tree starts with, at most (`steps.seeding`). `team` owns it; `model_name` and `labels` are
    what lists show. `also` runs in the same transaction while the search is queued, before a row of it is written;
    after it `following` opens the first steps. `traceparent`: the trace of the request that submits it,
    which its steps are linked to.
    """
    labels = labels or {}
    parse_policy(policy)
    most = count_seeds(seeds, parse_budget(budget))
    with db.writing() as session:
        op_id, offers = admit(session, op, target, language, most, team, now)
        search = SearchRow(
            id=new_id("sr"),
            op_id=op_id,
            target=str(target),
            language=language,
            policy=dict(policy),
            budget=dict(budget),
            model=dict(model),
            model_name=model_name,
            name=labels.get("name"),
            notes=labels.get("notes"),
            state="queued",
            team=team,
            created_at=now,
            updated_at=now,
        )
        fill_defaults(search)
        session.add(search)
        add_tags(session, search.id, labels.get("tags", ()))
        root = NodeRow(
            id=new_id("nd"), search_id=search.id, seq=0, round=0, state="coded", created_at=now, updated_at=now
        )
        session.add(root)
        told = {} if traceparent is None else {"traceparent": traceparent}
        add_event(session, search, "search.created", now, op=op.name, target=search.target, language=language, **told)
        add_event(session, search, "node.created", now, root, parent_id=None, round=0)
        plant_seeds(session, search, root, offers, now)
        if also is not None:
            also(session, NewSearch(search, root, op.name))
        if following is not None:
            following(session, search, now)
        write_new(session, search)
        return search.id


def find_submission(db: Database, search_id: str) -> str | None:
    """Return the `traceparent` of the request that submitted a search; None where it was not traced."""
    created = (EventRow.search_id == search_id, EventRow.type == "search.created")
    with db.reading() as session:
        payload = session.scalar(select(EventRow.payload).where(*created).limit(1))
    found = None if payload is None else payload.get("traceparent")
    return found if isinstance(found, str) else None


def advance(db: Database, search_id: str, now: float, decide: Decide = next_steps) -> list[Message]:
    """Ask the policy and open the attempts that it wants, or end the search where it says so.

    Does nothing for a search that is paused or has ended; starts a queued one. Two calls at once do no harm. Raises
    LookupError for an unknown search.
    """
    with db.writing() as session:
        return grow(session, lock_search(session, search_id), now, decide)


def pause(db: Database, search_id: str, reason: str, now: float, by: str | None = None) -> None:
    """Open no new steps until `resume`; steps that run may still commit.

    Raises WrongState once the search has ended.

    `by`, here and below: the name of the API key that asked for it; the event records it.
    """
    with db.writing() as session:
        search = lock_search(session, search_id)
        if search.state in ENDED:
            raise WrongState(f"search {search_id}", search.state, "queued or running")
        if search.state != "paused" or again_at(session, search) is not None:  # it would go on by itself
            pause_search(session, search, reason, now, by)


def resume(
    db: Database, search_id: str, now: float, decide: Decide = next_steps, by: str | None = None
) -> list[Message]:
    """Let a paused search run on: pending steps are sent again at once, and the policy is asked.

    Raises WrongState where the search is not paused.
    """
    with db.writing() as session:
        search = lock_search(session, search_id)
        if search.state != "paused":
            raise WrongState(f"search {search_id}", search.state, "paused")
        search.state = "running"
        search.reason = None
        search.running_since = now
        add_event(session, search, "search.resumed", now, spend=asdict(spend(search, now)), **signed(by))
        pending = session.execute(
            select(AttemptRow.id, AttemptRow.kind).where(
                AttemptRow.search_id == search.id, AttemptRow.state == "pending"
            )
        ).tuples()
        messages = [message(attempt_id, kind, search.target) for attempt_id, kind in pending]
        session.execute(
            update(AttemptRow)
            .where(AttemptRow.search_id == search.id, AttemptRow.state.in_(("pending", "running")))
            .values(deferrals=0, not_before=0.0)
        )
        session.execute(
            update(AttemptRow)
            .where(AttemptRow.search_id == search.id, AttemptRow.state == "pending")
            .values(sent_at=now)
        )
        return messages + grow(session, search, now, decide)


def cancel(db: Database, search_id: str, now: float, by: str | None = None) -> None:
    """End the search now; results that come later are discarded.

    Raises WrongState where it ended otherwise.
    """
    with db.writing() as session:
        search = lock_search(session, search_id)
        if search.state == "cancelled":
            return
        if search.state in ENDED:
            raise WrongState(f"search {search_id}", search.state, "queued, running or paused")
        end(session, search, "cancelled", "on request", now, by=by)

"""Row operations that every step uses.

They are the search's lock, the attempt that a worker holds, events, model calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, bindparam, func, inspect, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.quotas import add_spending
from warpsmith.kernels_db.store.table_base import Leased, Rows, insert_new
from warpsmith.kernels_db.store.tables import AttemptRow, EventRow, ModelCallRow, NodeRow, ProfileRow, SearchRow, TryRow
from warpsmith.workers.queue_names import MODEL_QUEUE, judge_queue
from warpsmith.workers.search.tree import Spend
from warpsmith.workers.steps.values import EventType, Message, ModelCall, UnknownSearch
from warpsmith.workers.text import storable

Also: TypeAlias = Callable[[Session, SearchRow, float], None]
"""Runs in the transaction of a step's end, after it, with the search that is locked there and the time."""

OPEN = ("pending", "running", "waiting")
"""States of an attempt that is still to bring a result."""


def lock_search(session: Session, search_id: str) -> SearchRow:
    """Return the search's row, locked until the transaction ends; raises UnknownSearch."""
    search = session.get(SearchRow, search_id, with_for_update=True, populate_existing=True)
    if search is None:
        raise UnknownSearch(search_id)
    return search


def is_unwritten(row: SearchRow) -> bool:
    """Check whether a search is new and its row not written yet."""
    return bool(inspect(row).pending)


def write_new(session: Session, search: SearchRow, more: Rows = ()) -> bool:
    """Write the rows of a new search and `more` with them; False where they are written already."""
    new = is_unwritten(search)
    if new:
        insert_new(session, more)
    return new


@dataclass(frozen=True)
class Held:
    """An attempt that its worker still holds, under the search's lock."""

    search: SearchRow
    node: NodeRow
    attempt: AttemptRow


# PostgreSQL locks in the order of `of`: the search first, as everywhere. A row that it had to wait for it reads again.
_HELD = (
    select(SearchRow, NodeRow, AttemptRow)
    .join(AttemptRow, AttemptRow.search_id == SearchRow.id)
    .join(NodeRow, NodeRow.id == AttemptRow.node_id)
    .where(AttemptRow.id == bindparam("attempt_id"), leases.held_by(AttemptRow, bindparam("owner")))
    .with_for_update(of=[SearchRow, AttemptRow, NodeRow], key_share=True)
    .execution_options(populate_existing=True)
)


def held(session: Session, attempt_id: str, owner: str) -> Held | None:
    """Return the attempt if `owner` still runs it.

    Returns None when the lease went to another worker or the search ended.
    """
    found = session.execute(_HELD, {"attempt_id": attempt_id, "owner": owner}).tuples().one_or_none()
    return None if found is None else Held(*found)


@contextmanager
def ending(
    db: Database, attempt_id: str, owner: str, now: float, also: Also | None
) -> Iterator[tuple[Session, Held | None]]:
    """Open the write transaction in which the step of an attempt ends.

    It has None where the lease was lost. `also` runs last in it, where there is one (`lifecycle.Following`).
    """
    with db.writing() as session:
        work = held(session, attempt_id, owner)
        yield session, work
        if work is not None and also is not None:
            also(session, work.search, now)


def owner_of(bundle_id: str) -> str:
    """Return the owner that the steps of a bundle have."""
    return f"bundle:{bundle_id}"


def bundle_of(owner: str) -> str:
    """Return the id of the bundle that is the owner of a step."""
    return owner.removeprefix(owner_of(""))


def in_bundle(table: type[AttemptRow | ProfileRow | TryRow] = AttemptRow) -> ColumnElement[bool]:
    """Return the condition that a row's owner is a bundle, whichever; never NULL."""
    return func.coalesce(table.owner, "").startswith(owner_of(""))


def is_held(row: Leased, bundle_id: str) -> bool:
    """Check whether the bundle holds the step, profile or try."""
    return row.state == "running" and row.owner == owner_of(bundle_id)


def put_back(attempt: AttemptRow) -> None:
    """Return the attempt of a live worker to pending, without counting the try against it.

    Its error is cleared: where the reason still holds, the caller says it again.
    """
    leases.put_back(attempt)
    attempt.error = None


def close_attempt(attempt: AttemptRow, state: str, now: float, error: str | None = None) -> None:
    """End the attempt."""
    leases.finish(attempt, state, now)
    attempt.error = None if error is None else storable(error)


def message(attempt_id: str, kind: str, target: str) -> Message:
    """Return the message of an attempt."""
    return Message(attempt_id, MODEL_QUEUE if kind in {"ideate", "code"} else judge_queue(target))


def add_event(
    session: Session, search: SearchRow, kind: EventType, now: float, node: NodeRow | None = None, /, **payload: Any
) -> None:
    """Append to the search's history; an event of a node carries its `seq`."""
    search.updated_at = now
    document = payload if node is None else {"seq": node.seq, **payload}
    session.add(
        EventRow(
            search_id=search.id,
            node_id=None if node is None else node.id,
            type=kind,
            payload=plain(document),
            created_at=now,
        )
    )


def signed(by: str | None) -> dict[str, str]:
    """Return who did it, for an event; nothing where no API keys are in force."""
    return {} if by is None else {"by": by}


def record_calls(session: Session, work: Held, calls: Iterable[ModelCall], now: float) -> None:
    """Store model calls, failed ones too, and count them on the budget.

    A call that brought no reply spends nothing, or an outage would use up the budget.
    """
    search, cost_before = work.search, work.search.cost_usd
    for call in calls:
        session.add(
            ModelCallRow(
                id=new_id("mc"),
                search_id=search.id,
                node_id=work.node.id,
                attempt_id=work.attempt.id,
                kind=call.kind,
                request=call.request,
                ordinal=call.ordinal,
                provider=call.provider,
                model=None if call.model is None else storable(call.model)[:128],
                messages=plain(list(call.messages)),
                reply=None if call.reply is None else storable(call.reply),
                finish_reason=None if call.finish_reason is None else storable(call.finish_reason)[:32],
                error=None if call.error is None else storable(call.error),
                prompt_tokens=call.prompt_tokens,
                completion_tokens=call.completion_tokens,
                cost_usd=call.cost_usd,
                latency_s=call.latency_s,
                created_at=now,
            )
        )
        search.model_calls += int(call.reply is not None)
        search.tokens += (call.prompt_tokens or 0) + (call.completion_tokens or 0)
        search.cost_usd += call.cost_usd or 0.0
        # Replay and agents cost nothing: only an endpoint's calls have a price that may be unknown.
        priced = call.provider != "openai" or call.reply is None or call.cost_usd is not None
        search.unpriced_calls += int(not priced)
    add_spending(session, search.team, now, cost_usd=search.cost_usd - cost_before)
    # One by one, so that the calls' ids rise in their order whatever the driver batches.
    session.flush()


def count_candidate(session: Session, search: SearchRow, now: float, *, device_seconds: float = 0.0) -> None:
    """Count a candidate on the budget and on its team's quota, once its code step or its screening has ended.

    A duplicate counts, and so do replies in which no code could be read: a model that only repeats itself would else
    be asked as long as its policy plays. `device_seconds`, which it held, are its team's spending as well.
    """
    search.candidates += 1
    add_spending(session, search.team, now, candidates=1, device_seconds=device_seconds)


def spend(search: SearchRow, now: float) -> Spend:
    """Return the search's use so far; the clock does not run while it is paused."""
    running = 0.0 if search.running_since is None else max(0.0, now - search.running_since)
    return Spend(
        candidates=search.candidates,
        model_calls=search.model_calls,
        tokens=search.tokens,
        cost_usd=search.cost_usd,
        wall_clock_s=search.active_s + running,
        gpu_seconds=search.gpu_seconds,
        try_seconds=search.try_seconds,
        sweep_seconds=search.sweep_seconds,
    )


def plain(value: Any) -> Any:
    """Return `value` as JSON that both databases take.

    It has no NUL, no lone surrogates, no NaN or infinity (they are told in words).
    """
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {storable(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value

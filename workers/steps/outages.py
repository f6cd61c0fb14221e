"""An unavailable model: put a step off, pause its search, and continue without a person.

A search that paused because a provider was unavailable is resumed by the reconciler: the step that failed last is tried
once more, and where it fails again the search pauses for twice as long, up to a limit. So is one that waits for a quota
(`quotas`). When a person pauses such a search, it stays paused; a refusal that waiting does not mend (a key, a quota of
the provider's, an unknown model) waits for a person.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, EventRow, SearchRow
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps.budget_clock import set_clock
from warpsmith.workers.steps.endings import pause_search
from warpsmith.workers.steps.rows import Also, Held, add_event, ending, put_back, record_calls, spend
from warpsmith.workers.steps.values import ModelCall
from warpsmith.workers.text import storable


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
    probe_s: float = 30.0,
    longest_probe_s: float = 600.0,
    final: bool = False,
    also: Also | None = None,
) -> bool:
    """Make the attempt pending again, not before `delay_s` from now: the model is unavailable.

    More than `max_deferrals` of them in a row pause the search; it tries again by itself after `probe_s` seconds, twice
    that after the next failure, at most after `longest_probe_s`. `final` (waiting will not help) pauses it until a
    person resumes it. False when the lease was lost.
    """
    with ending(db, attempt_id, owner, now, also) as (session, work):
        if work is None:
            return False
        record_calls(session, work, calls, now)
        attempt, search = work.attempt, work.search
        put_back(attempt)
        attempt.deferrals += 1
        tries = attempt.deferrals - max_deferrals
        if tries > 0 and not final:
            # 2.0 ** 30 times any delay is beyond every limit, and a larger exponent would overflow in the end.
            delay_s = min(probe_s * 2.0 ** min(tries - 1, 30), longest_probe_s)
        attempt.not_before = now + delay_s
        attempt.error = storable(reason)
        _tell(session, work, reason, now)
        if search.state == "running" and final:
            pause_search(session, search, reason, now)
        elif search.state == "running" and tries > 0:
            again = f"{reason}; it tries again by itself in {delay_s:g} s"
            pause_search(session, search, again, now, again_at=attempt.not_before)
        set_clock(session, search, now)
        return True


def _tell(session: Session, work: Held, reason: str, now: float) -> None:
    attempt = work.attempt
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


def put_off(
    db: Database,
    attempt_id: str,
    owner: str,
    reason: str,
    delay_s: float,
    calls: Iterable[ModelCall],
    now: float,
    also: Also | None = None,
) -> bool:
    """Make the attempt pending again, not before `delay_s` from now: no call is possible now.

    Every slot of the endpoint is taken. Nothing failed: neither a try nor a deferral is counted. False when the lease
    was lost.
    """
    with ending(db, attempt_id, owner, now, also) as (session, work):
        if work is None:
            return False
        record_calls(session, work, calls, now)
        put_back(work.attempt)
        work.attempt.not_before = now + delay_s
        work.attempt.error = storable(reason)
        return True


def again_at(session: Session, search: SearchRow) -> float | None:
    """Return when a paused search tries again by itself (epoch seconds).

    None where it waits for a person.
    """
    payload = _last_pause(session, search)
    found = None if payload is None else payload.get("again_at")
    return float(found) if isinstance(found, int | float) else None


def _last_pause(session: Session, search: SearchRow) -> dict[str, Any] | None:
    """Return what the event says that paused the search; None where it is not paused."""
    if search.state != "paused":
        return None
    query = (
        select(EventRow.payload)
        .where(EventRow.search_id == search.id, EventRow.type == "search.paused")
        .order_by(EventRow.id.desc())
        .limit(1)
    )
    return session.scalar(query)


def resting(session: Session, now: float, limit: int) -> list[str]:
    """Paused searches whose time to try again has come, at most `limit`."""
    last = (
        select(EventRow.id)
        .where(EventRow.search_id == SearchRow.id, EventRow.type == "search.paused")
        .order_by(EventRow.id.desc())
        .limit(1)
        .correlate(SearchRow)
        .scalar_subquery()
    )
    query = select(SearchRow.id).join(EventRow, EventRow.id == last).where(SearchRow.state == "paused")
    return list(session.scalars(query.where(EventRow.payload["again_at"].as_float() <= now).limit(limit)))


def _is_due(session: Session, search: SearchRow, now: float) -> bool:
    when = again_at(session, search)
    return when is not None and when <= now


def take_up(session: Session, search: SearchRow, now: float, settings: Settings) -> None:
    """Let the locked `search` run on where its time has come.

    Deferrals stay as they are, so that one more failure of the step that is tried pauses the search again; the other
    steps follow when it has had its chance.
    """
    if not _is_due(session, search, now):
        return
    paused = _last_pause(session, search) or {}
    search.state = "running"
    search.reason = None
    search.running_since = now
    session.execute(
        update(AttemptRow)
        .where(
            AttemptRow.search_id == search.id,
            AttemptRow.state == "pending",
            AttemptRow.not_before > now + settings.model_backoff_s,
        )
        .values(not_before=now + settings.model_backoff_s)
    )
    reason = "a new day of its team's quota" if "quota" in paused else "the model was unavailable and is tried again"
    add_event(session, search, "search.resumed", now, automatic=True, reason=reason, spend=asdict(spend(search, now)))

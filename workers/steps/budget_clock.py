"""The clock of a search's wall-clock budget: it stands still while the search is paused or its model is away.

The model is away while all that a search has open are requests that wait for it: steps that are put off because it was
unavailable, and asks of agent mode that expired without an answer and were issued again.
"""

from __future__ import annotations

from sqlalchemy import Select, and_, bindparam, exists, or_, select
from sqlalchemy.orm import Session, aliased

from warpsmith.kernels_db.store.tables import AskRow, AttemptRow, SearchRow
from warpsmith.workers.steps.rows import OPEN, spend


def _select_waits() -> Select[tuple[bool]]:
    """Select whether an open step of the search `search_id` waits for its model at `now`: one row for each answer."""
    put_off = and_(AttemptRow.state == "pending", AttemptRow.deferrals > 0, AttemptRow.not_before > bindparam("now"))
    before = aliased(AskRow)
    same = (before.request == AskRow.request, before.ordinal == AskRow.ordinal, before.issue == AskRow.issue - 1)
    expired = exists().where(before.attempt_id == AskRow.attempt_id, *same, before.state == "expired")
    issued_again = exists().where(AskRow.attempt_id == AttemptRow.id, AskRow.state == "open", expired)
    waits = or_(put_off, and_(AttemptRow.state == "waiting", issued_again))
    of_search = (AttemptRow.search_id == bindparam("search_id"), AttemptRow.state.in_(OPEN))
    return select(waits).where(*of_search).distinct()


_WAITS = _select_waits()


def stop_clock(search: SearchRow, now: float) -> None:
    """Add the time since the search last began to run to what it ran before."""
    search.active_s = spend(search, now).wall_clock_s
    search.running_since = None


def set_clock(session: Session, search: SearchRow, now: float) -> bool:
    """Let the clock of a running search go on, or stop it where its model is away; the search is locked.

    Returns whether the search has an open step, or does not run.
    """
    if search.state != "running":
        return True
    session.flush()
    waits = session.scalars(_WAITS, {"search_id": search.id, "now": now}).all()
    if not (waits and all(waits)):
        start_clock(search, now)
    elif search.running_since is not None:
        stop_clock(search, now)
    return bool(waits)


def start_clock(search: SearchRow, now: float) -> None:
    """Let the clock go on, where it stood still."""
    if search.running_since is None:
        search.running_since = now

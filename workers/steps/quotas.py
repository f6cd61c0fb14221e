"""Quotas of teams, where something is submitted and just before something is spent.

A search is refused where its team has nothing left of any quota. A step that would spend from a quota of the day of
which nothing is left pauses its search instead, with the reason; the reconciler resumes it when the day ends (UTC), and
a person may before, once the quota was raised. Nothing is lost: the step is pending again and counts no try.

    model step      cost_usd_a_day, where an endpoint is asked; candidates_a_day, where it writes a candidate
    judge step      device_seconds_a_day, baselines and verifications included; candidates_a_day, for a screening

Profiles, and re-verifications that a team asks for, spend device seconds as well, and are refused where none are left.

Spending is committed with the step that spends. So a quota is exceeded by no more than the steps under way when it was
reached, and by verdicts that come back in bundles.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import bindparam, or_, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.quotas import DEVICE_SECONDS, QUOTAS, Usage, find_reached, find_reached_of
from warpsmith.kernels_db.store.tables import TeamRow
from warpsmith.workers.steps.endings import pause_search
from warpsmith.workers.steps.rows import Also, ending, put_back
from warpsmith.workers.steps.values import Work
from warpsmith.workers.text import storable

LIMITED = select(or_(*(getattr(TeamRow, quota).is_not(None) for quota in QUOTAS))).where(
    TeamRow.name == bindparam("team")
)
"""Whether a team has a quota of anything; no row of a team that there is not."""


class QuotaReached(Exception):  # noqa: N818 - named for what it is
    """A team has nothing left of a quota; nothing was stored."""

    def __init__(self, usage: Usage) -> None:
        super().__init__(usage.describe())
        self.usage = usage


def check_submission(session: Session, team: str, now: float) -> None:
    """Raise QuotaReached where `team` may not submit a search, in the transaction that stores it.

    For a team that is LIMITED; of another nothing can be reached.
    """
    row = session.get(TeamRow, team)
    if row is not None and row.open_searches is not None:
        # Locked, so that of two submissions at once one takes the last place.
        session.get(TeamRow, team, with_for_update=True, populate_existing=True)
    reached = find_reached(session, team, now, QUOTAS)
    if reached is not None:
        raise QuotaReached(reached)


def check_device(session: Session, team: str, now: float) -> None:
    """Raise QuotaReached where `team` has no device seconds left for a profile or a re-verification."""
    reached = find_reached(session, team, now, (DEVICE_SECONDS,))
    if reached is not None:
        raise QuotaReached(reached)


def find_reached_quota(session: Session, team: TeamRow | None, work: Work, now: float) -> Usage | None:
    """Return the quota of its team that keeps a claimed step from spending now; None where it may."""
    return find_reached_of(session, team, now, list(_needed(work)))


def wait_for_quota(
    db: Database, attempt_id: str, owner: str, usage: Usage, now: float, also: Also | None = None
) -> bool:
    """Give the step back, and pause its search until the quota's day ends; False where the lease was lost."""
    with ending(db, attempt_id, owner, now, also) as (session, work):
        if work is None:
            return False
        reason = usage.describe()
        put_back(work.attempt)
        work.attempt.error = storable(reason)
        if work.search.state == "running":
            pause_search(session, work.search, reason, now, again_at=usage.resets_at, quota=usage.quota)
        return True


def _needed(work: Work) -> Iterator[str]:
    if work.kind in ("judge", "verify"):
        yield DEVICE_SECONDS
        if work.level == "screen":
            yield "candidates_a_day"
        return
    if work.model.get("provider") == "openai":
        yield "cost_usd_a_day"
    if work.kind == "code":
        yield "candidates_a_day"

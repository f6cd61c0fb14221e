"""Quotas of teams: what is used, and what a team spends on each day of UTC."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import event, func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import SearchRow, TeamDayRow, TeamRow
from warpsmith.kernels_db.store.teams import insert_of

DAY_S = 86_400
OPEN_SEARCHES = "open_searches"
DEVICE_SECONDS = "device_seconds_a_day"
DAILY = {"candidates_a_day": "candidates", "cost_usd_a_day": "cost_usd", DEVICE_SECONDS: "device_seconds"}
"""Quotas of a day, and the columns of their spending."""

QUOTAS = (OPEN_SEARCHES, *DAILY)
LABELS = {
    OPEN_SEARCHES: "open searches",
    "candidates_a_day": "candidates today",
    "cost_usd_a_day": "US dollars for models today",
    DEVICE_SECONDS: "device seconds today",
}
_DUE = "spending"
"""Where a session keeps what its transaction is to add, by team and day."""
UTC = "%Y-%m-%d %H:%M UTC"
OPEN_STATES = ("queued", "running", "paused")


@dataclass(frozen=True)
class Usage:
    """What a team has used of one quota; `limit` None: it has none. `resets_at`: when the day ends (epoch seconds)."""

    team: str
    quota: str
    used: float
    limit: float | None
    resets_at: float | None

    def describe(self) -> str:
        """Describe what is used, for a search that waits: `team a: 5 of 5 candidates today; anew at ... UTC`."""
        anew = "" if self.resets_at is None else f"; anew at {time.strftime(UTC, time.gmtime(self.resets_at))}"
        return f"team {self.team}: {describe_usage(self.quota, self.used, self.limit)}{anew}"

    @property
    def reached(self) -> bool:
        """Whether nothing is left."""
        return self.limit is not None and self.used >= self.limit


def describe_usage(quota: str, used: float, limit: float | None) -> str:
    """Describe what is used of a quota: `3 of 10 open searches`."""
    return f"{round(used, 2):g}{'' if limit is None else f' of {limit:g}'} {LABELS[quota]}"


def measure_usage(session: Session, team: TeamRow, now: float, quotas: Collection[str] = QUOTAS) -> list[Usage]:
    """Return what `team` has used of these quotas."""
    _write_spending(session)
    day = int(now // DAY_S)
    found: list[Usage] = []
    spent = session.get(TeamDayRow, (team.name, day)) if set(quotas) & DAILY.keys() else None
    for quota in quotas:
        if quota == OPEN_SEARCHES:
            still_open = (SearchRow.team == team.name, SearchRow.state.in_(OPEN_STATES))
            used = session.scalar(select(func.count()).select_from(SearchRow).where(*still_open)) or 0
            found.append(Usage(team.name, quota, used, team.open_searches, None))
        else:
            used = 0 if spent is None else getattr(spent, DAILY[quota])
            found.append(Usage(team.name, quota, used, getattr(team, quota), float((day + 1) * DAY_S)))
    return found


def find_reached(session: Session, name: str, now: float, quotas: Collection[str]) -> Usage | None:
    """Return the first of these quotas of which the team has nothing left."""
    return find_reached_of(session, session.get(TeamRow, name), now, quotas)


def find_reached_of(session: Session, team: TeamRow | None, now: float, quotas: Collection[str]) -> Usage | None:
    """Do what `find_reached` does, for a team's row; None: there is no such team."""
    limited = [] if team is None else [quota for quota in quotas if getattr(team, quota) is not None]
    if team is None or not limited:
        return None
    return next((usage for usage in measure_usage(session, team, now, limited) if usage.reached), None)


def add_spending(
    session: Session, team: str, now: float, *, candidates: int = 0, cost_usd: float = 0.0, device_seconds: float = 0.0
) -> None:
    """Add to what the team spent on the day of `now`, when the transaction commits.

    All steps of a team write to one row: its lock is taken last and held shortly, so that no step waits for another's
    work, and none that holds it waits for a kernel.
    """
    spent = {"candidates": candidates, "cost_usd": cost_usd, "device_seconds": device_seconds}
    if any(spent.values()):
        due = session.info.setdefault(_DUE, {}).setdefault((team, int(now // DAY_S)), dict.fromkeys(spent, 0))
        for name, amount in spent.items():
            due[name] += amount


def _write_spending(session: Session) -> None:
    """Write what is due of spending."""
    for (team, day), spent in sorted(session.info.pop(_DUE, {}).items()):
        connection = session.connection()
        connection.execute(_adding(connection.dialect.name), {"team": team, "day": day, **spent})


@event.listens_for(Session, "before_commit")
def _spend(session: Session) -> None:
    if session.info.get(_DUE):
        session.flush()
        _write_spending(session)


@event.listens_for(Session, "after_rollback")
def _forget(session: Session) -> None:
    session.info.pop(_DUE, None)


@cache
def _adding(dialect: str) -> Any:
    row = insert_of(dialect, TeamDayRow)
    more = {name: getattr(TeamDayRow, name) + row.excluded[name] for name in DAILY.values()}
    return row.on_conflict_do_update(index_elements=["team", "day"], set_=more)

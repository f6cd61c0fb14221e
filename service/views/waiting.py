"""The reasons why a search waits, for people who see no progress."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Literal

from sqlalchemy import ColumnElement, and_, case, func, or_, select, true
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import AskRow, AttemptRow, ProfileRow, SearchRow, TryRow, WorkerRow
from warpsmith.service.documents.searches import WaitingFor
from warpsmith.service.views.workers import serves
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.steps.outages import again_at
from warpsmith.workers.steps.placement import find_shortage
from warpsmith.workers.steps.returning import unjudged
from warpsmith.workers.steps.rows import bundle_of, in_bundle

Role = Literal["model", "judge"]
MODEL_STEPS = ("ideate", "code")


def list_waiting(session: Session, search: SearchRow, now: float, alive_after_s: float) -> list[WaitingFor]:
    """List everything that `search` waits for at `now`; empty before its first step and once it has ended."""
    if search.state == "queued" or search.state in ENDED:
        return []
    found: list[WaitingFor] = []

    @cache  # what waits for the same role, of several kinds, asks the workers once
    def is_served(role: Role) -> bool:
        return _is_served(session, search, role, now, alive_after_s)

    if search.state == "paused":
        found.append(_describe_pause(session, search))
    asks = session.scalar(select(func.count()).where(AskRow.search_id == search.id, AskRow.state == "open")) or 0
    if asks:
        found.append(WaitingFor(what="answer", count=asks, detail=f"{_format_count(asks, 'ask')} to be answered"))
    found.extend(_describe_running(session, search))
    if search.state != "paused":
        found.extend(_describe_pending(session, search, now, is_served))
    found.extend(_describe_requested(session, search, is_served))
    return found


def _describe_pause(session: Session, search: SearchRow) -> WaitingFor:
    until = again_at(session, search)
    if until is not None:
        return WaitingFor(what="retry", count=1, detail=f"paused: {search.reason}", until=until)
    return WaitingFor(what="person", count=1, detail=f"paused: {search.reason or 'on request'}; resume it to go on")


def _describe_running(session: Session, search: SearchRow) -> list[WaitingFor]:
    away = in_bundle()
    example = case((unjudged(), AttemptRow.owner))
    rows = session.execute(
        select(AttemptRow.kind, away, func.count(), func.count(example), func.min(example))
        .where(AttemptRow.search_id == search.id, AttemptRow.state == "running")
        .group_by(AttemptRow.kind, away)
    )
    by_side: dict[Role, int] = {}
    bundled = failed = 0
    owners: list[str] = []
    for kind, bundle_has_it, count, left, owner in rows:
        if bundle_has_it:
            bundled += count - left
            failed += left
            owners += [owner] if left else []
            continue
        side: Role = "model" if kind in MODEL_STEPS else "judge"
        by_side[side] = by_side.get(side, 0) + count
    found = [
        WaitingFor(what=side, count=count, detail=f"{_format_count(count, 'step')} at the {side}")
        for side, count in by_side.items()
    ]
    if bundled:
        detail = f"{_format_count(bundled, 'step')} in a bundle: warpsmith merge DIR brings the verdicts"
        found.append(WaitingFor(what="judge", count=bundled, detail=detail))
    if failed:
        bundle_id = bundle_of(min(owners))
        detail = f"{_format_count(failed, 'step')} not judged by a bundle's host: warpsmith bundle --show {bundle_id}"
        found.append(WaitingFor(what="judge", count=failed, detail=detail))
    return found


def _describe_pending(
    session: Session, search: SearchRow, now: float, is_served: Callable[[Role], bool]
) -> list[WaitingFor]:
    pending = session.scalars(
        select(AttemptRow).where(AttemptRow.search_id == search.id, AttemptRow.state == "pending")
    ).all()
    found: list[WaitingFor] = []
    judged = [row for row in pending if row.kind not in MODEL_STEPS]
    shortage = find_shortage(session, search.op_id, search.target, now) if judged else None
    if shortage is not None:
        pending = [row for row in pending if row.kind in MODEL_STEPS]
        detail = f"no judge is large enough for {_format_count(len(judged), 'step')}: {shortage}"
        found.append(WaitingFor(what="worker", role="judge", count=len(judged), detail=detail))
    put_off = [row for row in pending if row.not_before > now]
    if put_off:
        until = min(row.not_before for row in put_off)
        why = next((row.error for row in put_off if row.error), "the model was unavailable")
        found.append(
            WaitingFor(
                what="retry",
                count=len(put_off),
                detail=f"{_format_count(len(put_off), 'step')} put off: {why}",
                until=until,
            )
        )
    due = [row for row in pending if row.not_before <= now]
    by_role: dict[Role, list[AttemptRow]] = {
        "model": [row for row in due if row.kind in MODEL_STEPS],
        "judge": [row for row in due if row.kind not in MODEL_STEPS],
    }
    for role, steps in by_role.items():
        if not steps:
            continue
        if is_served(role):
            found.append(
                WaitingFor(
                    what="step",
                    role=role,
                    count=len(steps),
                    detail=f"{_format_count(len(steps), 'step')} queued for a {role} worker",
                )
            )
        else:
            where = f" for {search.target}" if role == "judge" else ""
            found.append(
                WaitingFor(
                    what="worker",
                    role=role,
                    count=len(steps),
                    detail=f"no live {role} worker{where}: {_format_count(len(steps), 'step')} queued",
                )
            )
    return found


def _describe_requested(session: Session, search: SearchRow, is_served: Callable[[Role], bool]) -> list[WaitingFor]:
    """Describe profiles and tries that a bundle holds, or that wait for one since no live worker takes them."""
    found = []
    kinds: tuple[tuple[type[ProfileRow | TryRow], str, ColumnElement[bool]], ...] = (
        (ProfileRow, "profile", true()),
        (TryRow, "try", TryRow.level != "compile"),  # the others hold no device, and no bundle takes them
    )
    for table, noun, wanted in kinds:
        waits = or_(table.state == "pending", and_(table.state == "running", in_bundle(table)))
        query = select(table.state, func.count()).where(table.search_id == search.id, waits, wanted)
        for state, count in session.execute(query.group_by(table.state).order_by(table.state)).tuples():
            if state == "running":
                detail = f"{_format_count(count, noun)} in a bundle: warpsmith merge DIR brings the result"
                found.append(WaitingFor(what="judge", count=count, detail=detail))
            elif not is_served("judge"):
                detail = f"no live judge worker for {search.target}: {_format_count(count, noun)} asked for"
                found.append(WaitingFor(what="worker", role="judge", count=count, detail=detail))
    return found


def _is_served(session: Session, search: SearchRow, role: Role, now: float, alive_after_s: float) -> bool:
    """Check whether a live worker takes the search's steps of this role."""
    of_role = (WorkerRow.role == role, *serves(now - alive_after_s))
    targets = session.scalars(select(WorkerRow.target).where(*of_role).distinct()).all()
    return any(role == "model" or target in (search.target, None) for target in targets)


def _format_count(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    return f"{count} {'tries' if noun == 'try' else noun + 's'}"

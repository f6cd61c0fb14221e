"""Which stored kernels are to be judged anew: those that nobody has judged under what their target has now, and those
whose last word is old.

What a target has now is known by its newest verdict: the fingerprint of a verdict stands for device, versions of
torch, Triton, CUDA, driver and compiler, and the judge's protocol. Nothing else in the house knows them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, exists, false, func, or_, select
from sqlalchemy.orm import Session

from kernels_db.models import KernelRow, ReverificationRow, SearchRow, VerdictRow

DAY_S = 86400.0

LOOKED_AT = 10
"""Newest verdicts of a target among which one of this service's own judges is looked for."""

DRIFTED = ("wrong", "slower", "uncompilable")
"""Standings of a kernel that is no longer what its evidence says."""

STANDINGS = ("verified", "holds", *DRIFTED)
"""verified: kept, and no re-verification since has come to a result. The others are the latest one's result."""


class Present(NamedTuple):
    """What a target's newest verdict says it has: its fingerprint, and when that was. own: a judge of this service said
    so; otherwise it came in a bundle, from a host that this service does not reach."""

    fingerprint: str
    at: float
    own: bool


def present(session: Session, target: str) -> Present | None:
    """What `target` has now, as far as that is known: of its own judges' verdicts the newest, without any the newest of
    a bundle."""
    fingerprint = VerdictRow.document["fingerprint"].as_string()
    rows = session.execute(
        select(fingerprint, VerdictRow.created_at, VerdictRow.document[("bundle", "id")].as_string())
        .join(SearchRow, SearchRow.id == VerdictRow.search_id)
        .where(SearchRow.target == target)
        .order_by(VerdictRow.id.desc())
        .limit(LOOKED_AT)
    ).tuples()
    found = [Present(text, at, bundle is None) for text, at, bundle in rows if text]
    again = session.execute(
        select(ReverificationRow.fingerprint, ReverificationRow.finished_at)
        .where(ReverificationRow.target == target, ReverificationRow.fingerprint.is_not(None))
        .order_by(ReverificationRow.finished_at.desc())
        .limit(1)
    ).first()
    if again is not None:
        found.append(Present(again[0], again[1], own=True))
    return max(found, key=lambda one: (one.own, one.at), default=None)


def last_judged() -> ColumnElement[float]:
    """When a kernel's standing was found, epoch seconds."""
    return func.coalesce(KernelRow.reverified_at, KernelRow.verified_at)


def due(session: Session, now: float, period_s: float) -> ColumnElement[bool]:
    """A condition on kernels: to be judged anew. `period_s`: age at which a word is old; 0: never."""
    conditions: list[ColumnElement[bool]] = [false()]
    if period_s > 0:
        conditions.append(last_judged() <= now - period_s)
    for target in session.scalars(select(KernelRow.target).distinct()).all():
        found = present(session, target)
        if found is not None:
            conditions.append(and_(KernelRow.target == target, ~_judged_under(found.fingerprint)))
    return or_(*conditions)


def _judged_under(fingerprint: str) -> ColumnElement[bool]:
    """The kernel's evidence, or a re-verification that came to a result, has this fingerprint."""
    kept: ColumnElement[Any] = KernelRow.evidence["fingerprint"].as_string()
    again = exists().where(
        ReverificationRow.kernel_id == KernelRow.id,
        ReverificationRow.fingerprint == fingerprint,
        ReverificationRow.outcome.in_(STANDINGS),
    )
    return or_(func.coalesce(kept, "") == fingerprint, again)

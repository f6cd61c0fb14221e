"""Which stored kernels are due to be judged again.

They are those not judged under their target's present versions, and those whose last result is old. A target's
present versions are known by its newest verdict: the fingerprint of a verdict covers device, versions of
torch, Triton, CUDA, driver and compiler, and the judge's protocol. Nothing else in Warpsmith knows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, exists, false, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from warpsmith.kernels_db.store.recent import list_recent_verdicts, list_values
from warpsmith.kernels_db.store.tables import BundleJobRow, KernelRow, ReverificationRow, VerdictRow

DAY_S = 86400.0

DRIFTED = ("wrong", "slower", "uncompilable")
"""Standings of a kernel that no longer agrees with its evidence.

The others are `holds`, and `verified`: kept, and no re-verification since has come to a result.
"""


class Present(NamedTuple):
    """A target's present fingerprint by its newest verdict, and the time of that.

    own: a judge of this service gave it; otherwise it came in a bundle, from a host that this service does not
    reach.
    """

    fingerprint: str
    at: float
    own: bool


def present(session: Session, target: str) -> Present | None:
    """Return the present fingerprint of `target`, as far as it is known.

    It comes from the newest verdict of its own judges, without any from the newest of a bundle. A verdict of
    another device than the target's says nothing of it.
    """
    again = session.execute(
        select(ReverificationRow.fingerprint, ReverificationRow.finished_at)
        .where(
            ReverificationRow.target == target,
            ReverificationRow.fingerprint.is_not(None),
            _on(ReverificationRow.verdict, target),
        )
        .order_by(ReverificationRow.finished_at.desc())
        .limit(1)
    ).first()
    merged = exists().where(BundleJobRow.attempt_id == VerdictRow.attempt_id, BundleJobRow.merged_at.is_not(None))
    searched = _newest(session, target, ~merged)
    own = [Present(row[0], row[1], own=True) for row in (again, searched) if row is not None]
    if own:
        return max(own, key=lambda one: one.at)
    row = _newest(session, target, merged)
    return None if row is None else Present(row[0], row[1], own=False)


def presents(session: Session, targets: Iterable[str] | None = None) -> dict[str, Present]:
    """Return `present` of each of `targets`, without those of which nothing is known.

    None means all targets that have kernels.
    """
    if targets is None:
        targets = list_values(session, KernelRow.target)
    found = {target: present(session, target) for target in targets}
    return {target: one for target, one in found.items() if one is not None}


def _newest(session: Session, target: str, which: ColumnElement[bool]) -> tuple[str, float] | None:
    """Return fingerprint and time of the newest of these verdicts of the target's latest searches."""
    recent = list_recent_verdicts(session, target, which)
    if not recent:  # as of targets that kernels ship for and no search is for
        return None
    fingerprint = VerdictRow.document["fingerprint"].as_string()
    row = session.execute(
        select(fingerprint, VerdictRow.created_at)
        .where(
            VerdictRow.id.in_(recent),
            func.coalesce(fingerprint, "") != "",
            _on(VerdictRow.document, target),
        )
        .order_by(VerdictRow.id.desc())
        .limit(1)
    ).first()
    return None if row is None else (row[0], row[1])


def _on(document: InstrumentedAttribute[Any], target: str) -> ColumnElement[bool]:
    """Select verdicts in this column that are of the target's device.

    `job.documents.judged_elsewhere` decides it in the same way.
    """
    device, _, arch = target.partition(":")
    pairs = (document[("device", name)].as_string() for name in ("type", "arch"))
    return and_(*(func.coalesce(found, wanted) == wanted for found, wanted in zip(pairs, (device, arch), strict=True)))


def last_judged() -> ColumnElement[float]:
    """Return the time when a kernel's standing was found, epoch seconds."""
    return func.coalesce(KernelRow.reverified_at, KernelRow.verified_at)


def due(known: Mapping[str, Present], now: float, period_s: float) -> ColumnElement[bool]:
    """Select kernels that are to be judged again.

    `known`: their targets' present fingerprints (`presents`); `period_s`: age in seconds at which a result is old;
    0: never.
    """
    conditions: list[ColumnElement[bool]] = [false()]
    if period_s > 0:
        conditions.append(last_judged() <= now - period_s)
    conditions += [
        and_(KernelRow.target == target, ~_judged_under(found.fingerprint)) for target, found in known.items()
    ]
    return or_(*conditions)


def _judged_under(fingerprint: str) -> ColumnElement[bool]:
    """Select kernels whose standing holds under this fingerprint.

    It was found under it; or the kernel has not drifted, and was once found good under it: when it was kept, or
    since. A kernel that drifted under an upgrade is judged anew once the upgrade is undone.
    """
    kept: ColumnElement[Any] = KernelRow.evidence["fingerprint"].as_string()
    under = ReverificationRow.kernel_id == KernelRow.id, ReverificationRow.fingerprint == fingerprint
    latest = exists().where(*under, ReverificationRow.finished_at == KernelRow.reverified_at)
    held = exists().where(*under, ReverificationRow.outcome == "holds")
    good = or_(func.coalesce(kept, "") == fingerprint, held)
    return or_(latest, and_(KernelRow.standing.not_in(DRIFTED), good))

"""Queries for the jobs that bundles hold; a held step with an error is one that the host could not judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import AttemptRow, BundleJobRow, NodeRow, ProfileRow, TryRow
from warpsmith.service.documents.bundles import UnjudgedJob
from warpsmith.workers.steps.returning import unjudged
from warpsmith.workers.steps.rows import owner_of


@dataclass(frozen=True)
class HeldJobs:
    """Of a bundle's jobs, those that it still holds, and how many steps of these its host could not judge."""

    out: int
    unjudged: int


def count_held_jobs(session: Session, bundle_ids: Sequence[str]) -> dict[str, HeldJobs]:
    """Count the jobs that each bundle holds: neither merged, nor taken back by a ban, nor of a search that ended.

    Leaves out bundles that hold nothing.
    """
    owners = [owner_of(bundle_id) for bundle_id in bundle_ids]
    held = or_(*(and_(table.state == "running", table.owner.in_(owners)) for table in (AttemptRow, ProfileRow, TryRow)))
    query = (
        select(BundleJobRow.bundle_id, func.count(), func.count(AttemptRow.error))
        .outerjoin(AttemptRow, AttemptRow.id == BundleJobRow.attempt_id)
        .outerjoin(ProfileRow, ProfileRow.id == BundleJobRow.profile_id)
        .outerjoin(TryRow, TryRow.id == BundleJobRow.try_id)
        .where(BundleJobRow.bundle_id.in_(bundle_ids), BundleJobRow.screening.is_(None))
        .where(BundleJobRow.merged_at.is_(None), held)
        .group_by(BundleJobRow.bundle_id)
    )
    return {bundle_id: HeldJobs(out, unjudged) for bundle_id, out, unjudged in session.execute(query)}


def list_unjudged_jobs(session: Session, bundle_id: str) -> list[UnjudgedJob]:
    """List the unjudged jobs of the bundle, in the order of its file."""
    query = (
        select(BundleJobRow.id, AttemptRow, NodeRow.seq)
        .join(AttemptRow, AttemptRow.id == BundleJobRow.attempt_id)
        .join(NodeRow, NodeRow.id == AttemptRow.node_id)
        .where(BundleJobRow.bundle_id == bundle_id, BundleJobRow.screening.is_(None), unjudged([bundle_id]))
        .order_by(BundleJobRow.id)
    )
    return [
        UnjudgedJob.model_validate(
            {
                "nonce": nonce,
                "attempt_id": attempt.id,
                "node_id": attempt.node_id,
                "seq": seq,
                "step": attempt.kind,
                "reason": attempt.error,
            }
        )
        for nonce, attempt, seq in session.execute(query)
    ]

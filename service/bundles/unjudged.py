"""Queries for jobs that the hosts of bundles could not judge: held steps that have an error."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import AttemptRow, BundleJobRow, NodeRow
from warpsmith.service.documents.bundles import UnjudgedJob
from warpsmith.workers.steps.bundling import unjudged


def count_unjudged(session: Session, bundle_ids: Sequence[str]) -> dict[str, int]:
    """Count the unjudged jobs of each bundle; leaves out bundles without any."""
    query = (
        select(BundleJobRow.bundle_id, func.count())
        .join(AttemptRow, AttemptRow.id == BundleJobRow.attempt_id)
        .where(BundleJobRow.bundle_id.in_(bundle_ids), BundleJobRow.screening.is_(None), unjudged(bundle_ids))
        .group_by(BundleJobRow.bundle_id)
    )
    return dict(session.execute(query).tuples().all())


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

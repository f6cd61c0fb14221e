"""Puts the kernels that ship with Warpsmith into a database, for a fresh installation."""

from __future__ import annotations

import time
from collections.abc import Iterable

from sqlalchemy import select

from warpsmith.kernels_db.job.means import limit_fraction
from warpsmith.kernels_db.library import Entry, entries
from warpsmith.kernels_db.store import records
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import DEFAULT_TEAM, SHIPPED, KernelRow


def stock(db: Database, shipped: Iterable[Entry] | None = None) -> int:
    """Store the kernels that are not there yet and return how many they were.

    Safe to repeat, and for several processes at once. A kernel that the database has from a search of the default team,
    of the same op, target and code, stays as it is. Raises BrokenEntry for a library that is not as it was shipped;
    nothing is stored then.
    """
    found = list(entries() if shipped is None else shipped)
    if not found:
        return 0
    with db.writing() as session:
        stored = 0
        for entry in found:
            op, _ = records.add_op(session, entry.op)
            known = select(KernelRow.id).where(
                (KernelRow.id == entry.document["id"])
                | (
                    (KernelRow.op_id == op.id)
                    & (KernelRow.target == entry.target)
                    & (KernelRow.source_digest == entry.document["source_digest"])
                    & KernelRow.team.in_((SHIPPED, DEFAULT_TEAM))
                )
            )
            if session.scalar(known) is None:
                stored += records.inserted(session, _row(entry, op.id))
        return stored


def _row(entry: Entry, op_id: str) -> KernelRow:
    evidence = entry.evidence
    low, high = evidence["score_ci95"] or (evidence["score"], evidence["score"])
    return KernelRow(
        id=entry.document["id"],
        op_id=op_id,
        target=entry.target,
        team=SHIPPED,
        language=entry.language,
        source=entry.source,
        source_digest=entry.document["source_digest"],
        score=evidence["score"],
        ci_low=low,
        ci_high=high,
        limit_fraction=limit_fraction(evidence["workloads"]),
        envelope=entry.document["envelope"],
        evidence=evidence,
        lineage=entry.document["lineage"],
        prompts=entry.document["prompts"],
        created_at=time.time(),
        verified_at=entry.verified_at,
    )

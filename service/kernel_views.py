"""From kernels' rows to their documents: with what they were verified on, and whether that still holds here."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.due import DRIFTED, Present, due
from warpsmith.kernels_db.export import registry
from warpsmith.kernels_db.models import KernelRow, OpRow, ReverificationRow
from warpsmith.service.schemas import (
    ExportFormat,
    KernelDocument,
    KernelSummary,
    KernelWorkload,
    Reverified,
    Verification,
)
from warpsmith.service.speedups import mean_intervals, mean_speedups
from warpsmith.service.views import idea_title, workload_times
from warpsmith.workers.reverification import OPEN

FORMATS = tuple(
    ExportFormat(name=each.name, title=each.title, media_type="application/zip") for each in registry.FORMATS
)
"""Every format that GET /v1/kernels/{id}/export takes; the first is the default."""


def kernel_summaries(
    session: Session, rows: Sequence[KernelRow], known: Mapping[str, Present], period_s: float
) -> list[KernelSummary]:
    """One page of kernels, in a few queries. `known`: what their targets have now; `period_s`: the age at which one is
    due."""
    ops = {op.id: op for op in session.scalars(select(OpRow).where(OpRow.id.in_({row.op_id for row in rows})))}
    fingerprints = {target: found.fingerprint for target, found in known.items()}
    again = _reverified(session, rows, known, period_s)
    return [_summary(row, ops[row.op_id], fingerprints.get(row.target), again[row.id]) for row in rows]


def kernel_document(session: Session, row: KernelRow, known: Mapping[str, Present], period_s: float) -> KernelDocument:
    """A kernel with its source, envelope and evidence."""
    [summary] = kernel_summaries(session, [row], known, period_s)
    return KernelDocument(
        **summary.model_dump(),
        source=row.source,
        source_digest=row.source_digest,
        envelope=row.envelope,
        evidence=row.evidence,
        lineage=row.lineage,
        formats=list(FORMATS),
    )


def _reverified(
    session: Session, rows: Sequence[KernelRow], known: Mapping[str, Present], period_s: float
) -> dict[str, Reverified]:
    ids = [row.id for row in rows]
    to_do = select(KernelRow.id).where(KernelRow.id.in_(ids), due(known, time.time(), period_s))
    waiting = set(session.scalars(to_do))
    is_open = ReverificationRow.kernel_id.in_(ids), ReverificationRow.state.in_(OPEN)
    opened = select(ReverificationRow.kernel_id, ReverificationRow.id).where(*is_open)
    under_way = dict(session.execute(opened).tuples().all())
    return {
        row.id: Reverified(
            state=row.standing,
            drifted=row.standing in DRIFTED,
            at=row.reverified_at,
            due=row.id in waiting,
            under_way=under_way.get(row.id),
        )
        for row in rows
    }


def _summary(row: KernelRow, op: OpRow, latest: str | None, again: Reverified) -> KernelSummary:
    evidence = row.evidence
    workloads = workload_times(evidence.get("workloads"))
    winner: Mapping[str, Any] = row.lineage[-1] if row.lineage else {}
    axes = {name: item.get("axes", {}) for name, item in _declared(op.spec, row.target).items()}
    return KernelSummary(
        id=row.id,
        op_id=row.op_id,
        op_name=op.name,
        target=row.target,
        language=row.language,
        search_id=row.search_id,
        node_id=row.node_id,
        title=idea_title(winner.get("idea")),
        technique=winner.get("technique"),
        score=row.score,
        ci95=[row.ci_low, row.ci_high],
        limit_fraction=row.limit_fraction,
        speedup=mean_speedups(workloads),
        speedup_ci95=mean_intervals(workloads),
        workloads=[KernelWorkload(id=item.id, role=item.role, axes=axes.get(item.id)) for item in workloads],
        verification=_verification(row, latest),
        reverification=again,
        created_at=row.created_at,
    )


def _verification(row: KernelRow, latest: str | None) -> Verification:
    evidence = row.evidence
    fingerprint = evidence.get("fingerprint")
    return Verification(
        verdict=evidence.get("verdict", "accepted"),  # only a kernel that passed is kept
        verified_at=row.verified_at,
        device=(evidence.get("device") or {}).get("name"),
        sandbox=(evidence.get("sandbox") or {}).get("level"),
        fingerprint=fingerprint,
        versions=evidence.get("versions") or {},
        current=None if latest is None or fingerprint is None else latest == fingerprint,
    )


def _declared(spec: Mapping[str, Any], target: str) -> dict[str, Mapping[str, Any]]:
    """The workloads of the stored spec by id: read as it stands, since a spec of an older version may not parse."""
    section = (spec.get("targets") or {}).get(target.partition(":")[0]) or spec
    return {item["id"]: item for item in section.get("workloads") or []}

"""Re-verifications as the API answers them: what was measured then and now, and what that came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import KernelRow, OpRow, ReverificationRow
from warpsmith.service.documents.reverifications import Measured, ReverificationDocument, ReverificationSummary
from warpsmith.service.documents.speedups import mean_intervals, mean_speedups
from warpsmith.service.documents.workloads import workload_times


def reverification_summaries(session: Session, rows: Sequence[ReverificationRow]) -> list[ReverificationSummary]:
    """A page of re-verifications, in one query."""
    named = select(KernelRow.id, OpRow.name).join(OpRow, OpRow.id == KernelRow.op_id)
    names = dict(session.execute(named.where(KernelRow.id.in_({row.kernel_id for row in rows}))).tuples().all())
    return [ReverificationSummary(**_fields(row, names[row.kernel_id])) for row in rows]


def reverification_document(session: Session, row: ReverificationRow) -> ReverificationDocument:
    """One re-verification with its verdict."""
    [summary] = reverification_summaries(session, [row])
    return ReverificationDocument(**summary.model_dump(), verdict=row.verdict)


def _fields(row: ReverificationRow, op_name: str) -> dict[str, Any]:
    same = ReverificationSummary.model_fields.keys() - {"op_name", "before", "now"}
    verdict = row.verdict
    return {
        **{name: getattr(row, name) for name in same},
        "op_name": op_name,
        "before": None if row.before is None else _measured(row.before, row.before.get("device")),
        "now": None if verdict is None else _measured(verdict, (verdict.get("device") or {}).get("name")),
    }


def _measured(document: Mapping[str, Any], device: str | None) -> Measured:
    workloads = workload_times(document.get("workloads"))
    return Measured(
        device=device,
        versions=document.get("versions") or {},
        fingerprint=document.get("fingerprint"),
        score=document.get("score"),
        ci95=document.get("score_ci95"),
        speedup=mean_speedups(workloads),
        speedup_ci95=mean_intervals(workloads),
    )

"""Documents of re-verifications from their rows: the times then and now, and the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import KernelRow, OpRow, ReverificationRow
from warpsmith.service.documents.reverifications import Measured, ReverificationDocument, ReverificationSummary
from warpsmith.service.documents.speedups import compute_mean_intervals, compute_mean_speedups
from warpsmith.service.documents.workloads import read_workload_times


def make_reverification_summaries(session: Session, rows: Sequence[ReverificationRow]) -> list[ReverificationSummary]:
    """Make a page of re-verifications, in one query."""
    named = select(KernelRow.id, OpRow.name).join(OpRow, OpRow.id == KernelRow.op_id)
    names = dict(session.execute(named.where(KernelRow.id.in_({row.kernel_id for row in rows}))).tuples().all())
    return [ReverificationSummary(**_collect_fields(row, names[row.kernel_id])) for row in rows]


def make_reverification_document(session: Session, row: ReverificationRow) -> ReverificationDocument:
    """Make the document of a re-verification with its verdict."""
    [summary] = make_reverification_summaries(session, [row])
    return ReverificationDocument(**summary.model_dump(), verdict=row.verdict)


def _collect_fields(row: ReverificationRow, op_name: str) -> dict[str, Any]:
    same = ReverificationSummary.model_fields.keys() - {"op_name", "before", "now"}
    verdict = row.verdict
    return {
        **{name: getattr(row, name) for name in same},
        "op_name": op_name,
        "before": None if row.before is None else _make_measured(row.before, row.before.get("device")),
        "now": None if verdict is None else _make_measured(verdict, (verdict.get("device") or {}).get("name")),
    }


def _make_measured(document: Mapping[str, Any], device: str | None) -> Measured:
    workloads = read_workload_times(document.get("workloads"))
    return Measured(
        device=device,
        versions=document.get("versions") or {},
        fingerprint=document.get("fingerprint"),
        score=document.get("score"),
        ci95=document.get("score_ci95"),
        speedup=compute_mean_speedups(workloads),
        speedup_ci95=compute_mean_intervals(workloads),
    )

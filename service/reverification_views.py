"""Re-verifications as the API answers them: what was measured then and now, and what that came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from kernels_db.models import KernelRow, OpRow, ReverificationRow
from service.speedups import mean_intervals, mean_speedups
from service.views import workload_times


class Measured(BaseModel):
    """A full verification of a kernel in short."""

    device: str | None
    versions: dict[str, str]
    fingerprint: str | None = Field(description="SHA-256 of device, versions and protocol")
    score: float | None = Field(description="Geometric mean over bench workloads of the speed-up over the fastest one")
    ci95: list[float] | None
    speedup: dict[str, float] = Field(
        description="Geometric mean over bench workloads of the speed-up over each baseline"
    )
    speedup_ci95: dict[str, list[float]]


class ReverificationSummary(BaseModel):
    """One judging anew of a stored kernel."""

    id: str
    kernel_id: str
    op_name: str
    target: str
    cause: Literal["asked", "schedule"]
    asked_by: str | None = Field(description="The name of the API key that asked")
    state: Literal["pending", "running", "done"]
    outcome: Literal["holds", "wrong", "slower", "uncompilable", "unknown"] | None = Field(
        description="Null until it is done. unknown: the judge could not tell, or the op or the host is at fault; it "
        "leaves the kernel's state as it was"
    )
    reason: str | None
    before: Measured | None = Field(description="What the kernel was kept for; null until it is done")
    now: Measured | None = Field(description="What was found; null where the judge gave no verdict")
    created_at: float
    started_at: float | None
    finished_at: float | None


class ReverificationDocument(ReverificationSummary):
    """The same with the judge's verdict."""

    verdict: dict[str, Any] | None = Field(description="The verdict, whole; null where the judge gave none")


class ReverificationBatch(BaseModel):
    """Re-verifications that were asked for together."""

    asked: int = Field(description="How many are new")
    under_way: int = Field(description="How many were under way already; they are not judged twice")
    left: int = Field(description="Kernels that match and found no room under `limit`; asked again, they come next")
    items: list[ReverificationSummary]


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

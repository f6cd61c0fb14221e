"""Documents of kernels from their rows, with their verification and whether it still counts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.export import registry
from warpsmith.kernels_db.job.protocol_number import PROTOCOL, read_protocol
from warpsmith.kernels_db.store.reverification_due import DRIFTED, Present, due
from warpsmith.kernels_db.store.tables import EventRow, KernelRow, NodeRow, OpRow, ReverificationRow, SearchRow
from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.kernels import (
    ExportFormat,
    KernelDocument,
    KernelSummary,
    KernelWorkload,
    RefusedFormat,
    Reverified,
    Verification,
)
from warpsmith.service.documents.speedups import compute_mean_intervals, compute_mean_speedups
from warpsmith.service.documents.workloads import read_workload_times
from warpsmith.service.views.rows import read_title
from warpsmith.workers.reverification import OPEN
from warpsmith.workers.search.tree import ENDED

FORMATS = tuple(
    ExportFormat(name=each.name, title=each.title, media_type="application/zip") for each in registry.FORMATS
)
"""Every format that GET /v1/kernels/{id}/export takes; the first is the default."""


def make_kernel_summaries(
    session: Session, rows: Sequence[KernelRow], known: Mapping[str, Present], period_s: float
) -> list[KernelSummary]:
    """Make one page of kernels, in a few queries.

    `known`: the present devices and versions of their targets; `period_s`: the age in seconds at which one is due.
    """
    ops = {op.id: op for op in session.scalars(select(OpRow).where(OpRow.id.in_({row.op_id for row in rows})))}
    fingerprints = {target: found.fingerprint for target, found in known.items()}
    again = _make_reverified(session, rows, known, period_s)
    protocols = _read_protocols(session, rows)
    return [
        _make_summary(row, ops[row.op_id], fingerprints.get(row.target), again[row.id], protocols[row.id])
        for row in rows
    ]


def make_kernel_document(
    session: Session,
    row: KernelRow,
    known: Mapping[str, Present],
    period_s: float,
    refused: Mapping[str, Sequence[FieldError]],
) -> KernelDocument:
    """Make the document of a kernel with its source, envelope and evidence.

    `refused`: by its name, why a format does not hold the kernel.
    """
    [summary] = make_kernel_summaries(session, [row], known, period_s)
    return KernelDocument(
        **summary.model_dump(),
        source=row.source,
        source_digest=row.source_digest,
        envelope=row.envelope,
        evidence=row.evidence,
        lineage=row.lineage,
        formats=[form for form in FORMATS if form.name not in refused],
        refused_formats=[
            RefusedFormat(name=form.name, title=form.title, errors=list(refused[form.name]))
            for form in FORMATS
            if form.name in refused
        ],
    )


def _make_reverified(
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


def _make_summary(row: KernelRow, op: OpRow, latest: str | None, again: Reverified, protocol: int) -> KernelSummary:
    evidence = row.evidence
    workloads = read_workload_times(evidence.get("workloads"))
    winner: Mapping[str, Any] = row.lineage[-1] if row.lineage else {}
    axes = {name: item.get("axes", {}) for name, item in _read_workloads(op.spec, row.target).items()}
    return KernelSummary(
        id=row.id,
        op_id=row.op_id,
        op_name=op.name,
        target=row.target,
        language=row.language,
        search_id=row.search_id,
        node_id=row.node_id,
        title=read_title(winner.get("idea")),
        technique=winner.get("technique"),
        score=row.score,
        ci95=[row.ci_low, row.ci_high],
        limit_fraction=row.limit_fraction,
        speedup=compute_mean_speedups(workloads),
        speedup_ci95=compute_mean_intervals(workloads),
        host_us=evidence.get("host_us"),
        workloads=[KernelWorkload(id=item.id, role=item.role, axes=axes.get(item.id)) for item in workloads],
        verification=_make_verification(row, latest, protocol),
        reverification=again,
        created_at=row.created_at,
    )


def _read_protocols(session: Session, rows: Sequence[KernelRow]) -> dict[str, int]:
    """Read the protocol that each kernel was last judged under: when it was kept, or since."""
    latest = (
        select(KernelRow.id, ReverificationRow.verdict["protocol"].as_integer())
        .join(ReverificationRow, ReverificationRow.kernel_id == KernelRow.id)
        .where(KernelRow.id.in_([row.id for row in rows]), ReverificationRow.finished_at == KernelRow.reverified_at)
    )
    again = {kernel: found for kernel, found in session.execute(latest).tuples() if found is not None}
    return {row.id: max(read_protocol(row.evidence), again.get(row.id, 0)) for row in rows}


def _make_verification(row: KernelRow, latest: str | None, protocol: int) -> Verification:
    evidence = row.evidence
    fingerprint = evidence.get("fingerprint")
    return Verification(
        verdict=evidence.get("verdict", "accepted"),  # only a kernel that passed is kept
        verified_at=row.verified_at,
        device=(evidence.get("device") or {}).get("name"),
        sandbox=(evidence.get("sandbox") or {}).get("level"),
        fingerprint=fingerprint,
        versions=evidence.get("versions") or {},
        protocol=protocol,
        outdated_protocol=protocol < PROTOCOL,
        current=None if latest is None or fingerprint is None else latest == fingerprint,
    )


def _read_workloads(spec: Mapping[str, Any], target: str) -> dict[str, Mapping[str, Any]]:
    """Read the workloads of a stored spec by id; unparsed, since an old spec may not parse."""
    section = (spec.get("targets") or {}).get(target.partition(":")[0]) or spec
    return {item["id"]: item for item in section.get("workloads") or []}


def list_kept_kernels(session: Session, row: SearchRow) -> list[str]:
    """List the kernels that a search kept.

    A kernel's row names the last search that found its code; the events of earlier searches name it too.
    """
    own = select(KernelRow.id).where(KernelRow.search_id == row.id).order_by(KernelRow.created_at, KernelRow.id)
    found = list(session.scalars(own))
    if found or row.best_node_id is None or row.state not in ENDED:
        return found
    kept = _select_kept_events(row.id)
    return list(dict.fromkeys(payload["kernel_id"] for payload in session.scalars(kept)))


def find_kernel(session: Session, row: NodeRow) -> str | None:
    """Find the kernel that a node was kept as, by any search."""
    found = session.scalar(select(KernelRow.id).where(KernelRow.node_id == row.id).limit(1))
    if found is not None or row.verification != "passed":
        return found
    kept = session.scalar(_select_kept_events(row.search_id).where(EventRow.node_id == row.id).limit(1))
    return None if kept is None else str(kept["kernel_id"])


def _select_kept_events(search_id: str) -> Select[tuple[dict[str, Any]]]:
    return (
        select(EventRow.payload)
        .where(EventRow.search_id == search_id, EventRow.type == "kernel.kept")
        .order_by(EventRow.id)
    )

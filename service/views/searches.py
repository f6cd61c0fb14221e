"""Build documents of searches and their events. Each function takes the session of one read transaction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import EventRow, NodeRow, SearchRow
from warpsmith.service.documents import searches as documents
from warpsmith.service.documents.speedups import mean_intervals, mean_speedups
from warpsmith.service.documents.workloads import WorkloadTimes, workload_times
from warpsmith.service.views.kernels import kernels_kept
from warpsmith.service.views.ops import op_names
from warpsmith.service.views.rows import document_of, idea_title, interval
from warpsmith.service.views.verdicts import latest_verdict, timed_workloads
from warpsmith.service.views.waiting import waiting_for


def search_summary(
    row: SearchRow, op_name: str, best: documents.BestSummary | None, now: float
) -> documents.SearchSummary:
    """A search as the list shows it; `now` is the time up to which a running search is counted."""
    return documents.SearchSummary(
        id=row.id,
        op_id=row.op_id,
        op_name=op_name,
        target=row.target,
        language=row.language,
        state=row.state,
        reason=row.reason,
        policy_name=str(row.policy.get("name") or ""),
        provider=str(row.model.get("provider") or ""),
        best_score=best.score if best else None,
        best=best,
        spend=spend(row, now),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def search_summaries(session: Session, rows: Sequence[SearchRow]) -> list[documents.SearchSummary]:
    """The summaries of one page of searches, in three queries."""
    now = time.time()
    names = op_names(session, {row.op_id for row in rows})
    best_ids = [row.best_node_id for row in rows if row.best_node_id]
    nodes = session.scalars(select(NodeRow).where(NodeRow.id.in_(best_ids))).all() if best_ids else []
    timed = timed_workloads(session, best_ids)
    best = {node.id: best_summary(node, timed.get(node.id, [])) for node in nodes}
    return [search_summary(row, names[row.op_id], best.get(row.best_node_id or ""), now) for row in rows]


def search_document(session: Session, row: SearchRow, alive_after_s: float) -> documents.SearchDocument:
    """A search with its progress."""
    now = time.time()
    by_state: dict[str, int] = {}
    by_verdict: dict[str, int] = {}
    latest_round = 0
    candidate = NodeRow.seq > 0  # the root's verdict is the reference's admission, not a candidate's
    columns = (NodeRow.state, NodeRow.verdict, candidate)
    groups = (
        select(*columns, func.count(), func.max(NodeRow.round)).where(NodeRow.search_id == row.id).group_by(*columns)
    )
    for state, verdict, is_candidate, count, highest in session.execute(groups).tuples():
        by_state[state] = by_state.get(state, 0) + count
        if is_candidate and verdict is not None:
            by_verdict[verdict] = by_verdict.get(verdict, 0) + count
        latest_round = max(latest_round, highest)
    root_id = session.scalar(select(NodeRow.id).where(NodeRow.search_id == row.id, NodeRow.seq == 0))
    best = _best(session, row)
    summary = search_summary(row, op_names(session, {row.op_id})[row.op_id], best, now)
    return documents.SearchDocument(
        **summary.model_dump(exclude={"best"}),
        branched_from=row.branched_from,
        problem=_bad_field(row.problem),
        policy=row.policy,
        budget=row.budget,
        model=row.model,
        round=latest_round,
        nodes=sum(by_state.values()),
        nodes_by_state=by_state,
        nodes_by_verdict=by_verdict,
        baselines=workload_times(latest_verdict(session, root_id).get("workloads")) if root_id is not None else [],
        best=best,
        kernels=kernels_kept(session, row),
        waiting_for=waiting_for(session, row, now, alive_after_s),
    )


def spend(row: SearchRow, now: float) -> documents.Spend:
    """What a search has used so far; time is counted up to `now` while it runs."""
    running = max(0.0, now - row.running_since) if row.running_since is not None else 0.0
    return documents.Spend(
        candidates=row.candidates,
        model_calls=row.model_calls,
        tokens=row.tokens,
        cost_usd=None if row.unpriced_calls else row.cost_usd,
        wall_clock_s=round(row.active_s + running, 3),
        gpu_seconds=round(row.gpu_seconds, 3),
    )


def event_document(row: EventRow) -> documents.EventDocument:
    """One event."""
    return document_of(documents.EventDocument, row)


def _best(session: Session, search: SearchRow) -> documents.Best | None:
    row = session.get(NodeRow, search.best_node_id) if search.best_node_id else None
    if row is None:
        return None
    workloads = workload_times(latest_verdict(session, row.id).get("workloads"))
    return documents.Best(**best_summary(row, workloads).model_dump(), workloads=workloads)


def best_summary(row: NodeRow, workloads: Sequence[WorkloadTimes]) -> documents.BestSummary:
    """A search's best node; `workloads` are those of its latest verdict."""
    return documents.BestSummary(
        node_id=row.id,
        seq=row.seq,
        title=idea_title(row.idea),
        technique=row.technique,
        language=row.language,
        verified=row.verification == "passed",
        score=row.score,
        ci95=interval(row.ci_low, row.ci_high),
        limit_fraction=row.limit_fraction,
        speedup=mean_speedups(workloads),
        speedup_ci95=mean_intervals(workloads),
    )


def _bad_field(problem: dict[str, Any] | None) -> documents.BadField | None:
    return (
        None
        if problem is None
        else documents.BadField(**{name: problem.get(name) for name in ("field", "found", "expected")})
    )

"""Documents of searches and events from rows; takes the session of one read transaction."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import EventRow, NodeRow, SearchRow, SearchTagRow
from warpsmith.service.documents.searches import (
    BadField,
    Best,
    BestSummary,
    EventDocument,
    SearchDocument,
    SearchSummary,
    Spend,
)
from warpsmith.service.documents.speedups import compute_mean_intervals, compute_mean_speedups
from warpsmith.service.documents.workloads import WorkloadTimes, read_workload_times
from warpsmith.service.views.kernels import list_kept_kernels
from warpsmith.service.views.ops import fetch_op_names
from warpsmith.service.views.rows import make_document, make_interval, read_title
from warpsmith.service.views.verdicts import choose_verdict, read_timed_workloads
from warpsmith.service.views.waiting import list_waiting


def make_search_summary(
    row: SearchRow, op_name: str, best: BestSummary | None, tags: list[str], now: float
) -> SearchSummary:
    """Make the summary of a search; the time of a running one is counted up to `now`."""
    return SearchSummary(
        id=row.id,
        op_id=row.op_id,
        op_name=op_name,
        target=row.target,
        language=row.language,
        team=row.team,
        state=row.state,
        reason=row.reason,
        policy_name=str(row.policy.get("name") or ""),
        provider=str(row.model.get("provider") or ""),
        model_name=row.model_name,
        name=row.name,
        tags=tags,
        notes=row.notes,
        archived_at=row.archived_at,
        best_score=best.score if best else None,
        best=best,
        spend=sum_spend(row, now),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def make_search_summaries(session: Session, rows: Sequence[SearchRow]) -> list[SearchSummary]:
    """Make the summaries of one page of searches, in a few queries."""
    now = time.time()
    names = fetch_op_names(session, {row.op_id for row in rows})
    best_ids = [row.best_node_id for row in rows if row.best_node_id]
    nodes = session.scalars(select(NodeRow).where(NodeRow.id.in_(best_ids))).all() if best_ids else []
    timed = read_timed_workloads(session, best_ids)
    best = {node.id: make_best_summary(node, timed.get(node.id, [])) for node in nodes}
    tags = _read_tags(session, [row.id for row in rows])
    return [
        make_search_summary(row, names[row.op_id], best.get(row.best_node_id or ""), tags.get(row.id, []), now)
        for row in rows
    ]


def _read_tags(session: Session, search_ids: Sequence[str]) -> dict[str, list[str]]:
    query = select(SearchTagRow.search_id, SearchTagRow.tag).where(SearchTagRow.search_id.in_(search_ids))
    found: dict[str, list[str]] = {}
    for search_id, tag in session.execute(query.order_by(SearchTagRow.tag)).tuples():
        found.setdefault(search_id, []).append(tag)
    return found


def make_search_document(session: Session, row: SearchRow, alive_after_s: float) -> SearchDocument:
    """Make the document of a search with its progress."""
    now = time.time()
    candidate = NodeRow.seq > 0  # the root's verdict is the reference's admission, not a candidate's
    columns = (NodeRow.state, NodeRow.verdict, candidate)
    groups = (
        select(*columns, func.count(), func.max(NodeRow.round)).where(NodeRow.search_id == row.id).group_by(*columns)
    )
    progress = _Progress()
    for state, verdict, is_candidate, count, highest in session.execute(groups).tuples():
        progress.count(state, verdict if is_candidate else None, count, highest)
    begun = row.state != "queued"  # before its first step a search has no verdict, no kernel, and waits for nothing
    root = select(NodeRow.id).where(NodeRow.search_id == row.id, NodeRow.seq == 0)
    root_id = session.scalar(root) if begun else None
    best = _make_best(session, row)
    tags = _read_tags(session, [row.id]).get(row.id, [])
    return _join(
        row,
        make_search_summary(row, fetch_op_names(session, {row.op_id})[row.op_id], best, tags, now),
        progress,
        best=best,
        baselines=read_workload_times(choose_verdict(session, root_id).get("workloads")) if root_id is not None else [],
        kernels=list_kept_kernels(session, row) if begun else [],
        waiting_for=list_waiting(session, row, now, alive_after_s) if begun else [],
    )


def make_new_search_document(session: Session, row: SearchRow, op_name: str) -> SearchDocument:
    """Make the document of a search whose rows the session is yet to write, without a query."""
    progress, tags = _Progress(), []
    for new in session.new:
        if isinstance(new, NodeRow):
            progress.count(new.state, None, 1, new.round)
        elif isinstance(new, SearchTagRow):
            tags.append(new.tag)
    summary = make_search_summary(row, op_name, None, sorted(tags), time.time())
    return _join(row, summary, progress, best=None, baselines=[], kernels=[], waiting_for=[])


@dataclass
class _Progress:
    """Nodes of a search, counted."""

    by_state: dict[str, int] = field(default_factory=dict)
    by_verdict: dict[str, int] = field(default_factory=dict)
    latest_round: int = 0

    def count(self, state: str, verdict: str | None, count: int, highest_round: int) -> None:
        """Count nodes of one state; `verdict` is None of the root."""
        self.by_state[state] = self.by_state.get(state, 0) + count
        if verdict is not None:
            self.by_verdict[verdict] = self.by_verdict.get(verdict, 0) + count
        self.latest_round = max(self.latest_round, highest_round)


def _join(row: SearchRow, summary: SearchSummary, progress: _Progress, **parts: Any) -> SearchDocument:
    return SearchDocument(
        **summary.model_dump(exclude={"best"}),
        branched_from=row.branched_from,
        problem=_make_bad_field(row.problem),
        policy=row.policy,
        budget=row.budget,
        model=row.model,
        round=progress.latest_round,
        nodes=sum(progress.by_state.values()),
        nodes_by_state=progress.by_state,
        nodes_by_verdict=progress.by_verdict,
        **parts,
    )


def sum_spend(row: SearchRow, now: float) -> Spend:
    """Sum the spend of a search so far; its time is counted up to `now` while it runs."""
    running = max(0.0, now - row.running_since) if row.running_since is not None else 0.0
    return Spend(
        candidates=row.candidates,
        model_calls=row.model_calls,
        tokens=row.tokens,
        cost_usd=None if row.unpriced_calls else row.cost_usd,
        wall_clock_s=round(row.active_s + running, 3),
        gpu_seconds=round(row.gpu_seconds, 3),
        try_seconds=round(row.try_seconds, 3),
        sweep_seconds=round(row.sweep_seconds, 3),
    )


def make_event_document(row: EventRow) -> EventDocument:
    """Make the document of one event."""
    return make_document(EventDocument, row)


def _make_best(session: Session, search: SearchRow) -> Best | None:
    row = session.get(NodeRow, search.best_node_id) if search.best_node_id else None
    if row is None:
        return None
    workloads = read_workload_times(choose_verdict(session, row.id).get("workloads"))
    return Best(**make_best_summary(row, workloads).model_dump(), workloads=workloads)


def make_best_summary(row: NodeRow, workloads: Sequence[WorkloadTimes]) -> BestSummary:
    """Make the summary of a search's best node; `workloads` are those of its latest verdict."""
    return BestSummary(
        node_id=row.id,
        seq=row.seq,
        title=read_title(row.idea),
        technique=row.technique,
        language=row.language,
        verified=row.verification == "passed",
        score=row.score,
        ci95=make_interval(row.ci_low, row.ci_high),
        limit_fraction=row.limit_fraction,
        speedup=compute_mean_speedups(workloads),
        speedup_ci95=compute_mean_intervals(workloads),
    )


def _make_bad_field(problem: dict[str, Any] | None) -> BadField | None:
    return None if problem is None else BadField(**{name: problem.get(name) for name in ("field", "found", "expected")})

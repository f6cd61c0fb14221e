"""From rows to the documents of `service.schemas`. Reads only; each function takes the session of one read
transaction."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from kernels_db.models import (
    AskRow,
    AttemptRow,
    EventRow,
    KernelRow,
    ModelCallRow,
    NodeRow,
    OpRow,
    SearchRow,
    VerdictRow,
    WorkerRow,
)
from service import schemas
from service.story import Story
from service.waiting import waiting_for

LEVEL_ORDER = {"verify": 0, "screen": 1, "baseline": 2}


def op_summary(row: OpRow) -> schemas.OpSummary:
    """An op without its spec."""
    return schemas.OpSummary(id=row.id, name=row.name, digest=row.digest, created_at=row.created_at)


def op_document(row: OpRow) -> schemas.OpDocument:
    """An op with its spec."""
    return schemas.OpDocument(**op_summary(row).model_dump(), spec=row.spec)


def search_summary(
    row: SearchRow, op_name: str, best_score: float | None, now: float, *, priced: bool
) -> schemas.SearchSummary:
    """A search as the list shows it; `now` is the time up to which a running search is counted. `priced`: the cost of
    every call is known."""
    return schemas.SearchSummary(
        id=row.id,
        op_id=row.op_id,
        op_name=op_name,
        target=row.target,
        language=row.language,
        state=row.state,
        reason=row.reason,
        best_score=best_score,
        spend=spend(row, now, priced=priced),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def search_summaries(session: Session, rows: Sequence[SearchRow]) -> list[schemas.SearchSummary]:
    """The summaries of one page of searches, in three queries."""
    now = time.time()
    names = op_names(session, {row.op_id for row in rows})
    best_ids = [row.best_node_id for row in rows if row.best_node_id]
    scores: dict[str, float | None] = {}
    if best_ids:
        scores = dict(session.execute(select(NodeRow.id, NodeRow.score).where(NodeRow.id.in_(best_ids))).tuples().all())
    unknown = unpriced(session, rows)
    return [
        search_summary(row, names[row.op_id], scores.get(row.best_node_id or ""), now, priced=row.id not in unknown)
        for row in rows
    ]


def op_names(session: Session, ids: set[str]) -> dict[str, str]:
    """Names of ops by id."""
    if not ids:
        return {}
    return dict(session.execute(select(OpRow.id, OpRow.name).where(OpRow.id.in_(ids))).tuples().all())


def search_document(session: Session, row: SearchRow, alive_after_s: float) -> schemas.SearchDocument:
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
    name, score = op_names(session, {row.op_id})[row.op_id], best.score if best else None
    summary = search_summary(row, name, score, now, priced=not unpriced(session, [row]))
    kernels = session.scalars(
        select(KernelRow.id).where(KernelRow.search_id == row.id).order_by(KernelRow.created_at, KernelRow.id)
    )
    return schemas.SearchDocument(
        **summary.model_dump(),
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
        kernels=list(kernels),
        waiting_for=waiting_for(session, row, now, alive_after_s),
    )


def unpriced(session: Session, rows: Sequence[SearchRow]) -> set[str]:
    """The ids of those searches that made a call whose cost nobody knows."""
    # Replay and agents cost nothing: only an endpoint's calls need be looked at.
    asked = [row.id for row in rows if row.model.get("provider") == "openai"]
    unknown = exists().where(
        ModelCallRow.search_id == SearchRow.id, ModelCallRow.reply.is_not(None), ModelCallRow.cost_usd.is_(None)
    )
    return set(session.scalars(select(SearchRow.id).where(SearchRow.id.in_(asked), unknown))) if asked else set()


def spend(row: SearchRow, now: float, *, priced: bool) -> schemas.Spend:
    """What a search has used so far; time is counted up to `now` while it runs. `priced`: the cost of every call is
    known."""
    running = max(0.0, now - row.running_since) if row.running_since is not None else 0.0
    return schemas.Spend(
        candidates=row.candidates,
        model_calls=row.model_calls,
        tokens=row.tokens,
        cost_usd=row.cost_usd if priced else None,
        wall_clock_s=round(row.active_s + running, 3),
        gpu_seconds=round(row.gpu_seconds, 3),
    )


def node_summary(row: NodeRow, best_id: str | None) -> schemas.NodeSummary:
    """One node of the tree."""
    return schemas.NodeSummary(
        id=row.id,
        seq=row.seq,
        parent_id=row.parent_id,
        round=row.round,
        technique=row.technique,
        title=idea_title(row.idea),
        state=row.state,
        reason=row.reason,
        origin=row.origin,
        mark=row.mark,
        language=row.language,
        variant=row.variant,
        repairs=row.repairs,
        verdict=row.verdict,
        gate=row.gate,
        score=row.score,
        ci95=interval(row.ci_low, row.ci_high),
        limit_fraction=row.limit_fraction,
        verification=row.verification,
        best=row.id == best_id,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def node_document(session: Session, row: NodeRow, best_id: str | None) -> schemas.NodeDocument:
    """A node with its verdicts, attempts and model calls, each oldest first."""
    verdicts = session.scalars(
        select(VerdictRow).where(VerdictRow.node_id == row.id).order_by(VerdictRow.created_at, VerdictRow.id)
    )
    attempts = session.scalars(
        select(AttemptRow).where(AttemptRow.node_id == row.id).order_by(AttemptRow.created_at, AttemptRow.id)
    )
    calls = session.scalars(
        select(ModelCallRow).where(ModelCallRow.node_id == row.id).order_by(ModelCallRow.created_at, ModelCallRow.id)
    )
    return schemas.NodeDocument(
        **node_summary(row, best_id).model_dump(),
        search_id=row.search_id,
        idea=row.idea,
        source=row.source,
        verdicts=[document_of(schemas.VerdictRecord, verdict) for verdict in verdicts],
        attempts=[document_of(schemas.AttemptDocument, attempt) for attempt in attempts],
        model_calls=[document_of(schemas.ModelCallDocument, call) for call in calls],
    )


def story_document(search: SearchRow, story: Story) -> schemas.StoryDocument:
    """A story, rendered."""
    title, sections = story.plain()
    return schemas.StoryDocument(
        search_id=search.id,
        state=search.state,
        title=title,
        sections=[document_of(schemas.StorySection, section) for section in sections],
        text=story.text(),
        markdown=story.markdown(),
    )


def event_document(row: EventRow) -> schemas.EventDocument:
    """One event."""
    return document_of(schemas.EventDocument, row)


def ask_summary(row: AskRow) -> schemas.AskSummary:
    """An ask without its prompt."""
    return document_of(schemas.AskSummary, row)


def ask_document(row: AskRow, replaced_by: str | None) -> schemas.AskDocument:
    """An ask with its prompt."""
    summary = ask_summary(row).model_dump()
    return schemas.AskDocument(**summary, messages=row.messages, reply=row.reply, replaced_by=replaced_by)


def kernel_summary(row: KernelRow, op_name: str) -> schemas.KernelSummary:
    """A kernel as the list shows it."""
    return schemas.KernelSummary(
        id=row.id,
        op_id=row.op_id,
        op_name=op_name,
        target=row.target,
        language=row.language,
        search_id=row.search_id,
        node_id=row.node_id,
        score=row.score,
        ci95=[row.ci_low, row.ci_high],
        limit_fraction=row.limit_fraction,
        created_at=row.created_at,
    )


def kernel_document(row: KernelRow, op_name: str) -> schemas.KernelDocument:
    """A kernel with its source, envelope and evidence."""
    return schemas.KernelDocument(
        **kernel_summary(row, op_name).model_dump(),
        source=row.source,
        source_digest=row.source_digest,
        envelope=row.envelope,
        evidence=row.evidence,
        lineage=row.lineage,
    )


def worker_document(row: WorkerRow, now: float, alive_after_s: float) -> schemas.WorkerDocument:
    """A worker; it counts as alive for `alive_after_s` after it last reported in."""
    return schemas.WorkerDocument(
        name=row.name,
        role=row.role,
        target=row.target,
        alive=row.seen_at >= now - alive_after_s,
        facts=row.facts,
        started_at=row.started_at,
        seen_at=row.seen_at,
    )


def latest_verdict(session: Session, node_id: str) -> Mapping[str, Any]:
    """The newest verdict document of a node, a full verification before a screening; empty where there is none."""
    rows = session.scalars(select(VerdictRow).where(VerdictRow.node_id == node_id).order_by(VerdictRow.id.desc())).all()
    accepted = [row for row in rows if row.verdict == "accepted"] or rows
    accepted = sorted(accepted, key=lambda row: LEVEL_ORDER.get(row.level, len(LEVEL_ORDER)))
    return accepted[0].document if accepted else {}


def idea_title(idea: Mapping[str, Any] | None) -> str | None:
    """The idea in one line."""
    title = (idea or {}).get("title")
    return str(title) if title else None


def interval(low: float | None, high: float | None) -> list[float] | None:
    """A confidence interval, or None where one end is missing."""
    return [low, high] if low is not None and high is not None else None


def _best(session: Session, search: SearchRow) -> schemas.Best | None:
    row = session.get(NodeRow, search.best_node_id) if search.best_node_id else None
    if row is None:
        return None
    workloads = workload_times(latest_verdict(session, row.id).get("workloads"))
    return schemas.Best(
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
        workloads=workloads,
    )


def mean_speedups(workloads: Sequence[schemas.WorkloadTimes]) -> dict[str, float]:
    """Geometric mean over the bench workloads of the speed-up over each baseline."""
    logs: dict[str, list[float]] = {}
    for workload in workloads:
        if workload.role == "bench":
            for baseline, ratio in workload.speedup.items():
                if ratio > 0:
                    logs.setdefault(baseline, []).append(math.log(ratio))
    return {baseline: math.exp(sum(values) / len(values)) for baseline, values in logs.items()}


def workload_times(workloads: Sequence[Mapping[str, Any]] | None) -> list[schemas.WorkloadTimes]:
    """The timed part of a verdict's workloads."""
    fields = schemas.WorkloadTimes.model_fields
    workloads = workloads or []
    return [
        schemas.WorkloadTimes(**{name: workload[name] for name in fields if name in workload}) for workload in workloads
    ]


def _bad_field(problem: dict[str, Any] | None) -> schemas.BadField | None:
    return (
        None
        if problem is None
        else schemas.BadField(**{name: problem.get(name) for name in ("field", "found", "expected")})
    )


Document = TypeVar("Document", bound=BaseModel)


def document_of(schema: type[Document], row: object) -> Document:
    """A document whose fields have the names of the row's columns."""
    return schema(**{name: getattr(row, name) for name in schema.model_fields})

"""From rows to the documents of `warpsmith.service.schemas`. Reads only; each function takes the session of one read
transaction."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy import Select, func, or_, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.models import (
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
from warpsmith.kernels_db.store import Bundle
from warpsmith.service import schemas
from warpsmith.service.bundles.unjudged import unjudged_counts
from warpsmith.service.speedups import mean_intervals, mean_speedups
from warpsmith.service.story import Story
from warpsmith.service.waiting import waiting_for
from warpsmith.workers.steps.rows import ENDED

LEVEL_ORDER = {"verify": 0, "screen": 1, "baseline": 2}


def op_summary(row: OpRow) -> schemas.OpSummary:
    """An op without its spec."""
    return schemas.OpSummary(id=row.id, name=row.name, digest=row.digest, created_at=row.created_at)


def op_document(row: OpRow) -> schemas.OpDocument:
    """An op with its spec."""
    return schemas.OpDocument(**op_summary(row).model_dump(), spec=row.spec)


def search_summary(row: SearchRow, op_name: str, best: schemas.BestSummary | None, now: float) -> schemas.SearchSummary:
    """A search as the list shows it; `now` is the time up to which a running search is counted."""
    return schemas.SearchSummary(
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


def search_summaries(session: Session, rows: Sequence[SearchRow]) -> list[schemas.SearchSummary]:
    """The summaries of one page of searches, in three queries."""
    now = time.time()
    names = op_names(session, {row.op_id for row in rows})
    best_ids = [row.best_node_id for row in rows if row.best_node_id]
    nodes = session.scalars(select(NodeRow).where(NodeRow.id.in_(best_ids))).all() if best_ids else []
    timed = timed_workloads(session, best_ids)
    best = {node.id: best_summary(node, timed.get(node.id, [])) for node in nodes}
    return [search_summary(row, names[row.op_id], best.get(row.best_node_id or ""), now) for row in rows]


def timed_workloads(session: Session, node_ids: Sequence[str]) -> dict[str, list[schemas.WorkloadTimes]]:
    """The timed workloads of each node's latest verdict, as `latest_verdict` chooses it."""
    if not node_ids:
        return {}
    columns = (VerdictRow.node_id, VerdictRow.verdict, VerdictRow.level, VerdictRow.document["workloads"])
    rows = session.execute(select(*columns).where(VerdictRow.node_id.in_(node_ids)).order_by(VerdictRow.id)).all()
    # Of what is alike the last stands: the newest.
    rows = sorted(rows, key=lambda row: (row[1] == "accepted", -LEVEL_ORDER.get(row[2], len(LEVEL_ORDER))))
    return {node_id: workload_times(workloads) for node_id, _, _, workloads in rows}


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
    summary = search_summary(row, op_names(session, {row.op_id})[row.op_id], best, now)
    return schemas.SearchDocument(
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
        kernels=_kernels_kept(session, row),
        waiting_for=waiting_for(session, row, now, alive_after_s),
    )


def _kernels_kept(session: Session, row: SearchRow) -> list[str]:
    """The kernels that a search kept. A kernel's row names the last search that found its code; that an earlier one
    kept it too stands in that one's history.
    """
    own = select(KernelRow.id).where(KernelRow.search_id == row.id).order_by(KernelRow.created_at, KernelRow.id)
    found = list(session.scalars(own))
    if found or row.best_node_id is None or row.state not in ENDED:
        return found
    kept = _kept_events(row.id)
    return list(dict.fromkeys(payload["kernel_id"] for payload in session.scalars(kept)))


def _kernel_of(session: Session, row: NodeRow) -> str | None:
    """The kernel that a node was kept as, by whichever search."""
    found = session.scalar(select(KernelRow.id).where(KernelRow.node_id == row.id).limit(1))
    if found is not None or row.verification != "passed":
        return found
    kept = session.scalar(_kept_events(row.search_id).where(EventRow.node_id == row.id).limit(1))
    return None if kept is None else str(kept["kernel_id"])


def _kept_events(search_id: str) -> Select[tuple[dict[str, Any]]]:
    return (
        select(EventRow.payload)
        .where(EventRow.search_id == search_id, EventRow.type == "kernel.kept")
        .order_by(EventRow.id)
    )


def spend(row: SearchRow, now: float) -> schemas.Spend:
    """What a search has used so far; time is counted up to `now` while it runs."""
    running = max(0.0, now - row.running_since) if row.running_since is not None else 0.0
    return schemas.Spend(
        candidates=row.candidates,
        model_calls=row.model_calls,
        tokens=row.tokens,
        cost_usd=None if row.unpriced_calls else row.cost_usd,
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
    documents = [document_of(schemas.VerdictRecord, verdict) for verdict in verdicts]
    model_calls = [document_of(schemas.ModelCallDocument, call) for call in calls]
    near = session.scalars(
        select(NodeRow)
        .where(
            NodeRow.search_id == row.search_id,
            or_(NodeRow.parent_id == row.id, NodeRow.id.in_([row.parent_id, best_id])),
        )
        .order_by(NodeRow.seq)
    ).all()
    by_id = {node.id: node_reference(node) for node in near}
    return schemas.NodeDocument(
        **node_summary(row, best_id).model_dump(),
        search_id=row.search_id,
        idea=row.idea,
        source=row.source,
        parent=by_id.get(row.parent_id or ""),
        champion=node_reference(row) if row.id == best_id else by_id.get(best_id or ""),
        children=[by_id[node.id] for node in near if node.parent_id == row.id],
        kernel_id=_kernel_of(session, row),
        cost=node_cost(documents, model_calls),
        verdicts=documents,
        attempts=[document_of(schemas.AttemptDocument, attempt) for attempt in attempts],
        model_calls=model_calls,
    )


def node_reference(row: NodeRow) -> schemas.NodeReference:
    """A node in a few words."""
    return schemas.NodeReference(
        id=row.id,
        seq=row.seq,
        title=idea_title(row.idea),
        technique=row.technique,
        state=row.state,
        verdict=row.verdict,
        score=row.score,
    )


def node_cost(
    verdicts: Sequence[schemas.VerdictRecord], calls: Sequence[schemas.ModelCallDocument]
) -> schemas.NodeCost:
    """What a node's verdicts and model calls cost together."""
    answered = [call for call in calls if call.reply is not None]
    unknown = any(call.cost_usd is None and call.provider == "openai" for call in answered)
    seconds = [verdict.document.get("seconds") or {} for verdict in verdicts]
    return schemas.NodeCost(
        model_calls=len(answered),
        prompt_tokens=sum(call.prompt_tokens or 0 for call in answered),
        completion_tokens=sum(call.completion_tokens or 0 for call in answered),
        cost_usd=None if unknown else sum(call.cost_usd or 0.0 for call in answered),
        judge_s=sum(value for each in seconds for gate, value in each.items() if gate != "exclusive"),
        gpu_seconds=sum(each.get("exclusive", 0.0) for each in seconds),
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


def ask_summaries(session: Session, rows: Sequence[AskRow]) -> list[schemas.AskSummary]:
    """One page of asks without their prompts, in three queries."""
    searches = _by_id(session, SearchRow, {row.search_id for row in rows})
    nodes = _by_id(session, NodeRow, {row.node_id for row in rows})
    names = op_names(session, {search.op_id for search in searches.values()})
    found = []
    for row in rows:
        search, node = searches[row.search_id], nodes[row.node_id]
        found.append(_ask_summary(row, search, node, names[search.op_id]))
    return found


def _ask_summary(row: AskRow, search: SearchRow, node: NodeRow, op_name: str) -> schemas.AskSummary:
    own = {name: getattr(row, name) for name in schemas.AskSummary.model_fields if hasattr(row, name)}
    return schemas.AskSummary(**own, op_name=op_name, target=search.target, seq=node.seq, title=idea_title(node.idea))


def ask_document(session: Session, row: AskRow, replaced_by: str | None) -> schemas.AskDocument:
    """An ask with its prompt, and what became of its answer."""
    [summary] = ask_summaries(session, [row])
    node, attempt = session.get_one(NodeRow, row.node_id), session.get_one(AttemptRow, row.attempt_id)
    best_id = session.scalar(select(SearchRow.best_node_id).where(SearchRow.id == row.search_id))
    return schemas.AskDocument(
        **summary.model_dump(),
        messages=row.messages,
        reply=row.reply,
        replaced_by=replaced_by,
        step=schemas.AskStep(kind=attempt.kind, state=attempt.state, error=attempt.error),
        node=node_summary(node, best_id),
    )


Row = TypeVar("Row", NodeRow, SearchRow)


def _by_id(session: Session, table: type[Row], ids: set[str]) -> dict[str, Row]:
    return {row.id: row for row in session.scalars(select(table).where(table.id.in_(ids)))} if ids else {}


def bundle_summaries(session: Session, rows: Sequence[Bundle]) -> list[schemas.BundleSummary]:
    """One page of bundles, in four queries."""
    unjudged = unjudged_counts(session, [row.id for row in rows])
    searches = _by_id(session, SearchRow, {row.search_id for row in rows})
    names = op_names(session, {search.op_id for search in searches.values()})
    return [
        schemas.BundleSummary(
            id=row.id,
            search_id=row.search_id,
            op_name=names[searches[row.search_id].op_id],
            target=searches[row.search_id].target,
            created_at=row.created_at,
            jobs=row.jobs,
            merged=row.merged,
            out=row.jobs - row.merged,
            unjudged=unjudged.get(row.id, 0),
        )
        for row in rows
    ]


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
    return schemas.Best(**best_summary(row, workloads).model_dump(), workloads=workloads)


def best_summary(row: NodeRow, workloads: Sequence[schemas.WorkloadTimes]) -> schemas.BestSummary:
    """A search's best node; `workloads` are those of its latest verdict."""
    return schemas.BestSummary(
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

"""Documents of nodes from their rows."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import or_, select
from sqlalchemy.orm import Session, load_only

from warpsmith.kernels_db.store.tables import AttemptRow, ModelCallRow, NodeRow, VerdictRow
from warpsmith.service.documents.nodes import (
    AttemptDocument,
    ModelCallDocument,
    NodeCost,
    NodeDocument,
    NodeReference,
    NodeSummary,
    VerdictRecord,
)
from warpsmith.service.views.kernels import find_kernel
from warpsmith.service.views.rows import make_document, make_interval, read_title
from warpsmith.service.views.tries import list_tries_of_node

REFERENCED = (
    NodeRow.id,
    NodeRow.seq,
    NodeRow.parent_id,
    NodeRow.technique,
    NodeRow.state,
    NodeRow.verdict,
    NodeRow.score,
    NodeRow.idea,
)
"""The columns that a reference to a node needs: its code is most of a row."""

_COLUMNS = tuple(name for name in NodeSummary.model_fields if name not in ("title", "ci95", "best"))
"""Fields of a summary that are columns."""


def make_node_summary(row: NodeRow, best_id: str | None) -> NodeSummary:
    """Make the summary of one node of the tree."""
    return NodeSummary(
        id=row.id,
        seq=row.seq,
        parent_id=row.parent_id,
        round=row.round,
        technique=row.technique,
        title=read_title(row.idea),
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
        ci95=make_interval(row.ci_low, row.ci_high),
        limit_fraction=row.limit_fraction,
        verification=row.verification,
        best=row.id == best_id,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def list_node_summaries(
    session: Session, search_id: str, best_id: str | None, after_seq: int, limit: int
) -> list[NodeSummary]:
    """List the summaries of a search's nodes after `after_seq`, by rising `seq`.

    From the columns that they need, and unchecked: rows of mapped classes and models take most of the time where there
    are hundreds.
    """
    columns = [getattr(NodeRow, name) for name in _COLUMNS]
    title = NodeRow.idea["title"].as_string()
    query = select(title, NodeRow.ci_low, NodeRow.ci_high, *columns)
    query = query.where(NodeRow.search_id == search_id, NodeRow.seq > after_seq).order_by(NodeRow.seq).limit(limit)
    found = []
    for title_, low, high, *values in session.execute(query.execution_options(warpsmith_binary=True)):
        known = dict(zip(_COLUMNS, values, strict=True))
        best = known["id"] == best_id
        known |= {"title": title_ or None, "ci95": make_interval(low, high), "best": best}
        found.append(NodeSummary.model_construct(**known))
    return found


def make_node_document(session: Session, row: NodeRow, best_id: str | None) -> NodeDocument:
    """Make a node's document with its verdicts, attempts and model calls, each oldest first."""
    verdicts = session.scalars(
        select(VerdictRow).where(VerdictRow.node_id == row.id).order_by(VerdictRow.created_at, VerdictRow.id)
    )
    attempts = session.scalars(
        select(AttemptRow).where(AttemptRow.node_id == row.id).order_by(AttemptRow.created_at, AttemptRow.id)
    )
    calls = session.scalars(
        select(ModelCallRow).where(ModelCallRow.node_id == row.id).order_by(ModelCallRow.created_at, ModelCallRow.id)
    )
    documents = [make_document(VerdictRecord, verdict) for verdict in verdicts]
    model_calls = [make_document(ModelCallDocument, call) for call in calls]
    near = session.scalars(
        select(NodeRow)
        .options(load_only(*REFERENCED, raiseload=True))
        .where(
            NodeRow.search_id == row.search_id,
            or_(NodeRow.parent_id == row.id, NodeRow.id.in_([row.parent_id, best_id])),
        )
        .order_by(NodeRow.seq)
    ).all()
    by_id = {node.id: make_reference(node) for node in near}
    return NodeDocument(
        **make_node_summary(row, best_id).model_dump(),
        search_id=row.search_id,
        idea=row.idea,
        source=row.source,
        parent=by_id.get(row.parent_id or ""),
        champion=make_reference(row) if row.id == best_id else by_id.get(best_id or ""),
        children=[by_id[node.id] for node in near if node.parent_id == row.id],
        kernel_id=find_kernel(session, row),
        cost=sum_cost(documents, model_calls),
        verdicts=documents,
        attempts=[make_document(AttemptDocument, attempt) for attempt in attempts],
        tries=list_tries_of_node(session, row.id),
        model_calls=model_calls,
    )


def make_reference(row: NodeRow) -> NodeReference:
    """Make a reference to a node."""
    return NodeReference(
        id=row.id,
        seq=row.seq,
        title=read_title(row.idea),
        technique=row.technique,
        state=row.state,
        verdict=row.verdict,
        score=row.score,
    )


def sum_cost(verdicts: Sequence[VerdictRecord], calls: Sequence[ModelCallDocument]) -> NodeCost:
    """Sum the cost of a node's verdicts and model calls."""
    answered = [call for call in calls if call.reply is not None]
    unknown = any(call.cost_usd is None and call.provider == "openai" for call in answered)
    seconds = [verdict.document.get("seconds") or {} for verdict in verdicts]
    return NodeCost(
        model_calls=len(answered),
        prompt_tokens=sum(call.prompt_tokens or 0 for call in answered),
        completion_tokens=sum(call.completion_tokens or 0 for call in answered),
        cost_usd=None if unknown else sum(call.cost_usd or 0.0 for call in answered),
        judge_s=sum(value for each in seconds for gate, value in each.items() if gate != "exclusive"),
        gpu_seconds=sum(each.get("exclusive", 0.0) for each in seconds),
    )

"""Reading of a story's facts from the database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.attack_summary import AttackSummary, summarise_attack
from warpsmith.kernels_db.store.tables import EventRow, ModelCallRow, NodeRow, SearchRow, TryRow, VerdictRow
from warpsmith.service.documents.figures import format_limits
from warpsmith.service.story.facts import Answers, Steer, StoryFacts, StoryNode, TryCount
from warpsmith.service.views import searches

STEERS = (
    "idea.added",
    "node.pinned",
    "node.unpinned",
    "node.banned",
    "node.unbanned",
    "budget.changed",
    "search.paused",
    "search.cancelled",
)
ON_REQUEST = "on request"
"""The reason of a pause that a person asked for."""


def gather(session: Session, search: SearchRow, alive_after_s: float) -> StoryFacts:
    """Gather the facts of a search's story."""
    judge_s, failures = _read_verdicts(session, search.id)
    return StoryFacts(
        search=searches.make_search_document(session, search, alive_after_s),
        nodes=_read_nodes(session, search.id, failures),
        answers=_count_answers(session, search.id),
        judge_s=judge_s,
        device_s=search.gpu_seconds,
        steers=_read_steers(session, search),
        branched_from=_find_origin(session, search),
        branches=_list_branches(session, search.id),
        attack=_read_attack(session, search.best_node_id),
        tries=_count_tries(session, search),
    )


def _read_verdicts(session: Session, search_id: str) -> tuple[float, dict[str, str]]:
    """Read the judge's seconds, and the kind of each node's last failure."""
    seconds, failures = 0.0, dict[str, str]()
    query = (
        select(VerdictRow.node_id, VerdictRow.document["seconds"], VerdictRow.document["failure"])
        .where(VerdictRow.search_id == search_id)
        .order_by(VerdictRow.id)
    )
    for node_id, gates, failure in session.execute(query).tuples():
        # "exclusive" is how long the device was held, within the gates.
        seconds += sum(took for gate, took in (gates or {}).items() if gate != "exclusive")
        failures[node_id] = str((failure or {}).get("kind") or "")
    return seconds, failures


def _read_nodes(session: Session, search_id: str, failures: dict[str, str]) -> list[StoryNode]:
    columns = (
        NodeRow.id,
        NodeRow.parent_id,
        NodeRow.seq,
        NodeRow.round,
        NodeRow.technique,
        NodeRow.idea,
        NodeRow.state,
        NodeRow.reason,
        NodeRow.verdict,
        NodeRow.gate,
        NodeRow.score,
        NodeRow.ci_low,
        NodeRow.ci_high,
        NodeRow.repairs,
        NodeRow.origin,
        NodeRow.mark,
        NodeRow.language,
    )
    seqs: dict[str, int] = {}
    nodes = []
    for row in session.execute(select(*columns).where(NodeRow.search_id == search_id).order_by(NodeRow.seq)):
        seqs[row.id] = row.seq
        idea = row.idea or {}
        nodes.append(
            StoryNode(
                seq=row.seq,
                parent=seqs.get(row.parent_id),
                round=row.round,
                technique=row.technique,
                title=_read_word(idea, "title"),
                mechanism=_read_word(idea, "mechanism"),
                state=row.state,
                reason=row.reason,
                verdict=row.verdict,
                gate=row.gate,
                failure=failures.get(row.id) or None,
                score=row.score,
                ci95=None if row.ci_low is None or row.ci_high is None else (row.ci_low, row.ci_high),
                repairs=row.repairs,
                origin=row.origin,
                mark=row.mark,
                coded=row.language is not None,
            )
        )
    return nodes


def _read_word(idea: dict[str, Any], name: str) -> str | None:
    return str(idea[name]) if idea.get(name) else None


def _count_tries(session: Session, search: SearchRow) -> TryCount:
    """Count what was tried for nodes before they were answered; a check of the compiler alone is none."""
    right = func.sum(case((TryRow.verdict == "accepted", 1), else_=0))
    query = select(func.count(), func.count(TryRow.node_id.distinct()), func.coalesce(right, 0))
    tries, nodes, accepted = session.execute(
        query.where(TryRow.search_id == search.id, TryRow.level != "compile")
    ).one()
    return TryCount(tries, nodes, accepted, search.try_seconds)


def _read_attack(session: Session, node_id: str | None) -> AttackSummary | None:
    query = (
        select(VerdictRow.document["attack"])
        .where(VerdictRow.node_id == node_id, VerdictRow.level == "verify")
        .order_by(VerdictRow.id.desc())
    )
    return summarise_attack(session.scalar(query.limit(1)))


def _count_answers(session: Session, search_id: str) -> list[Answers]:
    query = (
        select(
            ModelCallRow.provider,
            ModelCallRow.model,
            func.count(),
            func.sum(case((ModelCallRow.cost_usd.is_(None), 1), else_=0)),
            func.coalesce(func.sum(ModelCallRow.cost_usd), 0.0),
        )
        .where(ModelCallRow.search_id == search_id, ModelCallRow.reply.is_not(None))
        .group_by(ModelCallRow.provider, ModelCallRow.model)
        .order_by(func.count().desc(), ModelCallRow.provider, ModelCallRow.model)
    )
    return [Answers(*row) for row in session.execute(query).tuples()]


def _read_steers(session: Session, search: SearchRow) -> list[Steer]:
    query = select(EventRow).where(EventRow.search_id == search.id, EventRow.type.in_(STEERS)).order_by(EventRow.id)
    steers = []
    for event in session.scalars(query):
        payload = event.payload
        if event.type == "search.paused" and payload.get("reason") != ON_REQUEST:
            continue
        text = format_limits(payload["after"]) if event.type == "budget.changed" else payload.get("title")
        after_s = max(0.0, event.created_at - search.created_at)
        steers.append(Steer(event.type, after_s, payload.get("seq"), payload.get("by"), text))
    return steers


def _find_origin(session: Session, search: SearchRow) -> tuple[str, int] | None:
    if search.branched_from is None:
        return None
    found = session.execute(select(NodeRow.search_id, NodeRow.seq).where(NodeRow.id == search.branched_from)).first()
    return None if found is None else (found.search_id, found.seq)


def _list_branches(session: Session, search_id: str) -> list[str]:
    own = select(NodeRow.id).where(NodeRow.search_id == search_id)
    query = select(SearchRow.id).where(SearchRow.branched_from.in_(own)).order_by(SearchRow.created_at, SearchRow.id)
    return list(session.scalars(query))

"""What each technique of a search led to: how often it was tried and accepted, its gain and its cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import AttemptRow, BundleJobRow, ModelCallRow, NodeRow, SearchRow
from warpsmith.service.documents.comparison import TechniqueDocument

UNNAMED = "none"
"""The technique of candidates whose idea names none, such as stored kernels that a search starts with."""

JUDGED_BY = ("judge", "verify")


def list_techniques(session: Session, row: SearchRow) -> list[TechniqueDocument]:
    """List what each technique of a search led to, the most tried first."""
    nodes, gain_of = _read_nodes(session, row)
    calls, judging = _sum_calls(session, row), _sum_judging(session, row)
    by_technique: defaultdict[str, list[Any]] = defaultdict(list)
    for node in nodes:
        if node.seq > 0 and node.verdict is not None:
            by_technique[node.technique or UNNAMED].append(node)
    found = []
    for technique, judged in by_technique.items():
        accepted = [node for node in judged if node.verdict == "accepted" and node.score is not None]
        gains = [gain_of[node.id] for node in accepted if node.id in gain_of]
        tokens, cost = calls.get(technique, (0, 0.0))
        document = TechniqueDocument(
            technique=technique,
            candidates=len(judged),
            accepted=len(accepted),
            improved=sum(gain > 1 for gain in gains),
            best_score=max((node.score for node in accepted), default=None),
            median_gain=median(gains) if gains else None,
            gain_range=[min(gains), max(gains)] if gains else None,
            tokens=tokens,
            cost_usd=cost,
            judge_s=judging.get(technique, 0.0),
        )
        found.append(document)
    return sorted(found, key=lambda one: (-one.candidates, one.technique))


def list_gains(session: Session, row: SearchRow) -> list[tuple[str, float]]:
    """List the accepted candidates of a search as (technique, speed-up over what each was built on)."""
    nodes, gain_of = _read_nodes(session, row)
    return [(node.technique or UNNAMED, gain_of[node.id]) for node in nodes if node.id in gain_of]


def _read_nodes(session: Session, row: SearchRow) -> tuple[Sequence[Any], dict[str, float]]:
    """Read the nodes by rising `seq`, and for each accepted one its speed-up over its parent."""
    columns = (NodeRow.id, NodeRow.parent_id, NodeRow.seq, NodeRow.technique, NodeRow.verdict, NodeRow.score)
    nodes = session.execute(select(*columns).where(NodeRow.search_id == row.id).order_by(NodeRow.seq)).all()
    scores: dict[str, float] = {node.id: 1.0 if node.seq == 0 else node.score for node in nodes if _is_base(node)}
    gains = {
        node.id: node.score / scores[node.parent_id]
        for node in nodes
        if node.seq > 0 and _is_base(node) and scores.get(node.parent_id)
    }
    return nodes, gains


def _is_base(node: Any) -> bool:
    """Whether candidates are built on a node with a known speed-up: the root, or an accepted candidate."""
    return node.seq == 0 or (node.verdict == "accepted" and node.score is not None)


def _sum_calls(session: Session, row: SearchRow) -> dict[str, tuple[int, float | None]]:
    """Sum tokens and cost of the calls that wrote code, by technique."""
    tokens = func.coalesce(ModelCallRow.prompt_tokens, 0) + func.coalesce(ModelCallRow.completion_tokens, 0)
    unpriced = (ModelCallRow.provider == "openai") & ModelCallRow.reply.is_not(None) & ModelCallRow.cost_usd.is_(None)
    query = (
        select(NodeRow.technique, func.sum(tokens), func.sum(ModelCallRow.cost_usd), func.count().filter(unpriced))
        .join(NodeRow, NodeRow.id == ModelCallRow.node_id)
        .where(ModelCallRow.search_id == row.id, ModelCallRow.kind.in_(("code", "repair")))
        .group_by(NodeRow.technique)
    )
    return {
        technique or UNNAMED: (total, None if unknown else cost or 0.0)
        for technique, total, cost, unknown in session.execute(query).tuples()
    }


def _sum_judging(session: Session, row: SearchRow) -> dict[str, float]:
    """Sum the seconds of finished judge steps, by technique; a bundle's time away says nothing of judging."""
    own = BundleJobRow.screening.is_distinct_from(AttemptRow.id)  # the others: its verification travels, judged at home
    away = exists().where(BundleJobRow.attempt_id == AttemptRow.id, own)
    query = (
        select(NodeRow.technique, func.sum(AttemptRow.finished_at - AttemptRow.started_at))
        .join(NodeRow, NodeRow.id == AttemptRow.node_id)
        .where(AttemptRow.search_id == row.id, AttemptRow.kind.in_(JUDGED_BY), NodeRow.seq > 0, ~away)
        .group_by(NodeRow.technique)
    )
    return {technique or UNNAMED: seconds or 0.0 for technique, seconds in session.execute(query).tuples()}

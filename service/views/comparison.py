"""Searches of one op beside each other: their curves, what differed, what each technique came to."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import AttemptRow, BundleJobRow, ModelCallRow, NodeRow, OpRow, SearchRow
from warpsmith.service.documents.comparison import (
    ComparedSearch,
    ComparisonDocument,
    CurvePoint,
    Fact,
    TechniqueDocument,
)
from warpsmith.service.views.searches import make_search_summaries
from warpsmith.service.views.verdicts import choose_verdict
from warpsmith.service.views.watch import read_curve

UNNAMED = "none"
"""The technique of candidates whose idea names none, such as stored kernels that a search starts with."""

JUDGED_BY = ("judge", "verify")


def make_comparison(session: Session, rows: Sequence[SearchRow]) -> ComparisonDocument:
    """Compare searches of one op; `rows` in the order in which they are to be shown."""
    summaries = make_search_summaries(session, rows)
    machines = [_read_machine(session, row) for row in rows]
    facts = _list_facts(session, rows, machines)
    return ComparisonDocument(
        op_name=summaries[0].op_name,
        searches=[
            ComparedSearch(search=summary, curve=_make_curve(session, row), techniques=_list_techniques(session, row))
            for row, summary in zip(rows, summaries, strict=True)
        ],
        facts=facts,
        warnings=list(_warn({fact.name for fact in facts if fact.differs})),
    )


def _make_curve(session: Session, row: SearchRow) -> list[CurvePoint]:
    best, judged = read_curve(session, row)
    points = [
        CurvePoint(
            candidates=point.candidates,
            cost_usd=point.cost_usd,
            elapsed_s=point.elapsed_s,
            score=point.score,
            verified=point.level == "verify",
            node_id=point.node_id,
            seq=point.seq,
        )
        for point in best
    ]
    if points and judged[-1].at > best[-1].at:  # the best was not beaten since: the curve goes on to the last verdict
        last = judged[-1]
        reached = {"candidates": last.candidates, "cost_usd": last.cost_usd, "elapsed_s": last.elapsed_s}
        points.append(points[-1].model_copy(update={**reached, "node_id": None, "seq": None}))
    return points


def _list_techniques(session: Session, row: SearchRow) -> list[TechniqueDocument]:
    columns = (NodeRow.id, NodeRow.parent_id, NodeRow.seq, NodeRow.technique, NodeRow.verdict, NodeRow.score)
    nodes = session.execute(select(*columns).where(NodeRow.search_id == row.id).order_by(NodeRow.seq)).all()
    scores: dict[str, float] = {node.id: 1.0 if node.seq == 0 else node.score for node in nodes if _is_base(node)}
    calls, judging = _sum_calls(session, row), _sum_judging(session, row)
    by_technique: defaultdict[str, list[Any]] = defaultdict(list)
    for node in nodes:
        if node.seq > 0 and node.verdict is not None:
            by_technique[node.technique or UNNAMED].append(node)
    found = []
    for technique, judged in by_technique.items():
        accepted = [node for node in judged if node.verdict == "accepted" and node.score is not None]
        gains = [node.score / scores[node.parent_id] for node in accepted if scores.get(node.parent_id)]
        tokens, cost = calls.get(technique, (0, 0.0))
        document = TechniqueDocument(
            technique=technique,
            candidates=len(judged),
            accepted=len(accepted),
            improved=sum(gain > 1 for gain in gains),
            best_score=max((node.score for node in accepted), default=None),
            median_gain=median(gains) if gains else None,
            tokens=tokens,
            cost_usd=cost,
            judge_s=judging.get(technique, 0.0),
        )
        found.append(document)
    return sorted(found, key=lambda one: (-one.candidates, one.technique))


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
    away = exists().where(BundleJobRow.attempt_id == AttemptRow.id)
    query = (
        select(NodeRow.technique, func.sum(AttemptRow.finished_at - AttemptRow.started_at))
        .join(NodeRow, NodeRow.id == AttemptRow.node_id)
        .where(AttemptRow.search_id == row.id, AttemptRow.kind.in_(JUDGED_BY), NodeRow.seq > 0, ~away)
        .group_by(NodeRow.technique)
    )
    return {technique or UNNAMED: seconds or 0.0 for technique, seconds in session.execute(query).tuples()}


def _read_machine(session: Session, row: SearchRow) -> Mapping[str, Any]:
    """Read on what a search was judged: device and versions of the baselines' verdict."""
    root = session.scalar(select(NodeRow.id).where(NodeRow.search_id == row.id, NodeRow.seq == 0))
    verdict = choose_verdict(session, root) if root is not None else {}
    return {"device": (verdict.get("device") or {}).get("name"), **(verdict.get("versions") or {})}


def _list_facts(session: Session, rows: Sequence[SearchRow], machines: Sequence[Mapping[str, Any]]) -> list[Fact]:
    specs = {op.id: op for op in session.scalars(select(OpRow).where(OpRow.id.in_({row.op_id for row in rows})))}
    columns = [
        {
            "op revision": specs[row.op_id].digest[:12],
            "target": row.target,
            "language": row.language,
            "model": row.model_name,
            **_flatten("model", row.model),
            **_flatten("policy", row.policy),
            **_flatten("budget", row.budget),
            "branched from": row.branched_from,
            **machine,
        }
        for row, machine in zip(rows, machines, strict=True)
    ]
    facts = []
    for name in dict.fromkeys(name for column in columns for name in column):
        values = [_write(column.get(name)) for column in columns]
        if any(value is not None for value in values):
            facts.append(Fact(name=name, values=values, differs=len(set(values)) > 1))
    return sorted(facts, key=lambda fact: not fact.differs)


def _flatten(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{name}.{field}": value for field, value in document.items()}


def _write(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _warn(differing: set[str]) -> Iterator[str]:
    if "op revision" in differing:
        yield "The op's spec was changed between these searches: workloads, reference or tolerances may differ."
    if "target" in differing or "device" in differing:
        yield "They were judged on different devices: each speed-up is over the baselines on its own device."
    if "torch" in differing:
        yield "They were judged with different versions of PyTorch, whose baselines differ in speed."

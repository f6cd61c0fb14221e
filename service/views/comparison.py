"""Searches of one op beside each other: their curves, what differed, what each technique came to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import NodeRow, OpRow, SearchRow
from warpsmith.service.documents.comparison import (
    ComparedSearch,
    ComparisonDocument,
    CurvePoint,
    Fact,
)
from warpsmith.service.views.searches import make_search_summaries
from warpsmith.service.views.techniques import list_techniques
from warpsmith.service.views.verdicts import choose_verdict
from warpsmith.service.views.watch import read_curve


def make_comparison(session: Session, rows: Sequence[SearchRow]) -> ComparisonDocument:
    """Compare searches of one op; `rows` in the order in which they are to be shown."""
    summaries = make_search_summaries(session, rows)
    machines = [_read_machine(session, row) for row in rows]
    facts = _list_facts(session, rows, machines)
    return ComparisonDocument(
        op_name=summaries[0].op_name,
        searches=[
            ComparedSearch(search=summary, curve=_make_curve(session, row), techniques=list_techniques(session, row))
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
    measured = {name for machine in machines for name in machine}
    facts = []
    for name in dict.fromkeys(name for column in columns for name in column):
        values = [_write(column.get(name)) for column in columns]
        # A setting that is absent is another setting; a machine that is absent is not known, and differs from none.
        told = [value for value in values if value is not None or name not in measured]
        if any(value is not None for value in values):
            facts.append(Fact(name=name, values=values, differs=len(set(told)) > 1))
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

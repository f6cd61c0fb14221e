"""Keep the winner of a search.

A kernel with its envelope, its evidence and the ideas that led there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.documents import FREE_PYTHON, WorkloadVerdict
from warpsmith.kernels_db.job.envelope import build_envelope
from warpsmith.kernels_db.job.means import mean_ends
from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import (
    DEFAULT_TEAM,
    SHIPPED,
    KernelRow,
    NodeRow,
    OpRow,
    SearchRow,
    VerdictRow,
)
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.search.joining import read_parts
from warpsmith.workers.steps.rows import add_event


def keep_winner(session: Session, search: SearchRow, now: float) -> str | None:
    """Store the best verified candidate as a kernel.

    None where none is surely faster than any baseline. A banned one is never kept, nor is free Python: a kernel
    promises host code that a gate has read.

    A kernel of the team with the same code for the same op and target is not stored again: it gets the newer evidence,
    which replaces the result of any earlier re-verification. So does a shipped one, for the default team alone: it is
    that team's from then on.
    """
    winner = session.scalars(
        select(NodeRow)
        .where(
            NodeRow.search_id == search.id,
            NodeRow.verification == "passed",
            NodeRow.verdict == "accepted",
            NodeRow.score.is_not(None),
            NodeRow.mark.is_distinct_from("banned"),
            NodeRow.language.is_distinct_from(FREE_PYTHON),
        )
        .order_by(NodeRow.score.desc(), NodeRow.seq)
        .limit(1)
    ).first()
    if winner is None:
        return None
    search.best_node_id = winner.id  # a screened tie may have led meanwhile; what a search ends with is verified
    verdict = session.scalars(
        select(VerdictRow)
        .where(VerdictRow.node_id == winner.id, VerdictRow.level == "verify", VerdictRow.verdict == "accepted")
        .order_by(VerdictRow.id.desc())
        .limit(1)
    ).one()
    op_row = session.get_one(OpRow, search.op_id)
    op = parse_op(op_row.spec)
    document = verdict.document
    lower = surely_faster(document["workloads"], op.objective.baselines)
    if not lower:
        return None
    judged = {workload["id"] for workload in document["workloads"]}
    workloads = [item for item in op.workloads_for(Target.parse(search.target)) if item.id in judged]
    source = verdict.source or ""
    low, high = document["score_ci95"] or (winner.score, winner.score)
    values: dict[str, Any] = {
        "search_id": search.id,
        "node_id": winner.id,
        "team": search.team,
        "language": winner.language or search.language,
        "source": source,
        "score": winner.score,
        "ci_low": low,
        "ci_high": high,
        "limit_fraction": winner.limit_fraction,
        "envelope": build_envelope(
            op.digest, search.target, [resolve_workload(op, item) for item in workloads], document["versions"]
        ),
        "evidence": document,
        "lineage": _lineage(session, winner),
        "prompts": None,  # those of the search, which the kernel has now
        "verified_at": now,
        "standing": "verified",
        "reverified_at": None,
    }
    # Of what was verified: a node's own digest is that of what was written, before a sweep chose its numbers.
    digest = normalised_digest(source)
    kernel = session.scalar(
        select(KernelRow)
        .where(
            KernelRow.op_id == op_row.id,
            KernelRow.target == search.target,
            KernelRow.source_digest == digest,
            KernelRow.team.in_((search.team, SHIPPED) if search.team == DEFAULT_TEAM else (search.team,)),
        )
        .with_for_update()
    )
    if kernel is None:
        kernel = KernelRow(
            id=new_id("kn"), op_id=op_row.id, target=search.target, source_digest=digest, created_at=now, **values
        )
        session.add(kernel)
    else:
        for name, value in values.items():
            setattr(kernel, name, value)
    session.flush()
    add_event(
        session,
        search,
        "kernel.kept",
        now,
        winner,
        kernel_id=kernel.id,
        score=kernel.score,
        ci95=[low, high],
        faster=lower,
    )
    return kernel.id


def surely_faster(workloads: Sequence[WorkloadVerdict], baselines: Iterable[str]) -> dict[str, float]:
    """Return the baselines that the candidate surely beats, with its least speed-up over each.

    That is the lower end of the speed-up (`mean_ends`: it errs on the side of not keeping).
    """
    ends = {baseline: mean_ends(workloads, baseline) for baseline in baselines}
    return {baseline: found[0] for baseline, found in ends.items() if found is not None and found[0] > 1.0}


def _lineage(session: Session, winner: NodeRow) -> list[dict[str, Any]]:
    """Return the nodes from the root to the winner, with the parts of those that were joined and what led to them."""
    found: dict[str, NodeRow] = {}
    waiting = [winner]
    while waiting:
        node = waiting.pop()
        if node.id in found:
            continue
        found[node.id] = node
        if node.parent_id is not None:
            waiting.append(session.get_one(NodeRow, node.parent_id))
        if node.joins is not None:
            of_search = NodeRow.search_id == node.search_id
            waiting += session.scalars(select(NodeRow).where(of_search, NodeRow.seq.in_(read_parts(node.joins))))
    return [
        {
            "node_id": node.id,
            "seq": node.seq,
            "origin": node.origin,
            "round": node.round,
            "technique": node.technique,
            "idea": node.idea,
            "repairs": node.repairs,
            "verdict": node.verdict,
            "score": node.score,
        }
        for node in sorted(found.values(), key=lambda node: node.seq)
    ]

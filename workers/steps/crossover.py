"""Put one candidate together from several of a search, as its policy asked.

All of it happens under the search's lock: it reads two or three sources and writes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.kernels_db.store.lineage import JOINED
from warpsmith.kernels_db.store.tables import NodeRow, OpRow, SearchRow
from warpsmith.workers.gate.joined import Choice, Part, Unjoinable, choose_by_size, join
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.search.joining import standings, winners, write_parts
from warpsmith.workers.search.tree import NodeView
from warpsmith.workers.steps.endings import close_node
from warpsmith.workers.steps.planting import stand_joined
from warpsmith.workers.steps.rows import add_event

TECHNIQUE = "control_flow"


def join_candidates(session: Session, search: SearchRow, parts: Sequence[NodeView], round_: int, now: float) -> NodeRow:
    """Add a node with the candidate that `parts` make together; it is to be judged.

    The first part is its parent. Where they make none, the node is closed with the reason, so that they are not asked
    for again.
    """
    rows = session.execute(
        select(NodeRow.seq, NodeRow.source, NodeRow.language).where(
            NodeRow.search_id == search.id, NodeRow.seq.in_([part.seq for part in parts])
        )
    ).all()
    by_seq = {row.seq: row for row in rows}
    language = by_seq[parts[0].seq].language or search.language
    stand = partial(
        stand_joined,
        session,
        search,
        parts[0].id,
        now,
        round_=round_,
        joins=write_parts([part.seq for part in parts]),
        origin=JOINED,
        technique=TECHNIQUE,
    )
    try:
        choice = _choose(session, search, parts)
        numbers = sorted(part.seq for part in parts)  # so the same parts make the same file, whichever is the fastest
        sources = [Part(number, by_seq[number].source or "") for number in numbers]
        source = join(sources, choice, language)
        digest = normalised_digest(source)
        twin = session.scalar(
            select(NodeRow.seq).where(NodeRow.search_id == search.id, NodeRow.source_digest == digest).limit(1)
        )
        if twin is not None:
            raise Unjoinable(f"duplicate of node #{twin}")
    except Unjoinable as found:
        node = stand(state="planned")
        close_node(session, search, node, str(found), now)
        return node
    node = stand(
        idea=_describe(parts, choice),
        state="coded",
        language=language,
        source=source,
        source_digest=digest,
    )
    add_event(session, search, "node.coded", now, node, repairs=0, language=language)
    return node


def _choose(session: Session, search: SearchRow, parts: Sequence[NodeView]) -> Choice:
    """Find how `run` tells the workloads apart on which the parts win."""
    op = parse_op(session.get_one(OpRow, search.op_id).spec)
    workloads = op.workloads_for(Target.parse(search.target))
    return choose_by_size([resolve_workload(op, workload) for workload in workloads], winners(parts))


def _describe(parts: Sequence[NodeView], choice: Choice) -> dict[str, str]:
    """Describe a join as an idea is described."""
    names = " and ".join(f"#{part.seq}" for part in parts)
    measured = "; ".join(
        f"#{part.seq} " + ", ".join(f"{name} {standing.speedup:.3g}x" for name, standing in standings(part).items())
        for part in parts
    )
    return {
        "technique": TECHNIQUE,
        "title": f"Join {names} by size",
        "mechanism": f"run chooses between kernels that win on different workloads: {choice.describe()}",
        "evidence": f"speed-ups over the fastest baseline: {measured}",
        "expected_gain": "on each workload that of the kernel that is chosen for it",
        "risk": "a kernel may be wrong at sizes for which it was not written; a boundary may lie elsewhere",
        "sketch": "both files as they are, their names told apart, and a run that compares a size",
    }

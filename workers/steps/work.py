"""Gathering what a claimed step needs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Select, bindparam, case, func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.documents import Level, NsightKernel, Verdict
from warpsmith.kernels_db.job.sweep_documents import list_tuned
from warpsmith.kernels_db.store.counterexamples import known_counterexamples
from warpsmith.kernels_db.store.lineage import NUMBERED
from warpsmith.kernels_db.store.profiles import latest_metrics
from warpsmith.kernels_db.store.tables import AttemptRow, ModelCallRow, NodeRow, SearchRow, VerdictRow
from warpsmith.kernels_db.store.teams import is_readable
from warpsmith.workers.search.budget import parse_budget
from warpsmith.workers.search.joining import SURE_LEAD
from warpsmith.workers.search.policy import parse_policy
from warpsmith.workers.steps.planting import bare_variants
from warpsmith.workers.steps.sweeping import SHARE, expect_sweep, leaders_of
from warpsmith.workers.steps.values import BenchTime, ExpectedSweep, NodeRecord, StepKind, Tried, Work

MOST_BINARIES = 2000
"""Of the latest verdicts, whose binaries a candidate is held against."""

MOST_NAMED = 8

MOST_TIMED = 80
"""Latest accepted candidates whose times by workload and kernels the ledger tells.

Those are in documents with samples.
"""


# Built once: each step executes some of them.
_NODES = select(NodeRow).where(NodeRow.id.in_(bindparam("node_ids", expanding=True)))
_LATEST = (
    select(func.max(VerdictRow.id))
    .where(VerdictRow.node_id.in_(bindparam("node_ids", expanding=True)))
    .group_by(VerdictRow.node_id)
)
_VERDICTS = select(VerdictRow.node_id, VerdictRow.document).where(VerdictRow.id.in_(_LATEST))
_DIGEST = VerdictRow.document["compile"]["digest"].as_string()
_BINARIES = (
    select(_DIGEST, NodeRow.seq)
    .join(NodeRow, NodeRow.id == VerdictRow.node_id)
    .where(
        NodeRow.search_id == bindparam("search_id"),
        VerdictRow.level == "screen",
        VerdictRow.verdict.in_(("accepted", "rejected", "quarantined")),
        _DIGEST.is_not(None),
    )
    .order_by(VerdictRow.id.desc())
    .limit(MOST_BINARIES)
)
_SIBLINGS = select(NodeRow.idea).where(
    NodeRow.search_id == bindparam("search_id"),
    NodeRow.parent_id == bindparam("parent_id"),
    NodeRow.round == bindparam("round"),
)


@dataclass(frozen=True)
class Place:
    """The spec of a search's op, and the root of its tree."""

    spec: dict[str, Any]
    root_id: str


def build_work(session: Session, search: SearchRow, node: NodeRow, attempt: AttemptRow, place: Place) -> Work:
    """Build the work with all that the step of `attempt` needs."""
    kind = cast("StepKind", attempt.kind)
    asks_model = kind in ("ideate", "code")
    parent = best = None
    if asks_model:
        parent, best = _read_parent_and_best(session, search, node, kind, place.root_id)
    baselines_alone = node.seq == 0 and not asks_model
    ledger = _ledger(session, search.id) if kind == "ideate" else ()
    joined = frozenset(session.scalars(_joins(search.id))) if kind == "ideate" else frozenset()
    named, leads_on = find_leader(ledger, node.seq, joined) if kind == "ideate" else (_named_in(node), ())
    other = None if parent is None else _accepted(session, search.id, named, parent.seq)
    shown = [one for one in (parent, best, other) if one is not None]
    verdicts = _read_verdicts(session, {place.root_id, node.id, *(one.id for one in shown)}) if asks_model else {}
    measured = verdicts.get(place.root_id)
    earlier = read_earlier_baselines(session, search) if asks_model and measured is None else None
    return Work(
        attempt_id=attempt.id,
        search_id=search.id,
        kind=kind,
        ordinal=attempt.ordinal,
        params=attempt.params,
        tries=attempt.tries,
        deferrals=attempt.deferrals,
        op=place.spec,
        target=search.target,
        language=search.language,
        model=search.model,
        level=None if asks_model else level_of(node, attempt),
        node=_record(node, verdicts.get(node.id)),
        parent=None if parent is None else _measured(session, parent, verdicts),
        baselines=measured or earlier,
        best=None if best is None else _measured(session, best, verdicts),
        earlier=earlier is not None,
        ledger=ledger,
        asked=_asked(session, attempt) if kind == "ideate" else 0,
        variants=_variants(session, node) if kind == "code" else 1,
        replies=_replies(session, attempt) if asks_model and attempt.deferrals else 0,
        known_binaries=_known_binaries(session, search.id) if kind == "judge" and node.seq > 0 else {},
        counterexamples=() if baselines_alone else known_counterexamples(session, search.op_id, search.target),
        other=None if other is None else _measured(session, other, verdicts),
        leads_on=() if other is None else leads_on,
        joins=bool(getattr(parse_policy(search.policy), "joins", False)),
        sweep_s=None if asks_model or baselines_alone else _sweep_seconds(search, attempt),
        expected_sweep=expect_sweep(session, search, attempt) if asks_model else ExpectedSweep(),
        configurations=leaders_of(session, node) if kind == "verify" else (),
    )


def read_earlier_baselines(session: Session, search: SearchRow) -> Verdict | None:
    """Return the latest baselines of the search's op and target that its team may read; None where there are none.

    An op is its spec, so they are of the same shapes; a judge that had another device than the target's measured none.
    """
    query = select(VerdictRow.document).join(SearchRow, SearchRow.id == VerdictRow.search_id)
    of_op = (SearchRow.op_id == search.op_id, SearchRow.target == search.target)
    accepted = (VerdictRow.level == "baseline", VerdictRow.verdict == "accepted")
    readable = query.where(*of_op, *accepted, *is_readable(SearchRow.team, search.team))
    latest = readable.order_by(VerdictRow.created_at.desc(), VerdictRow.id.desc()).limit(1)
    return cast("Verdict | None", session.scalar(latest))


def find_leader(
    ledger: Sequence[Tried], seq: int, joined: Collection[int] = ()
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the number of the candidate that adds most to node `seq`, and the bench workloads on which it leads.

    Speed-ups over the fastest baseline are compared, which was timed beside each; a lead counts from SURE_LEAD on. Of
    several the one with the largest product of leads, then the older. Nothing where `seq` leads everywhere. What was
    `joined` from others is left out: its parts say more.
    """
    own = next(({time.workload: time.speedup for time in tried.times} for tried in ledger if tried.seq == seq), {})
    best: tuple[float, tuple[int, ...], tuple[str, ...]] = (1.0, (), ())
    for tried in ledger:
        leads = {
            time.workload: time.speedup / own[time.workload]
            for time in tried.times
            if tried.verdict == "accepted" and tried.seq not in joined and own.get(time.workload, 0.0) > 0.0
        }
        sure = {name: lead for name, lead in leads.items() if lead >= SURE_LEAD}
        if tried.seq != seq and math.prod(sure.values()) > best[0]:
            best = math.prod(sure.values()), (tried.seq,), tuple(sure)
    return best[1], best[2]


def _sweep_seconds(search: SearchRow, attempt: AttemptRow) -> float | None:
    """Return the step's share of the sweep seconds; a verification keeps to all device seconds that are left, too."""
    share: float | None = attempt.params.get(SHARE)
    budget = parse_budget(search.budget)
    if attempt.kind != "verify" or budget.gpu_seconds is None:
        return share
    of_all = max(0.0, budget.gpu_seconds - search.gpu_seconds)
    return of_all if share is None else min(share, of_all)


def _joins(search_id: str) -> Select[tuple[int]]:
    return select(NodeRow.seq).where(NodeRow.search_id == search_id, NodeRow.joins.is_not(None))


def _read_parent_and_best(
    session: Session, search: SearchRow, node: NodeRow, kind: StepKind, root_id: str
) -> tuple[NodeRow | None, NodeRow | None]:
    """Return the node that a model step builds on, None where that is the root, and the champion.

    Of a champion that was joined it is the part that is its parent, so that requests stay short.
    """
    parent_id = node.id if kind == "ideate" else node.parent_id
    parent_id = None if parent_id == root_id else parent_id
    wanted = [one for one in (parent_id, search.best_node_id) if one is not None]
    found = {one.id: one for one in session.scalars(_NODES, {"node_ids": wanted})} if wanted else {}
    best = None if search.best_node_id is None else found[search.best_node_id]
    if best is not None and best.joins is not None:
        best = session.get(NodeRow, best.parent_id)
    return None if parent_id is None else found[parent_id], best


def _named_in(node: NodeRow) -> tuple[int, ...]:
    """Return the numbers of candidates that the node's idea names, as #7."""
    text = " ".join(str(value) for value in (node.idea or {}).values())
    return tuple(dict.fromkeys(int(number) for number in NUMBERED.findall(text)))[:MOST_NAMED]


def _accepted(session: Session, search_id: str, seqs: Sequence[int], parent_seq: int) -> NodeRow | None:
    """Return the first of these candidates of the search that was accepted, is not banned, and is not the parent."""
    of_search = (NodeRow.search_id == search_id, NodeRow.seq.in_([seq for seq in seqs if seq not in (0, parent_seq)]))
    if not seqs:
        return None
    found = session.scalars(select(NodeRow).where(*of_search, NodeRow.verdict == "accepted")).all()
    usable = [one for one in found if one.mark != "banned" and one.source is not None and one.seq > 0]
    return min(usable, key=lambda one: seqs.index(one.seq), default=None)


def level_of(node: NodeRow, attempt: AttemptRow) -> Level:
    """Return the judge's level for a judge or verify step."""
    if node.seq == 0:
        return "baseline"
    return "verify" if attempt.kind == "verify" else "screen"


def _measured(session: Session, node: NodeRow, verdicts: Mapping[str, Verdict]) -> NodeRecord:
    return _record(node, verdicts.get(node.id), latest_metrics(session, node))


def _record(node: NodeRow, document: Verdict | None, metrics: tuple[NsightKernel, ...] = ()) -> NodeRecord:
    return NodeRecord(
        id=node.id,
        seq=node.seq,
        round=node.round,
        technique=node.technique,
        idea=node.idea,
        variant=node.variant,
        language=node.language,
        source=node.source,
        source_digest=node.source_digest,
        repairs=node.repairs,
        verdict=node.verdict,
        score=node.score,
        document=document,
        metrics=metrics,
    )


def _read_verdicts(session: Session, node_ids: Collection[str]) -> dict[str, Verdict]:
    """Return the latest verdict of each node that has one."""
    found = session.connection().execute(_VERDICTS, {"node_ids": list(node_ids)})
    return {node_id: cast("Verdict", document) for node_id, document in found}


def _known_binaries(session: Session, search_id: str) -> dict[str, int]:
    """Return the first node of every binary judged in the search, by the verdict's digest."""
    found: dict[str, int] = {}
    for binary, seq in session.connection().execute(_BINARIES, {"search_id": search_id}):
        found[binary] = min(seq, found.get(binary, seq))
    return found


def _ledger(session: Session, search_id: str) -> tuple[Tried, ...]:
    # The reason of a full verification may name what is hidden from the model that writes candidates: hold-out shapes.
    reason = case((NodeRow.verification.in_(("passed", "failed")), None), else_=NodeRow.reason)
    columns = (
        NodeRow.id,
        NodeRow.seq,
        NodeRow.idea,
        NodeRow.verdict,
        NodeRow.gate,
        NodeRow.score,
        reason,
        NodeRow.ci_low,
        NodeRow.ci_high,
    )
    query = select(*columns).where(
        NodeRow.search_id == search_id, NodeRow.seq > 0, NodeRow.state.in_(("judged", "closed"))
    )
    rows = session.execute(query.order_by(NodeRow.seq)).all()
    accepted = [row.id for row in rows if row.verdict == "accepted"][-MOST_TIMED:]
    bench, built = _bench_results(session, accepted), _reports(session, accepted)
    found = []
    for node_id, *row in rows:
        times, tuned = bench.get(node_id, ((), ()))
        found.append(Tried._make((*row, times, *built.get(node_id, (None, None)), tuned)))
    return tuple(found)


def _bench_results(session: Session, node_ids: list[str]) -> dict[str, tuple[tuple[BenchTime, ...], tuple[str, ...]]]:
    """Return the bench times of each node's latest accepted verdict, and what Triton's autotuner took, by the node."""
    columns = (VerdictRow.node_id, VerdictRow.document["workloads"])
    query = select(*columns).where(VerdictRow.node_id.in_(node_ids), VerdictRow.verdict == "accepted")
    return {
        node_id: (
            tuple(
                BenchTime(entry["id"], entry["time_us"]["candidate"], min(entry["speedup"].values()))
                for entry in workloads
                if entry["role"] == "bench" and "candidate" in entry["time_us"] and entry["speedup"]
            ),
            list_tuned(workloads),
        )
        for node_id, workloads in session.execute(query.order_by(VerdictRow.id)).tuples()
    }


def _reports(
    session: Session, node_ids: list[str]
) -> dict[str, tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]]:
    """Return the compile report and the sweep of each node's latest accepted screening.

    A verification's may tell of hold-out shapes.
    """
    columns = (VerdictRow.node_id, VerdictRow.document["compile"], VerdictRow.document["sweep"])
    of_screenings = (VerdictRow.verdict == "accepted", VerdictRow.level == "screen")
    query = select(*columns).where(VerdictRow.node_id.in_(node_ids), *of_screenings)
    found = session.execute(query.order_by(VerdictRow.id)).tuples()
    return {node_id: (report or None, sweep or None) for node_id, report, sweep in found}


def _asked(session: Session, attempt: AttemptRow) -> int:
    earlier = select(func.count()).where(
        AttemptRow.node_id == attempt.node_id, AttemptRow.kind == "ideate", AttemptRow.ordinal < attempt.ordinal
    )
    return session.scalar(earlier) or 0


def _replies(session: Session, attempt: AttemptRow) -> int:
    """Count the replies that the step had, and could not use, before it was put off."""
    of_step = (ModelCallRow.node_id == attempt.node_id, ModelCallRow.attempt_id == attempt.id)
    return session.scalar(select(func.count()).where(*of_step, ModelCallRow.reply.is_not(None))) or 0


def _variants(session: Session, node: NodeRow) -> int:
    """Return how many candidates realise the node's idea.

    That is its siblings of the same round with the same idea, and itself. Of those without an idea, all on the same
    parent count.
    """
    if node.idea is None:
        return len(bare_variants(session, node.search_id, node.parent_id))
    of_siblings = {"search_id": node.search_id, "parent_id": node.parent_id, "round": node.round}
    return sum(idea == node.idea for (idea,) in session.connection().execute(_SIBLINGS, of_siblings))

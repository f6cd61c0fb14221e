"""Shares of a search's limit on sweep seconds: what steps that run at once may hold together is reserved for each.

A step that may sweep is a screening of a candidate with tunables, or a verification of one whose sweep left further
configurations to verify. It gets its share as it is claimed, under the search's lock, and keeps it in its row while it
runs; what it did not hold is there for the next.

A verification that a bundle carries has no step before it is merged. Its share is in its job's row, while the bundle
holds a screening: which candidates are verified hangs on these. After that it is one of the steps that wait, if it is
wanted.
"""

from __future__ import annotations

import math

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session, aliased

from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.job.sweep_documents import MOST_LEADERS, SWEEP_S, find_leaders
from warpsmith.kernels_db.store.tables import AttemptRow, BundleJobRow, NodeRow, SearchRow, VerdictRow
from warpsmith.workers.gate.tunables import MOST_CONFIGURATIONS, has_configurations
from warpsmith.workers.search.budget import parse_budget, sweep_seconds_left
from warpsmith.workers.steps.rows import in_bundle
from warpsmith.workers.steps.values import ExpectedSweep

SHARE = "sweep_s"
"""The name of a step's share among its `params`."""

JUDGED = ("judge", "verify")

PACE_OF = 16
"""Screenings of a search, the newest, by whose sweeps the pace of the next is told."""


def reserve_sweep(
    session: Session, search: SearchRow, attempt: AttemptRow, *, verified: bool = False, besides: int = 0
) -> None:
    """Reserve what `attempt`, which is about to run, may hold of the search's limit on sweep seconds.

    It is an equal share of what is left beside the reservations of steps that run: as many steps as wait have one
    each. Nothing is reserved where the search has no such limit, or the step cannot sweep. verified: of a screening,
    its verification goes with it, so the share is for the further configurations of its sweep as well. besides: as many
    verifications that have no step are to have a share each, too.
    """
    left = sweep_seconds_left(parse_budget(search.budget), search.sweep_seconds)
    if left is None or attempt.kind not in JUDGED:
        return
    session.flush()
    left -= _reserved_by_bundles(session, search)
    query = select(AttemptRow, NodeRow).join(NodeRow, NodeRow.id == AttemptRow.node_id)
    of_search = (AttemptRow.search_id == search.id, AttemptRow.kind.in_(JUDGED), NodeRow.seq > 0)
    open_steps = session.execute(query.where(*of_search, AttemptRow.state.in_(("pending", "running")))).tuples().all()
    waiting = besides
    for other, node in open_steps:
        if other.id != attempt.id and other.state == "running":
            left -= other.params.get(SHARE, 0.0)
        elif _may_sweep(session, other, node):
            waiting += 1
    of_step = next((node for other, node in open_steps if other.id == attempt.id), None)
    share = None
    if of_step is not None and _may_sweep(session, attempt, of_step):
        share = max(0.0, left) / waiting
        if attempt.kind == "judge":
            share = min(share, SWEEP_S * (1 + MOST_LEADERS) if verified else SWEEP_S)
    # A share that an earlier try of this step had is void.
    kept = {name: value for name, value in attempt.params.items() if name != SHARE}
    attempt.params = kept if share is None else {**kept, SHARE: share}


def unreserved_seconds(session: Session, search: SearchRow) -> float | None:
    """Return what is left of the search's limit on sweep seconds beside the reservations of steps that run.

    None where nothing limits it.
    """
    left = sweep_seconds_left(parse_budget(search.budget), search.sweep_seconds)
    if left is None:
        return None
    session.flush()
    running = (AttemptRow.search_id == search.id, AttemptRow.state == "running", AttemptRow.kind.in_(JUDGED))
    held: list[float] = [
        params.get(SHARE, 0.0) for params in session.scalars(select(AttemptRow.params).where(*running))
    ]
    return max(0.0, left - sum(held) - _reserved_by_bundles(session, search))


def equal_share(session: Session, search: SearchRow, number: int) -> float | None:
    """Return the part of the unreserved sweep seconds that each of `number` verifications without a step has.

    The steps that wait have as much. None where nothing limits them.
    """
    left = unreserved_seconds(session, search)
    if left is None:
        return None
    query = select(AttemptRow, NodeRow).join(NodeRow, NodeRow.id == AttemptRow.node_id)
    waiting = (AttemptRow.search_id == search.id, AttemptRow.state == "pending", AttemptRow.kind.in_(JUDGED))
    rows = session.execute(query.where(*waiting, NodeRow.seq > 0)).tuples()
    return left / (number + sum(_may_sweep(session, attempt, node) for attempt, node in rows.all()))


def _reserved_by_bundles(session: Session, search: SearchRow) -> float:
    """Return what is reserved for verifications of bundles that still hold a screening."""
    screening = aliased(BundleJobRow)
    out = (
        select(screening.bundle_id)
        .join(AttemptRow, AttemptRow.id == screening.attempt_id)
        .where(screening.search_id == search.id, screening.screening.is_(None))
        .where(AttemptRow.kind == "judge", AttemptRow.state == "running", in_bundle())
    )
    unmerged = (BundleJobRow.screening.is_not(None), BundleJobRow.merged_at.is_(None))
    query = select(func.sum(BundleJobRow.sweep_s)).where(BundleJobRow.search_id == search.id, *unmerged)
    return session.scalar(query.where(BundleJobRow.bundle_id.in_(out))) or 0.0


def keep_for_verification(session: Session, job: BundleJobRow, attempt: AttemptRow, verdict: Verdict) -> None:
    """Keep what a screening of a bundle left of its share for the verification that goes with it.

    job, attempt: of the screening, which is merged with `verdict`. Nothing is kept where that was not accepted, since
    no verification follows, or where no configuration led, since the verification sweeps nothing.
    """
    sweep = verdict.get("sweep")
    if SHARE in attempt.params and verdict["verdict"] == "accepted" and sweep and find_leaders(sweep):
        left = max(0.0, attempt.params[SHARE] - verdict.get("sweep_seconds", 0.0))
        session.execute(update(BundleJobRow).where(BundleJobRow.screening == job.id).values(sweep_s=left))


def expect_sweep(session: Session, search: SearchRow, attempt: AttemptRow) -> ExpectedSweep:
    """Return what the sweep of a candidate that `attempt` has a model write, or have an idea for, may hold and time.

    Of what no step has reserved it has an equal part with the others that are written or wait for a judge; ideas count
    as one candidate each. The pace is that of the newest sweeps of the search, their later rounds included.
    """
    left = unreserved_seconds(session, search)
    seconds = SWEEP_S
    if left is not None:
        beside = (AttemptRow.search_id == search.id, NodeRow.seq > 0, AttemptRow.state.in_(("pending", "running")))
        coming = AttemptRow.kind == "code"
        waiting = (AttemptRow.kind == "judge") & (AttemptRow.state == "pending")
        query = select(func.count()).select_from(AttemptRow).join(NodeRow, NodeRow.id == AttemptRow.node_id)
        number = (session.scalar(query.where(*beside, coming | waiting)) or 0) + int(attempt.params.get("ideas", 0))
        seconds = min(SWEEP_S, left / max(1, number))
    if search.sweep_seconds == 0.0:
        return ExpectedSweep(seconds)
    screens = select(VerdictRow.document["sweep"], VerdictRow.document["sweep_seconds"])
    of_search = (VerdictRow.search_id == search.id, VerdictRow.level == "screen")
    newest = screens.where(*of_search).order_by(VerdictRow.id.desc()).limit(PACE_OF)
    swept = [(sweep, held) for sweep, held in session.execute(newest).tuples() if sweep and held]
    if not swept:
        return ExpectedSweep(seconds)
    timed = sum(one["rounds"] > 0 for sweep, _ in swept for one in sweep["configurations"])
    pace = timed / math.fsum(held for _, held in swept)
    return ExpectedSweep(seconds, min(MOST_CONFIGURATIONS, round(pace * seconds)))


def leaders_of(session: Session, node: NodeRow) -> tuple[dict[str, int], ...]:
    """Return the configurations that led somewhere in the sweep of the node's screening."""
    query = select(VerdictRow.document["sweep"]).where(
        VerdictRow.node_id == node.id, VerdictRow.level == "screen", VerdictRow.source == node.source
    )
    sweep = session.scalar(query.order_by(VerdictRow.id.desc()).limit(1))
    return find_leaders(sweep) if sweep else ()


def _may_sweep(session: Session, attempt: AttemptRow, node: NodeRow) -> bool:
    if attempt.kind == "verify":
        return bool(leaders_of(session, node))
    return node.source is not None and has_configurations(node.source)

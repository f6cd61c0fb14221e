"""How things end: a search, a branch, a step that cannot be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.tables import AskRow, AttemptRow, ModelCallRow, NodeRow, SearchRow, TryRow, VerdictRow
from warpsmith.workers.steps.budget_clock import stop_clock
from warpsmith.workers.steps.rows import OPEN, Held, add_event, close_attempt, count_candidate, signed
from warpsmith.workers.steps.values import EventType
from warpsmith.workers.steps.winners import keep_winner
from warpsmith.workers.text import storable

Ending = Literal["finished", "failed", "cancelled"]
ENDINGS: Mapping[Ending, EventType] = {
    "finished": "search.finished",
    "failed": "search.failed",
    "cancelled": "search.cancelled",
}
"""The event of each state that a search never leaves."""


def end(
    session: Session,
    search: SearchRow,
    state: Ending,
    reason: str,
    now: float,
    problem: dict[str, Any] | None = None,
    by: str | None = None,
) -> None:
    """End the search: nothing of it stays open, and unless it failed it keeps its winner.

    A cancelled one keeps it, too: the results verified before are worth as much. `by`: who asked for it.
    """
    _end_open_steps(session, search, now)
    if state != "failed":
        kernel_id = keep_winner(session, search, now)
        if kernel_id is None and state == "finished":
            reason = f"{reason}; {_no_winner(session, search)}"
    stop_clock(search, now)
    search.state = state
    search.reason = storable(reason)
    search.problem = problem
    told = {"reason": reason, "problem": problem, "best_node_id": search.best_node_id, **signed(by)}
    add_event(session, search, ENDINGS[state], now, **told)


def _no_winner(session: Session, search: SearchRow) -> str:
    """Return why nothing is kept: no candidate was right, or none was faster.

    Every screening counts, repaired ones too.
    """
    query = select(VerdictRow.verdict, func.count()).where(
        VerdictRow.search_id == search.id, VerdictRow.level == "screen"
    )
    verdicts = dict(session.execute(query.group_by(VerdictRow.verdict)).tuples().all())
    if not verdicts:
        return "no candidate was judged"
    if "accepted" in verdicts:
        return "no candidate beat the baselines"
    return "no candidate was right: " + ", ".join(f"{count} {word}" for word, count in sorted(verdicts.items()))


def _end_open_steps(session: Session, search: SearchRow, now: float) -> None:
    session.flush()
    of_search = NodeRow.search_id == search.id
    open_ones = AttemptRow.search_id == search.id, AttemptRow.state.in_(OPEN)
    leases.finish_all(session, AttemptRow, "cancelled", now, *open_ones)
    waiting = TryRow.search_id == search.id, TryRow.state == "pending"
    session.execute(update(TryRow).where(*waiting).values(reason="the search ended first"))
    leases.finish_all(session, TryRow, "failed", now, *waiting)
    session.execute(
        update(AskRow).where(AskRow.search_id == search.id, AskRow.state == "open").values(state="withdrawn")
    )
    session.execute(
        update(NodeRow)
        .where(of_search, NodeRow.state.in_(("coding", "judging")))
        .values(state="closed", reason="the search ended first", updated_at=now)
    )
    session.execute(update(NodeRow).where(of_search, NodeRow.ideation == "open").values(ideation="done"))
    session.execute(update(NodeRow).where(of_search, NodeRow.verification == "open").values(verification="none"))


def pause_search(
    session: Session,
    search: SearchRow,
    reason: str,
    now: float,
    by: str | None = None,
    *,
    again_at: float | None = None,
    quota: str | None = None,
) -> None:
    """Pause a search that has not ended; running steps may still commit.

    `by`: who asked for it. It goes on by itself at `again_at`, where that is given (`warpsmith.workers.steps.outages`).
    `quota`: of its team, of which nothing is left.
    """
    stop_clock(search, now)
    search.state = "paused"
    search.reason = storable(reason)
    alone = {name: value for name, value in (("again_at", again_at), ("quota", quota)) if value is not None}
    add_event(session, search, "search.paused", now, reason=reason, **signed(by), **alone)


def fail_step(session: Session, work: Held, reason: str, now: float) -> None:
    """Fail the attempt of a step without a result, and end its branch.

    Without baselines the search ends.
    """
    search, node, attempt = work.search, work.node, work.attempt
    close_attempt(attempt, "failed", now, reason)
    if (attempt.kind == "judge" and node.seq > 0) or (attempt.kind == "code" and _was_answered(session, attempt)):
        count_candidate(session, search, now)
    add_event(session, search, "attempt.failed", now, node, kind=attempt.kind, ordinal=attempt.ordinal, error=reason)
    match attempt.kind:
        case "ideate":
            node.ideation = "done"
            node.updated_at = now
        case "verify":
            node.verification = "failed"
            node.reason = storable(f"not verified: {reason}")
            node.updated_at = now
            renew_best(session, search)
        case "judge" if node.seq == 0:
            close_node(session, search, node, reason, now)
            end(session, search, "failed", f"the baselines could not be measured: {reason}", now)
        case _:
            close_node(session, search, node, reason, now)


def _was_answered(session: Session, attempt: AttemptRow) -> bool:
    """Check whether the step's model replied at all; a pool that has no reply costs nothing."""
    of_step = (ModelCallRow.node_id == attempt.node_id, ModelCallRow.attempt_id == attempt.id)
    replies = select(ModelCallRow.id).where(*of_step, ModelCallRow.reply.is_not(None))
    return session.scalar(replies.limit(1)) is not None


def close_node(session: Session, search: SearchRow, node: NodeRow, reason: str, now: float) -> None:
    """End the node without a verdict on its code."""
    node.state = "closed"
    node.reason = storable(reason)
    node.updated_at = now
    add_event(session, search, "node.closed", now, node, reason=reason)


def renew_best(session: Session, search: SearchRow) -> None:
    """Find the champion anew, after a verification or a ban changed what is known of one."""
    session.flush()
    search.best_node_id = session.scalar(
        select(NodeRow.id)
        .where(
            NodeRow.search_id == search.id,
            NodeRow.seq > 0,
            NodeRow.state == "judged",
            NodeRow.verdict == "accepted",
            NodeRow.score.is_not(None),
            NodeRow.verification != "failed",
            NodeRow.mark.is_distinct_from("banned"),
        )
        .order_by(NodeRow.score.desc(), NodeRow.seq)
        .limit(1)
    )

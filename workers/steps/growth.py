"""Grow the tree: from the policy's steps to open attempts.

All of it happens under the search's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import AttemptRow, NodeRow, SearchRow
from warpsmith.workers import log
from warpsmith.workers.search.budget import parse_budget
from warpsmith.workers.search.joining import read_parts
from warpsmith.workers.search.policy import Policy, parse_policy
from warpsmith.workers.search.tree import Budget, NodeView, Spend, Step, Tree
from warpsmith.workers.steps.budget_clock import set_clock, start_clock
from warpsmith.workers.steps.crossover import join_candidates
from warpsmith.workers.steps.endings import end
from warpsmith.workers.steps.planting import bare_variants, plan
from warpsmith.workers.steps.rows import add_event, in_bundle, is_unwritten, message, put_back, spend, write_new
from warpsmith.workers.steps.tree_reading import read_nodes
from warpsmith.workers.steps.values import Message

Decide: TypeAlias = Callable[[Tree, Policy, Budget, Spend], list[Step]]
"""The policy's seam: `warpsmith.workers.search.policy.next_steps`."""

AT_ONCE = ("plant", "join")
"""Steps that take no attempt: they make nodes, and the policy is asked again."""

_KNOWN = select(AttemptRow.node_id, AttemptRow.kind, AttemptRow.ordinal, AttemptRow.id, AttemptRow.state).where(
    AttemptRow.node_id.in_(bindparam("node_ids", expanding=True))
)
_INSERT = insert(AttemptRow)

logger = log.get(__name__)


class PolicyFault(ValueError):  # noqa: N818 - named for whose fault it is
    """The policy asked for something that the tree does not allow."""


def grow(session: Session, search: SearchRow, now: float, decide: Decide) -> list[Message]:
    """Open what the policy asks for; see `lifecycle.advance`. A new search is written with its first steps."""
    if search.state == "queued":
        search.state = "running"
        search.running_since = now
        add_event(session, search, "search.started", now)
    if search.state != "running":
        return []
    policy, budget, spent = parse_policy(search.policy), parse_budget(search.budget), spend(search, now)

    def ask(nodes: list[NodeView]) -> list[Step]:
        away = nodes[0].state == "judging" and _is_in_bundle(session, nodes[0])
        return decide(Tree(nodes, baselines_away=away), policy, budget, spent)

    try:
        nodes, steps = _decided(session, search, ask, now)
        if steps and steps[0].kind == "stop":
            write_new(session, search)
            end(session, search, "finished", steps[0].reason or "the policy stopped", now)
            return []
        messages = _open(session, search, nodes, steps, now)
    except PolicyFault as fault:
        write_new(session, search)
        end(session, search, "failed", f"the policy failed: {fault}", now)
        return []
    if messages:
        start_clock(search, now)
    elif not set_clock(session, search, now):
        end(session, search, "finished", "the policy asked for nothing more", now)
    return messages


def _decided(
    session: Session, search: SearchRow, ask: Callable[[list[NodeView]], list[Step]], now: float
) -> tuple[list[NodeView], list[Step]]:
    """Return the tree with all nodes that the policy wanted at once, and its next steps."""
    nodes = read_nodes(session, search)
    steps = _answer(search, ask, nodes)
    wanted = [step for step in steps if step.kind in AT_ONCE]
    if not wanted:
        return nodes, steps
    write_new(session, search)
    for step in wanted:
        if step.kind == "join":
            join_candidates(session, search, _parts_of(step, nodes), step.ordinal, now)
        else:
            _plant(session, search, nodes, step, now)
    session.flush()
    nodes = read_nodes(session, search)
    steps = _answer(search, ask, nodes)
    if any(step.kind in AT_ONCE for step in steps):
        raise PolicyFault("it asked for nodes again before it opened those that it had")
    return nodes, steps


def _answer(search: SearchRow, ask: Callable[[list[NodeView]], list[Step]], nodes: list[NodeView]) -> list[Step]:
    try:
        return ask(nodes)
    except Exception as error:
        # Policies are pure code: every further try would fail alike and hold up the reconciler.
        logger.exception("the policy failed", search=search.id)
        raise PolicyFault(f"{type(error).__name__}: {error}") from error


def _plant(session: Session, search: SearchRow, nodes: list[NodeView], step: Step, now: float) -> None:
    """Planned nodes without an idea under the step's node, numbered on from those that it has."""
    parent = _node_of(step, {node.id: node for node in nodes})
    _start_round(session, search, [step], now)
    first = len(bare_variants(session, search.id, parent.id))
    for variant in range(first, first + int(step.params["codes"] or 0)):
        plan(session, search, parent.id, None, now, round_=step.ordinal, variant=variant)


def _parts_of(step: Step, nodes: list[NodeView]) -> list[NodeView]:
    """Return the nodes that a join is to be made of, its parent first."""
    seqs = read_parts(str(step.params["parts"]))
    by_seq = {node.seq: node for node in nodes}
    parts = [by_seq[seq] for seq in seqs if seq in by_seq and by_seq[seq].verdict == "accepted"]
    if len(parts) != len(seqs) or parts[0].id != step.node_id:
        raise PolicyFault(f"it asked for a join of {step.params['parts']} on node {step.node_id}, which it cannot have")
    return parts


def _node_of(step: Step, by_id: Mapping[str, NodeView]) -> NodeView:
    node = by_id.get(step.node_id or "")
    if node is None:
        raise PolicyFault(f"it asked for {step.kind} on node {step.node_id}, which is not in the tree")
    return node


def _open(session: Session, search: SearchRow, nodes: list[NodeView], steps: list[Step], now: float) -> list[Message]:
    wanted = {step.node_id for step in steps}
    new = is_unwritten(search)
    unwritten = {row.id: row for row in (session.new if new else session.dirty) if isinstance(row, NodeRow)}
    by_id = {node.id: node for node in nodes if node.id in wanted}
    known = {} if new else _known(session, by_id)
    attempts: list[dict[str, Any]] = []
    again: list[Message] = []
    changed: dict[tuple[tuple[str, Any], ...], list[str]] = {}
    for step in steps:
        node = _node_of(step, by_id)
        key = (node.id, step.kind, step.ordinal)
        taken_back = known.get(key)
        if key in known and taken_back is None:
            continue
        known[key] = None
        opening = _opening(step, node)
        if node.id in unwritten:  # one statement for what a step brought and for what is opened next
            for name, value in (opening | {"updated_at": now}).items():
                setattr(unwritten[node.id], name, value)
        else:
            changed.setdefault(tuple(opening.items()), []).append(node.id)
        if taken_back is not None:
            again.append(_open_again(session, search, taken_back, step, now))
            continue
        attempts.append(
            {
                "id": new_id("at"),
                "search_id": search.id,
                "node_id": node.id,
                "kind": step.kind,
                "ordinal": step.ordinal,
                "params": dict(step.params),
                "state": "pending",
                "tries": 0,
                "deferrals": 0,
                "not_before": 0.0,
                "sent_at": now,
                "created_at": now,
            }
        )
    if attempts or again:
        search.updated_at = now
    written = write_new(session, search, [(AttemptRow, attempt) for attempt in attempts])
    for values, node_ids in changed.items():
        session.execute(update(NodeRow).where(NodeRow.id.in_(node_ids)).values(**dict(values), updated_at=now))
    if attempts:
        if not written:
            session.connection().execute(_INSERT, attempts)
        _start_round(session, search, steps, now)
    return again + [message(attempt["id"], attempt["kind"], search.target) for attempt in attempts]


def _open_again(session: Session, search: SearchRow, attempt_id: str, step: Step, now: float) -> Message:
    """Put a step that a ban took back into its queue again."""
    attempt = session.get_one(AttemptRow, attempt_id, populate_existing=True)
    put_back(attempt)
    attempt.params, attempt.deferrals, attempt.not_before = dict(step.params), 0, 0.0
    attempt.started_at, attempt.finished_at, attempt.sent_at = None, None, now
    return message(attempt.id, attempt.kind, search.target)


def _known(session: Session, nodes: dict[str, NodeView]) -> dict[tuple[str, str, int], str | None]:
    """Return the attempts that these nodes had or have, none of which is made twice.

    Each has its id where it is to be opened again: a ban took it back, and was lifted. A request for ideas is not.
    """
    found = session.connection().execute(_KNOWN, {"node_ids": list(nodes)}) if nodes else ()
    return {
        (node_id, kind, ordinal): attempt_id if state == "cancelled" and kind != "ideate" else None
        for node_id, kind, ordinal, attempt_id, state in found
    }


def _opening(step: Step, node: NodeView) -> dict[str, Any]:
    """Return the changes in its node's row that opening `step` makes."""
    match step.kind:
        case "ideate" if node.ideation != "open":
            return {"ideation": "open", "ideated": step.ordinal}
        case "code" if node.state == "planned" and step.ordinal == 0:
            return {"state": "coding"}
        case "code" if node.state == "judged" and step.ordinal == node.repairs + 1:
            # A repair starts over: what was said of the old code does not hold for the new.
            return {"state": "coding", "repairs": step.ordinal, "verification": "none"}
        case "judge" if node.state == "coded":
            return {"state": "judging"}
        case "verify" if node.state == "judged" and node.verification != "open":
            return {"verification": "open"}
    found = f"{node.state}, ideation {node.ideation}, verification {node.verification}, {node.repairs} repairs"
    raise PolicyFault(f"it asked for {step.kind} {step.ordinal} on node #{node.seq}, which is {found}")


def _start_round(session: Session, search: SearchRow, steps: list[Step], now: float) -> None:
    opened = max((step.ordinal for step in steps if step.kind in ("ideate", "plant")), default=0)
    if opened > search.round:
        search.round = opened
        add_event(session, search, "round.started", now, round=opened, best_node_id=search.best_node_id)


def _is_in_bundle(session: Session, root: NodeView) -> bool:
    """Check whether a bundle holds the step that measures the baselines."""
    of_root = (AttemptRow.node_id == root.id, AttemptRow.kind == "judge", AttemptRow.state == "running")
    return session.scalar(select(AttemptRow.id).where(*of_root, in_bundle()).limit(1)) is not None

"""Steering by a person: ideas, marks, budgets, branches.

The event records who did it (`by`, an API key's name).

Nothing here opens a step: the caller advances the search afterwards. On a paused search a steer is recorded and takes
effect when the search is resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.spec.op import SpecError, Target, parse_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import DEFAULT_TEAM, NodeRow, OpRow, SearchRow
from warpsmith.workers.search.budget import budget_document, parse_budget
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.steps.bans import take_back
from warpsmith.workers.steps.endings import renew_best
from warpsmith.workers.steps.lifecycle import NewSearch, create_search
from warpsmith.workers.steps.planting import adopt, digest_of, ideas_so_far, plan
from warpsmith.workers.steps.rows import add_event, lock_search, plain, signed, spend
from warpsmith.workers.steps.values import EventType, WrongState

Mark: TypeAlias = Literal["pinned", "banned"]
Also: TypeAlias = Callable[[Session, Sequence[NodeRow]], None]
"""Runs in the steer's transaction with the nodes that it made or changed."""

MARKED: Mapping[Mark, tuple[EventType, EventType]] = {
    "pinned": ("node.pinned", "node.unpinned"),
    "banned": ("node.banned", "node.unbanned"),
}
"""The events of setting and of removing a mark."""

BRANCH_INSTEAD = "one that has not ended; to go on from it, branch a new search from one of its nodes"


def add_idea(
    db: Database,
    search_id: str,
    idea: Mapping[str, Any],
    now: float,
    *,
    parent_id: str | None = None,
    codes: int = 1,
    by: str | None = None,
    also: Also | None = None,
) -> list[str]:
    """Plan `codes` nodes for a person's idea in the current round; returns their ids.

    The round is 0 before the first.

    `idea` has at least technique, title and mechanism. It builds on `parent_id`: the root or an accepted candidate that
    is not banned; by default the best so far, or the root. Raises WrongState where the search has ended, has had the
    idea, or the parent is none; LookupError for a search or a parent that is not there.
    """
    with db.reading() as session:
        before = ideas_so_far(session, search_id)
    with db.writing() as session:
        search = _open_search(session, search_id)
        parent = _parent(session, search, parent_id)
        document = plain(idea)
        twin = ideas_so_far(session, search.id, before).first.get(digest_of(document))
        if twin is not None:
            raise WrongState("idea", f"the same idea as node #{twin}", "one that the search has not had")
        nodes = [
            plan(session, search, parent.id, document, now, round_=search.round, variant=variant, origin="person")
            for variant in range(codes)
        ]
        told = {"title": document["title"], "technique": document["technique"], "codes": codes}
        add_event(session, search, "idea.added", now, nodes[0], parent_id=parent.id, **told, **signed(by))
        session.flush()
        if also is not None:
            also(session, nodes)
        return [node.id for node in nodes]


def _parent(session: Session, search: SearchRow, parent_id: str | None) -> NodeRow:
    if parent_id is None and search.best_node_id is not None:
        return session.get_one(NodeRow, search.best_node_id)
    if parent_id is None:
        return session.scalars(select(NodeRow).where(NodeRow.search_id == search.id, NodeRow.seq == 0)).one()
    parent = session.get(NodeRow, parent_id)
    if parent is None or parent.search_id != search.id:
        raise LookupError(f"parent: found {parent_id!r}, expected the id of a node of this search")
    accepted = parent.state == "judged" and parent.verdict == "accepted"
    if parent.mark == "banned" or not (parent.seq == 0 or accepted):
        found = "a banned node" if parent.mark == "banned" else f"node #{parent.seq}, {parent.verdict or parent.state}"
        raise WrongState("parent", found, "the root or an accepted candidate that is not banned")
    return parent


def mark_node(
    db: Database, node_id: str, mark: Mark, wanted: bool, now: float, *, by: str | None = None, also: Also | None = None
) -> None:
    """Set a mark, or with `wanted` false remove it.

    A node has one, and the later replaces the earlier. Setting the mark that it has, and removing one that it has not,
    change nothing and make no event.

    A pinned node, the root too, is a parent of the rounds to come once it is accepted, as far as the policy has rounds
    and up to its limit (`MOST_PINNED`; `puct` takes turns with it). While a node is banned, no step is opened for
    it: it is no parent, and is not coded, repaired, judged or verified, and it is neither the best nor the winner. A
    step that a worker does still ends and is committed; one that is queued, travels in a bundle or waits for an answer
    is taken back (`bans`), so that no round waits for it; what builds on it stays. The best is found anew where a ban
    is set, lifted or replaced. Raises WrongState for a ban of the root and where the search has ended; LookupError for
    an unknown node.
    """
    with db.writing() as session:
        search_id = session.scalar(select(NodeRow.search_id).where(NodeRow.id == node_id))
        if search_id is None:
            raise LookupError(f"node: found {node_id!r}, expected the id of a node")
        search = _open_search(session, search_id)
        node = session.get_one(NodeRow, node_id)
        if node.seq == 0 and wanted and mark == "banned":
            raise WrongState(
                f"node {node_id}", "the root", "a node with an idea: a search may always go back to its root"
            )
        if (node.mark == mark) != wanted:
            before = node.mark
            node.mark = mark if wanted else None
            node.updated_at = now
            taken = take_back(session, search, node, now) if node.mark == "banned" else []
            if "banned" in (before, node.mark):
                renew_best(session, search)
            kind = MARKED[mark][0 if wanted else 1]
            told = {"taken_back": taken} if taken else {}
            add_event(session, search, kind, now, node, best_node_id=search.best_node_id, **told, **signed(by))
        session.flush()
        if also is not None:
            also(session, [node])


def change_budget(
    db: Database, search_id: str, changes: Mapping[str, Any], now: float, *, by: str | None = None
) -> None:
    """Set the limits that `changes` names; null lifts one.

    The rest stay, and so does the spending.

    Raises SpecError naming the field: no such limit, no such value, or less than is spent. WrongState where the search
    has ended: it is not opened again.
    """
    parse_budget(changes)
    with db.writing() as session:
        search = _open_search(session, search_id)
        before = parse_budget(search.budget)
        after = parse_budget({**budget_document(before), **changes})
        spent = spend(search, now)
        for name in changes:
            limit, used = getattr(after, name), getattr(spent, name)
            if limit is not None and limit < used:
                raise SpecError(f"budget.{name}", limit, f"at least what is spent, which is {used:g}, or null")
        if after != before:
            search.budget = dict(budget_document(after))
            told = {"before": budget_document(before), "after": search.budget}
            add_event(session, search, "budget.changed", now, **told, **signed(by))


def branch(
    db: Database,
    node_id: str,
    *,
    policy: Mapping[str, Any],
    budget: Mapping[str, Any],
    model: Mapping[str, Any],
    now: float,
    team: str = DEFAULT_TEAM,
    model_name: str | None = None,
    by: str | None = None,
    also: Callable[[Session, NewSearch], None] | None = None,
) -> str:
    """Create a queued search of `team` that starts from the root and this node's candidate; return its id.

    It has the same op, target and language, and the candidate is judged again. `also` is that of `create_search`.

    The old search may have ended. Raises WrongState where the node has no code, LookupError for an unknown node.
    """
    with db.reading() as session:
        node = session.get(NodeRow, node_id)
        if node is None:
            raise LookupError(f"node: found {node_id!r}, expected the id of a node")
        if node.source is None:
            found = "the root" if node.seq == 0 else f"{node.state}, without code"
            raise WrongState(f"node {node_id}", found, "a node that has code")
        old = session.get_one(SearchRow, node.search_id)
        op = parse_op(session.get_one(OpRow, old.op_id).spec)
        source, language = node.source, node.language or old.language
        told = {"from_search": old.id, "from_node": node.id, "from_seq": node.seq}
        technique, idea, target = node.technique, node.idea, old.target

    def plant(session: Session, new: NewSearch) -> None:
        search = new.search
        search.branched_from = node_id
        add_event(session, search, "search.branched", now, **told, **signed(by))
        adopt(
            session,
            search,
            new.root.id,
            now,
            origin="branch",
            source=source,
            language=language,
            technique=technique,
            idea=idea,
        )
        if also is not None:
            also(session, new)

    return create_search(
        db,
        op,
        Target.parse(target),
        language=language,
        policy=policy,
        budget=budget,
        model=model,
        now=now,
        team=team,
        model_name=model_name,
        also=plant,
    )


def _open_search(session: Session, search_id: str) -> SearchRow:
    search = lock_search(session, search_id)
    if search.state in ENDED:
        raise WrongState(f"search {search_id}", search.state, BRANCH_INSTEAD)
    return search

"""New nodes: ideas of a model or a person, and candidates from elsewhere.

It also tells whether the search had an idea before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import NodeRow, SearchRow
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.search.dedup import idea_digest
from warpsmith.workers.steps.rows import add_event


@dataclass(frozen=True)
class IdeasSeen:
    """The first node of every idea, by the idea's digest, among the nodes up to number `last`."""

    first: Mapping[str, int]
    last: int


def ideas_so_far(session: Session, search_id: str, seen: IdeasSeen = IdeasSeen({}, 0)) -> IdeasSeen:
    """Return the ideas of the search; ideas in `seen` are not read again, as they never change.

    Reading them takes long in a large search. So a caller that needs them under the search's lock reads them before,
    and under the lock the few that came since: numbers are given out under it, so none below `last` can follow.
    """
    first, last = dict(seen.first), seen.last
    query = select(NodeRow.seq, NodeRow.idea).where(NodeRow.search_id == search_id, NodeRow.seq > last)
    for seq, idea in session.execute(query.order_by(NodeRow.seq)):
        last = seq
        if idea is not None:
            first.setdefault(digest_of(idea), seq)
    return IdeasSeen(first, last)


def digest_of(idea: Mapping[str, Any]) -> str:
    """Return the digest that makes two ideas the same.

    It is of their technique, and of the words of title and mechanism.
    """
    return idea_digest(str(idea["technique"]), f"{idea['title']}\n{idea['mechanism']}")


def plan(
    session: Session,
    search: SearchRow,
    parent_id: str,
    idea: dict[str, Any] | None,
    now: float,
    *,
    round_: int,
    variant: int,
    origin: str = "model",
) -> NodeRow:
    """Plan the search's next node for `idea`; None where code is wanted without an idea."""
    return _stand(
        session,
        search,
        now,
        parent_id=parent_id,
        round=round_,
        technique=None if idea is None else str(idea["technique"])[:64],
        idea=idea,
        variant=variant,
        state="planned",
        origin=origin,
    )


def bare_variants(session: Session, search_id: str, parent_id: str | None) -> list[int]:
    """Return the variants of all candidates that a node got without an idea, in any round."""
    query = select(NodeRow.idea, NodeRow.variant).where(
        NodeRow.search_id == search_id, NodeRow.parent_id == parent_id, NodeRow.origin == "model"
    )
    return [variant for idea, variant in session.execute(query) if idea is None]


def adopt(
    session: Session,
    search: SearchRow,
    parent_id: str,
    now: float,
    *,
    origin: str,
    source: str,
    language: str,
    technique: str | None,
    idea: dict[str, Any] | None,
) -> NodeRow:
    """Add a node of round 0 for a candidate that was written elsewhere.

    It has its code, and is to be judged here.
    """
    return _stand(
        session,
        search,
        now,
        parent_id=parent_id,
        round=0,
        technique=technique,
        idea=idea,
        variant=0,
        state="coded",
        origin=origin,
        language=language,
        source=source,
        source_digest=normalised_digest(source),
    )


def stand_joined(
    session: Session, search: SearchRow, parent_id: str, now: float, *, round_: int, joins: str, **columns: Any
) -> NodeRow:
    """Add a node whose candidate was put together from those of `joins`, with no call to a model."""
    return _stand(session, search, now, parent_id=parent_id, round=round_, variant=0, joins=joins, **columns)


def _stand(session: Session, search: SearchRow, now: float, **columns: Any) -> NodeRow:
    """Add the search's next node, with the event that reports it."""
    node = NodeRow(id=new_id("nd"), search_id=search.id, seq=search.next_seq, created_at=now, updated_at=now, **columns)
    search.next_seq += 1
    session.add(node)
    told = {name: getattr(node, name) for name in ("parent_id", "round", "technique", "variant", "origin")}
    title = None if node.idea is None else node.idea.get("title")
    add_event(session, search, "node.created", now, node, title=title, **told)
    return node

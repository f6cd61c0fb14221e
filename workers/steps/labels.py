"""What people keep of a search beside its results: name, tags, notes, archive; and its deletion.

Nothing here is read by a policy, and none of it is an event: a search that has ended has no more of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypedDict, cast

from sqlalchemy import CursorResult, delete, func, select, update
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store import records, tallies
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import (
    AskRow,
    AttemptRow,
    BundleJobRow,
    CounterexampleRow,
    EventRow,
    KernelRow,
    ModelCallRow,
    NodeRow,
    ProfileRow,
    SearchRow,
    SearchTagRow,
    TryRow,
    VerdictRow,
)
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.steps.rows import lock_search
from warpsmith.workers.steps.values import WrongState

MOST_TAGS = 20
"""Tags of one search."""


class Labels(TypedDict, total=False):
    """What is to change; what is absent stays, and None removes."""

    name: str | None
    notes: str | None
    tags: list[str]
    archived: bool


@dataclass(frozen=True)
class Deleted:
    """A search that is gone: how many nodes it had, and the kernels that stay."""

    search_id: str
    nodes: int
    kernels: tuple[str, ...]


def _set_labels(session: Session, search: SearchRow, labels: Labels, now: float) -> None:
    """Set labels of a search; the retention's clock does not start anew."""
    if "name" in labels:
        search.name = labels["name"]
    if "notes" in labels:
        search.notes = labels["notes"]
    if "archived" in labels:
        search.archived_at = (search.archived_at or now) if labels["archived"] else None
    if "tags" in labels:
        session.execute(delete(SearchTagRow).where(SearchTagRow.search_id == search.id))
        add_tags(session, search.id, labels["tags"])


def label_search(db: Database, search_id: str, labels: Labels, now: float) -> None:
    """Set labels of a stored search.

    Raises WrongState for the archive where the search goes on: what spends is not to be hidden. LookupError for an
    unknown search.
    """
    with db.writing() as session:
        search = lock_search(session, search_id)
        if labels.get("archived") and search.state not in ENDED:
            raise WrongState(f"search {search_id}", search.state, "one that has ended; cancel it first")
        _set_labels(session, search, labels, now)


def add_tags(session: Session, search_id: str, tags: Iterable[str]) -> None:
    """Give tags to a search that has none."""
    session.add_all(SearchTagRow(search_id=search_id, tag=tag) for tag in dict.fromkeys(tags))


def delete_search(db: Database, search_id: str, now: float) -> Deleted:
    """Delete a search that has ended, with its nodes, code, tries, verdicts, prompts, replies and events.

    What it led to stays: kernels with their code, evidence, lineage and the identities of their prompts, so that each
    is exported as before; counterexamples; the op and the pools; campaigns; what was spent, on quotas and in metrics;
    the audit log. Raises WrongState where the search goes on or one of its nodes is being profiled or tried,
    LookupError for an unknown search.
    """
    with db.writing() as session:
        search = lock_search(session, search_id)
        if search.state not in ENDED:
            raise WrongState(f"search {search_id}", search.state, "one that has ended; cancel it first")
        for table, called in ((ProfileRow, "profile"), (TryRow, "try")):
            # What waits ends with the search; of what runs, a dead worker's lease runs out.
            under_way = table.search_id == search_id, table.state == "running", table.lease_expires_at > now
            if session.scalar(select(func.count()).where(*under_way)):
                raise WrongState(f"search {search_id}", f"a {called} under way", "none: wait until it is done")
        kernels = _free_kernels(session, search_id)
        mine = select(NodeRow.id).where(NodeRow.search_id == search_id)
        session.execute(update(CounterexampleRow).where(CounterexampleRow.node_id.in_(mine)).values(node_id=None))
        # What names another row goes before that row.
        tables: tuple[Any, ...] = (
            BundleJobRow,
            ProfileRow,
            TryRow,
            VerdictRow,
            AskRow,
            ModelCallRow,
            AttemptRow,
            EventRow,
            SearchTagRow,
        )
        for table in tables:
            session.execute(delete(table).where(table.search_id == search_id))
        nodes = cast("CursorResult[object]", session.execute(delete(NodeRow).where(NodeRow.search_id == search_id)))
        tallies.keep_spend(session, search)
        session.delete(search)
        return Deleted(search_id, nodes.rowcount, kernels)


def _free_kernels(session: Session, search_id: str) -> tuple[str, ...]:
    """Give the kernels of a search what they would else read from it; return their ids."""
    own = select(KernelRow).where(KernelRow.search_id == search_id).order_by(KernelRow.id)
    found = session.scalars(own.with_for_update()).all()  # another search may find the same code now
    for kernel in found:
        steps = [step["node_id"] for step in kernel.lineage if "node_id" in step]
        kernel.prompts = kernel.prompts or records.answered_calls(session, steps)
        kernel.search_id = kernel.node_id = None
    return tuple(kernel.id for kernel in found)

"""Read a search's tree as the policy sees it: whole, or for large trees on PostgreSQL what changed since the last time.

There a trigger gives a node's row the next `revision` at each change. Nodes change under their search's lock alone, so
of one search a later commit has the higher revisions: rows above the highest that was read are all that changed.

What was read is remembered with the connection that read it, once the transaction has committed. A server that was
restored from a backup or lost its last transactions in a failover has closed its connections. A tree is read whole as
well where the rows do not make one, and after MOST_AGE_S.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from sqlalchemy import Select, bindparam, event, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.table_base import fill_defaults
from warpsmith.kernels_db.store.tables import NodeRow, SearchRow
from warpsmith.workers.search.tree import NodeView
from warpsmith.workers.steps.rows import is_unwritten

LARGE = 1_000
"""Nodes from which on a tree is remembered: to read fewer takes few milliseconds."""

MOST_REMEMBERED = 50_000
"""Nodes that one connection remembers, the trees that were read last; about 40 MB."""

MOST_AGE_S = 60.0
"""Age of a reading of the whole tree after which it is read whole again."""

_COLUMNS = tuple(getattr(NodeRow, name) for name in NodeView._fields)
_VIEW = (
    select(*_COLUMNS)
    .where(NodeRow.search_id == bindparam("search_id"))
    .order_by(NodeRow.seq)
    .execution_options(warpsmith_binary=True)
)
_REVISED = select(*_COLUMNS, NodeRow.revision).order_by(NodeRow.seq).execution_options(warpsmith_binary=True)


@dataclass(frozen=True)
class _Remembered:
    """A tree as it was at `revision`; `read_at`: when it was last read whole, by the monotonic clock."""

    nodes: list[NodeView]
    revision: int
    read_at: float


def read_nodes(session: Session, search: SearchRow, *, whole: bool = False) -> list[NodeView]:
    """Read the nodes of a search whose row this transaction has locked, by rising `seq`.

    One SELECT of exactly the policy's columns. The driver's tuples are taken as they are, because no column here needs
    conversion. What the session has changed and not written yet, as the end of a step does, is changed here as well.
    `whole`: whatever is remembered. A new search that is not written yet has the nodes that the session will write.
    """
    if is_unwritten(search):
        return sorted((_view_new(row) for row in session.new if isinstance(row, NodeRow)), key=attrgetter("seq"))
    if any(isinstance(row, NodeRow) for row in session.new):
        session.flush()
    nodes = _read_written(session, search, whole=whole)
    for row in session.dirty:
        if isinstance(row, NodeRow) and row.search_id == search.id:
            place = bisect_left(nodes, row.seq, key=attrgetter("seq"))
            nodes[place] = _view(row)
    return nodes


def _view(row: NodeRow) -> NodeView:
    return NodeView._make(getattr(row, name) for name in NodeView._fields)


def _view_new(row: NodeRow) -> NodeView:
    fill_defaults(row)
    return NodeView._make(map(vars(row).get, NodeView._fields))


def _read_written(session: Session, search: SearchRow, *, whole: bool) -> list[NodeView]:
    if search.next_seq < LARGE or session.get_bind().dialect.name != "postgresql":
        return list(map(NodeView._make, _fetch(session, _VIEW, search_id=search.id)))
    remembered: dict[str, _Remembered] = session.connection().info.setdefault("trees", {})
    known = remembered.pop(search.id, None)
    if whole or (known is not None and time.monotonic() - known.read_at > MOST_AGE_S):
        known = None
    found = _read_on(session, search, known)
    if found is None and known is not None:
        found = _read_on(session, search, None)
    if found is None:  # nodes whose numbers have a gap: nothing here makes one
        return list(map(NodeView._make, _fetch(session, _VIEW, search_id=search.id)))
    _remember_after_commit(session, remembered, search.id, found)
    return list(found.nodes)


def _read_on(session: Session, search: SearchRow, known: _Remembered | None) -> _Remembered | None:
    """Return the tree from what is known of it and the rows that changed; None where they do not make one."""
    changed = _REVISED.where(NodeRow.search_id == search.id)
    if known is not None:
        changed = changed.where(NodeRow.revision > known.revision)
    nodes: list[NodeView] = [] if known is None else list(known.nodes)
    revision = 0 if known is None else known.revision
    for *columns, revised in _fetch(session, changed):
        node = NodeView._make(columns)
        if node.seq < len(nodes):
            nodes[node.seq] = node
        elif node.seq == len(nodes):
            nodes.append(node)
        else:
            return None
        revision = max(revision, revised)
    if len(nodes) != search.next_seq:
        return None
    return _Remembered(nodes, revision, time.monotonic() if known is None else known.read_at)


def _fetch(session: Session, query: Select[Any], **values: str) -> Iterable[tuple[Any, ...]]:
    result = session.connection().execute(query, values)
    assert result.cursor is not None  # a SELECT has one
    rows = result.cursor.fetchall()
    result.close()
    return rows


def _remember_after_commit(
    session: Session, remembered: dict[str, _Remembered], search_id: str, found: _Remembered
) -> None:
    """Remember the tree if this transaction commits: it may have read rows that it changed itself.

    Within a savepoint nothing is remembered: what was read there may be rolled back, and the transaction go on.
    """
    if session.in_nested_transaction():
        return

    @event.listens_for(session, "after_commit", once=True)
    def remember(_session: Session) -> None:
        if session.in_nested_transaction():  # a later savepoint was released, which commits nothing yet
            return
        remembered.pop(search_id, None)
        while remembered and sum(len(one.nodes) for one in remembered.values()) + len(found.nodes) > MOST_REMEMBERED:
            del remembered[next(iter(remembered))]
        remembered[search_id] = found

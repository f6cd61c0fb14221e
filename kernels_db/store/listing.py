"""Lists of rows, newest first where nothing else is asked for, in pages by key.

A page's `next` names its last row, so rows that arrive meanwhile shift nothing. `team`: only rows that this team may
read (`kernels_db.store.teams`).
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from sqlalchemy import ColumnElement, Float, Select, case, cast, func, literal, or_, select, tuple_
from sqlalchemy.orm import Session, defer

from warpsmith.kernels_db.store.ids import is_id
from warpsmith.kernels_db.store.tables import (
    AskRow,
    BundleJobRow,
    CampaignRow,
    CounterexampleRow,
    ImportRow,
    KernelRow,
    NodeRow,
    OpRow,
    PoolRow,
    ReverificationRow,
    SearchRow,
    SearchTagRow,
    TryRow,
)
from warpsmith.kernels_db.store.teams import is_held_readably, is_of_readable_search, is_readable

Listed = TypeVar(
    "Listed",
    OpRow,
    SearchRow,
    KernelRow,
    PoolRow,
    AskRow,
    ReverificationRow,
    CounterexampleRow,
    CampaignRow,
    ImportRow,
    TryRow,
)
Row = TypeVar("Row")

Order = Literal["asc", "desc"]
Archived = Literal["no", "yes", "any"]
SearchSort = Literal["created", "updated", "score", "limit", "cost", "candidates", "tokens", "time"]
KernelSort = Literal["created", "score", "limit"]
HeldByOp = Literal["searches", "archived", "kernels"]

SEARCH_SORTS: dict[SearchSort, ColumnElement[Any]] = {
    "updated": SearchRow.updated_at.expression,
    "score": SearchRow.best_score.expression,
    "limit": SearchRow.best_limit.expression,
    "cost": case((SearchRow.unpriced_calls == 0, SearchRow.cost_usd)),
    "candidates": SearchRow.candidates.expression,
    "tokens": SearchRow.tokens.expression,
    "time": SearchRow.active_s.expression,
}
KERNEL_SORTS: dict[KernelSort, ColumnElement[Any]] = {
    "score": KernelRow.score.expression,
    "limit": KernelRow.limit_fraction.expression,
}
"""The orders of lists besides their rows' age; no value is below 0.

A search's score and limit are those of its best node, -1 where it has none.
"""

NONE_IS_NEGATIVE = (SearchRow.best_score.expression, SearchRow.best_limit.expression)

_ABOVE_ALL = 1e300


class BadCursor(ValueError):  # noqa: N818 - named for what it is
    """A cursor that no page gave."""


@dataclass(frozen=True)
class Page(Generic[Row]):
    """Part of a list; `next` is the cursor of what follows, None at the end."""

    items: Sequence[Row]
    next: str | None


@dataclass(frozen=True)
class Bundle:
    """A bundle that is out or was merged: its jobs, and how many of them have their verdicts."""

    id: str
    search_id: str
    created_at: float
    jobs: int
    merged: int


def list_ops(
    session: Session, *, limit: int, after: str | None = None, name: str | None = None, team: str | None = None
) -> Page[OpRow]:
    """List ops, newest first."""
    filters = is_held_readably(OpRow.id, team)
    if name is not None:
        filters.append(OpRow.name == name)
    return _page(session, OpRow, filters, limit, after)


def list_op_names(
    session: Session, *, limit: int, having: HeldByOp | None = None, team: str | None = None
) -> list[str]:
    """List the names of ops, each once, those of the newest ops first; no spec is read.

    `having`: only those of ops with searches that are not archived, with archived ones, or with kernels.
    """
    conditions = is_held_readably(OpRow.id, team)
    if having in ("searches", "archived"):
        kept = SearchRow.archived_at.is_(None) if having == "searches" else SearchRow.archived_at.is_not(None)
        conditions = [OpRow.id.in_(select(SearchRow.op_id).where(kept, *is_readable(SearchRow.team, team)))]
    elif having == "kernels":
        conditions = [OpRow.id.in_(select(KernelRow.op_id).where(*is_readable(KernelRow.team, team)))]
    names = select(OpRow.name).where(*conditions).group_by(OpRow.name)
    return list(session.scalars(names.order_by(func.max(OpRow.created_at).desc(), OpRow.name).limit(limit)))


def list_counterexamples(
    session: Session,
    *,
    limit: int,
    after: str | None = None,
    op_id: str,
    device: str | None = None,
    team: str | None = None,
) -> Page[CounterexampleRow]:
    """List the counterexamples of an op, newest first; `device` is a type of device."""
    filters: list[ColumnElement[bool]] = [CounterexampleRow.op_id == op_id]
    if team is not None:
        found_by = select(NodeRow.id).where(*is_of_readable_search(NodeRow.search_id, team))
        found_of = select(KernelRow.id).where(*is_readable(KernelRow.team, team))
        filters.append(or_(CounterexampleRow.node_id.in_(found_by), CounterexampleRow.kernel_id.in_(found_of)))
    if device is not None:
        filters.append(CounterexampleRow.device == device)
    return _page(session, CounterexampleRow, filters, limit, after)


def list_searches(
    session: Session,
    *,
    limit: int,
    after: str | None = None,
    state: Sequence[str] = (),
    op: str | None = None,
    target: str | None = None,
    text: str | None = None,
    tags: Sequence[str] = (),
    archived: Archived = "no",
    sort: SearchSort = "created",
    order: Order = "desc",
    team: str | None = None,
) -> Page[SearchRow]:
    """List searches, newest first unless they are sorted otherwise.

    Those without a value come last. `state`: any of these; `op` is an op's name or id; `text` is part of the op's
    name, the id, the reason, the search's name, notes or model, or a tag; `tags`: all of these. `archived`: `no`
    leaves archived ones out, `yes` lists them alone.
    """
    filters = is_readable(SearchRow.team, team)
    if archived != "any":
        filters.append(SearchRow.archived_at.is_(None) if archived == "no" else SearchRow.archived_at.is_not(None))
    filters += [SearchRow.id.in_(_tagged(SearchTagRow.tag == tag)) for tag in tags]
    if state:
        filters.append(SearchRow.state.in_(state))
    if op is not None:
        filters.append(SearchRow.op_id.in_(op_ids(op)))
    if target is not None:
        filters.append(SearchRow.target == target)
    if text is not None:
        named = SearchRow.op_id.in_(select(OpRow.id).where(_holds(OpRow.name, text)))
        columns = (SearchRow.id, SearchRow.reason, SearchRow.name, SearchRow.notes, SearchRow.model_name)
        holding = [_holds(func.coalesce(column, ""), text) for column in columns]
        filters.append(or_(named, *holding, SearchRow.id.in_(_tagged(_holds(SearchTagRow.tag, text)))))
    query = select(SearchRow).where(*filters)
    return _sorted_page(session, SearchRow, query, SEARCH_SORTS.get(sort), order, limit, after)


def list_tags(session: Session, *, team: str | None = None) -> list[tuple[str, int]]:
    """List the tags of the searches that are not archived, with the number of searches of each, by name."""
    here = (SearchRow.archived_at.is_(None), *is_readable(SearchRow.team, team))
    query = select(SearchTagRow.tag, func.count()).join(SearchRow, SearchRow.id == SearchTagRow.search_id).where(*here)
    return list(session.execute(query.group_by(SearchTagRow.tag).order_by(SearchTagRow.tag)).tuples())


def list_kernels(
    session: Session,
    *,
    limit: int,
    after: str | None = None,
    op: str | None = None,
    target: str | None = None,
    language: str | None = None,
    text: str | None = None,
    standing: Sequence[str] = (),
    due: ColumnElement[bool] | None = None,
    sort: KernelSort = "created",
    order: Order = "desc",
    team: str | None = None,
) -> Page[KernelRow]:
    """List kernels, newest first unless they are sorted otherwise.

    `op` is an op's name or id, `text` part of its name, `standing` any of these, `due` the condition of
    `warpsmith.kernels_db.store.reverification_due`.
    """
    filters = is_readable(KernelRow.team, team)
    if due is not None:
        filters.append(due)
    if standing:
        filters.append(KernelRow.standing.in_(standing))
    if op is not None:
        filters.append(KernelRow.op_id.in_(op_ids(op)))
    if target is not None:
        filters.append(KernelRow.target == target)
    if language is not None:
        filters.append(KernelRow.language == language)
    if text is not None:
        filters.append(KernelRow.op_id.in_(select(OpRow.id).where(_holds(OpRow.name, text))))
    query = select(KernelRow).where(*filters)
    return _sorted_page(session, KernelRow, query, KERNEL_SORTS.get(sort), order, limit, after)


def list_bundles(
    session: Session, *, limit: int, after: str | None = None, search_id: str | None = None, team: str | None = None
) -> Page[Bundle]:
    """List bundles, newest first."""
    created_at, bundle_id = func.min(BundleJobRow.created_at), BundleJobRow.bundle_id
    merged = func.count(BundleJobRow.merged_at)
    query = (
        select(bundle_id, func.min(BundleJobRow.search_id), created_at, func.count(), merged)
        .where(*is_of_readable_search(BundleJobRow.search_id, team), BundleJobRow.screening.is_(None))
        .group_by(bundle_id)
        .order_by(created_at.desc(), bundle_id.desc())
        .limit(limit + 1)
    )
    if search_id is not None:
        query = query.where(BundleJobRow.search_id == search_id)
    if after is not None:
        at, row_id = _read_cursor(after)
        query = query.having(tuple_(created_at, bundle_id) < tuple_(literal(at), literal(row_id)))
    rows = [Bundle(*row) for row in session.execute(query)]
    last = rows[limit - 1] if len(rows) > limit else None
    return Page(rows[:limit], None if last is None else _cursor(last.created_at, last.id))


def list_pools(
    session: Session, *, limit: int, after: str | None = None, op: str | None = None, team: str | None = None
) -> Page[PoolRow]:
    """List pools, newest first; `op` is the op's name in the header."""
    filters = is_held_readably(PoolRow.id, team)
    if op is not None:
        filters.append(PoolRow.header["op"].as_string() == op)
    return _page(session, PoolRow, filters, limit, after)


def list_campaigns(
    session: Session,
    *,
    limit: int,
    after: str | None = None,
    model_digest: str | None = None,
    team: str | None = None,
) -> Page[CampaignRow]:
    """List campaigns, newest first; `model_digest` is that of the model's file."""
    filters = is_readable(CampaignRow.team, team)
    if model_digest is not None:
        filters.append(CampaignRow.model_digest == model_digest)
    return _page(session, CampaignRow, filters, limit, after)


def list_imports(
    session: Session, *, limit: int, after: str | None = None, state: str | None = None, team: str | None = None
) -> Page[ImportRow]:
    """List imports, newest first, without their bodies."""
    filters = is_readable(ImportRow.team, team)
    if state is not None:
        filters.append(ImportRow.state == state)
    return _page(session, ImportRow, filters, limit, after)


def list_reverifications(
    session: Session, *, limit: int, after: str | None = None, kernel_id: str
) -> Page[ReverificationRow]:
    """List a kernel's re-verifications, newest first."""
    return _page(session, ReverificationRow, [ReverificationRow.kernel_id == kernel_id], limit, after)


def list_tries(session: Session, *, limit: int, after: str | None = None, node_id: str) -> Page[TryRow]:
    """List a node's tries, newest first, without code and verdicts."""
    query = select(TryRow).options(defer(TryRow.source, raiseload=True), defer(TryRow.document, raiseload=True))
    return _sorted_page(session, TryRow, query.where(TryRow.node_id == node_id), None, "desc", limit, after)


def list_asks(
    session: Session,
    *,
    limit: int,
    after: str | None = None,
    state: str | None = None,
    search_id: str | None = None,
    team: str | None = None,
) -> Page[AskRow]:
    """List asks, newest first."""
    filters = is_of_readable_search(AskRow.search_id, team)
    if state is not None:
        filters.append(AskRow.state == state)
    if search_id is not None:
        filters.append(AskRow.search_id == search_id)
    return _page(session, AskRow, filters, limit, after)


def op_ids(op: str) -> Select[tuple[str]]:
    """Select the ids of the ops with this name or id."""
    return select(OpRow.id).where((OpRow.name == op) | (OpRow.id == op))


def _tagged(condition: ColumnElement[bool]) -> Select[tuple[str]]:
    return select(SearchTagRow.search_id).where(condition)


def _holds(column: Any, text: str) -> ColumnElement[bool]:
    found: ColumnElement[bool] = func.lower(column).contains(text.lower(), autoescape=True)
    return found


def _page(
    session: Session, table: type[Listed], filters: Sequence[ColumnElement[bool]], limit: int, after: str | None
) -> Page[Listed]:
    return _sorted_page(session, table, select(table).where(*filters), None, "desc", limit, after)


def _sorted_page(
    session: Session,
    table: type[Listed],
    query: Select[tuple[Listed]],
    by: ColumnElement[Any] | None,
    order: Order,
    limit: int,
    after: str | None,
) -> Page[Listed]:
    """Return a page of `query`, sorted by `by` (None: by age) and by id where that ties.

    A cursor names both.
    """
    key: Any = table.created_at if by is None else _sort_key(by, order)
    here: Any = tuple_(key, table.id)
    query = query.add_columns(key).limit(limit + 1)
    query = query.order_by(key.desc(), table.id.desc()) if order == "desc" else query.order_by(key, table.id)
    if after is not None:
        there = tuple_(*(literal(part) for part in _read_cursor(after)))
        query = query.where(here < there if order == "desc" else here > there)
    rows: Sequence[Any] = session.execute(query).all()
    last = rows[limit - 1] if len(rows) > limit else None
    return Page([row for row, _ in rows[:limit]], None if last is None else _cursor(float(last[1]), last[0].id))


def _sort_key(by: ColumnElement[Any], order: Order) -> ColumnElement[Any]:
    """Return what to sort by: a row without a value comes last, whichever the order.

    A column that always has one is sorted by as it is, so that its index serves.
    """
    if order == "asc" and any(by is one for one in NONE_IS_NEGATIVE):
        return case((by < 0, literal(_ABOVE_ALL)), else_=by)
    if not getattr(by, "nullable", True):
        return by
    return func.coalesce(cast(by, Float(53)), literal(-1.0 if order == "desc" else _ABOVE_ALL))


def _cursor(key: float, row_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([key, row_id]).encode()).decode().rstrip("=")


def _read_cursor(text: str) -> tuple[float, str]:
    found: Any = None
    try:
        padded = text + "=" * (-len(text) % 4)
        found = json.loads(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
    except (UnicodeError, binascii.Error, ValueError, RecursionError):
        pass  # told below, like any other content
    match found:
        case [float() as key, str() as row_id] if math.isfinite(key) and is_id(row_id):
            return key, row_id
    raise BadCursor(f"cursor: found {text[:80]!r}, expected the `next` of a page")

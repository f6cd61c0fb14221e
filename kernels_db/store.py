"""Records and lists. Each function takes a Session; what changes a search's state stands in `warpsmith.workers.steps`.

Lists are newest first, where nothing else is asked for, and page by key: a page's `next` names its last row, so rows
that arrive meanwhile shift nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Generic, Literal, TypeVar

from sqlalchemy import ColumnElement, Float, Select, and_, case, cast, func, literal, or_, select, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from warpsmith.kernels_db.db import new_id
from warpsmith.kernels_db.formats.pool import Pool, PoolHeader, PoolReply, summary
from warpsmith.kernels_db.models import (
    AskRow,
    BundleJobRow,
    KernelRow,
    ModelCallRow,
    NodeRow,
    OpRow,
    PoolReplyRow,
    PoolRow,
    ReverificationRow,
    SearchRow,
    WorkloadRow,
)
from warpsmith.kernels_db.op import Op, SpecErrors, Target, parse_op
from warpsmith.kernels_db.similarity import fits, similarity

Listed = TypeVar("Listed", OpRow, SearchRow, KernelRow, PoolRow, AskRow, ReverificationRow)
Row = TypeVar("Row")

Order = Literal["asc", "desc"]
SearchSort = Literal["created", "updated", "score", "limit", "cost", "candidates"]
KernelSort = Literal["created", "score", "limit"]

SEARCH_SORTS: dict[SearchSort, ColumnElement[Any]] = {
    "updated": SearchRow.updated_at.expression,
    "score": NodeRow.score.expression,
    "limit": NodeRow.limit_fraction.expression,
    "cost": case((SearchRow.unpriced_calls == 0, SearchRow.cost_usd)),
    "candidates": SearchRow.candidates.expression,
}
KERNEL_SORTS: dict[KernelSort, ColumnElement[Any]] = {
    "score": KernelRow.score.expression,
    "limit": KernelRow.limit_fraction.expression,
}
"""What lists can be sorted by besides their rows' age; no value is below 0. A search's score and limit are those of its
best node."""

_ABOVE_ALL = 1e300

MOST_OPS, MOST_KERNELS = 200, 200
"""Ops that are looked at for similar kernels, the newest; and of their kernels, the fastest."""

_ID = re.compile(r"[a-z]{2}_[0-9a-z]{1,28}")


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


@dataclass(frozen=True)
class Offer:
    """A stored kernel that is worth trying for an op. `op` names its own; `similarity` says how alike the two are."""

    kernel: KernelRow
    op: str
    similarity: float


def similar_kernels(session: Session, op: Op, target: Target, language: str, most: int) -> list[Offer]:
    """Up to `most` kernels in `language` for the target's device type whose op is alike (`kernels_db.similarity`), and
    whose `run` takes as many arguments. The same op first, then the same architecture, the likest, the fastest. None
    that a re-verification found wrong or did not compile.
    """
    of_device = (
        KernelRow.language == language,
        KernelRow.target.startswith(f"{target.device}:"),
        KernelRow.standing.not_in(("wrong", "uncompilable")),
    )
    stored = session.execute(
        select(OpRow.id, OpRow.name, OpRow.spec)
        .where(OpRow.id.in_(select(KernelRow.op_id).where(*of_device)))
        .order_by(OpRow.created_at.desc(), OpRow.id.desc())
        .limit(MOST_OPS)
    ).tuples()
    alike: dict[str, tuple[str, float]] = {}
    for op_id, name, spec in stored:
        try:
            found = similarity(op, parse_op(spec))
        except SpecErrors:  # an older version took it, this one would not: its kernels stay, and are not offered
            continue
        if found > 0:
            alike[op_id] = name, found
    kernels = session.scalars(
        select(KernelRow)
        .where(KernelRow.op_id.in_(list(alike)), *of_device)
        .order_by(KernelRow.score.desc(), KernelRow.id)
        .limit(MOST_KERNELS)
    )
    offers = [Offer(kernel, *alike[kernel.op_id]) for kernel in kernels if fits(kernel.source, op)]
    offers.sort(key=lambda one: (one.similarity < 1, one.kernel.target != str(target), -one.similarity))
    distinct = {offer.kernel.source_digest: offer for offer in reversed(offers)}
    return [offer for offer in offers if distinct[offer.kernel.source_digest] is offer][:most]


def add_op(session: Session, op: Op, now: float | None = None) -> tuple[OpRow, bool]:
    """The op's row, and whether it is new: the same spec is stored once. `now` is epoch seconds."""
    known = select(OpRow).where(OpRow.digest == op.digest)
    found = session.scalar(known)
    if found is not None:
        return found, False
    created_at = time.time() if now is None else now
    row = OpRow(id=new_id("op"), name=op.name, digest=op.digest, spec=op.document(), created_at=created_at)
    if not inserted(session, row):
        return session.scalars(known).one(), False
    session.add_all(
        WorkloadRow(
            id=new_id("wl"),
            op_id=row.id,
            device=device,
            name=workload.id,
            role=workload.role,
            axes=dict(workload.axes),
        )
        for device, workloads in op.workloads_by_device().items()
        for workload in workloads
    )
    session.flush()
    return row, True


def add_pool(session: Session, pool: Pool, now: float | None = None) -> tuple[PoolRow, bool]:
    """The pool's row, and whether it is new: the same pool is stored once. `now` is epoch seconds."""
    digest = pool.digest
    known = select(PoolRow).where(PoolRow.digest == digest)
    found = session.scalar(known)
    if found is not None:
        return found, False
    row = PoolRow(
        id=new_id("pl"),
        digest=digest,
        header=pool.header.document(),
        replies=len(pool.replies),
        created_at=time.time() if now is None else now,
    )
    if not inserted(session, row):
        return session.scalars(known).one(), False
    session.add_all(
        PoolReplyRow(pool_id=row.id, request=reply.request, ordinal=reply.ordinal, reply=reply.document())
        for reply in pool.replies
    )
    session.flush()
    return row, True


def inserted(session: Session, row: OpRow | PoolRow | KernelRow) -> bool:
    """Insert `row`; False where another transaction stored the same content at the same moment."""
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        return False
    return True


def list_ops(session: Session, *, limit: int, after: str | None = None, name: str | None = None) -> Page[OpRow]:
    """Ops, newest first."""
    return _page(session, OpRow, [] if name is None else [OpRow.name == name], limit, after)


def list_searches(
    session: Session,
    *,
    limit: int,
    after: str | None = None,
    state: Sequence[str] = (),
    op: str | None = None,
    target: str | None = None,
    text: str | None = None,
    sort: SearchSort = "created",
    order: Order = "desc",
) -> Page[SearchRow]:
    """Searches, newest first unless they are sorted otherwise; those without a value come last. `state`: any of these;
    `op` is an op's name or id; `text` is part of the op's name, the id or the reason."""
    filters: list[ColumnElement[bool]] = []
    if state:
        filters.append(SearchRow.state.in_(state))
    if op is not None:
        filters.append(SearchRow.op_id.in_(op_ids(op)))
    if target is not None:
        filters.append(SearchRow.target == target)
    if text is not None:
        named = SearchRow.op_id.in_(select(OpRow.id).where(_holds(OpRow.name, text)))
        filters.append(or_(named, _holds(SearchRow.id, text), _holds(func.coalesce(SearchRow.reason, ""), text)))
    best = and_(NodeRow.search_id == SearchRow.id, NodeRow.id == SearchRow.best_node_id)
    query = select(SearchRow).outerjoin(NodeRow, best) if sort in ("score", "limit") else select(SearchRow)
    return _sorted_page(session, SearchRow, query.where(*filters), SEARCH_SORTS.get(sort), order, limit, after)


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
) -> Page[KernelRow]:
    """Kernels, newest first unless they are sorted otherwise; `op` is an op's name or id, `text` part of its name,
    `standing` any of these, `due` the condition of `warpsmith.kernels_db.due`."""
    filters: list[ColumnElement[bool]] = [] if due is None else [due]
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
    session: Session, *, limit: int, after: str | None = None, search_id: str | None = None
) -> Page[Bundle]:
    """Bundles, newest first."""
    created_at, bundle_id = func.min(BundleJobRow.created_at), BundleJobRow.bundle_id
    merged = func.count(BundleJobRow.merged_at)
    query = (
        select(bundle_id, func.min(BundleJobRow.search_id), created_at, func.count(), merged)
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


def list_pools(session: Session, *, limit: int, after: str | None = None, op: str | None = None) -> Page[PoolRow]:
    """Pools, newest first; `op` is the op's name in the header."""
    return _page(session, PoolRow, [] if op is None else [PoolRow.header["op"].as_string() == op], limit, after)


def list_reverifications(
    session: Session, *, limit: int, after: str | None = None, kernel_id: str
) -> Page[ReverificationRow]:
    """A kernel's re-verifications, newest first."""
    return _page(session, ReverificationRow, [ReverificationRow.kernel_id == kernel_id], limit, after)


def list_asks(
    session: Session, *, limit: int, after: str | None = None, state: str | None = None, search_id: str | None = None
) -> Page[AskRow]:
    """Asks, newest first."""
    filters: list[ColumnElement[bool]] = []
    if state is not None:
        filters.append(AskRow.state == state)
    if search_id is not None:
        filters.append(AskRow.search_id == search_id)
    return _page(session, AskRow, filters, limit, after)


def export_pool(session: Session, search_id: str) -> Pool:
    """All replies that the model gave to a search, unreadable ones included: what replays it.

    Where a request was answered twice under one ordinal (a search resumed after unreadable replies), the last counts.
    Raises NoResultFound for an unknown search.
    """
    search = session.get_one(SearchRow, search_id)
    op = parse_op(session.get_one(OpRow, search.op_id).spec)
    calls = session.execute(
        select(ModelCallRow, NodeRow.idea, NodeRow.variant)
        .join(NodeRow, NodeRow.id == ModelCallRow.node_id)
        .where(ModelCallRow.search_id == search_id, ModelCallRow.reply.is_not(None))
        .order_by(ModelCallRow.created_at, ModelCallRow.id)
    ).tuples()
    replies: dict[tuple[str, int], PoolReply] = {}
    answered_by: dict[str, None] = {}
    for call, idea, variant in calls:
        answered_by[call.model or call.provider] = None
        replies[call.request, call.ordinal] = PoolReply(
            request=call.request,
            ordinal=call.ordinal,
            kind=call.kind,
            summary=summary(call.kind, idea, variant)[:1000],
            reply=call.reply or "",
            finish_reason=call.finish_reason,
            model=call.model,
            prompt_tokens=call.prompt_tokens,
            completion_tokens=call.completion_tokens,
            latency_s=call.latency_s,
        )
    header = PoolHeader(
        op=op.name,
        op_digest=op.semantic_digest,
        target=search.target,
        language=search.language,
        answered_by=(", ".join(answered_by) or str(search.model["provider"]))[:128],
        recorded_at=search.created_at,
        warpsmith_version=version("warpsmith"),
        policy=search.policy,
        budget=search.budget,
    )
    return Pool(header, tuple(replies.values()))


def answered_calls(session: Session, node_ids: Sequence[str]) -> list[dict[str, Any]]:
    """The model's answered calls for these nodes, oldest first: kind, provider, model, and the prompt's identity by
    which a pool replays it (SHA-256, hex)."""
    rows = session.execute(
        select(ModelCallRow.kind, ModelCallRow.provider, ModelCallRow.model, ModelCallRow.request)
        .where(ModelCallRow.node_id.in_(node_ids), ModelCallRow.reply.is_not(None), ModelCallRow.error.is_(None))
        .order_by(ModelCallRow.created_at, ModelCallRow.id)
    )
    return [
        {"kind": kind, "provider": provider, "model": model, "prompt": request}
        for kind, provider, model, request in rows
    ]


def op_ids(op: str) -> Select[tuple[str]]:
    """The ids of the ops with this name or id."""
    return select(OpRow.id).where((OpRow.name == op) | (OpRow.id == op))


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
    """A page of `query`, sorted by `by` (None: by age) and by id where that ties; a cursor names both."""
    key: Any = table.created_at
    if by is not None:  # a row without a value comes last, whichever the order
        key = func.coalesce(cast(by, Float(53)), literal(-1.0 if order == "desc" else _ABOVE_ALL))
    here: Any = tuple_(key, table.id)
    query = query.add_columns(key).limit(limit + 1)
    query = query.order_by(key.desc(), table.id.desc()) if order == "desc" else query.order_by(key, table.id)
    if after is not None:
        there = tuple_(*(literal(part) for part in _read_cursor(after)))
        query = query.where(here < there if order == "desc" else here > there)
    rows: Sequence[Any] = session.execute(query).all()
    last = rows[limit - 1] if len(rows) > limit else None
    return Page([row for row, _ in rows[:limit]], None if last is None else _cursor(float(last[1]), last[0].id))


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
        case [float() as key, str() as row_id] if math.isfinite(key) and _ID.fullmatch(row_id):
            return key, row_id
    raise BadCursor(f"cursor: found {text[:80]!r}, expected the `next` of a page")

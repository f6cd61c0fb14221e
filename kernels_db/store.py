"""Records and lists. Each function takes a Session; what changes a search's state stands in `workers.steps`.

Lists are newest first and page by key: a page's `next` names its last row, so rows that arrive meanwhile shift nothing.
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
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Select, literal, select, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from kernels_db.db import new_id
from kernels_db.formats.pool import Pool, PoolHeader, PoolReply, summary
from kernels_db.models import (
    AskRow,
    KernelRow,
    ModelCallRow,
    NodeRow,
    OpRow,
    PoolReplyRow,
    PoolRow,
    SearchRow,
    WorkloadRow,
)
from kernels_db.op import Op, SpecErrors, Target, parse_op
from kernels_db.similarity import fits, similarity

Listed = TypeVar("Listed", OpRow, SearchRow, KernelRow, PoolRow, AskRow)
Row = TypeVar("Row")

DEVICES = (Target("cpu", "x86_64"), Target("cuda", "sm_90"))
"""One target of each device type; an op's workloads depend on the device type alone."""

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
class Offer:
    """A stored kernel that is worth trying for an op. `op` names its own; `similarity` says how alike the two are."""

    kernel: KernelRow
    op: str
    similarity: float


def similar_kernels(session: Session, op: Op, target: Target, language: str, most: int) -> list[Offer]:
    """Up to `most` kernels in `language` for the target's device type whose op is alike (`kernels_db.similarity`), and
    whose `run` takes as many arguments. The same op first, then the same architecture, the likest, the fastest.
    """
    of_device = (KernelRow.language == language, KernelRow.target.startswith(f"{target.device}:"))
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
    if not _inserted(session, row):
        return session.scalars(known).one(), False
    session.add_all(
        WorkloadRow(
            id=new_id("wl"),
            op_id=row.id,
            device=target.device,
            name=workload.id,
            role=workload.role,
            axes=dict(workload.axes),
        )
        for target in DEVICES
        for workload in op.workloads_for(target)
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
    if not _inserted(session, row):
        return session.scalars(known).one(), False
    session.add_all(
        PoolReplyRow(pool_id=row.id, request=reply.request, ordinal=reply.ordinal, reply=reply.document())
        for reply in pool.replies
    )
    session.flush()
    return row, True


def _inserted(session: Session, row: OpRow | PoolRow) -> bool:
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
    state: str | None = None,
    op: str | None = None,
    target: str | None = None,
) -> Page[SearchRow]:
    """Searches, newest first; `op` is an op's name or id."""
    filters: list[ColumnElement[bool]] = []
    if state is not None:
        filters.append(SearchRow.state == state)
    if op is not None:
        filters.append(SearchRow.op_id.in_(_op_ids(op)))
    if target is not None:
        filters.append(SearchRow.target == target)
    return _page(session, SearchRow, filters, limit, after)


def list_kernels(
    session: Session, *, limit: int, after: str | None = None, op: str | None = None, target: str | None = None
) -> Page[KernelRow]:
    """Kernels, newest first; `op` is an op's name or id."""
    filters: list[ColumnElement[bool]] = []
    if op is not None:
        filters.append(KernelRow.op_id.in_(_op_ids(op)))
    if target is not None:
        filters.append(KernelRow.target == target)
    return _page(session, KernelRow, filters, limit, after)


def list_pools(session: Session, *, limit: int, after: str | None = None, op: str | None = None) -> Page[PoolRow]:
    """Pools, newest first; `op` is the op's name in the header."""
    return _page(session, PoolRow, [] if op is None else [PoolRow.header["op"].as_string() == op], limit, after)


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


def _op_ids(op: str) -> Select[tuple[str]]:
    return select(OpRow.id).where((OpRow.name == op) | (OpRow.id == op))


def _page(
    session: Session, table: type[Listed], filters: Sequence[ColumnElement[bool]], limit: int, after: str | None
) -> Page[Listed]:
    query = select(table).where(*filters).order_by(table.created_at.desc(), table.id.desc()).limit(limit + 1)
    if after is not None:
        created_at, row_id = _read_cursor(after)
        query = query.where(tuple_(table.created_at, table.id) < tuple_(literal(created_at), literal(row_id)))
    rows = session.scalars(query).all()
    last = rows[limit - 1] if len(rows) > limit else None
    return Page(rows[:limit], None if last is None else _cursor(last.created_at, last.id))


def _cursor(created_at: float, row_id: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([created_at, row_id]).encode()).decode().rstrip("=")


def _read_cursor(text: str) -> tuple[float, str]:
    found: Any = None
    try:
        padded = text + "=" * (-len(text) % 4)
        found = json.loads(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
    except (UnicodeError, binascii.Error, ValueError, RecursionError):
        pass  # told below, like any other content
    match found:
        case [float() as created_at, str() as row_id] if math.isfinite(created_at) and _ID.fullmatch(row_id):
            return created_at, row_id
    raise BadCursor(f"cursor: found {text[:80]!r}, expected the `next` of a page")

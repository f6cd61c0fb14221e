"""Records: each function takes a Session.

Changes of a search's state are in `warpsmith.workers.steps`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from warpsmith.kernels_db.spec.op import Op, SpecErrors, Target, parse_op
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.pool_file import Pool, PoolHeader, PoolReply, summary
from warpsmith.kernels_db.store.similarity import fits, similarity
from warpsmith.kernels_db.store.tables import (
    DEFAULT_TEAM,
    KernelRow,
    ModelCallRow,
    NodeRow,
    OpRow,
    PoolReplyRow,
    PoolRow,
    SearchRow,
    WorkloadRow,
)
from warpsmith.kernels_db.store.teams import hold, is_held_by, is_readable

REPLIES_AT_ONCE = 500
"""Replies of a pool that one statement stores."""

MOST_OPS, MOST_KERNELS = 200, 200
"""Ops that are looked at for similar kernels, the newest; and of their kernels, the fastest."""


MOST_COMPARED = 20_000
"""Similarities of pairs of ops that a process remembers."""

_PARSED: dict[str, Op | None] = {}
_COMPARED: dict[tuple[str, str], float] = {}


@dataclass(frozen=True)
class Offer:
    """A stored kernel that is worth trying for an op.

    `op` names its own; `similarity` says how alike the two are.
    """

    kernel: KernelRow
    op: str
    similarity: float


def similar_kernels(
    session: Session, op: Op, target: Target, language: str, most: int, team: str | None = DEFAULT_TEAM
) -> list[Offer]:
    """Return up to `most` stored kernels that are worth trying for an op and that `team` may read.

    They are in `language` for the target's device type, their op is alike (`kernels_db.store.similarity`), and their
    `run` takes as many arguments. The same op first, then the same architecture, the likest, the fastest. None
    that a re-verification found wrong or did not compile.
    """
    stored = session.connection().execute(_select_ops_of_kernels(language, target.device, team)).tuples()
    ops = dict(iter(stored))
    alike: dict[str, tuple[str, float]] = {}
    digest = op.digest if ops else ""
    for op_id, other in _read_ops(session, list(ops)).items():
        found = _compare(digest, op, op_id, other)
        if found > 0:
            alike[op_id] = ops[op_id], found
    if not alike:
        return []
    kernels = session.scalars(
        select(KernelRow)
        .where(KernelRow.op_id.in_(list(alike)), *_offerable(language, target.device, team))
        .order_by(KernelRow.score.desc(), KernelRow.id)
        .limit(MOST_KERNELS)
    )
    offers = [Offer(kernel, *alike[kernel.op_id]) for kernel in kernels if fits(kernel.source, op)]
    offers.sort(key=lambda one: (one.similarity < 1, one.kernel.target != str(target), -one.similarity))
    distinct = {offer.kernel.source_digest: offer for offer in reversed(offers)}
    return [offer for offer in offers if distinct[offer.kernel.source_digest] is offer][:most]


def _offerable(language: str, device: str, team: str | None) -> list[ColumnElement[bool]]:
    return [
        KernelRow.language == language,
        KernelRow.target.startswith(f"{device}:"),
        KernelRow.standing.not_in(("wrong", "uncompilable")),
        *is_readable(KernelRow.team, team),
    ]


@lru_cache(maxsize=64)
def _select_ops_of_kernels(language: str, device: str, team: str | None) -> Select[tuple[str, str]]:
    """Select the ops that have kernels to offer; to build it takes longer than to run it where there are none."""
    return (
        select(OpRow.id, OpRow.name)
        .where(OpRow.id.in_(select(KernelRow.op_id).where(*_offerable(language, device, team))))
        .order_by(OpRow.created_at.desc(), OpRow.id.desc())
        .limit(MOST_OPS)
    )


@lru_cache(maxsize=64)
def offers_kernels(language: str, device: str, team: str) -> ColumnElement[bool]:
    """Return the condition that there are kernels which `similar_kernels` may offer."""
    return select(KernelRow.id).where(*_offerable(language, device, team)).exists()


def _read_ops(session: Session, op_ids: Sequence[str]) -> dict[str, Op]:
    """Return the ops that this version takes; a spec that the process has parsed, or could not, is not read again."""
    found = {op_id: op for op_id in op_ids if (op := _PARSED.get(op_id)) is not None}
    missing = [op_id for op_id in op_ids if op_id not in found and op_id not in _PARSED]
    if missing:
        specs = session.connection().execute(select(OpRow.id, OpRow.spec).where(OpRow.id.in_(missing))).tuples()
        found |= {op_id: op for op_id, spec in specs if (op := parsed(op_id, spec)) is not None}
    return found


def _compare(digest: str, op: Op, other_id: str, other: Op) -> float:
    """Compare `op`, whose digest this is, to a stored op, once in a process: neither changes."""
    key = digest, other_id
    found = _COMPARED.get(key)
    if found is None:
        if len(_COMPARED) >= MOST_COMPARED:
            _COMPARED.clear()
        found = _COMPARED[key] = similarity(op, other)
    return found


def parsed(op_id: str, spec: dict[str, Any]) -> Op | None:
    """Parse a stored spec, which never changes, once in a process.

    None: an older version took it, this one would not; its kernels stay, and are not offered.
    """
    if op_id not in _PARSED:
        try:
            found = parse_op(spec)
        except SpecErrors:
            found = None
        if len(_PARSED) >= 4 * MOST_OPS:
            _PARSED.clear()
        _PARSED[op_id] = found
    return _PARSED[op_id]


def add_op(session: Session, op: Op, now: float | None = None, team: str | None = None) -> tuple[OpRow, bool]:
    """Return the op's row, and whether it is new to `team`: the same spec is stored once.

    `now` is epoch seconds. `team` submitted it; an op of no team is everyone's.
    """
    row, new = _add_op(session, op, time.time() if now is None else now)
    return row, hold(session, row.id, team, new=new)


KNOWN_OP = select(OpRow.id).where(OpRow.digest == bindparam("digest"), is_held_by(OpRow.id, bindparam("team")))
"""The id of the op with this digest, where `add_op` for this team would change nothing."""


def _add_op(session: Session, op: Op, created_at: float) -> tuple[OpRow, bool]:
    known = select(OpRow).where(OpRow.digest == op.digest)
    found = session.scalar(known)
    if found is not None:
        return found, False
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


def add_pool(session: Session, pool: Pool, now: float | None = None, team: str | None = None) -> tuple[PoolRow, bool]:
    """Return the pool's row, and whether it is new to `team`: the same pool is stored once.

    `now` is epoch seconds. `team` submitted it; a pool of no team is everyone's.
    """
    row, new = _add_pool(session, pool, time.time() if now is None else now)
    return row, hold(session, row.id, team, new=new)


def _add_pool(session: Session, pool: Pool, created_at: float) -> tuple[PoolRow, bool]:
    known = select(PoolRow).where(PoolRow.digest == pool.digest)
    found = session.scalar(known)
    if found is not None:
        return found, False
    row = PoolRow(
        id=new_id("pl"),
        digest=pool.digest,
        header=pool.header.document(),
        replies=len(pool.replies),
        created_at=created_at,
    )
    if not inserted(session, row):
        return session.scalars(known).one(), False
    for start in range(0, len(pool.replies), REPLIES_AT_ONCE):
        session.execute(
            insert(PoolReplyRow),
            [
                {"pool_id": row.id, "request": reply.request, "ordinal": reply.ordinal, "reply": reply.document()}
                for reply in pool.replies[start : start + REPLIES_AT_ONCE]
            ],
        )
    return row, True


def inserted(session: Session, row: OpRow | PoolRow | KernelRow) -> bool:
    """Insert `row`; False where another transaction stored the same content at the same moment."""
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        return False
    return True


def export_pool(session: Session, search_id: str) -> Pool:
    """Return all replies that the model gave to a search, with which it can be replayed.

    Unreadable ones are included. Where a request was answered twice under one ordinal (a search resumed after
    unreadable replies), the last counts. Raises NoResultFound for an unknown search.
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
    """Return the model's answered calls for these nodes, oldest first.

    Each has kind, provider, model, and the prompt's identity by which a pool replays it (SHA-256, hex).
    """
    rows = session.execute(
        select(ModelCallRow.kind, ModelCallRow.provider, ModelCallRow.model, ModelCallRow.request)
        .where(ModelCallRow.node_id.in_(node_ids), ModelCallRow.reply.is_not(None), ModelCallRow.error.is_(None))
        .order_by(ModelCallRow.created_at, ModelCallRow.id)
    )
    return [
        {"kind": kind, "model": model, "prompt": request, "provider": provider}  # in the order of JSONB
        for kind, provider, model, request in rows
    ]

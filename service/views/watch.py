"""Views for watching a search: the rows of its tree, its progress, its attempts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

from pydantic import BaseModel, Field, TypeAdapter
from sqlalchemy import Row, case, func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.documents import Gate
from warpsmith.kernels_db.store.tables import AttemptRow, EventRow, NodeRow, SearchRow
from warpsmith.service.documents.comparison import TechniqueDocument
from warpsmith.service.documents.searches import SearchState, WaitingFor
from warpsmith.service.views.rows import make_interval
from warpsmith.service.views.searches import sum_spend
from warpsmith.service.views.techniques import list_techniques
from warpsmith.service.views.waiting import list_waiting
from warpsmith.workers.steps.trying import seconds_of_tries

GATES = get_args(Gate)
JUDGED = ("node.judged", "node.verified")
MOST_VERDICTS = 10_000
OVERLAP_S = 2.0
"""Overlap of two answers in seconds: rows are stamped before their transactions commit."""


class TreeRow(BaseModel):
    """A node of a drawn tree. Null fields are left out."""

    id: str
    parent_id: str | None = None
    seq: int
    round: int
    state: str
    verdict: str | None = None
    gate: str | None = None
    technique: str | None = None
    title: str | None = Field(None, description="The idea in one line")
    origin: str
    mark: Literal["pinned", "banned"] | None = None
    verification: str
    duplicate_of: int | None = Field(None, description="`seq` of the node whose code this one repeats")
    score: float | None = Field(None, description="Speed-up over the fastest baseline")
    ci95: list[float] | None = None
    limit_fraction: float | None = None
    updated_at: float


_NAMES = tuple(name for name in TreeRow.model_fields if name not in ("ci95", "duplicate_of"))
_DUPLICATE = re.compile(r"duplicate of node #(\d+)")
_ROWS = TypeAdapter(list[TreeRow])  # checks thousands of rows in one call


class TreeRows(BaseModel):
    """Rows of a tree by rising `seq`: a parent comes before its children."""

    search_id: str
    state: SearchState
    as_of: float = Field(description="Give it as `updated_since` to get later changes alone")
    best_node_id: str | None
    best_path: list[str] = Field(description="From the root to the best node, both included; empty without one")
    nodes: int = Field(description="Nodes in the whole tree")
    rows: list[TreeRow]
    next_after_seq: int | None = Field(description="Give it as `after_seq` for more; null when these were the last")


class BestPoint(BaseModel):
    """A verdict that changed the best candidate so far, or its speed-up."""

    at: float
    elapsed_s: float = Field(description="Since the search was created, pauses included")
    candidates: int = Field(description="Candidates judged by then")
    cost_usd: float | None = Field(description="Spent by then; null where the price of some call is not known")
    score: float
    ci95: list[float] | None
    limit_fraction: float | None
    node_id: str
    seq: int
    level: Literal["screen", "verify"] = Field(
        description="Source of the score: a screening, or the full verification, which may find a lower one"
    )


class JudgedPoint(BaseModel):
    """One verdict on a candidate."""

    at: float
    elapsed_s: float
    candidates: int
    cost_usd: float | None
    node_id: str
    seq: int
    level: Literal["screen", "verify"]
    verdict: str | None
    gate: str | None
    score: float | None
    technique: str | None


class GateCount(BaseModel):
    """How many candidates ended at a gate with this verdict."""

    gate: str
    verdict: str
    count: int


class Cap(BaseModel):
    """The use of one limit."""

    name: str = Field(
        description="candidates, model_calls, tokens, cost_usd, wall_clock_s, gpu_seconds, try_seconds or sweep_seconds"
    )
    used: float | None = Field(description="null where it is not known")
    limit: float | None = Field(description="null where there is none")
    fraction: float | None = Field(description="Used of the limit; above 1 where steps under way went beyond it")


class ProgressDocument(BaseModel):
    """The progress of a search."""

    search_id: str
    state: SearchState
    created_at: float
    as_of: float
    best: list[BestPoint] = Field(description="The best so far after every verdict that changed it")
    judged: list[JudgedPoint] = Field(description="Every verdict on a candidate in order; the latest 10,000")
    gates: list[GateCount] = Field(description="Candidates by the gate that they have reached, in the gates' order")
    techniques: list[TechniqueDocument] = Field(description="What each technique led to, the most tried first")
    caps: list[Cap]
    waiting_for: list[WaitingFor]


class TimelineAttempt(BaseModel):
    """One execution of one step, for a line in time."""

    id: str
    node_id: str
    seq: int
    kind: str = Field(description="ideate, code, judge or verify")
    ordinal: int
    state: str
    owner: str | None = Field(description="The worker that has it or had it last")
    tries: int
    error: str | None
    created_at: float
    started_at: float | None
    finished_at: float | None


def make_tree_rows(
    session: Session, search: SearchRow, after_seq: int, limit: int, updated_since: float | None
) -> TreeRows:
    """Make a page of a tree's rows."""
    as_of = time.time() - OVERLAP_S
    columns = [NodeRow.idea["title"].as_string() if name == "title" else getattr(NodeRow, name) for name in _NAMES]
    why = case((NodeRow.state == "closed", NodeRow.reason))
    query = select(*columns, NodeRow.ci_low, NodeRow.ci_high, why).where(
        NodeRow.search_id == search.id, NodeRow.seq > after_seq
    )
    if updated_since is not None:
        query = query.where(NodeRow.updated_at >= updated_since)
    query = query.order_by(NodeRow.seq).limit(limit + 1).execution_options(warpsmith_binary=True)
    found = session.execute(query).all()
    rows = _ROWS.validate_python([_read_fields(row) for row in found[:limit]])
    return TreeRows(
        search_id=search.id,
        state=search.state,
        as_of=as_of,
        best_node_id=search.best_node_id,
        best_path=_find_best_path(session, search),
        nodes=session.scalar(select(func.count()).where(NodeRow.search_id == search.id)) or 0,
        rows=rows,
        next_after_seq=rows[-1].seq if len(found) > limit else None,
    )


def _read_fields(row: Row[Any]) -> dict[str, Any]:
    """Read a row's fields without its nulls, which in a young tree are most."""
    *values, low, high, why = row
    known = {name: value for name, value in zip(_NAMES, values, strict=True) if value is not None}
    if why is not None and (twin := _DUPLICATE.search(why)):
        known["duplicate_of"] = int(twin[1])
    interval = make_interval(low, high)
    return known if interval is None else {**known, "ci95": interval}


def _find_best_path(session: Session, search: SearchRow) -> list[str]:
    if search.best_node_id is None:
        return []
    of_search = NodeRow.search_id == search.id
    best = select(NodeRow.id, NodeRow.parent_id, NodeRow.seq).where(of_search, NodeRow.id == search.best_node_id)
    path = best.cte("path", recursive=True)
    # UNION, not UNION ALL: it ends where a node comes again.
    path = path.union(
        select(NodeRow.id, NodeRow.parent_id, NodeRow.seq).where(of_search, NodeRow.id == path.c.parent_id)
    )
    return list(session.scalars(select(path.c.id).order_by(path.c.seq)))


def make_progress(session: Session, search: SearchRow, alive_after_s: float) -> ProgressDocument:
    """Make the progress of a search."""
    now = time.time()
    best, judged = read_curve(session, search)
    return ProgressDocument(
        search_id=search.id,
        state=search.state,
        created_at=search.created_at,
        as_of=now,
        best=best,
        judged=judged,
        gates=_count_gates(session, search),
        techniques=list_techniques(session, search),
        caps=_list_caps(search, now),
        waiting_for=list_waiting(session, search, now, alive_after_s),
    )


def read_curve(session: Session, search: SearchRow) -> tuple[list[BestPoint], list[JudgedPoint]]:
    """Read the best so far after every verdict that changed it, and every verdict on a candidate, in order."""
    judged = list(_list_judged(session, search))
    return list(list_best_points(judged, _list_eligible(session, search))), [point for point, _ in judged]


def _list_judged(session: Session, search: SearchRow) -> Iterator[tuple[JudgedPoint, Mapping[str, Any]]]:
    """Yield each verdict on a candidate with its event's payload, in order."""
    latest = (
        select(EventRow.type, EventRow.node_id, EventRow.payload, EventRow.created_at)
        .where(EventRow.search_id == search.id, EventRow.type.in_(JUDGED))
        .order_by(EventRow.id.desc())
        .limit(MOST_VERDICTS)
    )
    for kind, node_id, payload, at in reversed(session.execute(latest).tuples().all()):
        if node_id is None or not payload.get("seq"):  # the root's verdict is that of the baselines
            continue
        point = JudgedPoint(
            at=at,
            elapsed_s=at - search.created_at,
            candidates=payload["candidates"],
            cost_usd=None if search.unpriced_calls else payload["cost_usd"],
            node_id=node_id,
            seq=payload["seq"],
            level="verify" if kind == "node.verified" else "screen",
            verdict=payload["verdict"],
            gate=payload["gate"],
            score=payload["score"],
            technique=payload["technique"],
        )
        yield point, payload


def _list_eligible(session: Session, search: SearchRow) -> set[str]:
    """List the nodes that may be the best; those refused or banned later may not."""
    query = select(NodeRow.id).where(
        NodeRow.search_id == search.id, NodeRow.verdict == "accepted", NodeRow.mark.is_distinct_from("banned")
    )
    return set(session.scalars(query))


def list_best_points(judged: list[tuple[JudgedPoint, Mapping[str, Any]]], eligible: set[str]) -> Iterator[BestPoint]:
    """Yield the best after each verdict that changed it, each candidate by its latest score."""
    latest: dict[str, tuple[JudgedPoint, Mapping[str, Any]]] = {}
    best: str | None = None
    for point, payload in judged:
        if point.verdict != "accepted" or point.score is None or point.node_id not in eligible:
            continue
        latest[point.node_id] = (point, payload)
        if best == point.node_id:  # a verification may have found that another one is faster
            best = max(latest, key=lambda node_id: _rank(latest[node_id][0]))
        elif best is None or _rank(point) > _rank(latest[best][0]):
            best = point.node_id
        else:
            continue
        champion, found = latest[best]
        yield BestPoint(
            at=point.at,
            elapsed_s=point.elapsed_s,
            candidates=point.candidates,
            cost_usd=point.cost_usd,
            score=champion.score or 0.0,
            ci95=found.get("ci95"),
            limit_fraction=found.get("limit_fraction"),
            node_id=champion.node_id,
            seq=champion.seq,
            level=champion.level,
        )


def _rank(point: JudgedPoint) -> tuple[float, int]:
    """Rank by the score; among equals the older one comes first."""
    return point.score or 0.0, -point.seq


def _count_gates(session: Session, search: SearchRow) -> list[GateCount]:
    query = (
        select(NodeRow.gate, NodeRow.verdict, func.count())
        .where(NodeRow.search_id == search.id, NodeRow.seq > 0, NodeRow.gate.is_not(None), NodeRow.verdict.is_not(None))
        .group_by(NodeRow.gate, NodeRow.verdict)
    )
    found = [GateCount(gate=gate, verdict=word, count=count) for gate, word, count in session.execute(query)]
    order = {gate: position for position, gate in enumerate(GATES)}
    return sorted(found, key=lambda one: (order.get(one.gate, len(order)), one.verdict))


def _list_caps(search: SearchRow, now: float) -> list[Cap]:
    found = []
    for name, used in sum_spend(search, now).model_dump().items():
        limit = seconds_of_tries(search)[1] if name == "try_seconds" else search.budget.get(name)
        fraction = used / limit if limit and used is not None else None
        found.append(Cap(name=name, used=used, limit=limit, fraction=fraction))
    return found


def list_timeline(
    session: Session, search: SearchRow, after: str | None, limit: int
) -> tuple[list[TimelineAttempt], str | None]:
    """List a page of a search's attempts in their order of opening, and the next cursor."""
    columns = [getattr(AttemptRow, name) for name in TimelineAttempt.model_fields if name != "seq"]
    query = (
        select(*columns, NodeRow.seq)
        .join(NodeRow, NodeRow.id == AttemptRow.node_id)
        .where(AttemptRow.search_id == search.id)
        .order_by(AttemptRow.id)
        .limit(limit + 1)
    )
    if after is not None:
        query = query.where(AttemptRow.id > after)
    found = [TimelineAttempt(**row) for row in session.execute(query).mappings()]
    return found[:limit], found[limit - 1].id if len(found) > limit else None

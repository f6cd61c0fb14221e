"""What mattered in a search: its techniques, and the tunables of all of its sweeps with their configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field
from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.means import weight_of
from warpsmith.kernels_db.store.tables import NodeRow, SearchRow, VerdictRow
from warpsmith.service.views.importance import (
    ImportanceDocument,
    TechniqueImportance,
    explain_gains,
    explain_sweeps,
    time_ratios,
)
from warpsmith.service.views.techniques import list_gains

MOST_CANDIDATES = 50_000
"""Judged candidates that are looked at for one answer, the fastest first."""

MOST_COUNTED = 2_000
"""Sweeps that are read for one answer, those of the fastest candidates first."""

MOST_SENT = 4_000
"""Configurations in one answer: a drawing of more shows no more, and takes a browser seconds."""

NODES_AT_ONCE = 100

Timed = Sequence[tuple[Mapping[str, int], float]]


class RelativeConfiguration(BaseModel):
    """One configuration that was timed on every bench workload."""

    values: dict[str, int]
    ratio: float = Field(description="Its time over the chosen one's: the weighted geometric mean over bench workloads")


class SweptCandidate(BaseModel):
    """A candidate with tunables, and the configurations that its screening timed."""

    node_id: str
    seq: int
    title: str | None = Field(description="The idea in one line")
    score: float | None = Field(description="Its speed-up over the fastest baseline; null where it was not accepted")
    chosen: dict[str, int]
    configurations: list[RelativeConfiguration] = Field(description="The fastest first")
    out: int = Field(description="Configurations that do not compile, are wrong, or were not timed for want of time")


class MatteredDocument(BaseModel):
    """What mattered in a search."""

    search_id: str
    as_of: float = Field(description="The search's `updated_at` that it tells of; it may be 15 s behind")
    techniques: TechniqueImportance
    tunables: ImportanceDocument = Field(
        description=f"Over the sweeps of the fastest {MOST_COUNTED:,} swept candidates"
    )
    sweeps: list[SweptCandidate] = Field(
        description=f"The fastest candidate first, whole sweeps of up to {MOST_SENT:,} configurations in all"
    )
    not_sent: int = Field(description="Sweeps beyond these that count in `tunables`")
    not_counted: int = Field(
        description=f"Sweeps that count nowhere, of slower ones among the fastest {MOST_CANDIDATES:,} candidates"
    )


def make_mattered(session: Session, search: SearchRow) -> MatteredDocument:
    """Make what mattered in a search."""
    sent: list[SweptCandidate] = []
    not_sent, room = 0, MOST_SENT
    slower: list[str] = []

    def read() -> Iterator[Timed]:
        nonlocal not_sent, room
        for node, timed in _read_sweeps(session, _list_fastest(session, search), slower):
            room -= len(timed)
            if room >= 0:
                sent.append(_make_candidate(node, node.sweep, timed))
            else:
                not_sent += 1
            yield timed

    tunables = explain_sweeps(read())
    return MatteredDocument(
        search_id=search.id,
        as_of=search.updated_at,
        techniques=explain_gains(list_gains(session, search)),
        tunables=tunables,
        sweeps=sent,
        not_sent=not_sent,
        not_counted=_count_sweeps(session, slower),
    )


def _list_fastest(session: Session, search: SearchRow) -> Sequence[str]:
    """List the ids of judged candidates, the fastest first, from the narrow columns of nodes alone."""
    query = select(NodeRow.id).where(NodeRow.search_id == search.id, NodeRow.seq > 0, NodeRow.verdict.is_not(None))
    fastest = query.order_by(NodeRow.score.desc().nulls_last(), NodeRow.seq).limit(MOST_CANDIDATES)
    return session.scalars(fastest).all()


def _read_sweeps(session: Session, node_ids: Sequence[str], slower: list[str]) -> Iterator[tuple[Any, Timed]]:
    """Yield the sweeps of nodes with their times, in the order of the nodes, at most MOST_COUNTED.

    The nodes that were not looked at for that are added to `slower`.
    """
    columns = (
        NodeRow.id,
        NodeRow.seq,
        NodeRow.idea["title"].as_string().label("title"),
        NodeRow.score,
        VerdictRow.document["sweep"].label("sweep"),
        VerdictRow.document["workloads"].label("workloads"),
    )
    found = 0
    for start in range(0, len(node_ids), NODES_AT_ONCE):
        some = node_ids[start : start + NODES_AT_ONCE]
        query = _select_screenings(some, *columns)
        rows = {row.id: row for row in session.execute(query) if row.sweep is not None}
        swept = [node_id for node_id in some if node_id in rows]
        counted = swept[: MOST_COUNTED - found]
        for row in map(rows.__getitem__, counted):
            yield row, time_ratios(row.sweep, {item["id"]: weight_of(item) for item in row.workloads or []})
        found += len(counted)
        if found == MOST_COUNTED:
            slower += [*swept[len(counted) :], *node_ids[start + NODES_AT_ONCE :]]
            return


def _count_sweeps(session: Session, node_ids: Sequence[str]) -> int:
    """Count the nodes whose present code was swept."""
    found = 0
    for start in range(0, len(node_ids), NODES_AT_ONCE):
        swept = VerdictRow.document["sweep"].as_string().is_not(None)
        query = _select_screenings(node_ids[start : start + NODES_AT_ONCE], func.count()).where(swept)
        found += session.scalar(query) or 0
    return found


def _select_screenings(node_ids: Sequence[str], *columns: Any) -> Select[Any]:
    """Select from the newest screening of the present code of each node: a repair's has no sweep of the code before."""
    newest = (
        select(func.max(VerdictRow.id))
        .join(NodeRow, NodeRow.id == VerdictRow.node_id)
        .where(VerdictRow.node_id.in_(node_ids), VerdictRow.level == "screen", VerdictRow.source == NodeRow.source)
        .group_by(VerdictRow.node_id)
    )
    return (
        select(*columns)
        .select_from(VerdictRow)
        .join(NodeRow, NodeRow.id == VerdictRow.node_id)
        .where(VerdictRow.id.in_(newest))
    )


def _make_candidate(node: Any, sweep: Mapping[str, Any], timed: Timed) -> SweptCandidate:
    configurations = [RelativeConfiguration(values=dict(values), ratio=ratio) for values, ratio in timed]
    return SweptCandidate(
        node_id=node.id,
        seq=node.seq,
        title=node.title,
        score=node.score,
        chosen=sweep["chosen"],
        configurations=sorted(configurations, key=lambda one: one.ratio),
        out=len(sweep["configurations"]) - len(timed) + sweep.get("left_out", 0),
    )

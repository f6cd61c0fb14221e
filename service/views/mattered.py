"""What mattered in a search: its techniques, and the tunables of all of its sweeps with their configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field
from sqlalchemy import select
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

MOST_SWEEPS = 2_000
"""Sweeps that are read for one answer, those of the fastest candidates first."""

MOST_SENT = 4_000
"""Configurations in one answer: a drawing of more shows no more, and takes a browser seconds."""

ROWS_AT_ONCE = 100

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
    techniques: TechniqueImportance
    tunables: ImportanceDocument = Field(description=f"Over the sweeps of the fastest {MOST_SWEEPS:,} candidates")
    sweeps: list[SweptCandidate] = Field(
        description=f"The fastest candidate first, whole sweeps of up to {MOST_SENT:,} configurations in all"
    )
    left_out: int = Field(description="Sweeps beyond these, which count in `tunables` alone")


def make_mattered(session: Session, search: SearchRow) -> MatteredDocument:
    """Make what mattered in a search."""
    sent: list[SweptCandidate] = []
    left_out, room = 0, MOST_SENT

    def read() -> Iterator[Timed]:
        nonlocal left_out, room
        for node, sweep, timed in _list_sweeps(session, search):
            room -= len(timed)
            if room >= 0:
                sent.append(_make_candidate(node, sweep, timed))
            else:
                left_out += 1
            yield timed

    return MatteredDocument(
        search_id=search.id,
        techniques=explain_gains(list_gains(session, search)),
        tunables=explain_sweeps(read()),
        sweeps=sent,
        left_out=left_out,
    )


def _list_sweeps(session: Session, search: SearchRow) -> Iterator[tuple[Any, Mapping[str, Any], Timed]]:
    """Yield each node's latest sweep with its times, the fastest node's first, at most MOST_SWEEPS."""
    title = NodeRow.idea["title"].as_string().label("title")
    query = (
        select(
            NodeRow.id,
            NodeRow.seq,
            title,
            NodeRow.score,
            VerdictRow.document["sweep"].label("sweep"),
            VerdictRow.document["workloads"].label("workloads"),
        )
        .join(NodeRow, NodeRow.id == VerdictRow.node_id)
        .where(
            VerdictRow.search_id == search.id,
            VerdictRow.level == "screen",
            VerdictRow.document["sweep"].as_string().is_not(None),
        )
        .order_by(NodeRow.score.desc().nulls_last(), NodeRow.seq, VerdictRow.id.desc())
        .execution_options(yield_per=ROWS_AT_ONCE)
    )
    found, last = 0, None
    for row in session.execute(query):
        if row.id == last:
            continue  # an earlier one of the same node
        found, last = found + 1, row.id
        if found > MOST_SWEEPS:
            break
        weights = {item["id"]: weight_of(item) for item in row.workloads or []}
        yield row, row.sweep, time_ratios(row.sweep, weights)


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

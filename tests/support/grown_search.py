"""A search that has gone on for a while: a tree with gains by technique, failures, costs, and a best that was swept."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

from sqlalchemy import select

from benchmarks.trees import plant
from tests.support.api_support import TIMES, workload
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, EventRow, ModelCallRow, NodeRow, SearchRow, VerdictRow

CHILDREN = 4
SECONDS = 20.0
"""Between two verdicts."""

GAINS = {"memory_access": (1.12, 0.7), "fusion": (1.08, 0.6), "compute": (1.0, 0.5), "parallelism": (0.96, 0.3)}
"""By technique: the median gain over the parent, and the share that is accepted."""

Grid = dict[str, tuple[int, ...]]

TUNED: Grid = {"BLOCK": (32, 64, 128, 256), "STAGES": (1, 2, 3), "WARPS": (2, 4)}

TUNED_OTHERWISE: Grid = {"ROWS": (1, 2, 4, 8), "WARPS": (2, 4, 8)}
"""Of each third candidate with tunables."""

SWEPT_EACH = 5
"""Of so many candidates that were accepted one has tunables, and the best."""


def grow(db: Database, size: int = 200) -> str:
    """Plant a running search of `size` nodes, the last of which are being written; returns its id."""
    search_id, _ = plant(db, size)
    luck = random.Random(size)
    with db.writing() as session:
        search = session.get_one(SearchRow, search_id)
        query = select(NodeRow).where(NodeRow.search_id == search_id).order_by(NodeRow.seq)
        root, *nodes = session.scalars(query)
        bases = [root]
        best: NodeRow | None = None
        for node in nodes:
            parent = bases[(node.seq - 1) // CHILDREN % len(bases)]
            node.parent_id, node.round = parent.id, parent.round + 1
            if node.verdict is None:
                continue
            gain, accepted = GAINS[node.technique or ""]
            if luck.random() < accepted:
                node.score = (parent.score or 0.6) * gain * math.exp(luck.gauss(0, 0.12))
                node.ci_low, node.ci_high = 0.98 * node.score, 1.02 * node.score
                bases.append(node)
                best = node if best is None or node.score > (best.score or 0) else best
            else:
                node.verdict, node.gate = "rejected", luck.choice(("compile", "screen", "adversarial"))
                node.score = node.ci_low = node.ci_high = None
            session.add(_make_event(search, node))
            session.add(_make_attempt(search, node, luck))
        session.flush()
        session.add_all(_make_call(search, node, luck) for node in nodes if node.verdict is not None)
        assert best is not None, "found no accepted candidate, expected some"
        search.best_node_id, search.candidates, search.cost_usd = best.id, len(nodes), 0.02 * len(nodes)
        swept = [node for node in bases[1::SWEPT_EACH] if node is not best]
        session.add(_make_verdict(search, best, make_sweep(luck)))
        for position, node in enumerate(swept):
            grid = TUNED if position % 3 else TUNED_OTHERWISE
            session.add(_make_verdict(search, node, make_sweep(luck, grid)))
    return search_id


def _make_event(search: SearchRow, node: NodeRow) -> EventRow:
    payload = {
        "seq": node.seq,
        "candidates": node.seq,
        "cost_usd": 0.02 * node.seq,
        "verdict": node.verdict,
        "gate": node.gate,
        "score": node.score,
        "ci95": None if node.score is None else [node.ci_low, node.ci_high],
        "limit_fraction": None,
        "technique": node.technique,
    }
    at = search.created_at + SECONDS * node.seq
    return EventRow(search_id=search.id, node_id=node.id, type="node.judged", payload=payload, created_at=at)


def _make_attempt(search: SearchRow, node: NodeRow, luck: random.Random) -> AttemptRow:
    began = search.created_at + SECONDS * (node.seq - 1)
    return AttemptRow(
        id=f"at_{node.id[3:]}",
        search_id=search.id,
        node_id=node.id,
        kind="judge",
        ordinal=0,
        params={},
        state="succeeded",
        owner=f"judge-{node.seq % 2}",
        created_at=began,
        started_at=began,
        finished_at=began + luck.uniform(0.4, 0.95) * SECONDS,
    )


def _make_call(search: SearchRow, node: NodeRow, luck: random.Random) -> ModelCallRow:
    return ModelCallRow(
        id=f"mc_{node.id[3:]}",
        search_id=search.id,
        node_id=node.id,
        attempt_id=f"at_{node.id[3:]}",
        kind="code",
        request=f"{node.seq:064x}",
        provider="openai",
        messages=[],
        reply="code",
        prompt_tokens=3000,
        completion_tokens=900,
        cost_usd=luck.uniform(0.01, 0.03),
        created_at=search.created_at,
    )


def _make_verdict(search: SearchRow, node: NodeRow, sweep: dict[str, Any]) -> VerdictRow:
    document = {"reason": "fine", "workloads": [workload("large", "bench", TIMES)], "failure": None}
    return VerdictRow(
        id=f"vd_{node.id[3:]}",
        search_id=search.id,
        node_id=node.id,
        attempt_id=f"at_{node.id[3:]}",
        level="screen",
        verdict="accepted",
        gate="time",
        source=node.source,
        document={**document, "sweep": sweep},
        created_at=search.created_at,
    )


def make_sweep(luck: random.Random, grid: Grid = TUNED) -> dict[str, Any]:
    """Return a sweep over `grid`: its first tunable matters most, STAGES less, WARPS not at all; with some noise.

    Of three stages with the largest block the compiler has no room.
    """
    configurations: list[dict[str, Any]] = []
    first, values_of_first = next(iter(grid.items()))
    for chosen in itertools.product(*grid.values()):
        values = dict(zip(grid, chosen, strict=True))
        slower = 0.25 * abs(math.log2(values[first] / values_of_first[-2])) + 0.1 * abs(values.get("STAGES", 2) - 2)
        time_us = {"large": 40 * math.exp(slower + luck.gauss(0, 0.03))}
        entry: dict[str, Any] = {"values": values, "time_us": time_us, "rounds": 1}
        if (values[first], values.get("STAGES")) == (values_of_first[-1], 3):
            entry |= {"time_us": {}, "rounds": 0, "failure": "does not compile: too much shared memory"}
        configurations.append(entry)
    configurations.sort(key=lambda one: one["time_us"].get("large", math.inf))
    return {"chosen": configurations[0]["values"], "configurations": configurations, "seconds": 12.0}

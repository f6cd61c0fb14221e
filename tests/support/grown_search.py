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

TUNED = {"BLOCK": (32, 64, 128, 256), "STAGES": (1, 2, 3), "WARPS": (2, 4)}


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
        session.add(_make_verdict(search, best, luck))
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
        id=f"at_grown_{node.seq}",
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
        id=f"mc_grown_{node.seq}",
        search_id=search.id,
        node_id=node.id,
        attempt_id=f"at_grown_{node.seq}",
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


def _make_verdict(search: SearchRow, node: NodeRow, luck: random.Random) -> VerdictRow:
    document = {"reason": "fine", "workloads": [workload("large", "bench", TIMES)], "failure": None}
    return VerdictRow(
        id="vd_grown",
        search_id=search.id,
        node_id=node.id,
        attempt_id=f"at_grown_{node.seq}",
        level="screen",
        verdict="accepted",
        gate="time",
        document={**document, "sweep": make_sweep(luck)},
        created_at=search.created_at,
    )


def make_sweep(luck: random.Random) -> dict[str, Any]:
    """Return a sweep over TUNED: BLOCK matters most, STAGES less, WARPS not at all; every time with some noise."""
    configurations: list[dict[str, Any]] = []
    for chosen in itertools.product(*TUNED.values()):
        values = dict(zip(TUNED, chosen, strict=True))
        slower = 0.25 * abs(math.log2(values["BLOCK"] / 128)) + 0.1 * abs(values["STAGES"] - 2)
        time_us = {"large": 40 * math.exp(slower + luck.gauss(0, 0.03))}
        configurations.append({"values": values, "time_us": time_us, "rounds": 1})
    configurations.sort(key=lambda one: one["time_us"]["large"])
    return {"chosen": configurations[0]["values"], "configurations": configurations, "seconds": 12.0}

"""How long `steps.advance` takes on large trees."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import insert, update

from benchmarks.op import OP, TARGET
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import NodeRow, SearchRow
from warpsmith.workers import steps
from warpsmith.workers.search.idea_beam import IdeaBeam
from warpsmith.workers.search.policy import policy_document

NODES_PER_ROUND = 400
TECHNIQUES = ("memory_access", "parallelism", "compute", "fusion")
SOURCE_CHARS = 3_000
CALLS = 20


@dataclass(frozen=True)
class AdvanceTimes:
    """Milliseconds of `CALLS` calls on a tree of `nodes`."""

    nodes: int
    median_ms: float
    worst_ms: float


def measure(size: int, database_url: str | None = None) -> AdvanceTimes:
    """Time `advance` on a tree of `size` nodes, on SQLite unless a database is given.

    Before each call one node becomes ready to be judged.
    """
    with tempfile.TemporaryDirectory(prefix="warpsmith-overhead-") as directory:
        db = Database(database_url or f"sqlite:///{Path(directory) / 'tree.db'}")
        db.upgrade()
        search_id, ready = plant(db, size)
        times = []
        for node_id in ready:
            with db.writing() as session:
                session.execute(update(NodeRow).where(NodeRow.id == node_id).values(state="coded"))
            began = time.perf_counter()
            messages = steps.advance(db, search_id, time.time())
            times.append(1e3 * (time.perf_counter() - began))
            assert len(messages) == 1, f"advance opened {len(messages)} steps, expected the one that became ready"
        db.dispose()
    return AdvanceTimes(size, statistics.median(times), max(times))


def plant(db: Database, size: int) -> tuple[str, list[str]]:
    """Create a running search with `size` nodes whose last round is under way.

    Returns it and the nodes still being coded.
    """
    search_id = steps.create_search(
        db,
        OP,
        TARGET,
        language="cpp",
        policy=policy_document(IdeaBeam(max_rounds=100)),
        budget={"candidates": 10**6, "model_calls": 10**6},
        model={"provider": "agent"},
        now=time.time(),
    )
    steps.advance(db, search_id, time.time())
    luck = random.Random(size)  # noqa: S311 - a tree, not a secret
    rows = [_node(search_id, seq, luck) for seq in range(1, size)]
    for row in rows[-CALLS:]:
        row |= {"state": "coding", "verdict": None, "score": None, "ci_low": None, "ci_high": None}
    root = {"state": "judged", "verdict": "accepted", "ideated": rows[-1]["round"], "ideation": "done"}
    with db.writing() as session:
        session.execute(update(NodeRow).where(NodeRow.search_id == search_id).values(**root))
        session.execute(insert(NodeRow), rows)
        session.execute(update(SearchRow).where(SearchRow.id == search_id).values(next_seq=size))
    return search_id, [row["id"] for row in rows[-CALLS:]]


def _node(search_id: str, seq: int, luck: random.Random) -> dict[str, Any]:
    score = luck.uniform(0.3, 3.0)
    technique = luck.choice(TECHNIQUES)
    return {
        "id": new_id("nd"),
        "search_id": search_id,
        "seq": seq,
        "round": 1 + seq // NODES_PER_ROUND,
        "technique": technique,
        "state": "judged",
        "verdict": "accepted",
        "gate": "time",
        "score": score,
        "ci_low": 0.99 * score,
        "ci_high": 1.01 * score,
        "limit_fraction": 0.3,
        "idea": {"technique": technique, "title": f"idea {seq}", "mechanism": "as measured"},
        "source": "#" * SOURCE_CHARS,
        "source_digest": f"{seq:064x}",
        "created_at": 0.0,
        "updated_at": 0.0,
    }

"""A search at an endpoint as endpoints are: errors, replies that are cut off, and an outage. The winner is the same.

The endpoint answers from a recorded pool over real HTTP, to a real model worker; what a request is about it reads from
the header that endpoints log. What happens to which request is drawn by a hash, so it does not depend on timing. The
judge is played by a script that decides by the digest of the source, because timings would decide otherwise.
`WARPSMITH_TEST_OUTAGE_S` sets the length of the outage, seconds.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY
from tests.model_server import Answer, ModelServer, Request, ok, status
from tests.services import RedisServer, migrate
from tests.support.fleet import Fleet
from tests.support.played import by_digest, events_of, identity_of, judge_all, kind_of, nodes_of
from warpsmith.kernels_db.spec.op import Target, load_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.pool_file import Pool, parse_pool
from warpsmith.kernels_db.store.tables import SearchRow
from warpsmith.workers import steps
from warpsmith.workers.queue import dispatch
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.settings import Settings

EXAMPLES = REPOSITORY / "examples"
OUTAGE_S = float(os.environ.get("WARPSMITH_TEST_OUTAGE_S", "20"))
OUTAGE_AFTER = 8  # requests
ERRORS, CUTS = 0.10, 0.05
CUT_ORDINALS = 2
"""The last re-ask of a step is answered whole: three unreadable replies in a row pause a search for a person to look,
which is meant so and tested elsewhere."""

DEADLINE_S = 120.0
IMPATIENT = {
    "WARPSMITH_OPENAI_API_KEY": "sk-test",
    "WARPSMITH_MODEL_RETRIES": "0",  # every error is the search's to bear, none the client's
    "WARPSMITH_MODEL_BACKOFF_S": "0.3",
    "WARPSMITH_MODEL_MAX_DEFERRALS": "2",
    "WARPSMITH_MODEL_PROBE_S": "2",
    "WARPSMITH_MODEL_PROBE_LONGEST_S": "4",
}


class PoolEndpoint:
    """Answers from `pool`. A request that the pool does not know gets the pool's first reply of its kind: a repetition,
    which the search closes. `troubled`: with errors, cut replies and an outage."""

    def __init__(self, pool: Pool, *, troubled: bool) -> None:
        self.happened: Counter[str] = Counter()
        self._replies = {reply.request: reply for reply in pool.replies}
        self._first = {reply.kind: reply for reply in reversed(pool.replies)}
        self._troubled = troubled
        self._asked: Counter[tuple[str, int]] = Counter()
        self._outage_ends: float | None = None
        self._lock = threading.Lock()

    def __call__(self, request: Request) -> Answer:
        identity, ordinal = identity_of(request)
        with self._lock:
            self._asked[identity, ordinal] += 1
            trouble = self._trouble(identity, ordinal) if self._troubled else "none"
            self.happened[trouble] += 1
        match trouble:
            case "outage" | "500":
                return status(500, "away")
            case "429":
                return status(429, "slow down", retry_after="0")
            case "reset":
                return Answer(close=True)
        found = self._replies.get(identity)
        self.happened["known" if found else "unknown"] += 1
        text = (found or self._first[kind_of(request)]).reply
        return ok(text[: len(text) // 2], finish_reason="length") if trouble == "cut" else ok(text)

    def _trouble(self, identity: str, ordinal: int) -> str:
        if self._asked.total() > OUTAGE_AFTER and self._outage_ends is None:
            self._outage_ends = time.monotonic() + OUTAGE_S
        if self._outage_ends is not None and time.monotonic() < self._outage_ends:
            return "outage"
        seed = f"{identity} {ordinal} {self._asked[identity, ordinal]}"
        drawn = int(hashlib.sha256(seed.encode()).hexdigest()[:8], 16) / 2**32
        if drawn < ERRORS:
            return ("429", "500", "reset")[int(drawn / ERRORS * 3)]
        return "cut" if drawn < ERRORS + CUTS and ordinal < CUT_ORDINALS else "none"


def search_at(endpoint: PoolEndpoint, pool: Pool, home: Path, redis: RedisServer) -> dict[str, Any]:
    """Run the pool's search at `endpoint` to its end, and say how it went."""
    db = Database(f"sqlite:///{home / 'warpsmith.db'}")
    migrate(db)
    app = make_app(Settings(broker_url=redis.url))
    op = load_op(EXAMPLES / f"{pool.header.op}.yaml")
    with ModelServer(default=endpoint) as server:
        search_id = steps.create_search(
            db,
            op,
            Target("cpu", "x86_64"),
            language=pool.header.language,
            policy=pool.header.policy,
            budget={},
            model={"provider": "openai", "model": "gpt-5"},
            now=time.time(),
        )
        settings = {**IMPATIENT, "WARPSMITH_OPENAI_BASE_URL": server.url}
        with Fleet(home, redis.url, str(db.url), **settings) as fleet:
            fleet.start("model", "reconciler")
            steps.advance(db, search_id, time.time())
            deadline = time.monotonic() + DEADLINE_S + OUTAGE_S
            while (search := row(db, search_id)).state not in ENDED:
                if time.monotonic() > deadline:
                    pytest.fail(f"the search did not end: {search.state} {search.reason}\n{fleet.logs()}")
                dispatch.send(app, judge_all(db, search_id, by_digest))
                time.sleep(0.05)
    nodes = nodes_of(db, search_id)
    winner = next(node for node in nodes if node.id == search.best_node_id)
    found = {
        "state": search.state,
        "winner": winner.source_digest,
        "candidates": {node.source_digest for node in nodes if node.verdict == "accepted"},
        "pauses": events_of(db, search_id, "search.paused"),
        "resumed": events_of(db, search_id, "search.resumed"),
    }
    db.dispose()
    return found


def row(db: Database, search_id: str) -> SearchRow:
    with db.reading() as session:
        return session.get_one(SearchRow, search_id)


@pytest.mark.nightly
@pytest.mark.timeout(2 * DEADLINE_S + OUTAGE_S + 60)
@pytest.mark.parametrize("name", ["fused_add_mul_relu.cpu"])
def test_errors_cut_replies_and_an_outage_change_nothing(name: str, tmp_path: Path, redis_server: RedisServer) -> None:
    pool = parse_pool((EXAMPLES / "pools" / f"{name}.jsonl").read_text(encoding="utf-8"))
    calm, rough = PoolEndpoint(pool, troubled=False), PoolEndpoint(pool, troubled=True)
    undisturbed = search_at(calm, pool, tmp_path / "calm", redis_server)
    disturbed = search_at(rough, pool, tmp_path / "rough", redis_server)
    assert calm.happened["known"] >= 12, "the pool answers"
    assert rough.happened["outage"] >= 3
    assert rough.happened["cut"] >= 1, rough.happened
    assert rough.happened["429"] + rough.happened["500"] + rough.happened["reset"] >= 2, rough.happened
    assert disturbed["pauses"], "the outage outlasts the patience of a step"
    assert all(event["again_at"] for event in disturbed["pauses"]), "nobody need resume it"
    assert len(disturbed["resumed"]) == len(disturbed["pauses"])
    assert disturbed["state"] == undisturbed["state"] == "finished"
    assert disturbed["winner"] == undisturbed["winner"]
    assert disturbed["candidates"] == undisturbed["candidates"]

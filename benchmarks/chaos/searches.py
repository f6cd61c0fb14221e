"""The searches of a run: submitted over the API, and read from the database when they have ended."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import func, select

from benchmarks.campaign import EXAMPLES, Recorded, recorded
from benchmarks.chaos.fleet import TARGET
from benchmarks.policies import outcomes
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.pool_file import dump_pool, parse_pool
from warpsmith.kernels_db.store.tables import (
    AttemptRow,
    ImportRow,
    ModelCallRow,
    NodeRow,
    PoolReplyRow,
    PoolRow,
    SearchRow,
    VerdictRow,
)
from warpsmith.service.client.errors import ProblemError, ServiceUnreachableError
from warpsmith.service.client.http import Client

UNAVAILABLE = (408, 429, 502, 503, 504)
PATIENCE_S = 120.0
BETWEEN_TRIES_S = 0.3
MOST_FIELDS = 500
SHORT: tuple[dict[str, int], ...] = ({"rounds": 1}, {"rounds": 2, "parents": 4})
"""Changes of a recording's policy: it asks the same, and is over sooner."""

Result = TypeVar("Result")


class Kind(NamedTuple):
    """One search that can be submitted again and again."""

    name: str
    recorded: Recorded
    policy: dict[str, Any]


def kinds() -> list[Kind]:
    """Return the recorded searches of a CPU with measured outcomes, cut short in several ways."""
    found = []
    for pool in sorted((EXAMPLES / "pools").glob("*.cpu.jsonl")):
        if outcomes.read(pool) is None:
            continue
        one = recorded(pool, EXAMPLES, [TARGET])
        for changes in SHORT:
            told = ", ".join(f"{value} {name}" for name, value in changes.items())
            found.append(Kind(f"{one.op.name}, {told}", one, {**one.header.policy, **changes}))
    return found


class Node(NamedTuple):
    """What must depend on no fault: a node by the way that led to it, and how it ended."""

    way: tuple[str, ...]
    state: str
    verdict: str
    gate: str
    score: float | None
    repairs: int
    source: str
    verification: str


@dataclass(frozen=True)
class Found:
    """An ended search."""

    state: str
    reason: str
    nodes: Counter[Node]
    candidates: int
    model_calls: int
    doubled: tuple[str, ...]


def store_pool(urls: Sequence[str], kind: Kind, luck: random.Random) -> str:
    """Store the pool of a search and wait for it; returns the pool's id."""
    content = kind.recorded.pool.read_bytes()
    return persist(urls, lambda client: client.import_pool(content).id, luck)


def send_pool(urls: Sequence[str], kind: Kind, key: str, number: int, luck: random.Random) -> str:
    """Send a pool that differs from every other by its date, and do not wait for it; returns the import's id."""
    pool = parse_pool(kind.recorded.pool.read_text(encoding="utf-8"))
    content = dump_pool(replace(pool, header=replace(pool.header, recorded_at=float(number)))).encode()
    return persist(urls, lambda client: client.send_pool(content, key).id, luck)


def find_wrong_imports(db: Database, import_ids: Sequence[str]) -> Iterator[str]:
    """Say which imports did not end, or stored something else than one pool each, whole."""
    with db.reading() as session:
        rows = [session.get_one(ImportRow, import_id) for import_id in import_ids]
        stored = Counter((row.result or {}).get("pool_id") for row in rows if row.state == "done")
        for row in rows:
            if row.state != "done":
                yield f"import {row.id}: lost: {row.state} after {row.tries} tries, {row.problem}"
        for pool_id, times in stored.items():
            if times != 1:
                yield f"pool {pool_id}: doubled: stored by {times} imports"
            there = session.scalar(select(func.count()).where(PoolReplyRow.pool_id == pool_id))
            if there != (wanted := session.get_one(PoolRow, pool_id).replies):
                yield f"pool {pool_id}: lost: {there} of {wanted} replies"


def submit(urls: Sequence[str], kind: Kind, pool_id: str, key: str, luck: random.Random) -> str:
    """Submit a search once, however often it has to be tried; returns its id."""

    def once(client: Client) -> str:
        body = kind.recorded.body({"provider": "replay", "pool": pool_id})
        # No limit: which candidate meets one first depends on who is quick.
        return client.create_search({**body, "policy": kind.policy, "budget": {}}, key).id

    return persist(urls, once, luck)


def persist(urls: Sequence[str], do: Callable[[Client], Result], luck: random.Random) -> Result:
    """Ask one API after another until one answers. Raises the last refusal after `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            with Client(luck.choice(urls)) as client:
                return do(client)
        except ServiceUnreachableError:
            if time.monotonic() > deadline:
                raise
        except ProblemError as problem:
            if problem.status not in UNAVAILABLE or time.monotonic() > deadline:
                raise
        time.sleep(BETWEEN_TRIES_S)


def read(db: Database, search_id: str) -> Found:
    """Read a search as it is in the database."""
    with db.reading() as session:
        search = session.get_one(SearchRow, search_id)
        nodes = list(session.scalars(select(NodeRow).where(NodeRow.search_id == search_id).order_by(NodeRow.seq)))
        calls = session.execute(
            select(ModelCallRow.request, ModelCallRow.ordinal, func.count())
            .where(ModelCallRow.search_id == search_id, ModelCallRow.error.is_(None))
            .group_by(ModelCallRow.request, ModelCallRow.ordinal)
            .having(func.count() > 1)
        ).all()
        attempts = session.execute(
            select(AttemptRow.node_id, AttemptRow.kind, AttemptRow.ordinal)
            .where(AttemptRow.search_id == search_id)
            .group_by(AttemptRow.node_id, AttemptRow.kind, AttemptRow.ordinal)
            .having(func.count() > 1)
        ).all()
        verdicts = session.scalars(
            select(VerdictRow.attempt_id)
            .where(VerdictRow.search_id == search_id)
            .group_by(VerdictRow.attempt_id)
            .having(func.count() > 1)
        ).all()
    ways: dict[str | None, tuple[str, ...]] = {None: ()}
    found: Counter[Node] = Counter()
    for node in nodes:
        title = "" if node.idea is None else str(node.idea["title"])
        ways[node.id] = (*ways[node.parent_id], f"{title}/{node.variant}")
        found[
            Node(
                ways[node.id],
                node.state,
                node.verdict or "",
                node.gate or "",
                node.score,
                node.repairs,
                node.source_digest or "",
                node.verification,
            )
        ] += 1
    doubled = (
        *(f"reply {request[:12]}/{ordinal} was stored {count} times" for request, ordinal, count in calls),
        *(f"{kind} {ordinal} of node {node} was opened twice" for node, kind, ordinal in attempts),
        *(f"attempt {attempt} has two verdicts" for attempt in verdicts),
    )
    return Found(search.state, search.reason or "", found, search.candidates, search.model_calls, doubled)


def differences(quiet: Found, found: Found) -> list[str]:
    """Say how an ended search differs from the quiet one; nothing where it does not."""
    lines = []
    for name in ("state", "reason", "candidates", "model_calls"):
        expected, is_now = getattr(quiet, name), getattr(found, name)
        if expected != is_now:
            lines.append(f"{name}: found {is_now!r}, expected {expected!r}")
    lines += [f"lost: {_told(node)}" for node in (quiet.nodes - found.nodes).elements()]
    lines += [f"not of the quiet run: {_told(node)}" for node in (found.nodes - quiet.nodes).elements()]
    return [line[:MOST_FIELDS] for line in lines]


def _told(node: Node) -> str:
    return f"{' > '.join(node.way)} {node.state} {node.verdict} {node.gate} {node.score} r{node.repairs}"

"""Prometheus metrics: request latency as it happens, the state of searches, nodes, queues and workers when scraped."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import (
    AskRow,
    AttemptRow,
    KernelRow,
    NodeRow,
    ReverificationRow,
    SearchRow,
    WorkerRow,
)

CONTENT_TYPE = CONTENT_TYPE_LATEST
COUNTED: tuple[tuple[str, str, *tuple[InstrumentedAttribute[Any], ...]], ...] = (
    ("searches", "Searches by state", SearchRow.state),
    ("nodes", "Nodes by state and verdict", NodeRow.state, NodeRow.verdict),
    ("attempts", "Attempts by kind and state", AttemptRow.kind, AttemptRow.state),
    ("asks", "Asks by state", AskRow.state),
    (
        "kernels",
        "Kernels by target and by what their latest re-verification found",
        KernelRow.target,
        KernelRow.standing,
    ),
    (
        "reverifications",
        "Re-verifications of kernels by state and outcome",
        ReverificationRow.state,
        ReverificationRow.outcome,
    ),
)
"""What is counted by columns, whose names are the labels."""
LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """The metrics of one app; each app has its own registry, so several may live in one process."""

    def __init__(self, db: Database, alive_after_s: float) -> None:
        self._registry = CollectorRegistry()
        self._latency = Histogram(
            "warpsmith_http_request_seconds",
            "Seconds from a request's arrival to the end of its response",
            ["method", "route", "status"],
            buckets=LATENCY_BUCKETS_S,
            registry=self._registry,
        )
        self._registry.register(_DatabaseCollector(db, alive_after_s))

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request. `method` is folded, because a client may send any word as one."""
        known = method if method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} else "other"
        self._latency.labels(known, route, str(status)).observe(seconds)

    def render(self) -> bytes:
        """The exposition text. Raises what the database raises."""
        return generate_latest(self._registry)


class _DatabaseCollector(Collector):
    def __init__(self, db: Database, alive_after_s: float) -> None:
        self._db = db
        self._alive_after_s = alive_after_s

    def describe(self) -> Iterable[Metric]:
        """Nothing: registering must not need a database."""
        return []

    def collect(self) -> Iterator[Metric]:
        now = time.time()
        with self._db.reading() as session:
            yield from (_counted(session, *counted) for counted in COUNTED)
            yield _oldest_pending(session, now)
            yield _workers(session, now - self._alive_after_s)
            yield _spend(session)


def _counted(session: Session, name: str, text: str, *columns: InstrumentedAttribute[Any]) -> Metric:
    family = GaugeMetricFamily(f"warpsmith_{name}", text, labels=[column.key for column in columns])
    for *values, count in session.execute(select(*columns, func.count()).group_by(*columns)):
        family.add_metric([str(value or "none") for value in values], count)
    return family


def _oldest_pending(session: Session, now: float) -> Metric:
    """The age of each kind of step that is due and that nobody has claimed: what to alert on."""
    family = GaugeMetricFamily(
        "warpsmith_queue_age_seconds", "Age of the oldest step that is due and unclaimed", labels=["kind"]
    )
    due = select(AttemptRow.kind, func.min(AttemptRow.created_at)).where(
        AttemptRow.state == "pending", AttemptRow.not_before <= now
    )
    ages = {kind: now - oldest for kind, oldest in session.execute(due.group_by(AttemptRow.kind))}
    for kind in ("ideate", "code", "judge", "verify"):
        family.add_metric([kind], max(0.0, ages.get(kind, 0.0)))
    return family


def _workers(session: Session, since: float) -> Metric:
    family = GaugeMetricFamily("warpsmith_workers_alive", "Workers that reported in lately", labels=["role", "target"])
    alive = select(WorkerRow.role, WorkerRow.target, func.count()).where(WorkerRow.seen_at >= since)
    for role, target, count in session.execute(alive.group_by(WorkerRow.role, WorkerRow.target)):
        family.add_metric([role, target or "none"], count)
    return family


def _spend(session: Session) -> Metric:
    family = GaugeMetricFamily("warpsmith_model_spend", "What all searches have spent on models", labels=["unit"])
    columns = (func.sum(SearchRow.model_calls), func.sum(SearchRow.tokens), func.sum(SearchRow.cost_usd))
    for unit, value in zip(("calls", "tokens", "usd"), session.execute(select(*columns)).one(), strict=True):
        family.add_metric([unit], float(value or 0))
    return family

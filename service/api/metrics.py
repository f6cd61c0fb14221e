"""Prometheus metrics: request latency, and the state of searches, nodes, queues and workers."""

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
    """The metrics of one app; each app has its own registry, so one process can hold several."""

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
        """Count one answered request; unknown methods count as `other`, since clients may send any."""
        known = method if method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} else "other"
        self._latency.labels(known, route, str(status)).observe(seconds)

    def render(self) -> bytes:
        """Render the exposition text; raises the errors of the database."""
        return generate_latest(self._registry)


class _DatabaseCollector(Collector):
    def __init__(self, db: Database, alive_after_s: float) -> None:
        self._db = db
        self._alive_after_s = alive_after_s

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering must not need a database."""
        return []

    def collect(self) -> Iterator[Metric]:
        now = time.time()
        with self._db.reading() as session:
            yield from (_count_rows(session, *counted) for counted in COUNTED)
            yield _measure_queue_ages(session, now)
            yield _count_workers(session, now - self._alive_after_s)
            yield _sum_spend(session)


def _count_rows(session: Session, name: str, text: str, *columns: InstrumentedAttribute[Any]) -> Metric:
    family = GaugeMetricFamily(f"warpsmith_{name}", text, labels=[column.key for column in columns])
    for *values, count in session.execute(select(*columns, func.count()).group_by(*columns)):
        family.add_metric([str(value or "none") for value in values], count)
    return family


def _measure_queue_ages(session: Session, now: float) -> Metric:
    """Measure the age of the oldest due and unclaimed step of each kind, for alerts."""
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


def _count_workers(session: Session, since: float) -> Metric:
    family = GaugeMetricFamily("warpsmith_workers_alive", "Workers that reported in lately", labels=["role", "target"])
    alive = select(WorkerRow.role, WorkerRow.target, func.count()).where(WorkerRow.seen_at >= since)
    for role, target, count in session.execute(alive.group_by(WorkerRow.role, WorkerRow.target)):
        family.add_metric([role, target or "none"], count)
    return family


def _sum_spend(session: Session) -> Metric:
    family = GaugeMetricFamily("warpsmith_model_spend", "What all searches have spent on models", labels=["unit"])
    columns = (func.sum(SearchRow.model_calls), func.sum(SearchRow.tokens), func.sum(SearchRow.cost_usd))
    for unit, value in zip(("calls", "tokens", "usd"), session.execute(select(*columns)).one(), strict=True):
        family.add_metric([unit], float(value or 0))
    return family

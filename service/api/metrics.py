"""Prometheus metrics: request latency, and the state of searches, nodes, queues, workers and the broker.

All but latency and `process_*` are read from the database, so every API process of a service says the same: a query
takes their `max`, and never adds them up. Processes that share a port answer for each other: their latency is one
histogram, and `process_*` has the label `process`. docs/operations.md says what to watch.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import psutil
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from sqlalchemy import ColumnElement, Select, and_, case, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from warpsmith.kernels_db.store import leases, tallies
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import (
    AttemptRow,
    ImportRow,
    ProfileRow,
    ReverificationRow,
    SearchRow,
    TryRow,
    WorkerRow,
)
from warpsmith.service.settings import METRICS_DIRECTORY
from warpsmith.workers.queue_names import MODEL_QUEUE, judge_queue
from warpsmith.workers.steps.placement import count_oversized

CONTENT_TYPE = CONTENT_TYPE_LATEST
COUNTED = {
    "searches": "Searches by state",
    "nodes": "Nodes by state and verdict",
    "attempts": "Attempts by kind and state",
    "asks": "Asks by state",
    "kernels": "Kernels by target and by what their latest re-verification found",
    "reverifications": "Re-verifications of kernels by state and outcome",
}
"""What is counted; the names of the columns that it is counted by are the labels."""
MODEL_KINDS = ("ideate", "code")
OPEN_SEARCHES = ("queued", "running", "paused")
PROFILE_WAITS_S = 3600.0
"""Seconds for which an announced profile counts as waiting: a lost announcement must not keep a GPU up for ever."""

LATENCY_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """The metrics of one app; each app has its own registry, so one process can hold several."""

    def __init__(self, db: Database, alive_after_s: float, broker_answers: Callable[[], bool]) -> None:
        self._registry = CollectorRegistry()
        shared = os.environ.get(METRICS_DIRECTORY)
        if shared is None:
            ProcessCollector(registry=self._registry)
        else:
            self._registry.register(_SiblingsCollector())
            # It reads the files of every process, dead ones included.
            MultiProcessCollector(self._registry, shared)  # type: ignore[no-untyped-call]
        self._latency = Histogram(
            "warpsmith_http_request_seconds",
            "Seconds from a request's arrival to the end of its response",
            ["method", "route", "status"],
            buckets=LATENCY_BUCKETS_S,
            registry=self._registry if shared is None else None,
        )
        self._registry.register(_DatabaseCollector(db, alive_after_s))
        self._registry.register(_BrokerCollector(broker_answers))

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request; unknown methods count as `other`, since clients may send any."""
        known = method if method in {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} else "other"
        self._latency.labels(known, route, str(status)).observe(seconds)

    def render(self) -> bytes:
        """Render the exposition text; raises the errors of the database."""
        return generate_latest(self._registry)


class _SiblingsCollector(Collector):
    """`process_*` of each process that shares the port: the children of this one's parent."""

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the names are those of `ProcessCollector`."""
        return []

    def collect(self) -> Iterator[Metric]:
        found: dict[str, Metric] = {}
        for pid in sorted(child.pid for child in psutil.Process(os.getppid()).children()):
            for family in ProcessCollector(pid=partial(int, pid), registry=None).collect():
                known = found.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    known.add_sample(sample.name, {**sample.labels, "process": str(pid)}, sample.value)
        yield from found.values()


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
            kept = tallies.read_tallies(session)
            yield from (_describe_counts(name, text, kept.counts[name]) for name, text in COUNTED.items())
            yield from _describe_queues(_measure_queues(session, now, now - self._alive_after_s), now)
            yield _count_workers(session, now - self._alive_after_s)
            yield _describe_spend(kept.spend)


class _BrokerCollector(Collector):
    def __init__(self, answers: Callable[[], bool]) -> None:
        self._answers = answers

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering must not need a broker."""
        return []

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily("warpsmith_broker_up", "Whether the broker takes messages of this process")
        family.add_metric([], self._answers())
        yield family


def _describe_counts(name: str, text: str, counts: Mapping[tuple[str, ...], int]) -> Metric:
    labels = [column.key for column in tallies.COUNTED[name]]
    family = GaugeMetricFamily(f"warpsmith_{name}", text, labels=labels)
    for values, count in counts.items():
        family.add_metric([value or "none" for value in values], count)
    return family


@dataclass
class _Queue:
    """What one queue holds: jobs of every kind, counted; `since`: the oldest waits since then (epoch seconds)."""

    waiting: int = 0
    running: int = 0
    retried: int = 0
    deferred: int = 0
    since: float | None = None
    oversized: int = 0

    def add(self, waiting: int, running: int, retried: int, deferred: int, since: float | None) -> None:
        self.waiting += waiting
        self.running += running
        self.retried += retried
        self.deferred += deferred
        self.since = min((one for one in (self.since, since) if one is not None), default=None)

    def age_s(self, now: float) -> float:
        return 0.0 if self.since is None else max(0.0, now - self.since)


def _measure_queues(session: Session, now: float, alive_since: float) -> dict[str, _Queue]:
    """Measure the queues of models and of every target that has a job, a live worker or an open search."""
    served = select(WorkerRow.target).where(WorkerRow.seen_at >= alive_since)
    wanted = select(SearchRow.target).where(SearchRow.state.in_(OPEN_SEARCHES))
    known = [MODEL_QUEUE, *(judge_queue(target) for target in session.scalars(served.union(wanted)) if target)]
    queues = defaultdict(_Queue, {name: _Queue() for name in known})
    for kind, target, *measured in session.execute(_steps(now)):
        queues[MODEL_QUEUE if kind in MODEL_KINDS else judge_queue(target)].add(*measured)
    for query in (_profiles(now), _tries(), _reverifications()):
        for target, *measured in session.execute(query):
            queues[judge_queue(target)].add(*measured)
    for _, *measured in session.execute(_imports()):
        queues[MODEL_QUEUE].add(*measured)
    for target, count in count_oversized(session, now).items():
        queues[judge_queue(target)].oversized = count
    return queues


def _steps(now: float) -> Select[Any]:
    """Select the steps of searches by kind and target."""
    pending, due = AttemptRow.state == "pending", AttemptRow.not_before <= now
    waiting = and_(pending, due, SearchRow.state == "running")
    # One that is out in a bundle has no lease: no worker of this service has it.
    running = and_(AttemptRow.state == "running", AttemptRow.lease_expires_at.is_not(None))
    retried = or_(and_(pending, AttemptRow.tries > 0), and_(running, AttemptRow.tries > 1))
    since = case((AttemptRow.not_before > AttemptRow.created_at, AttemptRow.not_before), else_=AttemptRow.created_at)
    deferred = and_(pending, ~due, AttemptRow.deferrals > 0)
    return (
        select(AttemptRow.kind, SearchRow.target, *_sums(waiting, running, retried, deferred), _oldest(waiting, since))
        .join(SearchRow, SearchRow.id == AttemptRow.search_id)
        .where(AttemptRow.state.in_(leases.OPEN))
        .group_by(AttemptRow.kind, SearchRow.target)
    )


def _profiles(now: float) -> Select[Any]:
    """Select the requested profiles by target."""
    waiting = and_(ProfileRow.state == "pending", ProfileRow.sent_at > now - PROFILE_WAITS_S)
    running = and_(ProfileRow.state == "running", ProfileRow.lease_expires_at > now)
    never = ProfileRow.id.is_(None)
    return (
        select(SearchRow.target, *_sums(waiting, running, never, never), _oldest(waiting, ProfileRow.created_at))
        .join(SearchRow, SearchRow.id == ProfileRow.search_id)
        .where(ProfileRow.state.in_(leases.OPEN))
        .group_by(SearchRow.target)
    )


def _tries() -> Select[Any]:
    """Select the tries of candidates by target, but those at level compile, for which no device is to be started."""
    tries = _leased(TryRow, SearchRow.target).join(SearchRow, SearchRow.id == TryRow.search_id)
    return tries.where(TryRow.level != "compile")


def _reverifications() -> Select[Any]:
    """Select the re-verifications by target.

    One whose target has no live judge counts as waiting although it was not sent: it needs the first worker.
    """
    return _leased(ReverificationRow, ReverificationRow.target)


def _imports() -> Select[Any]:
    """Select the imports by kind; model workers read them all."""
    return _leased(ImportRow, ImportRow.kind)


def _leased(row: type[TryRow | ReverificationRow | ImportRow], by: InstrumentedAttribute[str]) -> Select[Any]:
    """Select what waits and runs of a table of leased rows, none of which is ever deferred."""
    waiting = row.state == "pending"
    running = and_(row.state == "running", row.lease_expires_at.is_not(None))  # one out in a bundle has no lease
    retried = or_(and_(waiting, row.tries > 0), and_(running, row.tries > 1))
    sums = _sums(waiting, running, retried, row.id.is_(None))
    return select(by, *sums, _oldest(waiting, row.created_at)).where(row.state.in_(leases.OPEN)).group_by(by)


def _sums(*conditions: ColumnElement[bool]) -> Iterator[ColumnElement[int]]:
    return (func.sum(case((condition, 1), else_=0)) for condition in conditions)


def _oldest(waiting: ColumnElement[bool], since: ColumnElement[float] | InstrumentedAttribute[float]) -> Any:
    return func.min(case((waiting, since), else_=None))


def _describe_queues(queues: dict[str, _Queue], now: float) -> Iterator[Metric]:
    measures: tuple[tuple[str, str, Callable[[_Queue], float]], ...] = (
        ("depth", "Jobs that are due and wait for a worker", lambda queue: queue.waiting),
        ("running", "Jobs that a worker holds", lambda queue: queue.running),
        ("age_seconds", "Age of the oldest job that is due and waits", lambda queue: queue.age_s(now)),
        ("retried", "Open jobs that an earlier worker took and lost", lambda queue: queue.retried),
        ("deferred", "Steps put off because their model was unavailable", lambda queue: queue.deferred),
        ("oversized", "Steps that are too large for every live GPU of their target", lambda queue: queue.oversized),
    )
    for name, text, value in measures:
        family = GaugeMetricFamily(f"warpsmith_queue_{name}", text, labels=["queue"])
        for queue, found in sorted(queues.items()):
            family.add_metric([queue], value(found))
        yield family


def _count_workers(session: Session, since: float) -> Metric:
    family = GaugeMetricFamily("warpsmith_workers_alive", "Workers that reported in lately", labels=["role", "target"])
    alive = select(WorkerRow.role, WorkerRow.target, func.count()).where(WorkerRow.seen_at >= since)
    for role, target, count in session.execute(alive.group_by(WorkerRow.role, WorkerRow.target)):
        family.add_metric([role, target or "none"], count)
    return family


def _describe_spend(spend: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily("warpsmith_model_spend", "What all searches have spent on models", labels=["unit"])
    for unit, value in spend.items():
        family.add_metric([unit], value)
    return family

"""The state of the service: parts, queues, devices with their measured peaks, versions."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, Literal

from pydantic import BaseModel, Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.quotas import measure_usage
from warpsmith.kernels_db.store.recent import list_recent_verdicts, list_values
from warpsmith.kernels_db.store.tables import AttemptRow, SearchRow, TeamRow, VerdictRow, WorkerRow
from warpsmith.kernels_db.store.tallies import read_tallies
from warpsmith.service.documents.quotas import QuotaDocument
from warpsmith.service.views.workers import serves
from warpsmith.workers.queue_names import JUDGE_PREFIX, MODEL_QUEUE, judge_queue, role_of, target_of
from warpsmith.workers.steps.rows import in_bundle

PACKAGES = ("warpsmith", "fastapi", "sqlalchemy", "celery", "pydantic")
MODEL_KINDS = ("ideate", "code")
NOTHING_RAN = "none"
PARTS = ("device", "versions", "sandbox", "fingerprint")
"""Parts of a verdict's document that say what it was judged on."""

LOOKED_AT = 20
"""Number of a target's newest verdicts that are read for its devices."""


class Check(BaseModel):
    """Whether a part works."""

    name: Literal["database", "broker"]
    ok: bool
    detail: str = Field(description="Its address, or the fault as found and expected")


class QueueDocument(BaseModel):
    """The steps of one queue."""

    name: str
    role: str = Field(description="Role of the workers that serve it: model or judge")
    target: str | None
    waiting: int = Field(description="Steps that are due and unclaimed")
    deferred: int = Field(description="Steps put off until later")
    running: int = Field(description="Steps that a worker has; those in bundles are left out")
    oldest_s: float | None = Field(description="Age of the oldest that waits")
    live_workers: int


class Bandwidth(BaseModel):
    """Measured bandwidth at one footprint."""

    bytes: int
    gbs: float


class Rate(BaseModel):
    """Measured rate of one arithmetic."""

    arithmetic: str
    gflops: float


class DeviceDocument(BaseModel):
    """A device of judges, by its newest verdict."""

    target: str
    name: str
    type: str | None
    facts: dict[str, Any] = Field(description="Cores or multiprocessors, memory, caches, instruction set")
    bandwidth: list[Bandwidth] = Field(description="By rising footprint")
    rates: list[Rate]
    versions: dict[str, str]
    sandbox: str | None = Field(description="Level of the sandbox around candidates there")
    fingerprint: str | None = Field(description="SHA-256 of device, versions and protocol")
    seen_at: float


class SystemDocument(BaseModel):
    """The state of the service."""

    version: str
    as_of: float
    keys_required: bool
    database: str = Field(description="sqlite or postgresql")
    checks: list[Check]
    queues: list[QueueDocument]
    devices: list[DeviceDocument]
    workers_alive: int
    searches_by_state: dict[str, int]
    asks_open: int
    kernels: int
    quotas: list[QuotaDocument] = Field(description="Of the caller's team; for administrators of every team")
    versions: dict[str, str] = Field(description="Of this process: Python and packages")


@cache
def list_versions() -> Mapping[str, str]:
    """Return the versions of Python and of packages in this process: read once, for each is a file to be parsed."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def list_queues(session: Session, now: float, alive_after_s: float) -> list[QueueDocument]:
    """List every queue that has steps, an unfinished search, or a worker."""
    found: dict[str, dict[str, Any]] = {MODEL_QUEUE: {}}
    alive = select(WorkerRow.role, WorkerRow.target, func.count()).where(*serves(now - alive_after_s))
    for role, target, count in session.execute(alive.group_by(WorkerRow.role, WorkerRow.target)):
        name = MODEL_QUEUE if role == "model" else judge_queue(target) if role == "judge" and target else None
        if name is not None:
            found.setdefault(name, {})["live_workers"] = count
    going_on = select(SearchRow.target).where(SearchRow.state.in_(("queued", "running"))).distinct()
    for target in session.scalars(going_on):
        found.setdefault(judge_queue(target), {})
    for name, state, count, oldest in _count_steps(session, now):
        entry = found.setdefault(name, {})
        entry[state] = entry.get(state, 0) + count
        if state == "waiting":
            entry["oldest"] = min(oldest, entry.get("oldest", oldest))
    return [_make_queue(name, entry, now) for name, entry in sorted(found.items(), key=lambda item: _rank(item[0]))]


def _count_steps(session: Session, now: float) -> Iterator[tuple[str, str, int, float]]:
    """Count the open steps of running searches by queue and state."""
    is_model, is_late = AttemptRow.kind.in_(MODEL_KINDS), AttemptRow.not_before > now
    columns = (AttemptRow.state, is_model, is_late, SearchRow.target)
    rows = session.execute(
        select(*columns, func.count(), func.min(AttemptRow.created_at))
        .join(SearchRow, SearchRow.id == AttemptRow.search_id)
        .where(
            AttemptRow.state.in_(("pending", "running")),
            SearchRow.state == "running",
            ~in_bundle(),
        )
        .group_by(*columns)
    )
    for state, model, late, target, count, oldest in rows:
        kind = "running" if state == "running" else "deferred" if late else "waiting"
        yield (MODEL_QUEUE if model else judge_queue(target)), kind, count, oldest


def _make_queue(name: str, entry: Mapping[str, Any], now: float) -> QueueDocument:
    return QueueDocument(
        name=name,
        role=role_of(name),
        target=target_of(name),
        waiting=entry.get("waiting", 0),
        deferred=entry.get("deferred", 0),
        running=entry.get("running", 0),
        oldest_s=max(0.0, now - entry["oldest"]) if "oldest" in entry else None,
        live_workers=entry.get("live_workers", 0),
    )


def _rank(name: str) -> tuple[bool, str]:
    return name.startswith(JUDGE_PREFIX), name


def list_devices(session: Session) -> list[DeviceDocument]:
    """List the devices of the newest verdicts on each target, the latest first."""
    found: dict[tuple[str, str], DeviceDocument] = {}
    for target in list_values(session, SearchRow.target):
        recent = list_recent_verdicts(session, target)[:LOOKED_AT]
        parts = [VerdictRow.document[name] for name in PARTS]  # the rest, with every sample, is most of a verdict
        newest = select(VerdictRow.created_at, *parts).where(VerdictRow.id.in_(recent)).order_by(VerdictRow.id.desc())
        for seen_at, *values in session.execute(newest):
            document = dict(zip(PARTS, values, strict=True))
            name = str((document["device"] or {}).get("name") or "")
            known = found.get((target, name))
            if name and known is None:
                found[target, name] = _make_device(target, document, seen_at)
            elif known is not None and known.sandbox in (None, NOTHING_RAN):
                known.sandbox = _read_level(document)
    return sorted(found.values(), key=lambda device: -device.seen_at)


def _make_device(target: str, document: Mapping[str, Any], seen_at: float) -> DeviceDocument:
    device = dict(document["device"])
    name, kind, peaks = str(device.pop("name")), device.pop("type", None), device.pop("peaks", None) or {}
    sizes = sorted((int(size), rate) for size, rate in (peaks.get("bandwidth_gbs") or {}).items())
    return DeviceDocument(
        target=target,
        name=name,
        type=kind,
        facts=device,
        bandwidth=[Bandwidth(bytes=size, gbs=rate) for size, rate in sizes],
        rates=[Rate(arithmetic=key, gflops=rate) for key, rate in sorted((peaks.get("gflops") or {}).items())],
        versions=document["versions"] or {},
        sandbox=_read_level(document),
        fingerprint=document["fingerprint"],
        seen_at=seen_at,
    )


def _read_level(document: Mapping[str, Any]) -> str | None:
    level: str | None = (document["sandbox"] or {}).get("level")
    return level


def count_rows(session: Session) -> tuple[dict[str, int], int, int]:
    """Count searches by state, open asks and kernels."""
    counts = read_tallies(session).counts
    by_state = {state: count for (state,), count in counts["searches"].items()}
    return by_state, counts["asks"].get(("open",), 0), sum(counts["kernels"].values())


def list_quotas(session: Session, team: str | None, now: float) -> list[QuotaDocument]:
    """List what `team` has used of its quotas; None: every team."""
    query = select(TeamRow).order_by(TeamRow.name)
    rows = session.scalars(query if team is None else query.where(TeamRow.name == team)).all()
    return [
        QuotaDocument(team=row.name, quota=used.quota, used=used.used, limit=used.limit, resets_at=used.resets_at)
        for row in rows
        for used in measure_usage(session, row, now)
    ]


def count_live_workers(session: Session, now: float, alive_after_s: float) -> int:
    """Count the workers that reported in lately."""
    alive = select(func.count()).select_from(WorkerRow).where(WorkerRow.seen_at >= now - alive_after_s)
    return session.scalar(alive) or 0

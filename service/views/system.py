"""The state of the whole house: parts, queues, devices with their measured peaks, versions."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, Literal

from pydantic import BaseModel, Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import AskRow, AttemptRow, KernelRow, SearchRow, VerdictRow, WorkerRow
from warpsmith.workers.queue_names import JUDGE_PREFIX, MODEL_QUEUE, judge_queue, role_of, target_of
from warpsmith.workers.steps.bundling import owner_of

PACKAGES = ("warpsmith", "fastapi", "sqlalchemy", "celery", "pydantic")
MODEL_KINDS = ("ideate", "code")
NOTHING_RAN = "none"
LOOKED_AT = 20
"""The newest verdicts of a target that are looked at for its devices."""


class Check(BaseModel):
    """Whether a part works."""

    name: Literal["database", "broker"]
    ok: bool
    detail: str = Field(description="Where it is, or what was found instead of what")


class QueueDocument(BaseModel):
    """The steps of one queue."""

    name: str
    role: str = Field(description="Of the workers that serve it: model or judge")
    target: str | None
    waiting: int = Field(description="Steps that are due and that nobody has claimed")
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
    """A device on which something was judged, as its newest verdict tells it."""

    target: str
    name: str
    type: str | None
    facts: dict[str, Any] = Field(description="Cores or multiprocessors, memory, caches, instruction set")
    bandwidth: list[Bandwidth] = Field(description="By rising footprint")
    rates: list[Rate]
    versions: dict[str, str]
    sandbox: str | None = Field(description="What stands around candidates there: the level")
    fingerprint: str | None = Field(description="SHA-256 of device, versions and protocol")
    seen_at: float


class SystemDocument(BaseModel):
    """The state of the whole house."""

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
    versions: dict[str, str] = Field(description="Of this process: Python and packages")


def versions() -> dict[str, str]:
    """What this process runs on."""
    return {"python": platform.python_version()} | {name: version(name) for name in PACKAGES}


def queues(session: Session, now: float, alive_after_s: float) -> list[QueueDocument]:
    """Every queue that has steps, a search that goes on, or a worker."""
    found: dict[str, dict[str, Any]] = {MODEL_QUEUE: {}}
    alive = select(WorkerRow.role, WorkerRow.target, func.count()).where(WorkerRow.seen_at >= now - alive_after_s)
    for role, target, count in session.execute(alive.group_by(WorkerRow.role, WorkerRow.target)):
        name = MODEL_QUEUE if role == "model" else judge_queue(target) if role == "judge" and target else None
        if name is not None:
            found.setdefault(name, {})["live_workers"] = count
    going_on = select(SearchRow.target).where(SearchRow.state.in_(("queued", "running"))).distinct()
    for target in session.scalars(going_on):
        found.setdefault(judge_queue(target), {})
    for name, state, count, oldest in _steps(session, now):
        entry = found.setdefault(name, {})
        entry[state] = entry.get(state, 0) + count
        if state == "waiting":
            entry["oldest"] = min(oldest, entry.get("oldest", oldest))
    return [_queue(name, entry, now) for name, entry in sorted(found.items(), key=lambda item: _place(item[0]))]


def _steps(session: Session, now: float) -> Iterator[tuple[str, str, int, float]]:
    """Open steps of searches that go on, by queue and by what they wait for."""
    is_model, is_late = AttemptRow.kind.in_(MODEL_KINDS), AttemptRow.not_before > now
    columns = (AttemptRow.state, is_model, is_late, SearchRow.target)
    rows = session.execute(
        select(*columns, func.count(), func.min(AttemptRow.created_at))
        .join(SearchRow, SearchRow.id == AttemptRow.search_id)
        .where(
            AttemptRow.state.in_(("pending", "running")),
            SearchRow.state == "running",
            func.coalesce(AttemptRow.owner, "").not_like(f"{owner_of('')}%"),
        )
        .group_by(*columns)
    )
    for state, model, late, target, count, oldest in rows:
        kind = "running" if state == "running" else "deferred" if late else "waiting"
        yield (MODEL_QUEUE if model else judge_queue(target)), kind, count, oldest


def _queue(name: str, entry: Mapping[str, Any], now: float) -> QueueDocument:
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


def _place(name: str) -> tuple[bool, str]:
    return name.startswith(JUDGE_PREFIX), name


def devices(session: Session) -> list[DeviceDocument]:
    """Every device of the newest verdicts on each target, the latest to judge first."""
    found: dict[tuple[str, str], DeviceDocument] = {}
    for target in session.scalars(select(SearchRow.target).distinct()):
        newest = (
            select(VerdictRow)
            .join(SearchRow, SearchRow.id == VerdictRow.search_id)
            .where(SearchRow.target == target)
            .order_by(VerdictRow.id.desc())
            .limit(LOOKED_AT)
        )
        for row in session.scalars(newest):
            name = str((row.document.get("device") or {}).get("name") or "")
            known = found.get((target, name))
            if name and known is None:
                found[target, name] = _device(target, row)
            elif known is not None and known.sandbox in (None, NOTHING_RAN):
                known.sandbox = _sandbox(row)
    return sorted(found.values(), key=lambda device: -device.seen_at)


def _device(target: str, row: VerdictRow) -> DeviceDocument:
    document = row.document
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
        versions=document.get("versions") or {},
        sandbox=_sandbox(row),
        fingerprint=document.get("fingerprint"),
        seen_at=row.created_at,
    )


def _sandbox(row: VerdictRow) -> str | None:
    level: str | None = (row.document.get("sandbox") or {}).get("level")
    return level


def counts(session: Session) -> tuple[dict[str, int], int, int]:
    """Searches by state, open asks, kernels."""
    by_state = select(SearchRow.state, func.count()).group_by(SearchRow.state)
    asks = session.scalar(select(func.count()).select_from(AskRow).where(AskRow.state == "open")) or 0
    kernels = session.scalar(select(func.count()).select_from(KernelRow)) or 0
    return dict(session.execute(by_state).tuples().all()), asks, kernels


def workers_alive(session: Session, now: float, alive_after_s: float) -> int:
    """Workers that reported in lately."""
    alive = select(func.count()).select_from(WorkerRow).where(WorkerRow.seen_at >= now - alive_after_s)
    return session.scalar(alive) or 0

"""Documents of workers: their devices, their states, and what they have in hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import AttemptRow, SearchRow, WorkerRow
from warpsmith.kernels_db.store.teams import is_readable
from warpsmith.service.documents.system import WorkerDevice, WorkerDocument, WorkerStep
from warpsmith.workers.steps.compiling import LONGEST_NAME, count_in_hand, name_holder


def serves(alive_since: float) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions under which a worker takes steps: it reported in lately, and does not drain."""
    return WorkerRow.seen_at >= alive_since, WorkerRow.draining_since.is_(None)


def list_worker_documents(
    session: Session, rows: Sequence[WorkerRow], team: str | None, now: float, alive_after_s: float
) -> list[WorkerDocument]:
    """Make the documents of workers as `team` sees them; None: as an administrator does.

    A worker counts as alive for `alive_after_s` seconds after its last report.
    """
    running = count_in_hand(session)
    steps: dict[str, list[WorkerStep]] = {}
    held = (
        select(AttemptRow.owner, AttemptRow.kind, AttemptRow.search_id, AttemptRow.node_id)
        .join(SearchRow, SearchRow.id == AttemptRow.search_id)
        .where(AttemptRow.state == "running", *is_readable(SearchRow.team, team))
        .order_by(AttemptRow.started_at)
    )
    for owner, kind, search_id, node_id in session.execute(held).tuples():
        step = WorkerStep(kind=kind, search_id=search_id, node_id=node_id)
        steps.setdefault(name_holder(owner), []).append(step)
    return [
        _make_document(
            row, running[row.name[:LONGEST_NAME]], steps.get(row.name[:LONGEST_NAME], []), now, alive_after_s
        )
        for row in rows
    ]


def _make_document(
    row: WorkerRow, running: int, steps: list[WorkerStep], now: float, alive_after_s: float
) -> WorkerDocument:
    alive = row.seen_at >= now - alive_after_s
    device: dict[str, Any] | None = row.facts.get("device")
    return WorkerDocument(
        name=row.name,
        host=row.name.rpartition("@")[2],
        role=row.role,
        target=row.target,
        device=None if device is None else WorkerDevice(name=device["name"], memory_bytes=device.get("memory_bytes")),
        compiles={
            target: [language for language, missing in languages.items() if not missing]
            for target, languages in (row.facts.get("compiles") or {}).items()
        },
        version=(row.facts.get("versions") or {}).get("warpsmith"),
        alive=alive,
        state=_find_state(alive, row.draining_since is not None, running),
        running=running if alive else 0,
        steps=steps if alive else [],
        draining_since=row.draining_since,
        facts=row.facts,
        started_at=row.started_at,
        seen_at=row.seen_at,
    )


def _find_state(
    alive: bool, draining: bool, running: int
) -> Literal["working", "idle", "draining", "drained", "silent"]:
    if draining:
        return "draining" if alive else "drained"
    if not alive:
        return "silent"
    return "working" if running else "idle"

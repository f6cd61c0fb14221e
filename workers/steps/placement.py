"""Placement by memory: which judges' devices are large enough for the steps of a search.

A step needs as much as the largest workload of its op, at any level: a search's figures are to come from devices on
which all of it runs. Workers say with their heartbeat how much their device has. A step that is too large for the
worker that its message reached stays pending, set aside until its message is sent again: soon where a judge that is
alive is large enough, else every LOOK_AGAIN_S, so that a larger host that joins finds it. A worker whose device is
larger than others' takes first what those cannot.

For GPUs alone: what does not fit a CPU's memory its judge refuses. What a device has and what a job may take of it the
judge knows best: where it finds less than the worker was told, the worker goes by that (`WorkerProcess`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.memory import needed_bytes, usable_bytes
from warpsmith.kernels_db.spec.op import SpecErrors, Target, parse_op
from warpsmith.kernels_db.spec.resolve import resolve_op, resolve_workload
from warpsmith.kernels_db.store.tables import (
    AttemptRow,
    KernelRow,
    OpRow,
    ProfileRow,
    ReverificationRow,
    SearchRow,
    TryRow,
    WorkerRow,
)
from warpsmith.workers.settings import ALIVE_AFTER_S

LOOK_AGAIN_S = 15.0
"""Seconds between two looks for a larger device where no judge that is alive has one."""

SOON_S = 1.0
"""Seconds for which a step is set aside that a judge which is alive can take."""

MOST_NEEDS = 10_000
"""Needs that a process remembers: an op's spec never changes."""

_needs: dict[tuple[str, str], Need | None] = {}

Placed = type[TryRow | ProfileRow | ReverificationRow]
"""Jobs of a judge's queue that are no steps."""


class Need(NamedTuple):
    """The device memory of an op's largest workload, in bytes, and that workload's id."""

    needed: int
    workload: str

    def fits(self, device_bytes: int | None) -> bool:
        """Check whether a GPU of so much memory is large enough; one whose memory is unknown is taken to be."""
        return device_bytes is None or self.needed <= usable_bytes(device_bytes, "cuda")

    def describe(self, device_bytes: int, whose: str) -> str:
        """Say what is needed, and what there is."""
        return (
            f"workload {self.workload} needs {_format_gib(self.needed)} of device memory; {whose} has "
            f"{_format_gib(device_bytes)}, of which a job may take {_format_gib(usable_bytes(device_bytes, 'cuda'))}"
        )


@dataclass(frozen=True)
class Room:
    """What one judge's device has room for among the ops of its target's running searches, by their ids."""

    device_bytes: int
    too_large: Collection[str]
    only_here: Collection[str]
    """Fit here, and not on the smallest device of the target."""


def measure_need(spec: Mapping[str, Any], target: str) -> Need | None:
    """Measure what an op needs on a GPU; None for other devices, and for an op that no job can be made of."""
    if not target.startswith("cuda:"):
        return None
    try:
        op = parse_op(dict(spec))
        resolved = [resolve_workload(op, workload) for workload in op.workloads_for(Target.parse(target))]
    except SpecErrors:
        return None  # the step's job meets the same errors, and says so
    document = resolve_op(op)
    return max((Need(needed_bytes(document, one, "cuda"), one["id"]) for one in resolved), default=None)


def find_need(session: Session, op_id: str, target: str) -> Need | None:
    """Return what a stored op needs on the target, measured once in each process."""
    key = (op_id, target)
    if key not in _needs:
        spec = session.scalar(select(OpRow.spec).where(OpRow.id == op_id))
        need = None if spec is None else measure_need(spec, target)
        if len(_needs) >= MOST_NEEDS:
            _needs.clear()
        _needs[key] = need
    return _needs[key]


def list_devices(session: Session, target: str, now: float) -> list[int | None]:
    """List the memory of the devices of the target's judges that are alive and take steps; None: unknown."""
    serves = WorkerRow.seen_at >= now - ALIVE_AFTER_S, WorkerRow.draining_since.is_(None)
    query = select(WorkerRow.facts).where(WorkerRow.role == "judge", WorkerRow.target == target, *serves)
    return [(facts.get("device") or {}).get("memory_bytes") for facts in session.scalars(query)]


def read_room(session: Session, target: str, device_bytes: int, now: float) -> Room:
    """Read what a device of so much memory has room for now."""
    running = select(SearchRow.op_id).where(SearchRow.state == "running", SearchRow.target == target).distinct()
    found = {op_id: find_need(session, op_id, target) for op_id in session.scalars(running)}
    needs = {op_id: need for op_id, need in found.items() if need is not None}
    too_large = {op_id for op_id, need in needs.items() if not need.fits(device_bytes)}
    known = [size for size in list_devices(session, target, now) if size is not None]
    smallest = min(known, default=device_bytes)
    only_here = {op_id for op_id, need in needs.items() if op_id not in too_large and not need.fits(smallest)}
    return Room(device_bytes, too_large, only_here)


def set_aside(session: Session, attempt_id: str, op_id: str, target: str, device_bytes: int, now: float) -> None:
    """Leave a pending step, whose search is locked, for a larger device than the one of so much memory."""
    need, attempt = find_need(session, op_id, target), session.get_one(AttemptRow, attempt_id, populate_existing=True)
    if need is None or attempt.state != "pending":
        return
    shortage = find_shortage(session, op_id, target, now)
    attempt.sent_at = None
    attempt.not_before = now + (SOON_S if shortage is None else LOOK_AGAIN_S)
    attempt.error = shortage or need.describe(device_bytes, "the GPU of a host that was free")


def find_shortage(session: Session, op_id: str, target: str, now: float) -> str | None:
    """Say why no judge of the target is large enough for the op; None where one is, or none is alive."""
    need = find_need(session, op_id, target)
    sizes = [] if need is None else list_devices(session, target, now)
    if need is None or not sizes or any(need.fits(size) for size in sizes):
        return None
    return need.describe(max(size for size in sizes if size is not None), "the largest GPU of this target")


def find_misfit(session: Session, table: Placed, row_id: str, device_bytes: int) -> str | None:
    """Say why a device is too small for a try, a profile or a re-verification; None where it is not."""
    owner = KernelRow if table is ReverificationRow else SearchRow
    key = table.kernel_id if table is ReverificationRow else table.search_id  # type: ignore[union-attr]
    query = select(owner.op_id, owner.target).join(table, key == owner.id).where(table.id == row_id)
    found = session.execute(query).tuples().one_or_none()
    need = None if found is None else find_need(session, *found)
    return None if need is None or need.fits(device_bytes) else need.describe(device_bytes, "this host's GPU")


def _format_gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"

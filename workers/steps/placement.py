"""Placement by memory: which judges' devices are large enough for the steps of a search.

A step needs as much as the largest workload of its op, at any level: a search's figures are to come from devices on
which all of it runs. Workers say with their heartbeat how much their device has. A step that is too large for the
worker that its message reached stays pending, set aside until its message is sent again: soon where a judge that is
alive is large enough, else every LOOK_AGAIN_S, so that a larger host that joins finds it. A worker whose device is
larger than others' takes first what those cannot.

For GPUs alone: what does not fit a CPU's memory its judge refuses. What a device has and what a job may take of it the
judge knows best: where it finds less than the worker was told, the worker goes by that (`WorkerProcess`). For steps of
searches alone: tries, profiles and re-verifications are done where their message arrives, and the judge says at once
what does not fit.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.memory import needed_bytes, usable_bytes
from warpsmith.kernels_db.spec.op import SpecErrors, Target, parse_op
from warpsmith.kernels_db.spec.resolve import resolve_op, resolve_workload
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, OpRow, SearchRow, WorkerRow
from warpsmith.workers.settings import ALIVE_AFTER_S

LOOK_AGAIN_S = 15.0
"""Seconds between two looks for a larger device where no judge that is alive has one."""

SOON_S = 1.0
"""Seconds for which a step is set aside that a judge which is alive can take."""

MOST_MEASURED = 100
"""Ops that one count of oversized steps measures, at a few milliseconds each; the others count from the next."""

MOST_NEEDS = 10_000
"""Needs that a process remembers, the last that it measured: an op's spec never changes."""

_needs: dict[tuple[str, str], Need | None] = {}
_needs_lock = threading.Lock()


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
    """What one judge's device has room for among the ops of its target's running searches, by their ids.

    `devices`: the memory of the target's devices that are alive, None where it is unknown.
    """

    device_bytes: int
    needs: Mapping[str, Need]
    devices: Collection[int | None]
    too_large: Collection[str]
    only_here: Collection[str]
    """Fit here, and not on the next smaller device that has room for fewer of the ops."""


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
    known = _recall([op_id], target)
    return (known | _measure_all(_read_specs(session, [op_id], known), target)).get(op_id)


def _recall(op_ids: Iterable[str], target: str) -> dict[str, Need | None]:
    """Return the needs that this process has measured before."""
    with _needs_lock:
        return {op_id: _needs[op_id, target] for op_id in op_ids if (op_id, target) in _needs}


def _read_specs(session: Session, op_ids: Iterable[str], known: Collection[str]) -> dict[str, dict[str, Any]]:
    """Read the specs of the ops that are not known, by one statement; by none where all are."""
    unknown = [op_id for op_id in op_ids if op_id not in known]
    query = select(OpRow.id, OpRow.spec).where(OpRow.id.in_(unknown))
    return dict(session.execute(query).tuples().all()) if unknown else {}


def _measure_all(specs: Mapping[str, Mapping[str, Any]], target: str) -> dict[str, Need | None]:
    """Measure what the ops of these specs need, and remember it in place of the oldest."""
    measured = {op_id: measure_need(spec, target) for op_id, spec in specs.items()}
    with _needs_lock:
        for op_id, need in measured.items():
            _needs[op_id, target] = need
            if len(_needs) > MOST_NEEDS:
                del _needs[next(iter(_needs))]
    return measured


def list_devices(session: Session, target: str, now: float) -> list[int | None]:
    """List the memory of the devices of the target's judges that are alive and take steps; None: unknown."""
    serves = WorkerRow.seen_at >= now - ALIVE_AFTER_S, WorkerRow.draining_since.is_(None)
    query = select(WorkerRow.facts).where(WorkerRow.role == "judge", WorkerRow.target == target, *serves)
    return [(facts.get("device") or {}).get("memory_bytes") for facts in session.scalars(query)]


def read_room(db: Database, attempt_id: str, device_bytes: int, now: float) -> Room:
    """Read what a device of so much memory has room for now, among what waits with this step.

    In a transaction of its own, and measured after its end: a claim holds a search's lock. A search that begins in
    between counts as one that fits: its judge says what does not.
    """
    of_step = select(SearchRow.target).join(AttemptRow, AttemptRow.search_id == SearchRow.id)
    target_of = of_step.where(AttemptRow.id == attempt_id).scalar_subquery()
    running = select(SearchRow.op_id, SearchRow.target).where(SearchRow.state == "running")
    with db.reading() as session:
        found = session.execute(running.where(SearchRow.target == target_of).distinct()).tuples().all()
        if not found:
            return Room(device_bytes, {}, (), (), ())
        target, op_ids = found[0][1], [op_id for op_id, _ in found]
        known = _recall(op_ids, target)
        specs = _read_specs(session, op_ids, known)
        devices = list_devices(session, target, now)
    measured = known | _measure_all(specs, target)
    needs = {op_id: need for op_id, need in measured.items() if need is not None}
    too_large = {op_id for op_id, need in needs.items() if not need.fits(device_bytes)}
    return Room(device_bytes, needs, devices, too_large, _find_only_here(needs, device_bytes, devices))


def _find_only_here(needs: Mapping[str, Need], device_bytes: int, devices: Iterable[int | None]) -> set[str]:
    fitting = {op_id: need for op_id, need in needs.items() if need.fits(device_bytes)}
    smaller = {size for size in devices if size is not None and size < device_bytes}
    for size in sorted(smaller, reverse=True):
        only_here = {op_id for op_id, need in fitting.items() if not need.fits(size)}
        if only_here:
            return only_here
    return set()


def set_aside(session: Session, attempt_id: str, op_id: str, room: Room, now: float) -> None:
    """Leave a pending step, whose search is locked, for a device with more room."""
    attempt = session.get_one(AttemptRow, attempt_id, populate_existing=True)
    if attempt.state != "pending":
        return
    need = room.needs[op_id]
    shortage = _describe_shortage(need, room.devices)
    attempt.sent_at = None
    attempt.not_before = now + (SOON_S if shortage is None else LOOK_AGAIN_S)
    attempt.error = shortage or need.describe(room.device_bytes, "the GPU of a host that was free")


def find_shortage(session: Session, op_id: str, target: str, now: float) -> str | None:
    """Say why no judge of the target is large enough for the op; None where one is, or none is alive."""
    need = find_need(session, op_id, target)
    return None if need is None else _describe_shortage(need, list_devices(session, target, now))


def count_oversized(session: Session, now: float) -> dict[str, int]:
    """Count, by target, the waiting steps that are too large for each of its GPUs that are alive."""
    waits = AttemptRow.state == "pending", AttemptRow.kind.in_(("judge", "verify"))
    runs = SearchRow.state == "running", SearchRow.target.startswith("cuda:")
    query = select(SearchRow.target, SearchRow.op_id, func.count()).join(
        AttemptRow, AttemptRow.search_id == SearchRow.id
    )
    steps: dict[str, dict[str, int]] = {}
    for target, op_id, count in session.execute(query.where(*waits, *runs).group_by(SearchRow.target, SearchRow.op_id)):
        steps.setdefault(target, {})[op_id] = count
    found, left = {}, MOST_MEASURED
    for target, by_op in steps.items():
        devices = list_devices(session, target, now)
        known = _recall(by_op, target)
        unknown = [op_id for op_id in by_op if op_id not in known][:left]
        left -= len(unknown)
        needs = known | _measure_all(_read_specs(session, unknown, known), target)
        found[target] = sum(
            by_op[op_id] for op_id, need in needs.items() if need is not None and _is_too_large(need, devices)
        )
    return found


def _is_too_large(need: Need, devices: Collection[int | None]) -> bool:
    """Check whether there are devices, and none of them is large enough."""
    return bool(devices) and not any(need.fits(size) for size in devices)


def _describe_shortage(need: Need, devices: Collection[int | None]) -> str | None:
    if not _is_too_large(need, devices):
        return None
    return need.describe(max(size for size in devices if size is not None), "the largest GPU of this target")


def _format_gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"

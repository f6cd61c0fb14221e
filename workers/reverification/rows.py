"""The states of a re-verification: asked for, taken under a lease, done.

This is the only code that changes a re-verification, or a kernel's standing by one.

    pending -> running -> done        running -> pending where the lease ran out or the judge died

Each function makes one write transaction. Where it needs the kernel it locks its row first, so that of a kernel one
re-verification is open at a time. Time comes in as `now`, epoch seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.counterexamples import (
    Counterexample,
    found_recipe,
    keep_counterexample,
    known_counterexamples,
    lock_op,
)
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.quotas import add_spending
from warpsmith.kernels_db.store.tables import KernelRow, OpRow, ReverificationRow
from warpsmith.workers.queue_names import judge_queue
from warpsmith.workers.reverification.finding import Finding
from warpsmith.workers.steps.quotas import check_device
from warpsmith.workers.steps.rows import plain
from warpsmith.workers.steps.values import Message
from warpsmith.workers.text import storable

OPEN = leases.OPEN
"""States of a re-verification that is still to bring a result."""

KEPT_OF_EVIDENCE = ("fingerprint", "versions", "score", "score_ci95")
"""Parts of the earlier evidence that stay with a re-verification.

It is compared with this evidence, and a search may replace it.
"""

VERIFIED_AT = "verified_at"
"""The kernel's, at the claim: whether a search has kept it again since."""

KEPT_OF_WORKLOADS = ("id", "role", "time_us", "speedup", "ci95", "weight")


@dataclass(frozen=True)
class Reverification:
    """A claimed re-verification with all that judging needs.

    op: the spec's document; evidence: the verify verdict that the kernel was kept for. counterexamples: of the op.
    """

    id: str
    kernel_id: str
    op: dict[str, Any]
    target: str
    language: str
    source: str
    evidence: dict[str, Any]
    tries: int
    counterexamples: tuple[Counterexample, ...] = ()


def message(row: ReverificationRow) -> Message:
    """Return the message that announces it to the judges of its target."""
    return Message(row.id, judge_queue(row.target))


def ask(
    session: Session,
    kernel_id: str,
    now: float,
    *,
    cause: Literal["asked", "schedule"],
    by: str | None = None,
    team: str | None = None,
) -> tuple[ReverificationRow, bool]:
    """Return the kernel's open re-verification, or a new one, and whether it is new.

    A new one is to be announced. `by`: the name of the API key that asked; `team`: whose device seconds it spends
    (None: nobody's). Raises LookupError for an unknown kernel, QuotaReached where the team has none left for a new one.
    """
    kernel = session.get(KernelRow, kernel_id, with_for_update=True, populate_existing=True)
    if kernel is None:
        raise LookupError(f"kernel: found {kernel_id!r}, expected the id of a stored kernel")
    of_kernel = ReverificationRow.kernel_id == kernel_id
    row = session.scalar(select(ReverificationRow).where(of_kernel, ReverificationRow.state.in_(OPEN)))
    if row is not None:
        return row, False
    if team is not None:
        check_device(session, team, now)
    latest = session.scalar(select(func.max(ReverificationRow.ordinal)).where(of_kernel))
    row = ReverificationRow(
        id=new_id("rv"),
        kernel_id=kernel_id,
        ordinal=(latest or 0) + 1,
        target=kernel.target,
        cause=cause,
        asked_by=by,
        team=team,
        state="pending",
        sent_at=now,
        created_at=now,
    )
    session.add(row)
    session.flush()
    return row, True


def claim(db: Database, row_id: str, owner: str, lease_s: float, now: float) -> Reverification | None:
    """Take a pending re-verification for `lease_s` seconds.

    Returns None where it cannot be taken (taken already, done).

    `owner` must differ between claims, so that a worker that lost its lease cannot pass for the one that has it now.
    """
    with db.writing() as session:
        if not leases.claim(session, ReverificationRow, row_id, owner, lease_s, now):
            return None
        row = session.get_one(ReverificationRow, row_id)
        kernel = session.get_one(KernelRow, row.kernel_id)
        row.before = _before(kernel)
        spec = session.get_one(OpRow, kernel.op_id).spec
        return Reverification(
            id=row.id,
            kernel_id=kernel.id,
            op=spec,
            target=kernel.target,
            language=kernel.language,
            source=kernel.source,
            evidence=kernel.evidence,
            tries=row.tries,
            counterexamples=known_counterexamples(session, kernel.op_id, kernel.target),
        )


def renew(db: Database, row_id: str, owner: str, lease_s: float, now: float) -> bool:
    """Hold the lease for another `lease_s` seconds; False: it was lost, stop."""
    with db.writing() as session:
        return leases.renew(session, ReverificationRow, row_id, owner, lease_s, now)


def finish(db: Database, row_id: str, owner: str, found: Finding, verdict: Verdict | None, now: float) -> bool:
    """Store the result of a re-verification, and set the kernel's standing by it.

    The standing stays where nothing is known, or a search has kept the kernel again since the claim. Values on which
    the kernel is wrong stay with its op. Returns False, and writes nothing, where the lease was lost. `verdict`: None
    where the judge gave none.
    """
    with db.writing() as session:
        of_row = select(KernelRow.id, KernelRow.op_id).join(ReverificationRow).where(ReverificationRow.id == row_id)
        known = session.execute(of_row).tuples().one_or_none()
        if known is None:
            return False
        kernel_id, op_id = known
        if verdict is not None and found_recipe(verdict) is not None:
            lock_op(session, op_id)  # before the kernel, as a search's step does whose end keeps a kernel
        kernel = session.get_one(KernelRow, kernel_id, with_for_update=True)
        row = leases.held(session, ReverificationRow, row_id, owner)
        if row is None:
            return False
        end(kernel, row, found, verdict, now)
        if row.team is not None and verdict is not None:
            add_spending(session, row.team, now, device_seconds=verdict["seconds"].get("exclusive", 0.0))
        if row.verdict is not None:
            keep_counterexample(session, kernel.op_id, kernel.target, row.verdict, now, kernel_id=kernel.id)
        return True


def end(kernel: KernelRow, row: ReverificationRow, found: Finding, verdict: Verdict | None, now: float) -> None:
    """End `row`, under the kernel's lock."""
    leases.finish(row, "done", now)
    row.outcome, row.reason = found.outcome, storable(found.reason)
    row.verdict = None if verdict is None else plain(verdict)
    row.fingerprint = None if verdict is None else verdict["fingerprint"]
    held_against = (row.before or {}).get(VERIFIED_AT)
    if found.outcome != "unknown" and held_against == kernel.verified_at:
        kernel.standing = found.outcome
        kernel.reverified_at = now


def _before(kernel: KernelRow) -> dict[str, Any]:
    """Return the parts of the kernel's present evidence that a claim keeps."""
    evidence = kernel.evidence
    kept = {name: evidence[name] for name in KEPT_OF_EVIDENCE if name in evidence}
    workloads = [
        {name: workload[name] for name in KEPT_OF_WORKLOADS if name in workload}
        for workload in evidence.get("workloads") or []
    ]
    device = (evidence.get("device") or {}).get("name")
    return {**kept, VERIFIED_AT: kernel.verified_at, "device": device, "workloads": workloads}

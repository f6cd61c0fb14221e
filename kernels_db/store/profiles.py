"""Profiles of nodes: requested, taken by a worker, finished.

Nothing here touches a search's state. A row's `document` is the result: {"reason", "workload", "calls", "rows",
"device", "nsight", "source_sha256"}, and "bundle" of one that came in a bundle, which holds it until it is merged or
dropped (`workers.steps.requested`). A message or a worker that is lost costs asking once more: the lease is as long as
the judge may take, is not renewed, and nothing brings back one that ran out.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.documents import NsightKernel
from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.quotas import add_spending
from warpsmith.kernels_db.store.tables import NodeRow, OpRow, ProfileRow, SearchRow

SEND_AGAIN_S = 60.0
"""Age in seconds at which a profile that no worker took is announced again on request."""
MOST_READ = 5
"""Latest profiles of a node that are searched for metrics."""


@dataclass(frozen=True)
class ProfileWork:
    """All that a worker needs to profile a node's candidate. op: the spec's document."""

    profile_id: str
    node_id: str
    op: dict[str, Any]
    target: str
    language: str
    source: str


def latest_profile(session: Session, node_id: str) -> ProfileRow | None:
    """Return the node's latest profile, finished or not."""
    query = select(ProfileRow).where(ProfileRow.node_id == node_id)
    return session.scalar(query.order_by(ProfileRow.created_at.desc(), ProfileRow.id.desc()).limit(1))


def source_sha256(source: str) -> str:
    """Return the digest of the code that metrics were measured on.

    A node's code may change by a repair.
    """
    return hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()


def latest_metrics(session: Session, node: NodeRow) -> tuple[NsightKernel, ...]:
    """Return Nsight Compute's metrics of the node's code; empty without any.

    They come from the latest profile that has some.
    """
    if node.source is None:
        return ()
    query = select(ProfileRow.document).where(ProfileRow.node_id == node.id)
    for document in session.scalars(
        query.order_by(ProfileRow.created_at.desc(), ProfileRow.id.desc()).limit(MOST_READ)
    ):
        kernels = (document.get("nsight") or {}).get("kernels")
        if kernels and document.get("source_sha256") == source_sha256(node.source):
            return tuple(kernels)
    return ()


def ask_profile(session: Session, node_id: str, now: float) -> tuple[ProfileRow, bool]:
    """Return the profile that is under way, or a new one, and whether to announce it to workers.

    Raises LookupError for an unknown node, ValueError for one without code.
    """
    node = session.get(NodeRow, node_id)
    if node is None:
        raise LookupError(f"node: found {node_id!r}, expected the id of a node")
    # One asks at a time. The search is locked first, as every step does: the new row refers to it, and locks that are
    # taken in another order end in a deadlock.
    session.get(SearchRow, node.search_id, with_for_update=True, populate_existing=True)
    session.refresh(node)
    if node.source is None:
        found = "the root" if node.seq == 0 else f"{node.state}, without code"
        raise ValueError(found)
    row = latest_profile(session, node_id)
    if row is not None and _is_open(row, now):
        lost = row.state == "pending" and (row.sent_at is None or now - row.sent_at >= SEND_AGAIN_S)
        if lost:
            row.sent_at = now
        return row, lost
    row = ProfileRow(
        id=new_id("pf"),
        search_id=node.search_id,
        node_id=node_id,
        state="pending",
        sent_at=now,
        document={},
        trace=None,
        created_at=now,
    )
    session.add(row)
    session.flush()
    return row, True


def claim_profile(session: Session, profile_id: str, owner: str, lease_s: float, now: float) -> ProfileWork | None:
    """Take a pending profile for `lease_s` seconds; None where it is not to be had."""
    if not leases.claim(session, ProfileRow, profile_id, owner, lease_s, now):
        return None
    return build_profile_work(session, session.get_one(ProfileRow, profile_id))


def build_profile_work(session: Session, row: ProfileRow) -> ProfileWork:
    """Build the work of a profile, on the code that its node has now."""
    node, search = session.get_one(NodeRow, row.node_id), session.get_one(SearchRow, row.search_id)
    spec = session.get_one(OpRow, search.op_id).spec
    return ProfileWork(row.id, node.id, spec, search.target, node.language or search.language, node.source or "")


def finish_profile(
    session: Session,
    profile_id: str,
    owner: str,
    state: Literal["done", "failed"],
    told: dict[str, Any],
    now: float,
    trace: dict[str, Any] | None = None,
    device_seconds: float = 0.0,
) -> bool:
    """End a profile that `owner` holds; False, and nothing is written, where it does not.

    `device_seconds`: for which the judge held the device; the search's team has spent them.
    """
    row = leases.held(session, ProfileRow, profile_id, owner)
    if row is None:
        return False
    leases.finish(row, state, now)
    row.document, row.trace = told, trace
    add_spending(session, session.get_one(SearchRow, row.search_id).team, now, device_seconds=device_seconds)
    return True


def _is_open(row: ProfileRow, now: float) -> bool:
    until = row.lease_expires_at  # None of one that is out in a bundle, which no time ends
    return row.state == "pending" or (row.state == "running" and (until is None or until > now))

"""Profiles and tries in bundles: judge jobs that are asked for and are no step of a search.

    pending ──> running, held by the bundle   `bundling.take_jobs`; profiles of a search that has ended, too
    held    ──> done or failed                `commit_result`; failed as well where its host could not judge it, since
                                              those who asked wait and may ask again
    held    ──> pending                       `put_requested_back`: its bundle was dropped

All of it happens under the search's lock.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.profiles import ProfileWork, build_profile_work, finish_profile, source_sha256
from warpsmith.kernels_db.store.tables import NodeRow, ProfileRow, SearchRow, TryRow
from warpsmith.workers.queue_names import judge_queue
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.steps.rows import plain
from warpsmith.workers.steps.trying import TryWork, build_try_work, end_try
from warpsmith.workers.steps.values import Message

Requested: TypeAlias = ProfileRow | TryRow
"""What a bundle carries beside steps."""

OTHER_CODE = "its node has other code by now: ask for a profile of that"
"""Why what came back of a profile is not kept."""


def list_requested(session: Session, search: SearchRow) -> list[Requested]:
    """Return the search's profiles and tries that wait for a device, locked: a worker may claim one meanwhile.

    A try that only compiles needs none: it is left to a worker, or expires.
    """
    profiles = (ProfileRow.search_id == search.id, ProfileRow.state == "pending")
    tries = (TryRow.search_id == search.id, TryRow.state == "pending", TryRow.level != "compile")
    found: list[Requested] = list(session.scalars(select(ProfileRow).where(*profiles).with_for_update()))
    return found + list(session.scalars(select(TryRow).where(*tries).with_for_update()))


def build_requested_work(session: Session, search: SearchRow, row: Requested) -> ProfileWork | TryWork:
    """Build what the job of a row is made from. Raises WrongState where a try is refused by now."""
    if isinstance(row, TryRow):
        return build_try_work(session, search, row)
    return build_profile_work(session, row)


def read_profile(verdict: Verdict, digest: str) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Read what is stored of a verdict on code of this `source_sha256`: the table, and the trace.

    Without a table, the reason why there is none.
    """
    device = verdict["device"].get("name")
    found = verdict.get("profile")
    if found is None:
        return plain({"reason": verdict["reason"], "device": device}), None
    told = {"workload": found["workload"], "calls": found["calls"], "rows": found["rows"], "device": device}
    if "nsight" in found:
        told |= {"nsight": found["nsight"], "source_sha256": digest}
    return plain(told), plain(found["trace"])


def commit_result(
    session: Session, search: SearchRow, row: Requested, verdict: Verdict, digest: str | None, now: float
) -> str | None:
    """Store what a bundle's host found on a row that the bundle holds; return why it is not kept, None where it is.

    verdict: with the `bundle` that it came in. digest: of the code that a profile is of. Metrics are told of the node's
    code in later requests, so a profile of other code is refused.
    """
    if isinstance(row, TryRow):
        end_try(session, search, row, verdict, verdict["reason"], now)
        return None
    told, trace = read_profile(verdict, digest or "")
    refused = OTHER_CODE if digest != source_sha256(session.get_one(NodeRow, row.node_id).source or "") else None
    if refused is not None:
        told, trace = {"reason": refused, "device": told["device"]}, None
    told["bundle"] = verdict.get("bundle")
    state: Literal["done", "failed"] = "failed" if trace is None else "done"
    held_s = verdict["seconds"].get("exclusive", 0.0)
    finish_profile(session, row.id, row.owner or "", state, told, now, trace, held_s)
    return refused


def fail_requested(session: Session, search: SearchRow, row: Requested, reason: str, now: float) -> None:
    """End a row for which no result will come."""
    if isinstance(row, TryRow):
        end_try(session, search, row, None, reason, now)
        return
    leases.finish(row, "failed", now)
    row.document = {"reason": plain(reason)}


def put_requested_back(session: Session, search: SearchRow, row: Requested, now: float) -> Message | None:
    """Return a row that a bundle held to its queue; returns its message, None of a try whose search has ended."""
    if isinstance(row, TryRow):
        if search.state in ENDED:
            end_try(session, search, row, None, "the search ended first", now)
            return None
        row.returned_at = now
    leases.put_back(row, tries=row.tries)
    row.sent_at = now
    return Message(row.id, judge_queue(search.target))

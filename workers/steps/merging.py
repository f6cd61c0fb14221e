"""What comes back of a bundle: verdicts on its jobs, and why there is none.

Each is taken on the job that its ticket names, under its search's lock. A verification that the host did of the best of
a bundle's screenings has no step before its verdict comes: it gets the one that the policy would open, or has opened
meanwhile. What is no step (`requested`) is kept for those who asked, of a search that has ended, too. Signatures are
the caller's business: nothing here knows a key.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.bundle import SignedUnjudged, SignedVerdict, digest
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import AttemptRow, BundleJobRow, NodeRow, SearchRow, TryRow, VerdictRow
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.steps.completion import commit_verdict
from warpsmith.workers.steps.requested import Requested, commit_result, fail_requested
from warpsmith.workers.steps.returning import find_row
from warpsmith.workers.steps.rows import Held, add_event, is_held, lock_search, owner_of, plain
from warpsmith.workers.steps.sweeping import SHARE, keep_for_verification
from warpsmith.workers.steps.verdict_checks import (
    VerdictRefused,
    check_configurations,
    check_sweep,
    check_verdict,
    check_whole,
)
from warpsmith.workers.steps.work import level_of
from warpsmith.workers.text import storable


@dataclass(frozen=True)
class Merged:
    """The fate of a line that may come.

    Its verdict merged now; unjudged, for `reason`; already, by the same line or a verdict; or late, for `reason`. of:
    what its job is of. A profile or try that is unjudged has ended, a step is still wanted.
    """

    outcome: Literal["merged", "unjudged", "already", "late"]
    search_id: str
    reason: str | None = None
    of: Literal["step", "profile", "try"] = "step"


def merge_verdict(db: Database, found: SignedVerdict, genuine: bool, now: float, team: str | None = None) -> Merged:
    """Store the verdict on a job of a bundle, once.

    `genuine`: the ticket's signature is the service's own. `team`: whose search alone it may be of.

    The stored document says where it comes from (`bundle`). The shape of `found` was checked before. Raises
    VerdictRefused where it does not belong to the job that its ticket names.
    """
    with db.writing() as session:
        search, job, row = _job_of(session, found, genuine, team)
        if job.merged_at is not None:
            return _again(session, job, row, found)
        if not isinstance(row, AttemptRow):
            return _merge_requested(session, search, job, row, found, now)
        work = Held(search, session.get_one(NodeRow, row.node_id), row)
        if job.screening is not None:
            late = _open_verification(session, job, work, found.get("screening_digest"), now)
            if isinstance(late, Merged):
                return late
            work = late
        node, attempt = work.node, work.attempt
        if not is_held(attempt, job.bundle_id):
            return _too_late(search, attempt)
        language = None if node.seq == 0 else node.language
        check_verdict(session, search, level_of(node, attempt), language, found["verdict"])
        check_whole(session, search, job, found["verdict"])
        check_sweep(node.source, attempt.params.get(SHARE), found["verdict"])
        check_configurations(session, search, job, node, found["verdict"])
        if job.screening is None:
            keep_for_verification(session, job, attempt, found["verdict"])
        commit_verdict(session, work, _mark_merged(session, search, node, job, found, now), now)
        return Merged("merged", search.id)


def _merge_requested(
    session: Session, search: SearchRow, job: BundleJobRow, row: Requested, found: SignedVerdict, now: float
) -> Merged:
    """Store what came back of a profile or try, for those who asked for it."""
    if not is_held(row, job.bundle_id):
        return _too_late(search, row)
    node, verdict = session.get_one(NodeRow, row.node_id), found["verdict"]
    if isinstance(row, TryRow):
        check_verdict(session, search, row.level, row.language, verdict)
        check_sweep(row.source, None, verdict)
    else:
        check_verdict(session, search, "profile", node.language or search.language, verdict)
    profile = verdict.get("profile")
    if profile is not None and profile["workload"] not in (job.workloads or ()):
        raise VerdictRefused("verdict.profile.workload", profile["workload"], f"one of its job, {job.workloads}")
    stored = _mark_merged(session, search, node, job, found, now)
    refused = commit_result(session, search, row, stored, job.source_sha256, now)
    return Merged("merged" if refused is None else "late", search.id, refused, _name(row))


def _mark_merged(
    session: Session, search: SearchRow, node: NodeRow, job: BundleJobRow, found: SignedVerdict, now: float
) -> Verdict:
    """Note that the job has its verdict; returns the verdict with what is stored of the way that it came."""
    job.merged_at = now
    if search.state not in ENDED:  # before what follows from it: nothing comes after the event that ends a search
        told = {"bundle_id": job.bundle_id, "nonce": job.id, "host": found["host"]}
        add_event(session, search, "bundle.merged", now, node, **told)
    # The host's name stays in the event: a winner's verdict travels as evidence, and machines have no names there.
    provenance = {
        "id": job.bundle_id,
        "nonce": job.id,
        "merged_at": now,
        "digest": digest(found["verdict"]),
        "host": {name: value for name, value in found["host"].items() if name != "name"},
    }
    return {**found["verdict"], "bundle": plain(provenance)}


def note_unjudged(db: Database, found: SignedUnjudged, genuine: bool, now: float, team: str | None = None) -> Merged:
    """Store with its step why a job of a bundle has no verdict; a later verdict still counts.

    The last reason is kept. A profile or try ends with it: those who asked wait, and may ask again.

    Raises VerdictRefused as `merge_verdict` does.
    """
    with db.writing() as session:
        search, job, row = _job_of(session, found, genuine, team)
        if job.merged_at is not None:
            return Merged("already", search.id, f"it has a verdict, merged at {_merged_at(job)}", _name(row))
        if job.screening is not None:  # it has no step: the policy opens one, where it wants the candidate verified
            return Merged("late", search.id, f"not verified beside its screening: {found['unjudged']['reason']}")
        if not is_held(row, job.bundle_id):
            return _too_late(search, row)
        reason = storable(f"{found['unjudged']['kind']}: {found['unjudged']['reason']}")
        is_news = not isinstance(row, AttemptRow) or row.error is None
        if isinstance(row, AttemptRow):
            row.error = reason
        else:
            fail_requested(session, search, row, f"not judged by the bundle's host: {reason}", now)
        if is_news and search.state not in ENDED:  # once a job: other reasons, sent again and again, fill no history
            told = {"bundle_id": job.bundle_id, "nonce": job.id, "host": found["host"], "reason": reason}
            add_event(session, search, "bundle.unjudged", now, session.get_one(NodeRow, row.node_id), **told)
        return Merged("unjudged", search.id, reason, _name(row))


def _job_of(
    session: Session, found: SignedVerdict | SignedUnjudged, genuine: bool, team: str | None
) -> tuple[SearchRow, BundleJobRow, AttemptRow | Requested]:
    """Return the job that the ticket of `found` names, with its search, locked, and what the job is of.

    Raises VerdictRefused where there is none, none of `team`, or the ticket is not the one that left with it.
    """
    known = select(BundleJobRow.search_id).where(BundleJobRow.id == found["nonce"])
    if team is not None:
        known = known.join(SearchRow, SearchRow.id == BundleJobRow.search_id).where(SearchRow.team == team)
    search_id = session.scalar(known)
    if search_id is None:
        whose = "a bundle that was not dropped" if genuine else "a bundle of this service"
        raise VerdictRefused("nonce", found["nonce"], f"that of a job of {whose}")
    search = lock_search(session, search_id)
    job = session.get(BundleJobRow, found["nonce"], populate_existing=True)
    if job is None:
        raise VerdictRefused("nonce", found["nonce"], "that of a job of a bundle that was not dropped")
    row = find_row(session, job)
    _check_ticket(job, _step_signed(session, job, row), found)
    if not genuine:
        raise VerdictRefused("signature", found["signature"], "the one that this service made for this job")
    return search, job, row


def _step_signed(session: Session, job: BundleJobRow, row: AttemptRow | Requested) -> str:
    """Return the id that the ticket of `job` has: that of `row`, or of the step whose candidate it verifies."""
    if job.screening is None:
        return row.id
    screening = session.get(BundleJobRow, job.screening)
    return job.screening if screening is None else find_row(session, screening).id


def _open_verification(
    session: Session, job: BundleJobRow, work: Held, screening_digest: str | None, now: float
) -> Held | Merged:
    """Give the bundle the step that verifies the candidate which it screened; `job` names that step from then on.

    `screening_digest`: that of the verdict on which its host based the verification; None where the candidate was
    screened before. Late where the candidate is another by now, is banned, or is being verified elsewhere. Raises
    VerdictRefused where the screening's own verdict has not come, or is not the one that the host had: its sweep may
    have chosen other numbers for the candidate. So it does where the baselines have not come: nothing is verified
    before they admit the op.
    """
    search, node, screened = work.search, work.node, work.attempt
    if search.state in ENDED:
        return _too_late(search, screened)
    if screened.state == "running":
        raise VerdictRefused("nonce", job.id, f"one whose screening {job.screening} is merged before it")
    root = session.scalars(select(NodeRow).where(NodeRow.search_id == search.id, NodeRow.seq == 0)).one()
    if (root.state, root.verdict) != ("judged", "accepted"):
        raise VerdictRefused("nonce", job.id, f"one whose search {search.id} has its baselines merged before it")
    if (node.state, node.verdict, node.repairs) != ("judged", "accepted", screened.ordinal) or node.mark == "banned":
        return Merged("late", search.id, f"node #{node.seq} has no accepted candidate to verify")
    if job.screening == screened.id:  # it was screened before the bundle was made
        if screening_digest is not None:
            raise VerdictRefused("screening_digest", screening_digest, "none: its bundle screens no such candidate")
    else:
        screening = session.scalars(select(VerdictRow.document).where(VerdictRow.attempt_id == screened.id)).one()
        origin = screening.get("bundle")
        if origin is None:
            return Merged("late", search.id, "its screening was judged elsewhere")
        if screening_digest != origin["digest"]:
            whose = f"{origin['digest']!r}, that of the merged verdict on its screening {job.screening}"
            raise VerdictRefused("screening_digest", screening_digest, whose)
    of_step = (AttemptRow.node_id == node.id, AttemptRow.kind == "verify", AttemptRow.ordinal == node.repairs)
    attempt = session.scalar(select(AttemptRow).where(*of_step))
    if attempt is None:
        attempt = AttemptRow(
            id=new_id("at"),
            search_id=search.id,
            node_id=node.id,
            kind="verify",
            ordinal=node.repairs,
            params={},
            state="pending",
            tries=0,
            created_at=now,
        )
        session.add(attempt)
    if attempt.state != "pending":
        return _too_late(search, attempt)
    leases.lend(attempt, owner_of(job.bundle_id), now)
    session.flush()
    job.attempt_id = attempt.id
    return Held(search, node, attempt)


def _too_late(search: SearchRow, row: AttemptRow | Requested) -> Merged:
    """Return the answer to a line on a step, profile or try that the bundle holds no longer."""
    if not isinstance(row, AttemptRow):
        return Merged("late", search.id, f"the {_name(row)} is {row.state}", _name(row))
    ended = f"the search is {search.state}" if search.state in ENDED else f"its step is {row.state}"
    return Merged("late", search.id, ended)


def _name(row: AttemptRow | Requested) -> Literal["step", "profile", "try"]:
    if isinstance(row, AttemptRow):
        return "step"
    return "try" if isinstance(row, TryRow) else "profile"


def _check_ticket(job: BundleJobRow, attempt_id: str, found: Mapping[str, Any]) -> None:
    for field, expected in (
        ("bundle_id", job.bundle_id),
        ("search_id", job.search_id),
        ("attempt_id", attempt_id),
        ("job_digest", job.job_digest),
    ):
        if found[field] != expected:
            raise VerdictRefused(field, found[field], f"{expected!r}, as the job {job.id} was signed")


def _again(session: Session, job: BundleJobRow, row: AttemptRow | Requested, found: SignedVerdict) -> Merged:
    """Answer another verdict on a job that has one: the first one counts."""
    if isinstance(row, AttemptRow):
        first = session.scalars(select(VerdictRow.document).where(VerdictRow.attempt_id == row.id)).one()
    else:
        first = row.document
    at = _merged_at(job)
    if first["bundle"]["digest"] != digest(found["verdict"]):
        raise VerdictRefused("nonce", job.id, f"one verdict on a job; the first stands, merged at {at}")
    return Merged("already", job.search_id, f"merged at {at}", _name(row))


def _merged_at(job: BundleJobRow) -> str:
    """When the job's verdict was merged, for people."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(job.merged_at))

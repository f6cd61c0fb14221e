"""What comes back of a bundle: verdicts on its jobs, and why there is none.

Each is taken on the job that its ticket names, under its search's lock. A verification that the host did of the best of
a bundle's screenings has no step before its verdict comes: it gets the one that the policy would open, or has opened
meanwhile. Signatures are the caller's business: nothing here knows a key.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.bundle import SignedUnjudged, SignedVerdict, digest
from warpsmith.kernels_db.job.documents import HOLDOUT_LEFT_OUT, Verdict
from warpsmith.kernels_db.job.means import weight_of
from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import AttemptRow, BundleJobRow, NodeRow, OpRow, SearchRow, VerdictRow
from warpsmith.workers.gate.tunables import specialise
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.steps.bundling import is_held, owner_of
from warpsmith.workers.steps.completion import commit_verdict
from warpsmith.workers.steps.rows import Held, add_event, lock_search, plain
from warpsmith.workers.steps.work import level_of
from warpsmith.workers.text import storable


@dataclass(frozen=True)
class Merged:
    """The fate of a line that may come.

    Its verdict merged now; unjudged, for `reason`; already, by the same line or a verdict; or late, for `reason`.
    """

    outcome: Literal["merged", "unjudged", "already", "late"]
    search_id: str
    reason: str | None = None


class VerdictRefused(ValueError):  # noqa: N818 - named for what happened
    """A verdict or line that came back is refused; nothing was stored."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        super().__init__(f"{field}: found {found!r}, expected {expected}")
        self.field, self.found, self.expected = field, found, expected


def merge_verdict(db: Database, found: SignedVerdict, genuine: bool, now: float, team: str | None = None) -> Merged:
    """Store the verdict on a job of a bundle, once.

    `genuine`: the ticket's signature is the service's own. `team`: whose search alone it may be of.

    The stored document says where it comes from (`bundle`). The shape of `found` was checked before. Raises
    VerdictRefused where it does not belong to the job that its ticket names.
    """
    with db.writing() as session:
        row, work = _job_of(session, found, genuine, team)
        search, node, attempt = work.search, work.node, work.attempt
        if row.merged_at is not None:
            return _again(session, row, found)
        if row.screening is not None:
            late = _open_verification(session, row, work, found.get("screening_digest"), now)
            if isinstance(late, Merged):
                return late
            work = late
            attempt = work.attempt
        if not is_held(attempt, row.bundle_id):
            return _too_late(work)
        _check_verdict(session, search, node, attempt, found["verdict"])
        _check_whole(session, search, row, found["verdict"])
        _check_sweep(node, found["verdict"])
        # The host's name stays in the event: a winner's verdict travels as evidence, and machines have no names there.
        bundle = {
            "id": row.bundle_id,
            "nonce": row.id,
            "merged_at": now,
            "digest": digest(found["verdict"]),
            "host": {name: value for name, value in found["host"].items() if name != "name"},
        }
        row.merged_at = now
        told = {"bundle_id": row.bundle_id, "nonce": row.id, "host": found["host"]}
        # Before what follows from it: nothing comes after the event that ends a search.
        add_event(session, search, "bundle.merged", now, node, **told)
        verdict: Verdict = {**found["verdict"], "bundle": plain(bundle)}
        commit_verdict(session, work, verdict, now)
        return Merged("merged", search.id)


def note_unjudged(db: Database, found: SignedUnjudged, genuine: bool, now: float, team: str | None = None) -> Merged:
    """Store with its step why a job of a bundle has no verdict; a later verdict still counts.

    The last reason is kept.

    Raises VerdictRefused as `merge_verdict` does.
    """
    with db.writing() as session:
        row, work = _job_of(session, found, genuine, team)
        if row.merged_at is not None:
            return Merged("already", work.search.id, f"it has a verdict, merged at {_merged_at(row)}")
        if row.screening is not None:  # it has no step: the policy opens one, where it wants the candidate verified
            return Merged("late", work.search.id, f"not verified beside its screening: {found['unjudged']['reason']}")
        if not is_held(work.attempt, row.bundle_id):
            return _too_late(work)
        is_news = work.attempt.error is None
        reason = storable(f"{found['unjudged']['kind']}: {found['unjudged']['reason']}")
        work.attempt.error = reason
        if is_news:  # once a job: other reasons, sent again and again, fill no history
            told = {"bundle_id": row.bundle_id, "nonce": row.id, "host": found["host"], "reason": reason}
            add_event(session, work.search, "bundle.unjudged", now, work.node, **told)
        return Merged("unjudged", work.search.id, reason)


def _job_of(
    session: Session, found: SignedVerdict | SignedUnjudged, genuine: bool, team: str | None
) -> tuple[BundleJobRow, Held]:
    """Return the job that the ticket of `found` names, and its step, under the search's lock.

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
    row = session.get(BundleJobRow, found["nonce"], populate_existing=True)
    if row is None:
        raise VerdictRefused("nonce", found["nonce"], "that of a job of a bundle that was not dropped")
    screening = None if row.screening is None else session.get(BundleJobRow, row.screening)
    _check_ticket(row, row.attempt_id if screening is None else screening.attempt_id, found)
    if not genuine:
        raise VerdictRefused("signature", found["signature"], "the one that this service made for this job")
    attempt = session.get_one(AttemptRow, row.attempt_id)
    return row, Held(search, session.get_one(NodeRow, attempt.node_id), attempt)


def _open_verification(
    session: Session, row: BundleJobRow, work: Held, screening_digest: str | None, now: float
) -> Held | Merged:
    """Give the bundle the step that verifies the candidate which it screened; the row names that step from then on.

    `screening_digest`: that of the verdict on which its host based the verification. Late where the candidate is
    another by now, is banned, or is being verified elsewhere. Raises VerdictRefused where the screening's own verdict
    has not come, or is not the one that the host had: its sweep may have chosen other numbers for the candidate. So
    it does where the baselines have not come: nothing is verified before they admit the op.
    """
    search, node, screened = work.search, work.node, work.attempt
    if search.state in ENDED:
        return _too_late(work)
    if screened.state == "running":
        raise VerdictRefused("nonce", row.id, f"one whose screening {row.screening} is merged before it")
    root = session.scalars(select(NodeRow).where(NodeRow.search_id == search.id, NodeRow.seq == 0)).one()
    if (root.state, root.verdict) != ("judged", "accepted"):
        raise VerdictRefused("nonce", row.id, f"one whose search {search.id} has its baselines merged before it")
    if (node.state, node.verdict, node.repairs) != ("judged", "accepted", screened.ordinal) or node.mark == "banned":
        return Merged("late", search.id, f"node #{node.seq} has no accepted candidate to verify")
    origin = (
        session.scalars(select(VerdictRow.document).where(VerdictRow.attempt_id == screened.id)).one().get("bundle")
    )
    if origin is None:
        return Merged("late", search.id, "its screening was judged elsewhere")
    if screening_digest != origin["digest"]:
        whose = f"{origin['digest']!r}, that of the merged verdict on its screening {row.screening}"
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
        return _too_late(Held(search, node, attempt))
    leases.lend(attempt, owner_of(row.bundle_id), now)
    session.flush()
    row.attempt_id = attempt.id
    return Held(search, node, attempt)


def _too_late(work: Held) -> Merged:
    """Return the answer to a line on a step that the bundle holds no longer."""
    search, attempt = work.search, work.attempt
    ended = f"the search is {search.state}" if search.state in ENDED else f"its step is {attempt.state}"
    return Merged("late", search.id, ended)


def _check_ticket(row: BundleJobRow, attempt_id: str, found: Mapping[str, Any]) -> None:
    for field, expected in (
        ("bundle_id", row.bundle_id),
        ("search_id", row.search_id),
        ("attempt_id", attempt_id),
        ("job_digest", row.job_digest),
    ):
        if found[field] != expected:
            raise VerdictRefused(field, found[field], f"{expected!r}, as the job {row.id} was signed")


def _again(session: Session, row: BundleJobRow, found: SignedVerdict) -> Merged:
    """Answer another verdict on a job that has one: the first one counts."""
    query = select(VerdictRow.document).where(VerdictRow.attempt_id == row.attempt_id)
    first = session.scalars(query).one()["bundle"]["digest"]
    at = _merged_at(row)
    if first != digest(found["verdict"]):
        raise VerdictRefused("nonce", row.id, f"one verdict on a job; the first stands, merged at {at}")
    return Merged("already", row.search_id, f"merged at {at}")


def _merged_at(row: BundleJobRow) -> str:
    """When the job's verdict was merged, for people."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(row.merged_at))


def _check_whole(session: Session, search: SearchRow, row: BundleJobRow, verdict: Verdict) -> None:
    """Check that a verification that accepts is one on every workload of its job, the hold-outs drawn for it too.

    The judge leaves out a drawn hold-out on which the reference itself is not right, and notes it: as many may be
    missing as the verdict notes, and none of the op's own. One that rejects ends at the first workload that fails.
    """
    if verdict["level"] != "verify" or verdict["verdict"] != "accepted" or row.workloads is None:
        return
    judged, asked = {item["id"] for item in verdict["workloads"]}, set(row.workloads)
    op = parse_op(session.get_one(OpRow, search.op_id).spec)
    drawn = asked - {item.id for item in op.workloads_for(Target.parse(search.target))}
    missing = asked - judged
    if judged <= asked and missing <= drawn and len(missing) <= verdict["reason"].count(HOLDOUT_LEFT_OUT):
        return
    expected = f"those of its job, {sorted(row.workloads)}, but for drawn hold-outs that its reason notes as left out"
    raise VerdictRefused("verdict.workloads", sorted(judged), expected)


def _check_sweep(node: NodeRow, verdict: Verdict) -> None:
    """Check that a sweep chose one of the candidate's own configurations."""
    sweep = verdict.get("sweep")
    if sweep is None:
        return
    try:
        specialise(node.source or "", sweep["chosen"])
    except (SyntaxError, ValueError) as error:
        expected = "a configuration of the candidate"
        raise VerdictRefused("verdict.sweep.chosen", sweep["chosen"], expected) from error


def _check_verdict(session: Session, search: SearchRow, node: NodeRow, attempt: AttemptRow, verdict: Verdict) -> None:
    """Check that the verdict is one on this step.

    Another step's verdict is refused by its first field that does not fit.
    """
    op = parse_op(session.get_one(OpRow, search.op_id).spec)
    level = level_of(node, attempt)
    for field, found, expected in (
        ("level", verdict["level"], level),
        ("op", verdict["op"], op.name),
        ("target", verdict["target"], search.target),
        ("language", verdict["language"], None if level == "baseline" else node.language),
    ):
        if found != expected:
            raise VerdictRefused(f"verdict.{field}", found, f"{expected!r}")
    bench = {item.id for item in op.workloads_for(Target.parse(search.target)) if item.role == "bench"}
    judged = {item["id"] for item in verdict["workloads"] if item["role"] == "bench"}
    if (verdict["score"] is not None and judged != bench) or judged - bench:
        raise VerdictRefused("verdict.workloads", sorted(judged), f"the op's bench workloads {sorted(bench)}")
    weights = {item.id: item.weight for item in op.workloads_for(Target.parse(search.target))}
    for position, item in enumerate(verdict["workloads"]):
        weight = weights.get(item["id"], 1.0)
        if weight_of(item) != weight:
            field = f"verdict.workloads[{position}].weight"
            raise VerdictRefused(field, weight_of(item), f"{weight:g}, as the op has it")
    failure = verdict["failure"]
    if failure is not None and failure["kind"] == "duplicate":
        twin = failure.get("found")
        if type(twin) is not int or not 0 < twin < search.next_seq:
            raise VerdictRefused("verdict.failure.found", twin, "the number of a node of the search")

"""Bundles: judge steps that leave for a host which the service cannot reach, and come back as verdicts.

    pending ──> running, held by the bundle   `take_jobs`; no lease: the bundle holds its steps until it is merged or
                                              dropped, however long it travels
    held    ──> succeeded                     `merge_verdict`; the first verdict on a job stands
    held    ──> pending                       `give_back`: the step returns to its queue, and its job is void
    held    ──> cancelled                     the search ended; what comes back then changes nothing

Signatures are the caller's business: nothing here knows a key.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from kernels_db.bundle import SignedVerdict, Ticket, canonical, digest
from kernels_db.db import Database, new_id
from kernels_db.job import Job, Verdict
from kernels_db.models import AttemptRow, BundleJobRow, NodeRow, OpRow, SearchRow, VerdictRow
from kernels_db.op import SpecErrors, Target, parse_op
from workers.steps.caps import refusal
from workers.steps.completion import commit_verdict
from workers.steps.endings import fail_step
from workers.steps.rows import ENDED, Held, add_event, lock_search, message, plain, put_back, signed
from workers.steps.values import Message, Work, WrongState
from workers.steps.work import build_work, level_of

MOST_JOBS = 256
"""Jobs of one bundle; what is left over waits for the next."""

JUDGED = ("judge", "verify")


@dataclass(frozen=True)
class Taken:
    """A bundle: its jobs in the order in which they waited, and how many steps still wait. Times in epoch seconds."""

    bundle_id: str
    search_id: str
    op: str
    target: str
    created_at: float
    jobs: list[tuple[Ticket, Job]]
    left: int


@dataclass(frozen=True)
class GivenBack:
    """A bundle that was dropped: how many of its steps returned to the queue, and how many had their verdicts."""

    bundle_id: str
    search_id: str
    returned: int
    merged: int
    messages: list[Message]


@dataclass(frozen=True)
class Merged:
    """What became of a verdict that may come: merged now; already, by the same verdict; or late, for `reason`."""

    outcome: Literal["merged", "already", "late"]
    search_id: str
    reason: str | None = None


class VerdictRefused(ValueError):  # noqa: N818 - named for what happened
    """The verdict is not taken; nothing was stored."""

    def __init__(self, field: str, found: object, expected: str) -> None:
        super().__init__(f"{field}: found {found!r}, expected {expected}")
        self.field, self.found, self.expected = field, found, expected


def owner_of(bundle_id: str) -> str:
    """Who holds the steps of a bundle."""
    return f"bundle:{bundle_id}"


def take_jobs(
    db: Database,
    search_id: str,
    make_job: Callable[[Work], Job],
    now: float,
    *,
    most_bytes: int,
    also: Callable[[Session, Taken], None],
    by: str | None = None,
) -> Taken:
    """Take the search's steps that wait for a judge, at most MOST_JOBS and, beyond the first, `most_bytes` of jobs.

    A step that a limit of the search or the op's spec rules out fails, as it would at a worker. `also` runs in the
    same transaction. Raises LookupError; WrongState where the search does not run or nothing waits.
    """
    with db.writing() as session:
        search = lock_search(session, search_id)
        if search.state != "running":
            raise WrongState(f"search {search_id}", search.state, "running: only then do steps wait for a judge")
        waiting = session.scalars(
            select(AttemptRow)
            .where(AttemptRow.search_id == search_id, AttemptRow.state == "pending", AttemptRow.kind.in_(JUDGED))
            .order_by(AttemptRow.created_at, AttemptRow.id)
        ).all()
        if not waiting:
            raise WrongState(f"search {search_id}", "no step that waits for a judge", "at least one")
        taken = Taken(
            bundle_id=new_id("bn"),
            search_id=search_id,
            op=session.get_one(OpRow, search.op_id).name,
            target=search.target,
            created_at=now,
            jobs=[],
            left=0,
        )
        left = _take(db, session, search, list(waiting), make_job, taken, most_bytes)
        taken = replace(taken, left=left)
        if taken.jobs:
            add_event(
                session, search, "bundle.created", now, bundle_id=taken.bundle_id, jobs=len(taken.jobs), **signed(by)
            )
        also(session, taken)
        return taken


def _take(
    db: Database,
    session: Session,
    search: SearchRow,
    waiting: list[AttemptRow],
    make_job: Callable[[Work], Job],
    taken: Taken,
    most_bytes: int,
) -> int:
    """Take steps for `taken` while there is room; returns how many are left."""
    now, size = taken.created_at, 0
    for position, attempt in enumerate(waiting):
        node = session.get_one(NodeRow, attempt.node_id)
        work = build_work(session, search, node, attempt)
        try:
            capped = refusal(db, work, now)
            job = None if capped is not None else make_job(work)
        except SpecErrors as error:
            job, capped = None, str(error)
        if job is None:
            fail_step(session, Held(search, node, attempt), capped or "", now)
            if search.state in ENDED:
                return 0
            continue
        nonce = new_id("bj")
        job["id"] = nonce
        size += len(canonical(job))
        if taken.jobs and (size > most_bytes or len(taken.jobs) == MOST_JOBS):
            return len(waiting) - position
        ticket: Ticket = {
            "nonce": nonce,
            "bundle_id": taken.bundle_id,
            "search_id": search.id,
            "attempt_id": attempt.id,
            "job_digest": digest(job),
        }
        row = BundleJobRow(
            id=nonce,
            bundle_id=taken.bundle_id,
            search_id=search.id,
            attempt_id=attempt.id,
            job_digest=ticket["job_digest"],
            created_at=now,
        )
        session.add(row)
        attempt.state = "running"
        attempt.owner = owner_of(taken.bundle_id)
        attempt.lease_expires_at = None
        attempt.started_at = now
        attempt.error = None
        taken.jobs.append((ticket, job))
    return 0


def give_back(db: Database, bundle_id: str, now: float, by: str | None = None) -> GivenBack:
    """Drop a bundle: its steps without a verdict return to the queue, and verdicts on them are no longer taken.

    Raises LookupError where there is no such bundle.
    """
    with db.writing() as session:
        of_bundle = BundleJobRow.bundle_id == bundle_id
        search_id = session.scalar(select(BundleJobRow.search_id).where(of_bundle).limit(1))
        if search_id is None:
            raise LookupError(f"bundle: found {bundle_id!r}, expected the id of a bundle that is out")
        search = lock_search(session, search_id)
        rows = session.scalars(select(BundleJobRow).where(of_bundle)).all()
        out = [row for row in rows if row.merged_at is None]
        messages: list[Message] = []
        returned = 0
        for row in out:
            attempt = session.get_one(AttemptRow, row.attempt_id)
            session.delete(row)
            if not _is_held(attempt, bundle_id):
                continue  # the search ended meanwhile
            put_back(attempt)
            returned += 1
            if search.state == "running":
                attempt.sent_at = now
                messages.append(message(attempt.id, attempt.kind, search.target))
        if returned:
            add_event(session, search, "bundle.dropped", now, bundle_id=bundle_id, jobs=returned, **signed(by))
        return GivenBack(bundle_id, search_id, returned, len(rows) - len(out), messages)


def merge_verdict(db: Database, found: SignedVerdict, genuine: bool, now: float) -> Merged:
    """Store the verdict on a job of a bundle, once. `genuine`: the ticket's signature is the service's own.

    The stored document says where it comes from (`bundle`). The shape of `found` was checked before. Raises
    VerdictRefused where it does not belong to the job that its ticket names.
    """
    with db.writing() as session:
        search_id = session.scalar(select(BundleJobRow.search_id).where(BundleJobRow.id == found["nonce"]))
        if search_id is None:
            whose = "a bundle that was not dropped" if genuine else "a bundle of this service"
            raise VerdictRefused("nonce", found["nonce"], f"that of a job of {whose}")
        search = lock_search(session, search_id)
        row = session.get(BundleJobRow, found["nonce"], populate_existing=True)
        if row is None:
            raise VerdictRefused("nonce", found["nonce"], "that of a job of a bundle that was not dropped")
        _check_ticket(row, found)
        if not genuine:
            raise VerdictRefused("signature", found["signature"], "the one that this service made for this job")
        attempt = session.get_one(AttemptRow, row.attempt_id)
        node = session.get_one(NodeRow, attempt.node_id)
        if row.merged_at is not None:
            return _again(session, row, found)
        if not _is_held(attempt, row.bundle_id):
            ended = f"the search is {search.state}" if search.state in ENDED else f"its step is {attempt.state}"
            return Merged("late", search_id, ended)
        _check_verdict(session, search, node, attempt, found["verdict"])
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
        commit_verdict(session, Held(search, node, attempt), verdict, now)
        return Merged("merged", search_id)


def _is_held(attempt: AttemptRow, bundle_id: str) -> bool:
    return attempt.state == "running" and attempt.owner == owner_of(bundle_id)


def _check_ticket(row: BundleJobRow, found: Mapping[str, Any]) -> None:
    for field, expected in (
        ("bundle_id", row.bundle_id),
        ("search_id", row.search_id),
        ("attempt_id", row.attempt_id),
        ("job_digest", row.job_digest),
    ):
        if found[field] != expected:
            raise VerdictRefused(field, found[field], f"{expected!r}, as the job {row.id} was signed")


def _again(session: Session, row: BundleJobRow, found: SignedVerdict) -> Merged:
    """Another verdict on a job that has one: the first stands."""
    query = select(VerdictRow.document).where(VerdictRow.attempt_id == row.attempt_id)
    first = session.scalars(query).one()["bundle"]["digest"]
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(row.merged_at))
    if first != digest(found["verdict"]):
        raise VerdictRefused("nonce", row.id, f"one verdict on a job; the first stands, merged at {at}")
    return Merged("already", row.search_id, f"merged at {at}")


def _check_verdict(session: Session, search: SearchRow, node: NodeRow, attempt: AttemptRow, verdict: Verdict) -> None:
    """Whether the verdict is one on this step: another's is refused by its first field that does not fit."""
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
    failure = verdict["failure"]
    if failure is not None and failure["kind"] == "duplicate":
        twin = failure.get("found")
        if type(twin) is not int or not 0 < twin < search.next_seq:
            raise VerdictRefused("verdict.failure.found", twin, "the number of a node of the search")

"""Bundles: judge steps for a host that the service cannot reach.

They leave as jobs and come back as verdicts. With each screening goes the full verification of its candidate, for
which no step is open: the host does that of its best (`judge.protocol.verifications`), and merging opens the step.

    pending ──> running, held by the bundle   `take_jobs`; no lease: the bundle holds its steps until it is merged or
                                              dropped, however long it travels
    held    ──> succeeded                     `warpsmith.workers.steps.merging`; the first verdict on a job counts
    held    ──> pending                       `give_back`: the step returns to its queue, and its job is void
    held    ──> pending or failed             `settle_unjudged`: of the steps that their host could not judge
    held    ──> cancelled                     the search ended, or the node was banned (`bans`); verdicts that come back
                                              then change nothing

Signatures are the caller's business: nothing here knows a key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.bundle import Champion, Ticket, canonical, digest
from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.spec.op import SpecErrors
from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import AttemptRow, BundleJobRow, NodeRow, OpRow, SearchRow
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.steps.caps import refusal
from warpsmith.workers.steps.endings import fail_step
from warpsmith.workers.steps.rows import Held, add_event, lock_search, message, put_back, signed
from warpsmith.workers.steps.sweeping import reserve_sweep
from warpsmith.workers.steps.values import Message, Work, WrongState
from warpsmith.workers.steps.work import Place, build_work

MOST_JOBS = 256
"""Jobs of one bundle; what is left over waits for the next."""

JUDGED = ("judge", "verify")

Then = Literal["queue", "fail"]
"""What becomes of steps that a bundle held."""


@dataclass(frozen=True)
class Taken:
    """A bundle, and how many steps still wait. Times in epoch seconds.

    Its jobs are in the order in which they waited.
    """

    bundle_id: str
    search_id: str
    op: str
    target: str
    created_at: float
    jobs: list[tuple[Ticket, Job]]
    verifications: list[Verification]
    champion: Champion | None
    left: int


@dataclass(frozen=True)
class Verification:
    """The verification of a candidate that is screened in the same bundle, whose job has the nonce `screening`."""

    ticket: Ticket
    job: Job
    screening: str


@dataclass(frozen=True)
class GivenBack:
    """The result of dropping a bundle.

    It counts the steps that returned to the queue, those that failed, and the jobs that had their verdicts, which stay;
    of a screening and the verification that came along the screening alone, as lists of bundles do.
    """

    bundle_id: str
    search_id: str
    returned: int
    failed: int
    merged: int
    messages: list[Message]


def owner_of(bundle_id: str) -> str:
    """Return the owner that the steps of a bundle have."""
    return f"bundle:{bundle_id}"


def in_bundle() -> ColumnElement[bool]:
    """Return the condition on an AttemptRow that the step's owner is a bundle, whichever; never NULL."""
    return func.coalesce(AttemptRow.owner, "").startswith(owner_of(""))


def is_held(attempt: AttemptRow, bundle_id: str) -> bool:
    """Check whether the bundle holds the step."""
    return attempt.state == "running" and attempt.owner == owner_of(bundle_id)


def unjudged(bundle_ids: Sequence[str] | None = None) -> ColumnElement[bool]:
    """Return the condition on an AttemptRow that a bundle's host could not judge the step.

    One of the bundles, by default any, still holds the step. Its error says why.
    """
    held = in_bundle() if bundle_ids is None else AttemptRow.owner.in_([owner_of(each) for each in bundle_ids])
    return and_(AttemptRow.state == "running", held, AttemptRow.error.is_not(None))


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
    """Take the search's steps that wait for a judge.

    It takes at most MOST_JOBS and, beyond the first, `most_bytes` of jobs. A step that a limit of the search or the
    op's spec rules out fails, as it would at a worker. `also` runs in the same transaction. Raises LookupError;
    WrongState where the search does not run or nothing waits.
    """
    with db.writing() as session:
        search = lock_search(session, search_id)
        if search.state != "running":
            raise WrongState(f"search {search_id}", search.state, "running: only then do steps wait for a judge")
        waiting = session.scalars(
            select(AttemptRow)
            .join(NodeRow, NodeRow.id == AttemptRow.node_id)
            .where(AttemptRow.search_id == search_id, AttemptRow.state == "pending", AttemptRow.kind.in_(JUDGED))
            .where(NodeRow.mark.is_distinct_from("banned"))
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
            verifications=[],
            champion=_find_champion(session, search),
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
    root_id = session.scalars(select(NodeRow.id).where(NodeRow.search_id == search.id, NodeRow.seq == 0)).one()
    place = Place(session.get_one(OpRow, search.op_id).spec, root_id)
    for position, attempt in enumerate(waiting):
        node = session.get_one(NodeRow, attempt.node_id)
        reserve_sweep(session, search, attempt)
        work = build_work(session, search, node, attempt, place)
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
        further = _make_verification(work, make_job) if work.level == "screen" else None
        size += sum(len(canonical(one)) for one in (job, further) if one is not None)
        if taken.jobs and (size > most_bytes or len(taken.jobs) == MOST_JOBS):
            return len(waiting) - position
        ticket = _sign_out(session, taken, attempt, job)
        leases.lend(attempt, owner_of(taken.bundle_id), now)
        attempt.error = None
        taken.jobs.append((ticket, job))
        if further is not None:
            of_it = _sign_out(session, taken, attempt, further, screening=ticket["nonce"])
            taken.verifications.append(Verification(of_it, further, ticket["nonce"]))
    return 0


def _make_verification(work: Work, make_job: Callable[[Work], Job]) -> Job | None:
    """Build the job that verifies the candidate of a screening in full; None where the judge cannot do it."""
    try:
        return make_job(replace(work, kind="verify", level="verify", known_binaries={}, sweep_s=None))
    except SpecErrors:
        return None


def _sign_out(session: Session, taken: Taken, attempt: AttemptRow, job: Job, *, screening: str | None = None) -> Ticket:
    """Give a job its nonce and keep the row that its verdict is merged by; returns its ticket."""
    nonce = new_id("bj")
    job["id"] = nonce
    ticket: Ticket = {
        "nonce": nonce,
        "bundle_id": taken.bundle_id,
        "search_id": taken.search_id,
        "attempt_id": attempt.id,
        "job_digest": digest(job),
    }
    row = BundleJobRow(
        id=nonce,
        bundle_id=taken.bundle_id,
        search_id=taken.search_id,
        attempt_id=attempt.id,
        job_digest=ticket["job_digest"],
        workloads=[workload["id"] for workload in job["workloads"]],
        created_at=taken.created_at,
        screening=screening,
    )
    session.add(row)
    return ticket


def _find_champion(session: Session, search: SearchRow) -> Champion | None:
    """Return the best verified candidate of the search, which a further one must be faster than."""
    verified = (NodeRow.verification == "passed", NodeRow.verdict == "accepted", NodeRow.score.is_not(None))
    unbanned = NodeRow.mark.is_distinct_from("banned")
    columns = select(NodeRow.score, NodeRow.ci_low, NodeRow.ci_high)
    of_search = columns.where(NodeRow.search_id == search.id, NodeRow.seq > 0, *verified, unbanned)
    best = session.execute(of_search.order_by(NodeRow.score.desc(), NodeRow.seq).limit(1)).tuples().first()
    if best is None:
        return None
    score, low, high = best
    return {"score": score or 0.0, "ci95": None if low is None or high is None else [low, high]}


def give_back(db: Database, bundle_id: str, now: float, by: str | None = None) -> GivenBack:
    """Drop a bundle: its steps without a verdict return to the queue.

    Verdicts on them are no longer taken. Raises LookupError where there is no such bundle.
    """
    with db.writing() as session:
        search, jobs = _jobs_of(session, bundle_id)
        out = [job for job in jobs if job.merged_at is None]
        merged = _count_merged(jobs)
        steps = _drop(session, search, out, "queue", now, by)
        return GivenBack(bundle_id, search.id, len(steps), 0, merged, _return(search, steps, now))


def settle_unjudged(db: Database, bundle_id: str, then: Then, now: float, by: str | None = None) -> GivenBack:
    """Drop those jobs of a bundle that their host could not judge; the others stay out.

    Their steps return to the queue, or fail for the host's reason: a branch ends, and without baselines the search.
    Raises LookupError where there is no such bundle.
    """
    with db.writing() as session:
        search, jobs = _jobs_of(session, bundle_id)
        merged = _count_merged(jobs)
        of_step = AttemptRow.id == BundleJobRow.attempt_id
        left = select(BundleJobRow).join(AttemptRow, of_step).where(BundleJobRow.bundle_id == bundle_id)
        out = list(session.scalars(left.where(unjudged([bundle_id]))))  # their verifications too: they have one step
        steps = _drop(session, search, out, then, now, by)
        if then == "queue":
            return GivenBack(bundle_id, search.id, len(steps), 0, merged, _return(search, steps, now))
        for attempt in steps:
            node = session.get_one(NodeRow, attempt.node_id)
            fail_step(session, Held(search, node, attempt), f"not judged by the bundle's host: {attempt.error}", now)
        return GivenBack(bundle_id, search.id, 0, len(steps), merged, [])


def _jobs_of(session: Session, bundle_id: str) -> tuple[SearchRow, list[BundleJobRow]]:
    """Return the search, locked, and the jobs of the bundle. Raises LookupError."""
    of_bundle = BundleJobRow.bundle_id == bundle_id
    search_id = session.scalar(select(BundleJobRow.search_id).where(of_bundle).limit(1))
    if search_id is None:
        raise LookupError(f"bundle: found {bundle_id!r}, expected the id of a bundle that is out")
    search = lock_search(session, search_id)
    return search, list(session.scalars(select(BundleJobRow).where(of_bundle)))


def _count_merged(jobs: list[BundleJobRow]) -> int:
    """Count the jobs that have their verdicts; verifications that came along are none of them."""
    return sum(job.merged_at is not None and job.screening is None for job in jobs)


def _drop(
    session: Session, search: SearchRow, jobs: list[BundleJobRow], then: Then, now: float, by: str | None
) -> list[AttemptRow]:
    """Make the jobs void and return the steps that the bundle held.

    There are none of a search that ended meanwhile.
    """
    steps = []
    for job in jobs:
        attempt = session.get_one(AttemptRow, job.attempt_id)
        if job.screening is None and is_held(attempt, job.bundle_id):
            steps.append(attempt)
        session.delete(job)
    if steps:  # before what follows from it: nothing comes after the event that ends a search
        told = {"bundle_id": jobs[0].bundle_id, "jobs": len(steps), "then": then}
        add_event(session, search, "bundle.dropped", now, **told, **signed(by))
    return steps


def _return(search: SearchRow, steps: list[AttemptRow], now: float) -> list[Message]:
    """Put the steps back into their queue; returns what is to be sent."""
    for attempt in steps:
        put_back(attempt)
    if search.state != "running":
        return []  # going on sends them
    for attempt in steps:
        attempt.sent_at = now
    return [message(attempt.id, attempt.kind, search.target) for attempt in steps]

"""Bundles: judge steps, profiles and tries (`requested`) for a host that the service cannot reach.

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
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.bundle import Champion, Ticket, canonical, digest
from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.spec.op import SpecErrors
from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.profiles import ProfileWork, source_sha256
from warpsmith.kernels_db.store.tables import AttemptRow, BundleJobRow, NodeRow, OpRow, ProfileRow, SearchRow, TryRow
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.steps.caps import refusal
from warpsmith.workers.steps.endings import fail_step
from warpsmith.workers.steps.requested import (
    Requested,
    build_requested_work,
    fail_requested,
    list_requested,
    put_requested_back,
)
from warpsmith.workers.steps.rows import (
    Held,
    add_event,
    bundle_of,
    in_bundle,
    is_held,
    lock_search,
    message,
    owner_of,
    put_back,
    signed,
)
from warpsmith.workers.steps.sweeping import reserve_sweep
from warpsmith.workers.steps.trying import TryWork
from warpsmith.workers.steps.values import Message, Work, WrongState
from warpsmith.workers.steps.work import Place, build_work

MOST_JOBS = 256
"""Jobs of one bundle; what is left over waits for the next."""

JUDGED = ("judge", "verify")

Then = Literal["queue", "fail"]
"""What becomes of steps that a bundle held."""

MakeJob: TypeAlias = Callable[[Work | ProfileWork | TryWork], Job]
"""Builds the judge's job of what a bundle takes; raises SpecErrors where the judge cannot do it."""


@dataclass(frozen=True)
class Taken:
    """A bundle, and how much still waits. Times in epoch seconds.

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

    It counts what returned to the queue, the steps that failed, and the jobs that had their verdicts, which stay; of a
    screening and the verification that came along the screening alone, as lists of bundles do. messages: of steps;
    profiles and tries have their own.
    """

    bundle_id: str
    search_id: str
    returned: int
    failed: int
    merged: int
    messages: list[Message]
    profiles: list[Message] = field(default_factory=list)
    tries: list[Message] = field(default_factory=list)


def unjudged(bundle_ids: Sequence[str] | None = None) -> ColumnElement[bool]:
    """Return the condition on an AttemptRow that a bundle's host could not judge the step.

    One of the bundles, by default any, still holds the step. Its error says why.
    """
    held = in_bundle() if bundle_ids is None else AttemptRow.owner.in_([owner_of(each) for each in bundle_ids])
    return and_(AttemptRow.state == "running", held, AttemptRow.error.is_not(None))


def take_jobs(
    db: Database,
    search_id: str,
    make_job: MakeJob,
    now: float,
    *,
    most_bytes: int,
    also: Callable[[Session, Taken], None],
    by: str | None = None,
) -> Taken:
    """Take what waits for a judge of the search's target: its steps while it runs, profiles and tries of its nodes.

    It takes at most MOST_JOBS and, beyond the first, `most_bytes` of jobs, in the order in which they were asked for. A
    step that a limit of the search or the op's spec rules out fails, as it would at a worker. `also` runs in the same
    transaction. Raises LookupError; WrongState where nothing waits.
    """
    with db.writing() as session:
        search = lock_search(session, search_id)
        waiting = _list_waiting(session, search)
        if not waiting and search.state != "running":
            raise WrongState(f"search {search_id}", search.state, "running: only then do steps wait for a judge")
        if not waiting:
            away = _list_bundles(session, search_id)
            held = f"; its steps are out in {' and '.join(away)}" if away else ""
            found = f"no step that waits for a judge, no profile and no try{held}"
            raise WrongState(f"search {search_id}", found, "at least one")
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
        left = _take(db, session, search, waiting, make_job, taken, most_bytes)
        taken = replace(taken, left=left)
        if taken.jobs and search.state not in ENDED:  # nothing comes after the event that ends a search
            add_event(
                session, search, "bundle.created", now, bundle_id=taken.bundle_id, jobs=len(taken.jobs), **signed(by)
            )
        also(session, taken)
        return taken


def _list_bundles(session: Session, search_id: str) -> list[str]:
    """Return the bundles that hold steps of the search, in their order."""
    held = (AttemptRow.search_id == search_id, AttemptRow.state == "running", in_bundle())
    owners = session.scalars(select(AttemptRow.owner).where(*held).distinct().order_by(AttemptRow.owner))
    return [bundle_of(owner) for owner in owners if owner is not None]


def _list_waiting(session: Session, search: SearchRow) -> list[AttemptRow | Requested]:
    """Return what waits for a judge, in the order in which it was asked for; steps only while the search runs."""
    waiting: list[AttemptRow | Requested] = list(list_requested(session, search))
    if search.state == "running":
        of_search = (AttemptRow.search_id == search.id, AttemptRow.state == "pending", AttemptRow.kind.in_(JUDGED))
        query = select(AttemptRow).join(NodeRow, NodeRow.id == AttemptRow.node_id).where(*of_search)
        waiting += session.scalars(query.where(NodeRow.mark.is_distinct_from("banned")))
    return sorted(waiting, key=lambda row: (row.created_at, row.id))


def _take(
    db: Database,
    session: Session,
    search: SearchRow,
    waiting: Sequence[AttemptRow | Requested],
    make_job: MakeJob,
    taken: Taken,
    most_bytes: int,
) -> int:
    """Take what there is room for into `taken`; returns how many are left."""
    now, size = taken.created_at, 0
    root_id = session.scalars(select(NodeRow.id).where(NodeRow.search_id == search.id, NodeRow.seq == 0)).one()
    place = Place(session.get_one(OpRow, search.op_id).spec, root_id)
    for position, row in enumerate(waiting):
        if row.state != "pending":  # a step before it failed, and with it the search
            continue
        if isinstance(row, AttemptRow):
            found = _make_step_jobs(db, session, search, row, make_job, place, now)
        else:
            found = _make_requested_job(session, search, row, make_job, now)
        if found is None:
            continue
        job, further = found
        size += sum(len(canonical(one)) for one in found if one is not None)
        if taken.jobs and (size > most_bytes or len(taken.jobs) == MOST_JOBS):
            return len(waiting) - position
        ticket = _sign_out(session, taken, row, job)
        leases.lend(row, owner_of(taken.bundle_id), now)
        taken.jobs.append((ticket, job))
        if further is not None:
            of_it = _sign_out(session, taken, row, further, screening=ticket["nonce"])
            taken.verifications.append(Verification(of_it, further, ticket["nonce"]))
    return 0


def _make_step_jobs(
    db: Database,
    session: Session,
    search: SearchRow,
    attempt: AttemptRow,
    make_job: MakeJob,
    place: Place,
    now: float,
) -> tuple[Job, Job | None] | None:
    """Build the job of a step, and of a screening the verification that goes with it; None where the step fails."""
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
        return None
    attempt.error = None
    return job, _make_verification(work, make_job) if work.level == "screen" else None


def _make_requested_job(
    session: Session, search: SearchRow, row: Requested, make_job: MakeJob, now: float
) -> tuple[Job, Job | None] | None:
    """Build the job of a profile or try; None where the judge cannot do it or a limit rules it out, and it ends."""
    try:
        return make_job(build_requested_work(session, search, row)), None
    except (SpecErrors, WrongState) as error:
        fail_requested(session, search, row, str(error), now)
        return None


def _make_verification(work: Work, make_job: MakeJob) -> Job | None:
    """Build the job that verifies the candidate of a screening in full; None where the judge cannot do it."""
    try:
        return make_job(replace(work, kind="verify", level="verify", known_binaries={}, sweep_s=None))
    except SpecErrors:
        return None


def _sign_out(
    session: Session, taken: Taken, row: AttemptRow | Requested, job: Job, *, screening: str | None = None
) -> Ticket:
    """Give a job its nonce and keep the row that its verdict is merged by; returns its ticket."""
    nonce = new_id("bj")
    job["id"] = nonce
    ticket: Ticket = {
        "nonce": nonce,
        "bundle_id": taken.bundle_id,
        "search_id": taken.search_id,
        "attempt_id": row.id,
        "job_digest": digest(job),
    }
    out = BundleJobRow(
        id=nonce,
        bundle_id=taken.bundle_id,
        search_id=taken.search_id,
        attempt_id=row.id if isinstance(row, AttemptRow) else None,
        profile_id=row.id if isinstance(row, ProfileRow) else None,
        try_id=row.id if isinstance(row, TryRow) else None,
        job_digest=ticket["job_digest"],
        workloads=[workload["id"] for workload in job["workloads"]],
        created_at=taken.created_at,
        screening=screening,
        source_sha256=_digest_source(job) if isinstance(row, ProfileRow) else None,
    )
    session.add(out)
    return ticket


def _digest_source(job: Job) -> str | None:
    return None if job["candidate"] is None else source_sha256(job["candidate"]["source"])


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
    """Drop a bundle: its steps, profiles and tries without a verdict return to the queue.

    Verdicts on them are no longer taken. Raises LookupError where there is no such bundle.
    """
    with db.writing() as session:
        search, jobs = _jobs_of(session, bundle_id)
        out = [job for job in jobs if job.merged_at is None]
        merged = _count_merged(jobs)
        steps, requested = _drop(session, search, out, "queue", now, by)
        messages = _return(search, steps, now)
        profiles: list[Message] = []
        tries: list[Message] = []
        for row in requested:
            announced = put_requested_back(session, search, row, now)
            if announced is not None:
                (tries if isinstance(row, TryRow) else profiles).append(announced)
        returned = len(steps) + len(profiles) + len(tries)
        return GivenBack(bundle_id, search.id, returned, 0, merged, messages, profiles, tries)


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
        steps, _ = _drop(session, search, out, then, now, by)
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
) -> tuple[list[AttemptRow], list[Requested]]:
    """Make the jobs void and return the steps, and the profiles and tries, that the bundle held.

    There are no steps of a search that ended meanwhile.
    """
    steps, requested = [], []
    for job in jobs:
        row = find_row(session, job)
        if job.screening is None and is_held(row, job.bundle_id):
            if isinstance(row, AttemptRow):
                steps.append(row)
            else:
                requested.append(row)
        session.delete(job)
    count = len(steps) + len(requested)
    if count and search.state not in ENDED:  # before what follows from it: nothing comes after the event that ends it
        told = {"bundle_id": jobs[0].bundle_id, "jobs": count, "then": then}
        add_event(session, search, "bundle.dropped", now, **told, **signed(by))
    return steps, requested


def find_row(session: Session, job: BundleJobRow) -> AttemptRow | Requested:
    """Return the row of what a bundle's job is of."""
    if job.profile_id is not None:
        return session.get_one(ProfileRow, job.profile_id)
    if job.try_id is not None:
        return session.get_one(TryRow, job.try_id)
    return session.get_one(AttemptRow, job.attempt_id)


def _return(search: SearchRow, steps: list[AttemptRow], now: float) -> list[Message]:
    """Put the steps back into their queue; returns what is to be sent."""
    for attempt in steps:
        put_back(attempt)
    if search.state != "running":
        return []  # going on sends them
    for attempt in steps:
        attempt.sent_at = now
    return [message(attempt.id, attempt.kind, search.target) for attempt in steps]

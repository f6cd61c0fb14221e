"""Bundles: judge steps, profiles and tries (`requested`) for a host that the service cannot reach.

They leave as jobs and come back as verdicts. With each screening goes the full verification of its candidate, for
which no step is open: the host does that of its best (`judge.protocol.verifications`), and merging opens the step. So
do those of candidates that were screened before and that the screenings of this bundle may leave the best.

    pending ──> running, held by the bundle   `take_jobs`; no lease: the bundle holds its steps until it is merged or
                                              dropped, however long it travels
    held    ──> succeeded                     `warpsmith.workers.steps.merging`; the first verdict on a job counts
    held    ──> pending                       `returning.give_back`: the step returns to its queue, its job is void
    held    ──> pending or failed             `returning.settle_unjudged`: of those that their host could not judge
    held    ──> cancelled                     the search ended, or the node was banned (`bans`); verdicts that come back
                                              then change nothing

Signatures are the caller's business: nothing here knows a key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.bundle import Further, Scored, Ticket, canonical, digest
from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.spec.op import SpecErrors
from warpsmith.kernels_db.store import leases
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.profiles import ProfileWork, source_sha256
from warpsmith.kernels_db.store.tables import AttemptRow, BundleJobRow, NodeRow, OpRow, ProfileRow, SearchRow, TryRow
from warpsmith.workers.gate.tunables import has_configurations
from warpsmith.workers.search.budget import parse_budget
from warpsmith.workers.search.policy import parse_policy
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.steps.caps import refusal
from warpsmith.workers.steps.endings import fail_step
from warpsmith.workers.steps.requested import (
    Requested,
    build_requested_work,
    fail_requested,
    list_requested,
)
from warpsmith.workers.steps.rows import (
    Held,
    add_event,
    bundle_of,
    in_bundle,
    lock_search,
    owner_of,
    signed,
)
from warpsmith.workers.steps.sweeping import equal_share, leaders_of, reserve_sweep
from warpsmith.workers.steps.trying import TryWork
from warpsmith.workers.steps.values import Work, WrongState
from warpsmith.workers.steps.work import Place, build_work

MOST_JOBS = 256
"""Jobs of one bundle; what is left over waits for the next."""

MOST_SCREENED = 4
"""Candidates that were screened before, of which one bundle carries the verifications: the best."""

JUDGED = ("judge", "verify")

_Screened: TypeAlias = tuple[NodeRow, AttemptRow, tuple[dict[str, int], ...]]
"""A candidate that was screened before, the step that did it, and the configurations that led in its sweep."""

MakeJob: TypeAlias = Callable[[Work | ProfileWork | TryWork], Job]
"""Builds the judge's job of what a bundle takes; raises SpecErrors where the judge cannot do it."""


@dataclass(frozen=True)
class Taken:
    """A bundle, and how much still waits. Times in epoch seconds.

    Its jobs are in the order in which they waited. further: by nonce, of verifications of swept candidates. together:
    candidates that are verified where they tie with the best, itself included.
    """

    bundle_id: str
    search_id: str
    op: str
    target: str
    created_at: float
    jobs: list[tuple[Ticket, Job]]
    verifications: list[Verification]
    further: dict[str, Further]
    champion: Scored | None
    together: int
    left: int


@dataclass(frozen=True)
class Verification:
    """A verification that is done where its candidate comes out best.

    screening: the nonce of the job that screens it in the same bundle; of a candidate that was screened before, the id
    of that step, and `screened` is what it found.
    """

    ticket: Ticket
    job: Job
    screening: str
    screened: Scored | None = None


@dataclass(frozen=True)
class _Made:
    """The job of what waits; of a screening also the verification that goes with it.

    further: of that verification, or of the job where it is one.
    """

    job: Job
    verification: Job | None = None
    further: Further | None = None


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
            further={},
            champion=_find_champion(session, search),
            together=getattr(parse_policy(search.policy), "verified_together", 1),
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
    now, size, left = taken.created_at, 0, 0
    root_id = session.scalars(select(NodeRow.id).where(NodeRow.search_id == search.id, NodeRow.seq == 0)).one()
    place = Place(session.get_one(OpRow, search.op_id).spec, root_id)
    screened = _find_screened(session, search, taken)
    swept = sum(bool(led) for _, _, led in screened)
    for position, row in enumerate(waiting):
        if row.state != "pending":  # a step before it failed, and with it the search
            continue
        if isinstance(row, AttemptRow):
            made = _make_step_jobs(db, session, search, row, make_job, place, now, swept)
        else:
            made = _make_requested_job(session, search, row, make_job, now)
        if made is None:
            continue
        size += sum(len(canonical(one)) for one in (made.job, made.verification) if one is not None)
        if taken.jobs and (size > most_bytes or len(taken.jobs) == MOST_JOBS):
            left = len(waiting) - position
            break
        ticket = _sign_out(session, taken, row, made.job)
        leases.lend(row, owner_of(taken.bundle_id), now)
        taken.jobs.append((ticket, made.job))
        of_it = ticket
        if made.verification is not None:
            of_it = _sign_out(session, taken, row, made.verification, screening=ticket["nonce"])
            taken.verifications.append(Verification(of_it, made.verification, ticket["nonce"]))
        if made.further is not None:
            taken.further[of_it["nonce"]] = made.further
    if taken.verifications:  # otherwise nothing here decides whether another candidate is the best
        _take_screened(session, search, make_job, taken, place, most_bytes - size, screened)
    return left


def _make_step_jobs(
    db: Database,
    session: Session,
    search: SearchRow,
    attempt: AttemptRow,
    make_job: MakeJob,
    place: Place,
    now: float,
    swept: int,
) -> _Made | None:
    """Build the job of a step, and of a screening the verification that goes with it; None where the step fails.

    swept: candidates that were screened before and have further configurations; they have shares of the sweep seconds,
    too.
    """
    node = session.get_one(NodeRow, attempt.node_id)
    reserve_sweep(session, search, attempt, verified=True, besides=swept)
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
    if work.level == "screen":
        verification, further = _make_verification(work, make_job), None
        if verification is not None and has_configurations(node.source or ""):
            further = Further(configurations=None, sweep_s=work.sweep_s, device_s=_device_seconds_left(search))
        return _Made(job, verification, further)
    if not work.configurations:
        return _Made(job)
    led = [dict(values) for values in work.configurations]
    return _Made(job, further={"configurations": led, "sweep_s": work.sweep_s, "device_s": None})


def _find_screened(session: Session, search: SearchRow, taken: Taken) -> list[_Screened]:
    """Find the best candidates that were screened before, and that nobody verifies."""
    least = 0.0 if taken.champion is None else taken.champion["score"]
    of_search = (NodeRow.search_id == search.id, NodeRow.seq > 0, NodeRow.mark.is_distinct_from("banned"))
    accepted = (NodeRow.state == "judged", NodeRow.verdict == "accepted", NodeRow.verification == "none")
    query = select(NodeRow, AttemptRow).join(AttemptRow, AttemptRow.node_id == NodeRow.id)
    of_step = (AttemptRow.kind == "judge", AttemptRow.ordinal == NodeRow.repairs, AttemptRow.state == "succeeded")
    best = query.where(*of_search, *accepted, *of_step, NodeRow.score > least).order_by(NodeRow.score.desc())
    found = session.execute(best.order_by(NodeRow.seq).limit(MOST_SCREENED)).tuples().all()
    return [(node, attempt, leaders_of(session, node)) for node, attempt in found]


def _take_screened(
    session: Session,
    search: SearchRow,
    make_job: MakeJob,
    taken: Taken,
    place: Place,
    most_bytes: int,
    found: Sequence[_Screened],
) -> None:
    """Add the verifications of candidates that were screened before.

    What the bundle screens decides whether they are the best. Of what no other has reserved of the limit on sweep
    seconds each has an equal part, for its further configurations.
    """
    swept = sum(bool(led) for _, _, led in found)
    sweep_s = equal_share(session, search, swept) if swept else None
    for node, attempt, led in found:
        job = _make_verification(build_work(session, search, node, attempt, place), make_job)
        most_bytes -= 0 if job is None else len(canonical(job))
        if job is None or most_bytes < 0:
            return
        ticket = _sign_out(session, taken, attempt, job, screening=attempt.id, sweep_s=sweep_s if led else None)
        interval = None if node.ci_low is None or node.ci_high is None else [node.ci_low, node.ci_high]
        screened: Scored = {"score": node.score or 0.0, "ci95": interval}
        taken.verifications.append(Verification(ticket, job, attempt.id, screened))
        if led:
            taken.further[ticket["nonce"]] = {
                "configurations": [dict(values) for values in led],
                "sweep_s": sweep_s,
                "device_s": _device_seconds_left(search),
            }


def _device_seconds_left(search: SearchRow) -> float | None:
    """Return the device seconds that the budget leaves; None where it does not limit them."""
    limit = parse_budget(search.budget).gpu_seconds
    return None if limit is None else max(0.0, limit - search.gpu_seconds)


def _make_requested_job(
    session: Session, search: SearchRow, row: Requested, make_job: MakeJob, now: float
) -> _Made | None:
    """Build the job of a profile or try; None where the judge cannot do it or a limit rules it out, and it ends."""
    try:
        return _Made(make_job(build_requested_work(session, search, row)))
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
    session: Session,
    taken: Taken,
    row: AttemptRow | Requested,
    job: Job,
    *,
    screening: str | None = None,
    sweep_s: float | None = None,
) -> Ticket:
    """Give a job its nonce and keep the row that its verdict is merged by; returns its ticket.

    sweep_s: the sweep seconds that are reserved for it and for no step.
    """
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
        sweep_s=sweep_s,
    )
    session.add(out)
    return ticket


def _digest_source(job: Job) -> str | None:
    return None if job["candidate"] is None else source_sha256(job["candidate"]["source"])


def _find_champion(session: Session, search: SearchRow) -> Scored | None:
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

"""What a bundle gives up: it is dropped, or the steps are settled that its host could not judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, BundleJobRow, NodeRow, ProfileRow, SearchRow, TryRow
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.steps.endings import fail_step
from warpsmith.workers.steps.requested import Requested, put_requested_back
from warpsmith.workers.steps.rows import (
    Held,
    add_event,
    in_bundle,
    is_held,
    lock_search,
    message,
    owner_of,
    put_back,
    signed,
)
from warpsmith.workers.steps.values import Message

Then = Literal["queue", "fail"]
"""What becomes of steps that a bundle held."""


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

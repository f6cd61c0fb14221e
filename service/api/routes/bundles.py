"""Routes of bundles: judge jobs for hosts out of the service's reach, and their verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.bundle import FORMAT, VERSION, Ticket
from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.store import listing
from warpsmith.kernels_db.store.tables import BundleJobRow, SearchRow
from warpsmith.service.api.access import make_unknown_bundle
from warpsmith.service.api.auth import Caller
from warpsmith.service.api.bodies import Body, RawBody, StrictBody, StrictRoute
from warpsmith.service.api.context import Asker, Service, ServiceDependency
from warpsmith.service.api.idempotency import Answer, OnceDependency
from warpsmith.service.api.paging import After, Limit, Word, page
from warpsmith.service.api.slices import run_sliced
from warpsmith.service.bundles.held_jobs import list_unjudged_jobs
from warpsmith.service.bundles.key import BadKey, load_bundle_key
from warpsmith.service.bundles.merging import merge_lines
from warpsmith.service.bundles.signing import sign
from warpsmith.service.documents.bundles import (
    BundleDocument,
    BundleSummary,
    DroppedBundle,
    MergedLine,
    MergeReport,
    UnjudgedJob,
)
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.problems import (
    IdempotencyReuse,
    InvalidInput,
    MissingSetting,
    NotFound,
    StorageFull,
    WrongState,
    document_problems,
    document_problems_with_body,
)
from warpsmith.service.views.bundles import make_bundle_summaries
from warpsmith.workers import steps
from warpsmith.workers.judging.submission import limits_of
from warpsmith.workers.queue.jobs import make_job

NDJSON = "application/x-ndjson"
MERGE = "/v1/bundles/merge"
MOST_BYTES = 32 << 20
"""Bytes of the jobs in one bundle, beyond the first."""

MOST_LINES = 1000
"""Verdicts in one request to merge; each takes a transaction."""

EXAMPLE_LINE = {
    "nonce": "bj_01kaexample0000000000000000",
    "bundle_id": "bn_01kaexample0000000000000000",
    "search_id": "sr_01kaexample0000000000000000",
    "attempt_id": "at_01kaexample0000000000000000",
    "job_digest": "0f" * 32,
    "signature": "a1" * 32,
    "verdict": {"id": "bj_01kaexample0000000000000000", "level": "screen"},
    "host": {"name": "node7"},
}
MERGE_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "Lines of a verdicts.jsonl or an unjudged.jsonl, as the judge wrote them",
        "content": {
            NDJSON: {
                "schema": {"type": "string", "minLength": 1},
                "examples": {"verdicts": {"value": json.dumps(EXAMPLE_LINE) + "\n"}},
            }
        },
    }
}

router = APIRouter(tags=["bundles"], route_class=StrictRoute)


class SettleRequest(StrictBody):
    """A decision on the steps whose jobs the bundle's host could not judge."""

    then: Literal["queue", "fail"] = Field(
        description="queue: they return to the queue. fail: they fail for the host's reason, and their branches end; "
        "if the baselines fail, the search ends"
    )


@router.post(
    "/v1/searches/{search_id}/bundles",
    status_code=201,
    summary="Bundle the jobs that wait",
    response_model=BundleDocument,
    responses=document_problems(NotFound, WrongState, InvalidInput, MissingSetting, IdempotencyReuse, StorageFull),
)
def create_bundle(search_id: str, once: OnceDependency, service: ServiceDependency, asker: Asker) -> JSONResponse:
    """Take the steps of a search that wait for a judge, its profiles and its tries, as signed jobs.

    Of a search that has ended, profiles alone. At most 256 jobs and about 32 MiB. With each screening goes the full
    verification of its candidate, and with them those of candidates that were screened before: the host does that of
    the best. No worker takes any of it from then on: verdicts
    come by merging, or the bundle is dropped. Once the baselines have left, the first ideas are asked for. 409 where
    nothing waits."""
    key = _load_key(service)
    with service.db.reading() as session:
        service.row(session, SearchRow, search_id, "search")
        stored = once.stored(session)
        if stored is not None:
            return stored.response()
    answers: list[Answer] = []

    def answer(session: Session, taken: steps.Taken) -> None:
        if taken.jobs:
            answers.append(Answer.of(201, _make_document(key, taken)))
            once.record(session, answers[0])

    def create() -> Answer:
        make = partial(make_job, limits=limits_of(service.settings))
        try:
            steps.take_jobs(
                service.db, search_id, make, service.db.now(), most_bytes=MOST_BYTES, also=answer, by=asker.name
            )
        except steps.WrongState as error:
            raise WrongState.one(error.what, error.found, error.expected) from error
        # Once the baselines have left, the first ideas are asked for; and where steps failed, it goes on without them.
        service.advance(search_id)
        if not answers:
            raise WrongState.one(f"search {search_id}", "no step that can be judged", "at least one that waits")
        return answers[0]

    return once.guard(service.db, create).response()


@router.get("/v1/bundles", summary="List bundles", responses=document_problems(InvalidInput))
def list_bundles(
    service: ServiceDependency,
    asker: Asker,
    *,
    search_id: Annotated[Word | None, Query(description="Only bundles of this search")] = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[BundleSummary]:
    """List bundles that were not dropped, newest first, with their open jobs."""
    with service.db.reading() as session:
        found = page(listing.list_bundles, session, limit=limit, after=after, search_id=search_id, team=asker.reads)
        return Page(items=make_bundle_summaries(session, found.items), next=found.next)


@router.post(
    MERGE,
    summary="Merge verdicts",
    responses=document_problems_with_body(MissingSetting, StorageFull),
    openapi_extra=MERGE_BODY,
)
async def merge_verdicts(body: Body, service: ServiceDependency, asker: Asker) -> MergeReport:
    """Store the verdicts on jobs of bundles, line by line, and let their searches go on.

    The first verdict on a job counts; sent again it changes nothing. A line that says why a job could not be judged is
    kept with its step, which stays out and still takes a verdict. A forged, foreign or malformed line is refused; the
    other lines are merged: the answer is 200, with the outcome of each line."""
    body.require(NDJSON)
    return await run_sliced(_merge(body, service, asker))


def _merge(body: RawBody, service: Service, asker: Caller) -> Generator[None, None, MergeReport]:
    key = _load_key(service)
    lines = body.data.split(b"\n")
    if not body.data:
        raise InvalidInput.one("body", None, "at least one verdict")
    if len(lines) > MOST_LINES + 1:
        raise InvalidInput.one("body", f"{len(lines)} lines", f"at most {MOST_LINES}")
    merged: list[MergedLine] = []
    searches: dict[str, None] = {}
    try:
        for line in merge_lines(service.db, key, lines, asker.reads):
            merged.append(line)
            if line.outcome == "merged" and line.search_id is not None:
                searches[line.search_id] = None
            yield
    finally:  # lines that were merged before the database failed stay merged
        for search_id in searches:
            service.advance(search_id)
    return MergeReport.of(merged)


@router.get("/v1/bundles/{bundle_id}/unjudged", summary="List unjudged jobs", responses=document_problems(NotFound))
def list_unjudged(bundle_id: str, service: ServiceDependency) -> list[UnjudgedJob]:
    """List the open jobs of a bundle that its host could not judge, with the reasons.

    At most 256, as far as they were merged. 404 where nothing of the bundle is known any more."""
    with service.db.reading() as session:
        known = select(BundleJobRow.id).where(BundleJobRow.bundle_id == bundle_id).limit(1)
        if not service.is_id(bundle_id) or session.scalar(known) is None:
            raise make_unknown_bundle(bundle_id)
        return list_unjudged_jobs(session, bundle_id)


@router.post(
    "/v1/bundles/{bundle_id}/unjudged",
    summary="Settle unjudged jobs",
    responses=document_problems_with_body(NotFound, StorageFull),
)
def settle_unjudged(bundle_id: str, body: SettleRequest, service: ServiceDependency, asker: Asker) -> DroppedBundle:
    """Take the jobs that the host of a bundle could not judge out of it.

    Their steps return to the queue or fail, and verdicts on them are refused from then on. The bundle's other jobs stay
    out. 404 where nothing of the bundle is known any more."""
    return _drop(
        service, bundle_id, lambda now: steps.settle_unjudged(service.db, bundle_id, body.then, now, by=asker.name)
    )


@router.delete("/v1/bundles/{bundle_id}", summary="Drop a bundle", responses=document_problems(NotFound, StorageFull))
def drop_bundle(bundle_id: str, service: ServiceDependency, asker: Asker) -> DroppedBundle:
    """Give the steps of a bundle that have no verdict back to the queue.

    Verdicts on them are refused from then on; those that were merged stay. 404 where nothing of the bundle is known any
    more."""
    return _drop(service, bundle_id, lambda now: steps.give_back(service.db, bundle_id, now, by=asker.name))


def _drop(service: Service, bundle_id: str, drop: Callable[[float], steps.GivenBack]) -> DroppedBundle:
    """Call `drop`, advance its search and describe the outcome; raises NotFound."""
    if not service.is_id(bundle_id):
        raise make_unknown_bundle(bundle_id)
    try:
        dropped = drop(service.db.now())
    except LookupError as error:
        raise make_unknown_bundle(bundle_id) from error
    service.outbox.send(dropped.messages)
    for each in dropped.profiles:
        service.outbox.send_profile(each.attempt_id, each.queue)
    service.outbox.send_tries(dropped.tries)
    if dropped.failed:
        service.advance(dropped.search_id)
    return DroppedBundle(
        id=dropped.bundle_id,
        search_id=dropped.search_id,
        returned=dropped.returned,
        failed=dropped.failed,
        merged=dropped.merged,
    )


def _load_key(service: Service) -> bytes:
    try:
        return load_bundle_key(service.settings)
    except BadKey as error:
        raise MissingSetting.one(error.where, error.found, error.expected) from error
    except OSError as error:
        found = f"none, and no key can be kept in the service's home ({error.strerror})"
        raise MissingSetting.one("WARPSMITH_BUNDLE_KEY", found, "a secret of at least 32 characters") from error


def _make_document(key: bytes, taken: steps.Taken) -> BundleDocument:
    return BundleDocument(
        format=FORMAT,
        version=VERSION,
        id=taken.bundle_id,
        search_id=taken.search_id,
        op=taken.op,
        target=taken.target,
        created_at=taken.created_at,
        count=len(taken.jobs),
        left=taken.left,
        jobs=[_write_line(key, taken, ticket, job) for ticket, job in taken.jobs],
        verifications=[
            _write_line(
                key,
                taken,
                one.ticket,
                one.job,
                screening=one.screening,
                champion=taken.champion,
                together=taken.together,
                **({} if one.screened is None else {"screened": one.screened}),
            )
            for one in taken.verifications
        ],
    )


def _write_line(key: bytes, taken: steps.Taken, ticket: Ticket, job: Job, **more: Any) -> str:
    """Write a line of jobs.jsonl or verifications.jsonl, signed."""
    further = taken.further.get(ticket["nonce"])
    more |= {} if further is None else {"further": further}
    return json.dumps({**ticket, "signature": sign(key, ticket), "job": job, **more}, allow_nan=False)

"""Bundles: judge jobs for hosts that this service cannot reach, and the verdicts that come back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic import Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.bundle import FORMAT, VERSION
from warpsmith.kernels_db.spec.errors import shown
from warpsmith.kernels_db.store import listing
from warpsmith.kernels_db.store.tables import BundleJobRow, SearchRow
from warpsmith.service.api.bodies import Body, StrictBody, StrictRoute
from warpsmith.service.api.context import Asker, Service, ServiceDependency
from warpsmith.service.api.idempotency import Answer, OnceDependency
from warpsmith.service.api.paging import After, Limit, Word, page
from warpsmith.service.bundles.key import BadKey, bundle_key
from warpsmith.service.bundles.merging import merge_lines
from warpsmith.service.bundles.signing import signature_of
from warpsmith.service.bundles.unjudged import unjudged_jobs
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
    MalformedBody,
    MissingSetting,
    NotFound,
    StorageFull,
    WrongState,
    documented,
    documented_with_body,
)
from warpsmith.service.views.bundles import bundle_summaries
from warpsmith.workers import steps
from warpsmith.workers.queue import dispatch
from warpsmith.workers.queue.judge_step import job_of

NDJSON = "application/x-ndjson"
MERGE = "/v1/bundles/merge"
MOST_BYTES = 32 << 20
"""Of the jobs in one bundle, beyond the first."""

MOST_LINES = 1000
"""Verdicts in one request to merge: each is a transaction."""

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
    """What becomes of the steps whose jobs the bundle's host could not judge."""

    then: Literal["queue", "fail"] = Field(
        description="queue: they return to the queue. fail: they fail for the host's reason, and their branches end; "
        "where that was the baselines the search ends"
    )


@router.post(
    "/v1/searches/{search_id}/bundles",
    status_code=201,
    summary="Bundle the jobs that wait",
    response_model=BundleDocument,
    responses=documented(NotFound, WrongState, InvalidInput, MissingSetting, IdempotencyReuse, StorageFull),
)
def create_bundle(search_id: str, once: OnceDependency, service: ServiceDependency, asker: Asker) -> JSONResponse:
    """Takes the steps of a search that wait for a judge and answers them as signed jobs, at most 256 and about 32 MiB.
    No worker takes them from then on: their verdicts come by merging, or the bundle is dropped. 409 where nothing
    waits."""
    key = _key(service)
    with service.db.reading() as session:
        service.row(session, SearchRow, search_id, "search")
        stored = once.stored(session)
        if stored is not None:
            return stored.response()
    answers: list[Answer] = []

    def answer(session: Session, taken: steps.Taken) -> None:
        if taken.jobs:
            answers.append(Answer.of(201, _document(key, taken)))
            once.record(session, answers[0])

    def create() -> Answer:
        make_job = partial(job_of, sandbox_minimum=service.settings.sandbox_minimum)
        try:
            steps.take_jobs(service.db, search_id, make_job, time.time(), most_bytes=MOST_BYTES, also=answer, by=asker)
        except steps.WrongState as error:
            raise WrongState.one(error.what, error.found, error.expected) from error
        if not answers:
            service.advance(search_id)  # every step that waited failed: the search goes on without them
            raise WrongState.one(f"search {search_id}", "no step that can be judged", "at least one that waits")
        return answers[0]

    return once.guard(service.db, create).response()


@router.get("/v1/bundles", summary="List bundles", responses=documented(InvalidInput))
def list_bundles(
    service: ServiceDependency,
    search_id: Annotated[Word | None, Query(description="Only bundles of this search")] = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[BundleSummary]:
    """Bundles that were made and not dropped, newest first, with what is still out."""
    with service.db.reading() as session:
        found = page(listing.list_bundles, session, limit=limit, after=after, search_id=search_id)
        return Page(items=bundle_summaries(session, found.items), next=found.next)


@router.post(
    MERGE,
    summary="Merge verdicts",
    responses=documented_with_body(MissingSetting, StorageFull),
    openapi_extra=MERGE_BODY,
)
def merge_verdicts(body: Body, service: ServiceDependency) -> MergeReport:
    """Stores the verdicts on jobs of bundles, line by line, and lets their searches go on. The first verdict on a job
    stands; sent again it changes nothing. A line that says why a job could not be judged is kept with its step, which
    stays out: it takes a verdict still. What is forged, foreign or malformed is refused by its line, which keeps no
    other line from being merged: the answer is 200 all the same, and says what became of each."""
    body.require(NDJSON)
    key = _key(service)
    try:
        lines = body.data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"The body is not UTF-8: byte {error.start} is {body.data[error.start]:#04x}") from error
    if not body.data:
        raise InvalidInput.one("body", None, "at least one verdict")
    if len(lines) > MOST_LINES + 1:
        raise InvalidInput.one("body", f"{len(lines)} lines", f"at most {MOST_LINES}")
    told: list[MergedLine] = []
    searches: dict[str, None] = {}
    try:
        for line in merge_lines(service.db, key, lines):
            told.append(line)
            if line.outcome == "merged" and line.search_id is not None:
                searches[line.search_id] = None
    finally:  # what was merged before the database failed is merged
        for search_id in searches:
            service.advance(search_id)
    return MergeReport.of(told)


@router.get("/v1/bundles/{bundle_id}/unjudged", summary="What could not be judged", responses=documented(NotFound))
def list_unjudged(bundle_id: str, service: ServiceDependency) -> list[UnjudgedJob]:
    """The jobs of a bundle that are out and that its host could not judge, and why, as far as that was merged: at most
    256. 404 where nothing of the bundle is known any more."""
    with service.db.reading() as session:
        known = select(BundleJobRow.id).where(BundleJobRow.bundle_id == bundle_id).limit(1)
        if not service.is_id(bundle_id) or session.scalar(known) is None:
            raise NotFound(_not_out(bundle_id))
        return unjudged_jobs(session, bundle_id)


@router.post(
    "/v1/bundles/{bundle_id}/unjudged",
    summary="Settle what could not be judged",
    responses=documented_with_body(NotFound, StorageFull),
)
def settle_unjudged(bundle_id: str, body: SettleRequest, service: ServiceDependency, asker: Asker) -> DroppedBundle:
    """Takes the jobs that the host of a bundle could not judge out of it: their steps return to the queue or fail, and
    verdicts on them are refused from then on. The bundle's other jobs stay out. 404 where nothing of the bundle is
    known any more."""
    return _dropped(
        service, bundle_id, lambda now: steps.settle_unjudged(service.db, bundle_id, body.then, now, by=asker)
    )


@router.delete("/v1/bundles/{bundle_id}", summary="Drop a bundle", responses=documented(NotFound, StorageFull))
def drop_bundle(bundle_id: str, service: ServiceDependency, asker: Asker) -> DroppedBundle:
    """Gives the steps of a bundle that have no verdict back to the queue. Verdicts on them are refused from then on;
    those that were merged stay. 404 where nothing of the bundle is known any more."""
    return _dropped(service, bundle_id, lambda now: steps.give_back(service.db, bundle_id, now, by=asker))


def _dropped(service: Service, bundle_id: str, drop: Callable[[float], steps.GivenBack]) -> DroppedBundle:
    """What `drop` did, after its search was told. Raises NotFound."""
    if not service.is_id(bundle_id):
        raise NotFound(_not_out(bundle_id))
    try:
        dropped = drop(time.time())
    except LookupError as error:
        raise NotFound(_not_out(bundle_id)) from error
    dispatch.send(service.celery, dropped.messages)
    if dropped.failed:
        service.advance(dropped.search_id)
    return DroppedBundle(
        id=dropped.bundle_id,
        search_id=dropped.search_id,
        returned=dropped.returned,
        failed=dropped.failed,
        merged=dropped.merged,
    )


def _not_out(bundle_id: str) -> str:
    return f"bundle: found {shown(bundle_id)!r}, expected the id of a bundle that is out"


def _key(service: Service) -> bytes:
    try:
        return bundle_key(service.settings)
    except BadKey as error:
        raise MissingSetting.one(error.where, error.found, error.expected) from error
    except OSError as error:
        found = f"none, and no key can be kept in the service's home ({error.strerror})"
        raise MissingSetting.one("WARPSMITH_BUNDLE_KEY", found, "a secret of at least 32 characters") from error


def _document(key: bytes, taken: steps.Taken) -> BundleDocument:
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
        jobs=[
            json.dumps({**ticket, "signature": signature_of(key, ticket), "job": job}, allow_nan=False)
            for ticket, job in taken.jobs
        ],
    )

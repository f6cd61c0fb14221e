"""Routes of campaigns: begin one, store how far it has come, list and get."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field
from sqlalchemy.orm import Session

from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.kernels_db.store import campaigns, listing
from warpsmith.kernels_db.store.tables import CampaignRow
from warpsmith.service.api.bodies import StrictBody, StrictRoute
from warpsmith.service.api.context import Asker, ServiceDependency
from warpsmith.service.api.idempotency import Answer, OnceDependency
from warpsmith.service.api.paging import After, Limit, page
from warpsmith.service.api.submission import check_cost_cap, parse_target, require_key
from warpsmith.service.documents.campaigns import CampaignDocument, CampaignProgress, CampaignSettings, CampaignSummary
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
from warpsmith.service.settings import ServiceSettings
from warpsmith.service.views.campaigns import make_campaign_document, make_campaign_summary
from warpsmith.workers.llm.providers.factory import check_model
from warpsmith.workers.search.budget import budget_document, parse_budget
from warpsmith.workers.search.policy import parse_policy

router = APIRouter(prefix="/v1/campaigns", tags=["campaigns"], route_class=StrictRoute)

DIGEST = r"^[0-9a-f]{64}$"
LARGEST_REVISION = 2**31 - 1
EXAMPLE_SETTINGS: dict[str, Any] = {
    "device": "cuda",
    "target": "cuda:sm_90",
    "budget": {"candidates": 80, "cost_usd": 10},
    "model": {"provider": "openai", "model": "gpt-5"},
    "top": 4,
    "mode": "reduce-overhead",
}


class CampaignRequest(StrictBody):
    """A campaign to begin. The model's file stays with the client."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"model_name": "transformer.py", "model_digest": "0f" * 32, "settings": EXAMPLE_SETTINGS}]
        }
    )

    model_name: str = Field(min_length=1, max_length=255, description="The name of the model's file")
    model_digest: str = Field(pattern=DIGEST, description="SHA-256 of the model's file")
    settings: CampaignSettings


class CampaignChange(StrictBody):
    """A campaign's progress as a whole."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"revision": 1, "progress": {"state": "profiling", "regions": []}}]}
    )

    revision: int = Field(ge=1, le=LARGEST_REVISION, description="The revision that it is based on")
    progress: CampaignProgress


@router.post(
    "",
    status_code=201,
    summary="Begin a campaign",
    response_model=CampaignDocument,
    responses=document_problems_with_body(MissingSetting, IdempotencyReuse, StorageFull),
)
def create_campaign(
    body: CampaignRequest, once: OnceDependency, service: ServiceDependency, asker: Asker
) -> JSONResponse:
    """Store a campaign; `Location` names it.

    The client that runs the model does its stages. Settings with which no search could run are refused here."""
    settings = _check_settings(service.settings, body.settings)

    def work(session: Session) -> Answer:
        row = campaigns.add_campaign(
            session,
            model_name=body.model_name,
            model_digest=body.model_digest,
            settings=settings.model_dump(),
            progress=CampaignProgress().model_dump(),
            now=time.time(),
            team=asker.team,
        )
        return Answer.of(201, make_campaign_document(row), Location=f"/v1/campaigns/{row.id}")

    return once.run(service.db, work).response()


@router.get("", summary="List campaigns", responses=document_problems(InvalidInput))
def list_campaigns(
    service: ServiceDependency,
    asker: Asker,
    *,
    model_digest: Annotated[
        str | None, Query(pattern=DIGEST, description="Only those of the model's file with this SHA-256")
    ] = None,
    limit: Limit = 50,
    after: After = None,
) -> Page[CampaignSummary]:
    """List campaigns, newest first."""
    with service.db.reading() as session:
        found = page(
            listing.list_campaigns, session, limit=limit, after=after, model_digest=model_digest, team=asker.reads
        )
        return Page(items=[make_campaign_summary(row) for row in found.items], next=found.next)


@router.get("/{campaign_id}", summary="One campaign", responses=document_problems(NotFound))
def get_campaign(campaign_id: str, service: ServiceDependency) -> CampaignDocument:
    """Get a campaign with all its regions."""
    with service.db.reading() as session:
        return make_campaign_document(service.row(session, CampaignRow, campaign_id, "campaign"))


@router.put(
    "/{campaign_id}",
    summary="Store a campaign's progress",
    responses=document_problems_with_body(NotFound, WrongState, StorageFull),
)
def change_campaign(campaign_id: str, body: CampaignChange, service: ServiceDependency) -> CampaignDocument:
    """Replace the progress of a campaign.

    409 where another client has changed it since, or where it has finished."""
    with service.db.writing() as session:
        row = service.row(session, CampaignRow, campaign_id, "campaign")
        if row.state == "finished":
            raise WrongState.one("campaign", "finished", "one that goes on")
        revision = row.revision
        if not campaigns.save_progress(session, row.id, body.revision, body.progress.model_dump(), time.time()):
            raise WrongState.one("revision", body.revision, f"the latest, {revision}: another client goes on with it")
        session.refresh(row)
        return make_campaign_document(row)


def _check_settings(service: ServiceSettings, settings: CampaignSettings) -> CampaignSettings:
    """Return the settings in full; raises InvalidInput and MissingSetting that name the bad field."""
    target, model = parse_target(settings.target, "settings.target"), settings.model
    if target.device != settings.device:
        raise InvalidInput.one("settings.target", settings.target, f"a target of device type {settings.device}")
    try:
        budget = budget_document(parse_budget(settings.budget))
        if settings.policy is not None:
            parse_policy(settings.policy)
        if model != {"provider": "replay"}:  # each region's pool is looked for when its op is known
            check_model(model)
    except SpecError as error:
        raise InvalidInput.one(f"settings.{error.field}", error.found, error.expected) from error
    if model["provider"] == "openai":
        require_key(service, model)
    check_cost_cap(service, model, budget)
    return settings.model_copy(update={"target": str(target), "budget": budget})

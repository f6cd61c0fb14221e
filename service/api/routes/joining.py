"""Routes of invitations, and of the host that joins with one."""

from __future__ import annotations

import ipaddress
import time
from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field, SecretStr
from sqlalchemy import select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from warpsmith.kernels_db.store import audit
from warpsmith.kernels_db.store.database_url import find_hosts, move_password
from warpsmith.kernels_db.store.tables import InviteRow
from warpsmith.service.api import invites
from warpsmith.service.api.bodies import StrictBody, StrictRoute
from warpsmith.service.api.context import Service, ServiceDependency
from warpsmith.service.documents.joining import ConnectionDocument, InviteDocument, NewInvite, find_mismatch
from warpsmith.service.documents.page import Page
from warpsmith.service.documents.problems import (
    InvalidInput,
    InviteEnded,
    KeyRequired,
    MissingSetting,
    NotFound,
    StorageFull,
    WrongState,
    document_problems,
    document_problems_with_body,
)
from warpsmith.service.settings import ServiceSettings
from warpsmith.service.views.rows import make_document
from warpsmith.workers.settings import Settings, split_addresses

MOST = 1000
DEFAULT_LIFE_S = 3600.0
LONGEST_LIFE_S = 7 * 86_400.0
SHARED = ("lease_s", "judge_job_timeout_s", "sandbox_minimum", "attack_s", "queue_type")
"""Settings of judge workers that have to be the same for all of one service."""

router = APIRouter(prefix="/v1/workers", tags=["workers"], route_class=StrictRoute)


class InviteBody(StrictBody):
    """An invitation to be made."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "rack 7", "uses": 2, "expires_in_s": 3600}]})

    name: str = Field(min_length=1, max_length=128, description="What it is for")
    uses: int = Field(1, ge=1, le=1000, description="Hosts that may join with it")
    expires_in_s: float = Field(DEFAULT_LIFE_S, gt=0, le=LONGEST_LIFE_S, description="Seconds for which it holds")


class JoinBody(StrictBody):
    """A host that joins."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"token": "wsj_01_" + "0f" * 32, "host": "gpu7", "version": "0.1.0", "revision": "0011"}]
        }
    )

    token: str = Field(min_length=1, max_length=256, description="Of an invitation (warpsmith workers invite)")
    host: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = Field(description="The host's name")
    version: str = Field(min_length=1, max_length=64, description="Of Warpsmith there")
    revision: str = Field(min_length=1, max_length=64, description="Of the database that it is made for")


@router.post(
    "/invites",
    status_code=201,
    summary="Invite hosts",
    responses=document_problems_with_body(InvalidInput, MissingSetting, StorageFull),
)
def create_invite(body: InviteBody, service: ServiceDependency) -> NewInvite:
    """Make a token with which hosts join as workers; it is shown this once. For administrators.

    A host that joins is given the addresses of broker and database with their passwords."""
    _read_addresses(service.settings)
    now = time.time()
    with service.db.writing() as session:
        row, token = invites.create_invite(session, body.name, body.uses, now + body.expires_in_s, now)
        audit.note_object(row.id)
    return NewInvite(**make_document(InviteDocument, row).model_dump(), token=token)


@router.get("/invites", summary="List invitations")
def list_invites(service: ServiceDependency) -> Page[InviteDocument]:
    """List invitations without their tokens, newest first; at most 1000, on one page. For administrators."""
    with service.db.reading() as session:
        rows = session.scalars(select(InviteRow).order_by(InviteRow.created_at.desc(), InviteRow.id).limit(MOST))
        return Page(items=[make_document(InviteDocument, row) for row in rows])


@router.delete(
    "/invites/{invite_id}", summary="Revoke an invitation", responses=document_problems(NotFound, StorageFull)
)
def revoke_invite(invite_id: str, service: ServiceDependency) -> InviteDocument:
    """Make a token invalid at once. Hosts that have joined with it stay: change the passwords that they were given.

    For administrators."""
    with service.db.writing() as session:
        row = service.row(session, InviteRow, invite_id, "invite")
        row.revoked_at = row.revoked_at or time.time()
    return make_document(InviteDocument, row)


@router.post(
    "/join",
    summary="Join with a token",
    response_model=ConnectionDocument,
    responses=document_problems_with_body(KeyRequired, InviteEnded, WrongState, MissingSetting, StorageFull),
)
def join_host(body: JoinBody, request: Request, service: ServiceDependency) -> JSONResponse:
    """Exchange the token of an invitation for what a worker needs. Needs no API key.

    401 for an unknown token, 403 for one that has ended, 409 for a version that does not work with this service's;
    such a refusal uses nothing of the token."""
    now = time.time()
    invite = invites.find_invite(service.db, body.token)
    if invite is None:
        raise KeyRequired("token: found an unknown one, expected that of an invitation (warpsmith workers invite)")
    entry = audit.current()
    if entry is not None:
        entry.action, entry.object_id, entry.key_name = request.scope["route"].name, invite.id, body.host
    ended = invites.describe_end(invite, now)
    if ended is not None:
        raise InviteEnded(f"token: found {ended}, expected one that holds (warpsmith workers invite)")
    _, revision = service.db.revision()
    own_version = version("warpsmith")
    mismatch = find_mismatch(own_version, body.version, revision, body.revision)
    if mismatch is not None:
        raise WrongState(mismatch)
    broker_url, database_url = _read_addresses(service.settings)
    with service.db.writing() as session:
        if not invites.use_invite(session, invite.id, now):
            raise InviteEnded("token: found one that another host has just used, expected one that holds")
    document = ConnectionDocument(
        broker_url=broker_url,
        database_url=database_url,
        settings=_list_shared(service),
        version=own_version,
        revision=revision,
    )
    return JSONResponse(document.model_dump())


def _list_shared(service: Service) -> dict[str, str]:
    found = {name: getattr(service.settings, name) for name in SHARED}
    prefix: str = Settings.model_config["env_prefix"]
    return {prefix + name.upper(): str(value) for name, value in found.items() if value is not None}


def _read_addresses(settings: ServiceSettings) -> tuple[str, str]:
    """Return broker and database as other hosts reach them; raises MissingSetting where they cannot."""
    broker = _read_address(settings.join_broker_url, "join_broker_url", ("redis", "rediss", "amqp", "amqps"))
    database = _read_address(settings.join_database_url, "join_database_url", ("postgresql",))
    return broker, database


def _read_address(given: SecretStr | None, field: str, schemes: tuple[str, ...]) -> str:
    variable = f"WARPSMITH_{field.upper()}"
    expected = f"an address that other hosts reach: {' or '.join(f'{scheme}://' for scheme in schemes)}HOST..."
    if given is None:
        raise MissingSetting.one(variable, "not set", expected)
    try:
        urls = [make_url(address) for address in split_addresses(given.get_secret_value())]
        hosts = [host for url in urls for host in find_hosts(url) or [""]]
    except (ArgumentError, ValueError):
        raise MissingSetting.one(variable, "text that is no URL", expected) from None
    reached = all(host and not _is_loopback(host) for host in hosts)
    if not reached or any(url.get_backend_name() not in schemes for url in urls):
        shown = ";".join(move_password(url).render_as_string() for url in urls)
        raise MissingSetting.one(variable, shown, expected)
    return given.get_secret_value()


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified

"""Routes of a browser's session: sign in with an API key, and out."""

from __future__ import annotations

import time

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response
from pydantic import ConfigDict, Field

from warpsmith.kernels_db.store import audit
from warpsmith.service.api import auth, sessions
from warpsmith.service.api.bodies import StrictBody, StrictRoute
from warpsmith.service.api.context import Asker, Service, ServiceDependency
from warpsmith.service.documents.problems import (
    KeyRequired,
    StorageFull,
    WrongState,
    document_problems,
    document_problems_with_body,
)
from warpsmith.service.documents.system import SessionDocument

router = APIRouter(prefix=sessions.PATH, tags=["session"], route_class=StrictRoute)


class SignIn(StrictBody):
    """The key of a person who signs in."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"key": "wsk_0123456789ab_" + "0f" * 32}]})

    key: str = Field(min_length=1, max_length=256, description="An API key (warpsmith keys create)")


@router.get("", summary="Who am I?")
def get_session(request: Request, service: ServiceDependency, asker: Asker) -> SessionDocument:
    """Say whether keys are required, the caller's name, and the token for a session's changes.

    No API key needed."""
    return _make_document(service.settings.keys_required, asker, request.scope.get(sessions.SCOPE_SESSION))


@router.post(
    "",
    status_code=201,
    summary="Sign in",
    response_model=SessionDocument,
    responses=document_problems_with_body(KeyRequired, WrongState, StorageFull),
)
def sign_in(body: SignIn, request: Request, service: ServiceDependency) -> JSONResponse:
    """Begin a session: the answer sets its cookie, which scripts cannot read.

    401 for a key that is not valid, 409 where the server requires no keys."""
    if not service.settings.keys_required:
        raise WrongState("keys: found none required, expected no sign-in: every request is served")
    key = auth.valid_key(service.db, body.key)
    if key is None:
        raise KeyRequired("key: found an unknown or revoked key, expected one that is valid (warpsmith keys create)")
    entry = audit.current()
    if entry is not None:
        entry.team, entry.key_prefix, entry.key_name = key.team, key.prefix, key.name
    life_s = service.settings.session_life_s
    session = sessions.begin(service.db, key, time.time(), life_s)
    response = JSONResponse(_make_document(True, session.caller, session).model_dump(), 201)
    response.set_cookie(
        sessions.COOKIE,
        session.token,
        max_age=int(life_s),
        secure=_is_secure(request, service),
        httponly=True,
        samesite="strict",
    )
    return response


@router.delete(
    "", status_code=204, summary="Sign out", response_class=Response, responses=document_problems(StorageFull)
)
def sign_out(request: Request, service: ServiceDependency) -> Response:
    """End the request's session; without one, nothing happens."""
    session: sessions.Session | None = request.scope.get(sessions.SCOPE_SESSION)
    if session is not None:
        sessions.end(service.db, session)
    response = Response(status_code=204)
    response.delete_cookie(sessions.COOKIE, secure=_is_secure(request, service), httponly=True, samesite="strict")
    return response


def _is_secure(request: Request, service: Service) -> bool:
    chosen = service.settings.secure_cookies
    return request.url.scheme == "https" if chosen is None else chosen


def _make_document(keys_required: bool, caller: auth.Caller, session: sessions.Session | None) -> SessionDocument:
    known = not keys_required or caller is not auth.LOCAL
    return SessionDocument(
        keys_required=keys_required,
        name=caller.name,
        team=caller.team if known else None,
        scopes=[scope for scope in auth.SCOPES if caller.has(scope)] if known else [],
        csrf_token=None if session is None else session.csrf_token,
        expires_at=None if session is None else session.expires_at,
    )

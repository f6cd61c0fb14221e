"""Conversion of exceptions to the problems that answer them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel
from sqlalchemy import exc
from sqlalchemy.exc import InterfaceError, OperationalError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors, shown
from warpsmith.kernels_db.spec.near_misses import few_suggestions
from warpsmith.kernels_db.store import db
from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.problems import (
    DatabaseUnavailable,
    InvalidInput,
    InvalidSpec,
    MethodNotAllowed,
    NotFound,
    Problem,
    QuotaReached,
    StorageFull,
    field_errors,
)
from warpsmith.service.documents.quotas import QuotaDocument
from warpsmith.workers import steps


def convert_spec_error(error: SpecError | SpecErrors, prefix: str = "") -> InvalidSpec:
    """Convert the error of a bad op spec; `prefix` is its path in the body, for example `op.`."""
    errors = error.errors if isinstance(error, SpecErrors) else [error]
    return InvalidSpec(
        [FieldError(field=prefix + e.field, found=shown(e.found), expected=e.expected, line=e.line) for e in errors]
    )


def convert_error(error: Exception) -> Problem | None:  # noqa: PLR0911 - one line for each kind of error
    """Convert `error` to a problem; None where the fault is ours."""
    match error:
        case Problem():
            return error
        case db.StorageFull():
            return StorageFull()
        case OperationalError() | InterfaceError() | exc.TimeoutError():
            why = "unreachable, locked or without its schema (see /readyz)"
            return DatabaseUnavailable(f"The database cannot be used now: {why}. Nothing was stored.")
        case SpecError() | SpecErrors():
            return convert_spec_error(error)
        case steps.QuotaReached():
            return _convert_quota(error)
        case steps.UnknownSearch():
            return NotFound(f"search: found {shown(error.search_id)!r}, which was deleted meanwhile")
    return _convert_http_error(error) if isinstance(error, HTTPException) else None


def _convert_quota(error: steps.QuotaReached) -> QuotaReached:
    usage = error.usage
    document = QuotaDocument(
        team=usage.team, quota=usage.quota, used=usage.used, limit=usage.limit, resets_at=usage.resets_at
    )
    return QuotaReached(f"{usage.describe()}; nothing was stored", document, time.time())


def _convert_http_error(error: HTTPException) -> Problem | None:
    """Convert an error of the framework to a problem."""
    match error.status_code:
        case 404:
            return NotFound("There is nothing under this path")
        case 405:
            return MethodNotAllowed("This path does not take this method", headers=error.headers)
        case 400:
            return InvalidInput.one("body", None, "a body that can be parsed")
    return None


def install(app: FastAPI) -> None:
    """Make the app answer errors of the framework with problems.

    Other errors go on to the request log, which converts them too.
    """
    handler: Callable[[Request, Any], Awaitable[Response]] = _handle
    app.add_exception_handler(HTTPException, handler)
    app.add_exception_handler(RequestValidationError, handler)
    app.add_exception_handler(steps.QuotaReached, handler)
    app.add_exception_handler(steps.UnknownSearch, handler)


async def _handle(request: Request, error: Exception) -> Response:
    problem = _convert_validation(request, error) if isinstance(error, RequestValidationError) else convert_error(error)
    if problem is None:
        raise error
    if isinstance(problem, MethodNotAllowed):
        # The first time the OpenAPI document is made, which takes a second.
        problem = await run_in_threadpool(_refuse_method, request)
    return problem.response()


def _convert_validation(request: Request, error: RequestValidationError) -> InvalidInput:
    """Convert the framework's errors; the route's own model of its body tells which fields there are."""
    field = getattr(request.scope.get("route"), "body_field", None)
    annotation = None if field is None else field.field_info.annotation
    model = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
    found = []
    with few_suggestions():
        for one in error.errors():
            found += field_errors([one], model if one["loc"][0] == "body" else None, error.body)
    return InvalidInput(found)


def _refuse_method(request: Request) -> MethodNotAllowed:
    """Make the problem with every method of the path; the framework names one route's alone."""
    methods: set[str] = set()
    paths = request.app.openapi()["paths"]
    here = [request.url.path] if request.url.path in paths else paths  # `/estimate` is no search's id
    for path in here:
        if compile_path(path)[0].fullmatch(request.url.path):
            methods |= {method.upper() for method in paths[path]}
    allowed = ", ".join(sorted(methods or {"GET"}))  # pages are not in the document, and are only read
    detail = f"method: found {request.method}, expected {allowed}"
    return MethodNotAllowed(detail, headers={"Allow": allowed})

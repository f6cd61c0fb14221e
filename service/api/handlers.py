"""From any exception to the problem that answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from warpsmith.kernels_db.spec.errors import SpecError, SpecErrors, shown
from warpsmith.kernels_db.store.db import StorageFull as DatabaseFull
from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.problems import (
    DatabaseUnavailable,
    InvalidInput,
    InvalidSpec,
    MethodNotAllowed,
    NotFound,
    Problem,
    StorageFull,
    field_errors,
)


def spec_problem(error: SpecError | SpecErrors, prefix: str = "") -> InvalidSpec:
    """The problem of a bad op spec; `prefix` says where in the body it stands, for example `op.`."""
    errors = error.errors if isinstance(error, SpecErrors) else [error]
    return InvalidSpec([FieldError(field=prefix + e.field, found=shown(e.found), expected=e.expected) for e in errors])


def as_problem(error: Exception) -> Problem | None:
    """The problem of `error`; None where the fault is ours."""
    match error:
        case Problem():
            return error
        case DatabaseFull():
            return StorageFull()
        case OperationalError() | InterfaceError() | PoolTimeout():
            why = "unreachable, locked or without its schema (see /readyz)"
            return DatabaseUnavailable(f"The database cannot be used now: {why}. Nothing was stored.")
        case SpecError() | SpecErrors():
            return spec_problem(error)
        case RequestValidationError():
            return InvalidInput(field_errors(error.errors()))
    return _from_http(error) if isinstance(error, HTTPException) else None


def _from_http(error: HTTPException) -> Problem | None:
    """The problem of what the framework raises itself."""
    match error.status_code:
        case 404:
            return NotFound("There is nothing under this path")
        case 405:
            return MethodNotAllowed("This path does not take this method", headers=error.headers)
        case 400:
            return InvalidInput.one("body", None, "a body that can be parsed")
    return None


def install(app: FastAPI) -> None:
    """Answer what the framework raises with problems; everything else goes on to the request log, which asks
    `as_problem` too."""
    handler: Callable[[Request, Any], Awaitable[Response]] = _handle
    app.add_exception_handler(HTTPException, handler)
    app.add_exception_handler(RequestValidationError, handler)


async def _handle(request: Request, error: Exception) -> Response:
    problem = as_problem(error)
    if problem is None:
        raise error
    if isinstance(problem, MethodNotAllowed):
        problem = _method_not_allowed(request)
    return problem.response()


def _method_not_allowed(request: Request) -> MethodNotAllowed:
    """With every method of the path: the framework names those of the first route that it found."""
    methods: set[str] = set()
    paths = request.app.openapi()["paths"]
    here = [request.url.path] if request.url.path in paths else paths  # `/estimate` is no search's id
    for path in here:
        if compile_path(path)[0].fullmatch(request.url.path):
            methods |= {method.upper() for method in paths[path]}
    allowed = ", ".join(sorted(methods or {"GET"}))  # pages are not in the document, and are only read
    detail = f"method: found {request.method}, expected {allowed}"
    return MethodNotAllowed(detail, headers={"Allow": allowed})

"""Errors of the API, as RFC 9457 problem details.

    Problem (application/problem+json)
    ├── MalformedBody        400  not UTF-8, not JSON or YAML: names line and column
    ├── KeyRequired          401  no API key, an unknown or a revoked one
    ├── HostRefused          403  a Host header that a server bound to loopback does not serve (DNS rebinding)
    ├── CrossSite            403  a change that a web page of another site asks for (CSRF)
    ├── TokenRequired        403  a change by a session's cookie without the session's CSRF token
    ├── Forbidden            403  the key's scopes, or its team, do not allow it
    ├── InviteEnded          403  a token of an invitation that was used up or revoked, or has expired
    ├── NotFound             404  no such path, or no row with this id
    ├── MethodNotAllowed     405  the path exists, the method does not
    ├── BodyTooSlow          408  the body did not come in time
    ├── WrongState           409  the resource's state does not allow it (cancel a finished search)
    │   └── AskClosed        409  an ask that takes no answer any more: names who was first, or the ask that replaced it
    ├── BodyTooLarge         413  refused before the rest of the body is read
    ├── UnsupportedMedia     415  another Content-Type than those listed
    ├── InvalidInput         422  a field is wrong: `errors` lists field, found, expected
    │   ├── InvalidSpec      422  an op spec is wrong
    │   ├── NotExpressible   422  an export format has no room for a part of the op
    │   ├── InvalidPool      422  a pool file is wrong, or belongs to another op
    │   ├── MissingSetting   422  the request needs a setting that this server lacks
    │   └── IdempotencyReuse 422  an Idempotency-Key that came before with another body
    ├── QuotaReached         429  the team has nothing left of a quota: says what is used, the limit, when it resets
    ├── TooManyStreams       429  more open event streams than this server serves
    ├── TooManyImports       429  the team has as many uploads that wait or are read as it may have
    ├── ImportLost           500  of an import alone: its worker died each time that it was tried; send it again
    ├── InternalError        500  a bug; logged under `error_id`, nothing else leaves the server
    ├── NotReady             503  /readyz: names the parts that fail
    ├── TooManyBodies        503  other requests' bodies fill the memory that is meant for them; try again
    ├── DatabaseUnavailable  503  the database cannot be reached or stays locked; try again
    └── StorageFull          507  the disk is full; nothing was stored, try again once there is room

`type` is a stable URN; programs branch on it, never on `title` or `detail`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, ClassVar

from fastapi import HTTPException
from fastapi.responses import Response
from pydantic import BaseModel

from warpsmith.kernels_db.spec.errors import placed, shown
from warpsmith.kernels_db.spec.field_errors import expected_in, expected_of
from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.quotas import QuotaDocument

MEDIA_TYPE = "application/problem+json"
URN = "urn:warpsmith:problem:"


class Problem(HTTPException):
    """Base of every problem; raise a subclass anywhere in a request."""

    code: ClassVar[int] = 500
    slug: ClassVar[str] = "internal-error"
    title: ClassVar[str] = "Internal error"

    def __init__(
        self, detail: str, *, errors: Sequence[FieldError] = (), headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status_code=self.code, detail=detail, headers=dict(headers or {}))
        self.errors = list(errors)
        self.error_id: str | None = None

    def document(self) -> dict[str, Any]:
        """Return the problem document."""
        document: dict[str, Any] = {
            "type": URN + self.slug,
            "title": self.title,
            "status": self.code,
            "detail": self.detail,
        }
        if self.errors:
            document["errors"] = [
                error.model_dump(exclude={"line"} if error.line is None else None) for error in self.errors
            ]
        if self.error_id:
            document["error_id"] = self.error_id
        return document

    def response(self) -> Response:
        """Make a response of the problem."""
        body = json.dumps(self.document(), ensure_ascii=True, allow_nan=False)
        return Response(body, self.code, headers=dict(self.headers or {}), media_type=MEDIA_TYPE)


class MalformedBody(Problem):
    code, slug, title = 400, "malformed-body", "The body cannot be parsed"


class KeyRequired(Problem):
    code, slug, title = 401, "key-required", "An API key is required"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"WWW-Authenticate": 'Bearer realm="warpsmith"'})


class HostRefused(Problem):
    code, slug, title = 403, "host-refused", "This host name is not served"


class CrossSite(Problem):
    code, slug, title = 403, "cross-site", "A change from another site"


class TokenRequired(Problem):
    code, slug, title = 403, "csrf-token", "The session's CSRF token is required"


class Forbidden(Problem):
    code, slug, title = 403, "forbidden", "The key does not allow this"


class InviteEnded(Problem):
    code, slug, title = 403, "invite-ended", "The invitation has ended"


class NotFound(Problem):
    code, slug, title = 404, "not-found", "Not found"


class MethodNotAllowed(Problem):
    code, slug, title = 405, "method-not-allowed", "Method not allowed"


class WrongState(Problem):
    code, slug, title = 409, "wrong-state", "The state does not allow this"

    @classmethod
    def one(cls, field: str, found: object, expected: str) -> WrongState:
        """Make the problem of a single field, as InvalidInput does."""
        error = FieldError(field=field, found=shown(found), expected=expected)
        return cls(f"{field}: found {error.found}, expected {expected}", errors=[error])


class AskClosed(WrongState):
    slug, title = "ask-closed", "The ask takes no answer any more"

    def __init__(
        self,
        detail: str,
        *,
        replaced_by: str | None = None,
        answered_by: str | None = None,
        answered_at: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.members = {"replaced_by": replaced_by, "answered_by": answered_by, "answered_at": answered_at}

    def document(self) -> dict[str, Any]:
        """Return the problem document, with the answer or the ask that replaced it."""
        return super().document() | {name: value for name, value in self.members.items() if value is not None}


class BodyTooLarge(Problem):
    code, slug, title = 413, "body-too-large", "The body is too large"


class BodyTooSlow(Problem):
    code, slug, title = 408, "body-too-slow", "The body did not come in time"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"Connection": "close"})


class TooManyBodies(Problem):
    code, slug, title = 503, "too-many-bodies", "Too many bodies at once"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"Retry-After": "5", "Connection": "close"})


class UnsupportedMedia(Problem):
    code, slug, title = 415, "unsupported-media-type", "Unsupported media type"


class InvalidInput(Problem):
    code, slug, title = 422, "invalid-input", "A field is wrong"

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__(
            "; ".join(sentence(error) for error in errors[:5]) + ("; ..." if len(errors) > 5 else ""),
            errors=errors,
        )

    @classmethod
    def one(cls, field: str, found: object, expected: str) -> InvalidInput:
        """Make the problem of a single field."""
        return cls([FieldError(field=field, found=shown(found), expected=expected)])


class InvalidSpec(InvalidInput):
    slug, title = "invalid-spec", "The op spec is wrong"


class NotExpressible(InvalidInput):
    slug, title = "not-expressible", "This export format cannot say the op"


class InvalidPool(InvalidInput):
    slug, title = "invalid-pool", "The pool is wrong"


class MissingSetting(InvalidInput):
    slug, title = "missing-setting", "This server lacks a setting"


class IdempotencyReuse(InvalidInput):
    slug, title = "idempotency-key-reused", "The Idempotency-Key came before with another body"


class QuotaReached(Problem):
    code, slug, title = 429, "quota-reached", "The team has reached a quota"

    def __init__(self, detail: str, quota: QuotaDocument, now: float) -> None:
        resets_at = quota.resets_at
        super().__init__(detail, headers={} if resets_at is None else {"Retry-After": str(math.ceil(resets_at - now))})
        self.quota = quota

    def document(self) -> dict[str, Any]:
        """Return the problem document, with the quota."""
        return super().document() | {"quota": self.quota.model_dump()}


class TooManyStreams(Problem):
    code, slug, title = 429, "too-many-streams", "Too many open event streams"


class TooManyImports(Problem):
    code, slug, title = 429, "too-many-imports", "Too many open imports"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"Retry-After": "10"})


class ImportLost(Problem):
    slug, title = "import-lost", "The import was lost"


class InternalError(Problem):
    def __init__(self, error_id: str) -> None:
        super().__init__(f"The server failed; its log says more under {error_id}")
        self.error_id = error_id


class NotReady(Problem):
    code, slug, title = 503, "not-ready", "Not ready"


class DatabaseUnavailable(Problem):
    code, slug, title = 503, "database-unavailable", "The database is unavailable"

    def __init__(self, detail: str) -> None:
        super().__init__(detail, headers={"Retry-After": "2"})


class StorageFull(Problem):
    code, slug, title = 507, "storage-full", "The storage is full"

    def __init__(self) -> None:
        super().__init__("The database has no room; nothing was stored. Free space and send the request again.")


def sentence(error: FieldError) -> str:
    """Format a bad field: `inputs[1].dtype: found 'float31', expected one of ...`."""
    return f"{placed(error.field, error.line)}: found {error.found!r}, expected {error.expected}"


def field_path(location: Sequence[int | str]) -> str:
    """Write Pydantic's location as a path: ("body", "inputs", 1, "dtype") is `inputs[1].dtype`.

    Places other than the body keep their name in front.
    """
    path = ""
    for part in _within_body(location):
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path or "body"


def _within_body(location: Sequence[int | str]) -> Sequence[int | str]:
    return location[1:] if len(location) > 1 and location[0] == "body" else location


def field_errors(
    errors: Sequence[Mapping[str, Any]], model: type[BaseModel] | None = None, document: Any = None
) -> list[FieldError]:
    """Convert Pydantic's errors of validating `document` as `model`, where that is known, to ours."""
    found = []
    for error in errors:
        value = None if error["type"] == "missing" else shown(error.get("input"))
        if model is None:
            expected = expected_of(error)
        else:
            expected = expected_in({**error, "loc": _within_body(error["loc"])}, model, document)
        found.append(FieldError(field=field_path(error["loc"]), found=value, expected=shown(expected)))
    return found


def document_problems(*problems: type[Problem]) -> dict[int | str, dict[str, Any]]:
    """Build the OpenAPI `responses` of these problems; those of one status share an entry."""
    by_status: dict[int, list[type[Problem]]] = {}
    for problem in problems:
        by_status.setdefault(problem.code, []).append(problem)
    return {
        status: {
            "description": f"{HTTPStatus(status).phrase}: "
            + "; ".join(f"{kind.title} (`{URN}{kind.slug}`)" for kind in kinds),
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
        }
        for status, kinds in by_status.items()
    }


def document_problems_with_body(*problems: type[Problem]) -> dict[int | str, dict[str, Any]]:
    """Build the same for a route with a JSON body, with the problems that a body can have."""
    of_body: list[type[Problem]] = [MalformedBody, BodyTooLarge, UnsupportedMedia, InvalidInput]
    return document_problems(*sorted([*of_body, *problems], key=lambda problem: problem.code))

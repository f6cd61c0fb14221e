"""Read request bodies: strict JSON, and the Content-Types that a route takes.

Errors name line and column.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from email.message import Message
from functools import lru_cache
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool

from warpsmith.kernels_db.job.strict_json import (
    NotJson,
    count_values,
    expected_scalar,
    is_storable,
    read_strictly,
    walk,
)
from warpsmith.kernels_db.spec.errors import shown
from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.problems import InvalidInput, MalformedBody, UnsupportedMedia, field_path

JSON = "application/json"
DEEPEST = 64
"""Deepest nesting that is accepted.

No document of ours is that deep, and databases and clients parse recursively.
"""

MOST_VALUES = 50_000
"""Values of a JSON body, keys included: more than those of any op spec."""

PARSED_AT_ONCE = 16 * 1024
"""Bytes of a body that is parsed in the event loop, in less time than a thread needs to start."""


def parse_json(data: bytes) -> Any:
    """Return the document in `data`.

    Raises MalformedBody (line, column) or, for values that JSON cannot carry or no database stores, InvalidInput.
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"The body is not UTF-8: byte {error.start} is {data[error.start]:#04x}") from error
    try:
        document = read_strictly(text, DEEPEST)
    except NotJson as error:
        raise MalformedBody(f"The body is not JSON that can be read: {error}") from error
    # Each value has a character of its own, so a short text has few values.
    if len(text) > MOST_VALUES and (found := count_values(document, MOST_VALUES)) > MOST_VALUES:
        raise InvalidInput.one("body", f"{found} values", f"at most {MOST_VALUES} values, keys included")
    check_storable(document)
    return document


def check_storable(document: Any, root: str = "body") -> None:
    """Raise InvalidInput where a value cannot be stored.

    That is: NUL or half a surrogate pair in text, an infinite number, too deep a nesting.
    """
    if is_storable(document, DEEPEST):
        return
    for location, level, value in walk(document):
        if level > DEEPEST:
            path = (root, *map(shown, location[:7]))
            expected = f"at most {DEEPEST} levels of nesting"
            raise InvalidInput.one(field_path(path) + "...", f"{level} levels", expected)
        if not isinstance(value, dict | list) and (refused := expected_scalar(value)) is not None:
            raise InvalidInput.one(field_path((root, *map(shown, location))), value, refused)


def content_type(request: Request) -> str:
    """Return the media type of the body, in lower case and without parameters.

    It is empty where none is given.
    """
    return _read_media_type(request.headers.get("content-type", ""))


@lru_cache(maxsize=16)
def _read_media_type(given: str) -> str:
    """Read the value of a header; requests have the same few."""
    message = Message()
    message["content-type"] = given
    return message.get_content_type() if "/" in given else given.lower()


@dataclass(frozen=True)
class RawBody:
    """A body as it came."""

    data: bytes
    media_type: str

    def require(self, *media_types: str) -> None:
        """Raise UnsupportedMedia unless the body is of one of these types."""
        if self.media_type not in media_types:
            raise UnsupportedMedia(
                f"Content-Type: found {self.media_type or 'none'}, expected {' or '.join(media_types)}"
            )


async def raw_body(request: Request) -> RawBody:
    """Return the body as it came; a dependency.

    FastAPI keeps the body, so reading it beside a parsed body costs nothing.
    """
    return RawBody(await request.body(), content_type(request))


Body = Annotated[RawBody, Depends(raw_body)]


class StrictBody(BaseModel):
    """A JSON body: nothing is converted, and unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class _StrictRequest(Request):
    async def json(self) -> Any:
        data = await self.body()
        return parse_json(data) if len(data) <= PARSED_AT_ONCE else await run_in_threadpool(parse_json, data)


class StrictRoute(APIRoute):
    """A route whose JSON body goes through `parse_json`.

    It refuses other Content-Types with 415.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()
        takes_json = self.body_field is not None

        async def strict(request: Request) -> Response:
            if takes_json:
                body = await raw_body(request)
                if not body.data:
                    raise InvalidInput([FieldError(field="body", found=None, expected="a JSON document")])
                body.require(JSON)
            strict_request = _StrictRequest(request.scope, request.receive)
            if takes_json:
                strict_request._body = body.data  # read once; a second read of the stream would find it consumed
            return await handler(strict_request)

        return strict

"""Reading request bodies: strict JSON with errors that name line and column, and the Content-Types that a route
takes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from email.message import Message
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from warpsmith.service.documents.field_error import FieldError
from warpsmith.service.documents.problems import InvalidInput, MalformedBody, UnsupportedMedia, brief, field_path

JSON = "application/json"
DEEPEST = 64
"""Nesting above this is refused: nothing of ours is that deep, and databases and clients parse recursively."""


def parse_json(data: bytes) -> Any:
    """The document in `data`. Raises MalformedBody (line, column) or, for values that JSON cannot carry or no
    database stores, InvalidInput."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedBody(f"The body is not UTF-8: byte {error.start} is {data[error.start]:#04x}") from error
    try:
        document = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        raise MalformedBody(f"The body is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except (RecursionError, ValueError) as error:  # ValueError: NaN, or an integer of thousands of digits
        reason = "it nests too deeply" if isinstance(error, RecursionError) else str(error)
        raise MalformedBody(f"The body is not JSON that can be read: {reason}") from error
    check_storable(document)
    return document


def check_storable(document: Any, root: str = "body") -> None:
    """Raise InvalidInput where a value cannot be stored: NUL or half a surrogate pair in text, an infinite number,
    too deep a nesting."""
    for path, depth, value in _walk(document, (root,)):
        if depth > DEEPEST:
            raise InvalidInput.one(
                field_path(path[:8]) + "...", f"{depth} levels", f"at most {DEEPEST} levels of nesting"
            )
        if isinstance(value, str) and ("\0" in value or any("\ud800" <= char <= "\udfff" for char in value)):
            raise InvalidInput.one(field_path(path), value, "text without NUL characters and unpaired surrogates")
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidInput.one(field_path(path), value, "a finite number")
        if isinstance(value, int) and abs(value) >= 2**63:
            raise InvalidInput.one(field_path(path), value, "an integer of at most 64 bits")


def _walk(document: Any, root: tuple[int | str, ...]) -> Iterator[tuple[tuple[int | str, ...], int, Any]]:
    """Every value, and every key as a value of its own, without recursion."""
    pending: list[tuple[tuple[int | str, ...], int, Any]] = [(root, 0, document)]
    while pending:
        path, depth, value = pending.pop()
        yield path, depth, value
        if depth > DEEPEST:
            return
        if isinstance(value, dict):
            pending.extend(((*path, "(name)"), depth, key) for key in value)
            pending.extend(((*path, str(brief(key))), depth + 1, item) for key, item in value.items())
        elif isinstance(value, list):
            pending.extend(((*path, index), depth + 1, item) for index, item in enumerate(value))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the name {brief(name)!r} stands twice in one object")
        members[name] = value
    return members


def content_type(request: Request) -> str:
    """The media type of the body, lower case and without parameters; empty where none is given."""
    message = Message()
    message["content-type"] = request.headers.get("content-type", "")
    given = request.headers.get("content-type")
    return message.get_content_type() if given and "/" in given else (given or "").lower()


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
    """Dependency: the body as it came (FastAPI keeps it, so reading it beside a parsed body costs nothing)."""
    return RawBody(await request.body(), content_type(request))


Body = Annotated[RawBody, Depends(raw_body)]


class _StrictRequest(Request):
    async def json(self) -> Any:
        return parse_json(await self.body())


class StrictRoute(APIRoute):
    """A route whose JSON body goes through `parse_json`, and that refuses other Content-Types with 415."""

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

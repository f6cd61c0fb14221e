"""Middleware of every route: request log, headers, host and origin, API key, body limit.

This is their order, the outermost first. Plain ASGI, so that event streams pass through unbuffered. Each answers with
its own problem document.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from typing import Any

import structlog
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from warpsmith.kernels_db.store.db import Database
from warpsmith.service.api import auth, sessions
from warpsmith.service.api.handlers import convert_error
from warpsmith.service.documents.authorization import read_bearer_key
from warpsmith.service.documents.problems import (
    BodyTooLarge,
    BodyTooSlow,
    CrossSite,
    DatabaseUnavailable,
    HostRefused,
    InternalError,
    InvalidInput,
    KeyRequired,
    Problem,
    TokenRequired,
    TooManyBodies,
)

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths for orchestrators, open without an API key and under any Host: they ask by an address of their own.

They show only the names of parts that fail.
"""

JOINING = "/v1/workers/join"
SIGNING_IN = frozenset({("GET", sessions.PATH), ("HEAD", sessions.PATH), ("POST", sessions.PATH), ("POST", JOINING)})
"""Requests that come before there is a key or a session: browsers that sign in, hosts that join."""

CSRF_HEADER = "X-CSRF-Token"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
DOCUMENT_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""Policy for answers that are no page: a browser that shows one runs and loads nothing."""

LONGEST_REQUEST_ID = 64

Observe = Callable[[str, str, int, float], None]
"""Callback for method, route template, status and seconds of an answered request."""

log = structlog.get_logger("service.requests")


class RequestLog:
    """Logs and measures every request.

    Turns uncaught errors into a 500 with an id that the log explains.
    """

    def __init__(self, app: ASGIApp, observe: Observe) -> None:
        self.app = app
        self.observe = observe

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = 0
        request_id = _choose_request_id(scope)

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self.app(scope, receive, note_status)
            except Exception as error:
                if status:
                    log.exception("request.broken_off", method=scope["method"], path=scope["path"])
                    raise
                await self._answer(error, scope, receive, note_status)
            finally:
                seconds = time.perf_counter() - started
                self.observe(scope["method"], find_route_template(scope), status, seconds)
                log.info(
                    "request", method=scope["method"], path=scope["path"], status=status, ms=round(1000 * seconds, 1)
                )

    @staticmethod
    async def _answer(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        problem = convert_error(error)
        if problem is None:
            error_id = uuid.uuid4().hex[:12]
            log.exception("request.failed", error_id=error_id, method=scope["method"], path=scope["path"])
            problem = InternalError(error_id)
        await problem.response()(scope, receive, send)


class ResponseHeaders:
    """Adds headers that keep a browser from running, framing or guessing anything."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def harden(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", DOCUMENT_POLICY)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
                headers["Cross-Origin-Opener-Policy"] = "same-origin"
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self.app(scope, receive, harden if scope["type"] == "http" else send)


class Gatekeeper:
    """Refuses requests that a web page of another site could make a browser send.

    They have a foreign Host (DNS rebinding), or are changes from another site. `origins` are further host names whose
    pages may change something, such as that of a proxy with a public name of its own.
    """

    def __init__(self, app: ASGIApp, served_hosts: frozenset[str] | None, origins: frozenset[str]) -> None:
        self.app = app
        self.served_hosts = served_hosts
        self.origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._problem(scope) if scope["type"] == "http" else None
        if problem is not None:
            await problem.response()(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _problem(self, scope: Scope) -> Problem | None:
        headers = Headers(scope=scope)
        host = cut_port(headers.get("host", ""))
        if self.served_hosts is not None and host not in self.served_hosts and scope["path"] not in OPEN_PATHS:
            return HostRefused(f"Host: found {host[:200]!r}, expected one of {', '.join(sorted(self.served_hosts))}")
        if scope["method"] in SAFE_METHODS:
            return None
        site = headers.get("sec-fetch-site", "same-origin")
        if site not in {"same-origin", "none"}:
            return CrossSite(f"Sec-Fetch-Site: found {site[:40]!r}, expected a request of this origin")
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin.lower(), headers.get("host", "").lower()):
            return CrossSite(f"Origin: found {origin[:200]!r}, expected this server's own")
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        """Compare host and port alone: behind a proxy that ends TLS the schemes differ."""
        scheme, _, authority = origin.partition("://")
        return scheme in {"http", "https"} and (authority == host or cut_port(authority) in self.origins)


class Breaker:
    """Refuses at once, with 503, what needs the database while the database does not answer.

    Each request would wait for it in a thread, until no thread is left for anything else.
    """

    def __init__(self, app: ASGIApp, hangs: Callable[[], bool], is_page: Callable[[str], bool]) -> None:
        self.app = app
        self.hangs = hangs
        self.is_page = is_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self.hangs() and not self._is_free(scope["path"]):
            problem = DatabaseUnavailable("The database does not answer (see /readyz). Nothing was stored.")
            await problem.response()(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _is_free(self, path: str) -> bool:
        return path in OPEN_PATHS or self.is_page(path)


class RequireKey:
    """Requires an API key, or the session of a browser that signed in with one.

    A browser adds the session's cookie by itself, so a change also needs the session's CSRF token, which only a page of
    this origin can read. Pages are open: they hold nothing until the API has answered them.
    """

    def __init__(self, app: ASGIApp, db: Database, is_page: Callable[[str], bool]) -> None:
        self.app = app
        self.db = db
        self.is_page = is_page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self.app(scope, receive, send)
            return
        method, path = scope["method"], scope["path"]
        if method in SAFE_METHODS and self.is_page(path):
            await self.app(scope, receive, send)
            return
        problem = await run_in_threadpool(self._identify, scope)
        if problem is not None and (method, path) not in SIGNING_IN:
            await problem.response()(scope, receive, send)
            return
        with structlog.contextvars.bound_contextvars(api_key=_name_of(scope)):
            await self.app(scope, receive, send)

    def _identify(self, scope: Scope) -> Problem | None:
        """Note the caller in `scope`, or return the problem; a key counts before a cookie."""
        headers = Headers(scope=scope)
        key = read_bearer_key(headers.get("authorization"))
        if key is not None:
            row = auth.valid_key(self.db, key)
            if row is not None:
                scope[auth.SCOPE_CALLER] = auth.identify(row)
                return None
            found = "an unknown or revoked key"
        else:
            token = sessions.read_token(headers.getlist("cookie"))
            held = None if token is None else sessions.find(self.db, token, time.time())
            if held is not None:
                if scope["method"] not in SAFE_METHODS and not held.has_token(headers.get(CSRF_HEADER)):
                    found = "another" if CSRF_HEADER in headers else "none"
                    return TokenRequired(
                        f"{CSRF_HEADER}: found {found}, expected the `csrf_token` of GET {sessions.PATH}"
                    )
                scope[auth.SCOPE_CALLER] = held.caller
                scope[sessions.SCOPE_SESSION] = held
                return None
            found = "none" if token is None else "a session that has ended"
        expected = "'Bearer wsk_...' (warpsmith keys create), or the cookie of a session"
        return KeyRequired(f"Authorization: found {found}, expected {expected}")


def _name_of(scope: Scope) -> str | None:
    caller: auth.Caller | None = scope.get(auth.SCOPE_CALLER)
    return None if caller is None else caller.name


class BodyLimit:
    """Refuses a body above the limit of its path with 413, and one that takes too long with 408.

    At once by its Content-Length, else as soon as the limit is passed. Smaller bodies are read here and passed on, so a
    route starts with the whole body. The bodies of all requests have `most_held` bytes of memory.
    """

    def __init__(self, app: ASGIApp, limit: Callable[[str], int], timeout_s: float, most_held: int) -> None:
        self.app = app
        self.limit = limit
        self.timeout_s = timeout_s
        self.most_held = most_held
        self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        limit = self.limit(scope["path"])
        declared = Headers(scope=scope).get("content-length", "0")
        if not (declared.isascii() and declared.isdigit()):
            problem: Problem = InvalidInput.one("header.Content-Length", declared, "a number of bytes")
            await problem.response()(scope, receive, send)
            return
        if int(declared) > limit:
            await _refuse_size(f"{declared} bytes", limit).response()(scope, receive, send)
            return
        body = _Body(self)
        try:
            try:
                async with asyncio.timeout(self.timeout_s):
                    await body.read(receive, limit)
            except ClientDisconnect:
                return  # the client has gone, and half a body is of no use
            except TimeoutError:
                found = f"{len(body.data)} bytes after {self.timeout_s:g} s"
                await BodyTooSlow(f"body: found {found}, expected all of it").response()(scope, receive, send)
                return
            except (BodyTooLarge, TooManyBodies) as refused:
                await refused.response()(scope, receive, send)
                return
            await self.app(scope, _replay(bytes(body.data), receive), send)
        finally:
            body.release()


class _Body:
    """A body that is being read, as a part of all that are held."""

    def __init__(self, owner: BodyLimit) -> None:
        self.data = bytearray()
        self._owner = owner
        self._counted = 0

    async def read(self, receive: Receive, limit: int) -> None:
        """Read the whole body; raises ClientDisconnect, BodyTooLarge, TooManyBodies."""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            self._add(message.get("body", b""))
            if len(self.data) > limit:
                raise _refuse_size(f"more than {limit} bytes", limit)
            more = message.get("more_body", False)

    def release(self) -> None:
        """Give the body's memory back."""
        self._owner.held -= self._counted
        self._counted = 0

    def _add(self, chunk: bytes) -> None:
        if self._owner.held + len(chunk) > self._owner.most_held:
            raise TooManyBodies("bodies: found no memory left for another one; try again when some are done")
        self._owner.held += len(chunk)
        self._counted += len(chunk)
        self.data += chunk


def _refuse_size(found: str, limit: int) -> BodyTooLarge:
    problem = BodyTooLarge(f"body: found {found}, expected at most {limit}")
    problem.headers = {"Connection": "close"}
    return problem


def _replay(body: bytes, receive: Receive) -> Receive:
    """Make a `receive` that gives the body once, then the server's own messages (a disconnect)."""
    given = False

    async def replay() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def cut_port(host: str) -> str:
    """Cut the port from a Host header: "[::1]:8420" is "[::1]"."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()


def find_route_template(scope: Scope) -> str:
    """Return the path with its parameters' names, so that metrics have one label for each route."""
    route: Any = scope.get("route")
    return getattr(route, "path", None) or "unmatched"


def _choose_request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get("x-request-id", "")
    if 0 < len(given) <= LONGEST_REQUEST_ID and given.isascii() and all(c.isalnum() or c in "-_." for c in given):
        return given
    return uuid.uuid4().hex[:16]

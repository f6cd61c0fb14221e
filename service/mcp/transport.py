"""Streamable HTTP for the MCP server, with host names, origins and keys as in the REST API.

A loopback address needs no key, unless the service requires one. Any other address is bound only in front of a service
that requires keys; every caller sends their own, and it is passed on to the service, which alone decides.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from warpsmith.service.client.errors import CommandError, ProblemError, ServiceUnreachableError, misuse
from warpsmith.service.client.http import Client
from warpsmith.service.documents.authorization import read_bearer_key
from warpsmith.service.documents.problems import KeyRequired, NotReady, Problem
from warpsmith.service.local.connections import LOOP, ConnectionLimits, make_protocol
from warpsmith.service.local.listening import listen
from warpsmith.service.settings import is_loopback

PATH = "/mcp"
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class Address:
    """Host and port to bind."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Parse `HOST:PORT`, with brackets around an IPv6 address; other text ends with misuse."""
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        bracketed = host.startswith("[") and host.endswith("]")
        if not (colon and bare and (":" not in bare or bracketed) and port.isascii() and port.isdigit()) or (
            int(port) > 65535
        ):
            misuse("--http", text, "HOST:PORT, such as 127.0.0.1:8421 or [::1]:8421 (port 0 takes a free one)")
        return cls(bare, int(port))

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)

    @property
    def wildcard(self) -> bool:
        """Whether it is every address of the machine, and so no host name."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    @property
    def name(self) -> str:
        """The host as part of a URL."""
        return f"[{self.host}]" if ":" in self.host else self.host


def make_security(address: Address, allowed_hosts: Sequence[str]) -> TransportSecuritySettings:
    """Make the settings of served host names and allowed origins.

    They keep web pages of other sites out (DNS rebinding). Ends with misuse where every address is bound and no host
    name is allowed.
    """
    names = [
        *allowed_hosts,
        *(LOOPBACK_NAMES if address.loopback else ()),
        *(() if address.wildcard else [address.name]),
    ]
    if not names:
        misuse("--http", address.host, "WARPSMITH_ALLOWED_HOSTS to name the host names that are served")
    hosts = [form for name in dict.fromkeys(names) for form in (name, f"{name}:*")]
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=True,
        allowed_hosts=hosts,
        allowed_origins=[f"http://{form}" for form in hosts],
    )


class KeyGate:
    """Middleware that passes on requests whose key the service admits; checks every request."""

    def __init__(self, app: ASGIApp, url: Callable[[], str]) -> None:
        self.app = app
        self._url = url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = await run_in_threadpool(self._find_problem, scope) if scope["type"] == "http" else None
        if problem is not None:
            await problem.response()(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _find_problem(self, scope: Scope) -> Problem | None:
        key = read_bearer_key(Headers(scope=scope).get("authorization"))
        try:
            with Client(self._url(), key) as client:
                if client.admits():
                    return None
        except (ServiceUnreachableError, ProblemError) as error:
            return NotReady(f"the service cannot be asked: {error}")
        found = "an unknown or revoked key" if key else "none"
        return KeyRequired(f"Authorization: found {found}, expected 'Bearer wsk_...' (warpsmith keys create)")


def check_exposure(address: Address, url: str) -> None:
    """Raise CommandError where others could reach a service that requires no key."""
    if address.loopback:
        return
    with Client(url) as client:
        if client.admits():
            raise CommandError(
                f"--http: found {address.host}, which others can reach, in front of a service that requires no keys; "
                "expected a loopback address, or a service that requires keys (WARPSMITH_AUTH=always)"
            )


def serve(
    server: MCPServer,
    address: Address,
    url: Callable[[], str],
    allowed_hosts: Sequence[str],
    announce: Callable[[str], None],
) -> None:
    """Serve until interrupted; calls `announce` with the URL once it listens.

    Raises CommandError where it cannot listen.
    """
    app = server.streamable_http_app(
        streamable_http_path=PATH, stateless_http=True, transport_security=make_security(address, allowed_hosts)
    )
    with _listen(address) as listener:
        config = uvicorn.Config(
            KeyGate(app, url), log_config=None, access_log=False, loop=LOOP, http=make_protocol(ConnectionLimits())
        )
        announce(f"http://{address.name}:{listener.getsockname()[1]}{PATH}")
        uvicorn.Server(config).run(sockets=[listener])


def _listen(address: Address) -> socket.socket:
    try:
        return listen(address.host, address.port)
    except OSError as error:
        raise CommandError(
            f"--http: found {address.name}:{address.port}, which cannot be bound ({error.strerror or error}); "
            "expected a free port"
        ) from None

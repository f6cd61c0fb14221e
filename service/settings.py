"""Settings of the API process: the shared ones, and those of the server."""

from __future__ import annotations

import ipaddress
from typing import Literal

from pydantic import Field, SecretStr

from warpsmith.workers.settings import Settings

METRICS_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
"""Variable of prometheus_client: the folder where processes that share a port keep what each has counted."""


def is_loopback(host: str) -> bool:
    """Check whether a host name or address is this machine's own, which no other reaches."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ServiceSettings(Settings):
    """`WARPSMITH_*` settings of the API; see `warpsmith.workers.settings` for the shared ones."""

    host: str = Field("127.0.0.1", description="Address to bind; any other than a loopback address requires API keys")
    port: int = Field(8420, ge=0, le=65535, description="Port to bind; 0 takes a free one")
    api_processes: int = Field(
        1,
        ge=1,
        le=64,
        description="API processes that share the port; limits of connections, bodies and streams are those of each",
    )
    auth: Literal["auto", "always"] = Field(
        "auto",
        description="API keys: auto requires them unless bound to loopback with no other name in `allowed_hosts`, "
        "always requires them there too",
    )
    secure_cookies: bool | None = Field(
        None,
        description="Whether cookies are for https alone: true behind a proxy that ends TLS; default is by the scheme "
        "that this process sees",
    )
    session_life_s: float = Field(
        12 * 3600.0, gt=0, description="Seconds after which a browser that signed in with a key must do so again"
    )
    allowed_hosts: list[str] = Field(
        default_factory=list,
        description="Host names (without port) that are served; bound to loopback, localhost is served besides, and "
        "probes answer under any name",
    )
    openai_key_at_workers: bool = Field(
        False,
        description="The model workers hold the endpoint's key, and this process does not: it need not ask for one",
    )
    max_body_bytes: int = Field(2 * 2**20, ge=1024, description="Largest request body, bytes")
    max_pool_bytes: int = Field(16 * 2**20, ge=1024, description="Largest pool upload, bytes")
    max_open_imports: int = Field(
        16, ge=1, description="Uploads of one team that may wait or be read at once; more are refused"
    )
    max_bodies_bytes: int = Field(
        256 * 2**20, ge=2**20, description="Memory for the bodies of all requests under way, bytes"
    )
    head_timeout_s: float = Field(10.0, gt=0, description="Seconds that a client may take to send a request's head")
    body_timeout_s: float = Field(60.0, gt=0, description="Seconds that a client may take to send a request's body")
    answer_timeout_s: float = Field(
        60.0, gt=0, description="Seconds after which a client that takes nothing of its answer is cut off"
    )
    keep_alive_s: float = Field(
        75.0,
        gt=0,
        description="Seconds after which a connection without a request is closed; more than clients and a proxy keep "
        "one, or it closes just as they use it again",
    )
    max_connections: int = Field(768, ge=1, description="Open connections; more are refused")
    max_connections_per_peer: int = Field(
        256, ge=1, description="Open connections from one address; behind a proxy as many as `max_connections`"
    )
    bundle_key: SecretStr | None = Field(
        None,
        description="Secret that signs bundles, at least 32 characters; default is one made once and kept in `home`; "
        "API processes on several hosts need the same",
    )
    join_broker_url: SecretStr | None = Field(
        None, description="Broker as workers on other hosts reach it; given to each host that joins"
    )
    join_database_url: SecretStr | None = Field(
        None, description="PostgreSQL as workers on other hosts reach it; given to each host that joins"
    )
    max_streams: int = Field(64, ge=1, description="Open event streams served at once")
    stream_poll_s: float = Field(0.5, gt=0, description="Seconds between two looks of an event stream at the database")
    stream_heartbeat_s: float = Field(
        15.0, gt=0, description="Seconds of silence after which an event stream sends a comment"
    )
    stream_life_s: float = Field(
        3600.0, gt=0, description="Seconds after which an event stream ends; clients resume with Last-Event-ID"
    )
    broker_timeout_s: float = Field(2.0, gt=0, description="Seconds that the API waits for an answer of the broker")
    database_timeout_s: float = Field(
        10.0, gt=0, description="Seconds without an answer after which the database counts as gone: requests get 503"
    )

    @property
    def loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)

    @property
    def keys_required(self) -> bool:
        """Whether requests need an API key.

        Bound to loopback too, where another name is served: a proxy brings requests of other machines.
        """
        proxied = not all(is_loopback(host.strip("[]")) for host in self.allowed_hosts)
        return self.auth == "always" or not self.loopback or proxied

    @property
    def served_hosts(self) -> frozenset[str] | None:
        """Host names that are served, lower case; None serves any."""
        named = {host.lower() for host in self.allowed_hosts}
        if self.loopback:
            named |= {"localhost", "127.0.0.1", "[::1]", self.host.lower()}
        return frozenset(named) or None

"""Documents of hosts that join as workers, and the rule which versions work together."""

from __future__ import annotations

from pydantic import BaseModel, Field


class InviteDocument(BaseModel):
    """An invitation of hosts to run workers, without its token."""

    id: str
    name: str
    uses: int = Field(description="Hosts that may join with it")
    used: int
    created_at: float
    expires_at: float
    revoked_at: float | None


class NewInvite(InviteDocument):
    """An invitation that was just made."""

    token: str = Field(description="Shown this once; `warpsmith worker --join` exchanges it")


class ConnectionDocument(BaseModel):
    """What a host that joins needs; passwords are in the addresses."""

    broker_url: str
    database_url: str
    settings: dict[str, str] = Field(description="Environment variables that are the same for all of the service")
    version: str
    revision: str


def find_mismatch(service: str, worker: str, expected_revision: str, worker_revision: str) -> str | None:
    """Say why a worker of this version cannot work for the service, and what to do; None where it can.

    Versions work together that differ in the last number alone, and on one revision of the database.
    """
    if service.split(".")[:2] != worker.split(".")[:2]:
        return (
            f"version: found {worker} on this host, expected the service's {service}; "
            f"install warpsmith {service} here, or upgrade the service"
        )
    if expected_revision != worker_revision:
        return (
            f"revision: found a worker for the database's revision {worker_revision}, expected one for "
            f"{expected_revision}; install the same warpsmith here as there, and run `warpsmith db upgrade` there"
        )
    return None

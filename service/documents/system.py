"""Documents of workers, sessions and health."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class WorkerDocument(BaseModel):
    """A worker process that reported in."""

    name: str
    role: str
    target: str | None
    alive: bool = Field(description="Whether it reported in lately")
    facts: dict[str, Any]
    started_at: float
    seen_at: float


class SessionDocument(BaseModel):
    """Whether this server requires keys, and the caller's name."""

    keys_required: bool = Field(description="false: every request is served without a key")
    name: str | None = Field(description="The name of the key that the request came or the session began with")
    team: str | None = Field(None, description="The caller's team; null without a key where keys are required")
    scopes: list[str] = Field(default_factory=list, description="What the caller may do: read, submit, steer, admin")
    csrf_token: str | None = Field(
        description="Of a session: the value of X-CSRF-Token, without which its cookie changes nothing"
    )
    expires_at: float | None = Field(description="When the session ends")


class Health(BaseModel):
    """The process answers."""

    status: Literal["alive"]
    version: str


class Ready(BaseModel):
    """Database and broker answer, and the database is at the revision of this program."""

    status: Literal["ready"]
    revision: str
    broker: str

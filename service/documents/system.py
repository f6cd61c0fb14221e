"""Documents of workers, sessions and health."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class WorkerDevice(BaseModel):
    """The device that a judge worker holds."""

    name: str
    memory_bytes: int | None = Field(description="Its memory; of a MIG slice, the slice's")


class WorkerStep(BaseModel):
    """A step that a worker has in hand, of a search that the caller may read."""

    kind: str = Field(description="ideate, code, judge or verify")
    search_id: str
    node_id: str


class WorkerDocument(BaseModel):
    """A worker process that reported in."""

    name: str
    host: str = Field(description="The part of the name after @")
    role: str
    target: str | None
    device: WorkerDevice | None = Field(description="Of a judge, as far as it said")
    compiles: dict[str, list[str]] = Field(
        description="Of a judge: the languages that it compiles, by target, or `cuda` for any GPU; what it lacks for "
        "others is among the facts"
    )
    version: str | None = Field(description="Of Warpsmith there")
    alive: bool = Field(description="Whether it reported in lately")
    state: Literal["working", "idle", "draining", "drained", "silent"] = Field(
        description="draining: it ends after what it has in hand; drained: it has ended so; silent: it does not report"
    )
    running: int = Field(description="Steps, profiles and re-verifications in hand, of any team")
    steps: list[WorkerStep] = Field(description="The steps among them, of searches that the caller may read")
    draining_since: float | None
    facts: dict[str, Any]
    started_at: float
    seen_at: float


class DrainedWorkers(BaseModel):
    """The workers that were told to drain."""

    names: list[str]


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

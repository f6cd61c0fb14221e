"""Documents of re-verifications."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class Measured(BaseModel):
    """A summary of a full verification of a kernel."""

    device: str | None
    versions: dict[str, str]
    fingerprint: str | None = Field(description="SHA-256 of device, versions and protocol")
    score: float | None = Field(
        description="Geometric mean over bench workloads, by weight, of the speed-up over the fastest one"
    )
    ci95: list[float] | None
    speedup: dict[str, float] = Field(
        description="Geometric mean over bench workloads, by weight, of the speed-up over each baseline"
    )
    speedup_ci95: dict[str, list[float]]


class ReverificationSummary(BaseModel):
    """One repeated verification of a stored kernel."""

    id: str
    kernel_id: str
    op_name: str
    target: str
    cause: Literal["asked", "schedule"]
    asked_by: str | None = Field(description="The name of the API key that asked")
    state: Literal["pending", "running", "done"]
    outcome: Literal["holds", "wrong", "slower", "uncompilable", "unknown"] | None = Field(
        description="Null until it is done. unknown: the judge could not tell, or the op or the host is at fault; it "
        "leaves the kernel's state as it was"
    )
    reason: str | None
    before: Measured | None = Field(description="The verification that the kernel was kept for; null until it is done")
    now: Measured | None = Field(description="The verification now; null where the judge gave no verdict")
    created_at: float
    started_at: float | None
    finished_at: float | None


class ReverificationDocument(ReverificationSummary):
    """A re-verification with the judge's verdict."""

    verdict: dict[str, Any] | None = Field(description="The verdict, whole; null where the judge gave none")


class ReverificationBatch(BaseModel):
    """Re-verifications that were asked for together."""

    asked: int = Field(description="How many are new")
    under_way: int = Field(description="How many were under way already; they are not judged twice")
    left: int = Field(description="Kernels that match and found no room under `limit`; the next request takes them")
    items: list[ReverificationSummary]

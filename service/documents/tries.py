"""Documents of tries: candidates that were judged for a node before it was answered."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from warpsmith.service.documents.profiles import ProfileRowDocument
from warpsmith.service.documents.workloads import WorkloadTimes

TryState = Literal["pending", "running", "done", "failed"]
TryLevel = Literal["compile", "screen", "profile"]


class TrySummary(BaseModel):
    """A try in the history of its node."""

    id: str
    node_id: str
    search_id: str
    level: TryLevel = Field(
        description="compile: gate and compilers, without the device; screen: bench workloads, a short timing; "
        "profile: where the time goes, without checks"
    )
    state: TryState = Field(description="failed: it ended without a verdict, and `reason` says why")
    verdict: str | None = Field(description="ambiguous at level compile and profile, which decide nothing")
    gate: str | None
    reason: str | None
    score: float | None = Field(description="Speed-up over the fastest baseline, where it was right and timed")
    asked_by: str | None
    device_s: float = Field(description="Seconds for which the judge held the device")
    created_at: float
    started_at: float | None
    finished_at: float | None


class TryDocument(TrySummary):
    """A try with its code and what the judge found."""

    language: str
    source: str
    score_ci95: list[float] | None = None
    feedback: str | None = Field(description="The verdict as a model would be told it, registers and spills included")
    workloads: list[WorkloadTimes] = Field(description="Times by workload, at level screen")
    profile: list[ProfileRowDocument] = Field(description="At level profile: the runner's own word")
    seconds: dict[str, float] = Field(description="What each gate took; `exclusive`: how long the device was held")
    spent_s: float = Field(description="Device seconds that the search's tries have held in all")
    target: str = Field(description="Of its search, such as cuda:sm_90")
    compiled: bool = Field(description="At level compile and profile: it compiled, and nothing else failed")
    kernels: list[str] = Field(
        description="At level compile: what each kernel takes: registers of a thread, bytes spilled, bytes shared"
    )
    limit_s: float = Field(description="Device seconds that they may hold: the budget's `try_seconds`, or its default")

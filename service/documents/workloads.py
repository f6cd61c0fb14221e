"""Documents of a workload's times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field


class WorkloadTimes(BaseModel):
    """One timed workload. Times are microseconds by contender; speed-ups are keyed by baseline."""

    id: str
    role: str
    time_us: dict[str, float]
    speedup: dict[str, float] = Field(default_factory=dict)
    ci95: dict[str, list[float]] = Field(default_factory=dict, description="95 % interval of each speed-up")
    limit_fraction: float | None = None
    not_timed: dict[str, str] = Field(
        default_factory=dict, description="By baseline of the op: why it was not timed on this workload"
    )
    weight: float = Field(1.0, gt=0, description="How often it occurs: its part in every mean over workloads")


def read_workload_times(workloads: Sequence[Mapping[str, Any]] | None) -> list[WorkloadTimes]:
    """Read the times of a verdict's workloads."""
    fields = WorkloadTimes.model_fields
    workloads = workloads or []
    return [WorkloadTimes(**{name: workload[name] for name in fields if name in workload}) for workload in workloads]

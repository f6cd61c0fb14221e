"""Documents of profiles."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class ProfileRowDocument(BaseModel):
    """All calls of a profiled run under one name."""

    name: str
    kind: str = Field(
        description="kernel, copy (of the device), region (`run`, or `kernels.NAME` for a C++ function), operator (of "
        "torch on the host), driver (a call of CUDA's)"
    )
    count: int
    total_us: float
    mean_us: float
    launch: dict[str, Any] | None = Field(
        None, description="Of a kernel's first launch: grid, block, registers, shared_bytes, occupancy in percent"
    )


class NsightKernelDocument(BaseModel):
    """One kernel; the slowest comes first."""

    name: str
    launches: int
    metrics: dict[str, float] = Field(
        description="By Nsight Compute's own names, means over the launches; microseconds, bytes, percent"
    )


class NsightDocument(BaseModel):
    """Measurements of `ncu` in a separate process."""

    kernels: list[NsightKernelDocument]
    reason: str | None = Field(None, description="Why there are no metrics, with the remedy where one is known")
    sandbox: dict[str, Any] | None = Field(None, description="The sandbox around that process: level and layers")


class ProfileDocument(BaseModel):
    """A profiled run of a node's candidate."""

    id: str
    node_id: str
    search_id: str
    state: Literal["pending", "running", "done", "failed"]
    reason: str | None = Field(description="Why there is none")
    device: str | None
    workload: str | None = Field(description="The largest of the op's bench workloads")
    calls: int | None = Field(description="Calls of `run` that were profiled, one after another on the same values")
    rows: list[ProfileRowDocument]
    nsight: NsightDocument | None = Field(
        None, description="Nsight Compute's metrics, on a GPU whose judge has `ncu`; null elsewhere"
    )
    said_by: Literal["runner"] = Field(
        "runner", description="Source of the figures: the process in which the candidate ran. They decide nothing"
    )
    trace: dict[str, Any] | None = Field(description="A Chrome trace, for chrome://tracing or Perfetto, if asked for")
    created_at: float

"""Documents of kernels and their exports."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from warpsmith.service.documents.field_error import FieldError


class KernelWorkload(BaseModel):
    """A shape that a kernel was verified on."""

    id: str
    role: str
    axes: dict[str, Any] | None = Field(description="Its sizes; null where the op no longer declares it")


class Verification(BaseModel):
    """The full verification of a kernel, and whether it still counts on this service."""

    verdict: str
    verified_at: float
    device: str | None
    sandbox: str | None = Field(description="Level of the sandbox around the candidate")
    fingerprint: str | None = Field(description="SHA-256 of device, versions and protocol")
    versions: dict[str, str]
    protocol: int = Field(description="The judge's protocol that it was last judged under")
    outdated_protocol: bool = Field(
        description="The judge checks more by now than it did then: verify the kernel again (`warpsmith reverify`)"
    )
    current: bool | None = Field(
        description="Whether the latest verdict on this target has the same fingerprint. false: device, versions or "
        "protocol are others now, so verify it again; null: not known"
    )


class Reverified(BaseModel):
    """The result of a kernel's latest re-verification."""

    state: Literal["verified", "holds", "wrong", "slower", "uncompilable"] = Field(
        description="verified: as it was kept, and no re-verification since has come to a result. holds: correct and "
        "not slower than its fastest baseline; wrong, slower, uncompilable: it has drifted"
    )
    drifted: bool
    at: float | None = Field(description="When that was found; null for a kernel that is as it was kept")
    due: bool = Field(description="Not yet judged on its target's present device and versions, or too long ago")
    under_way: str | None = Field(description="The re-verification that has no result yet")


class ExportFormat(BaseModel):
    """A format in which a kernel can be exported."""

    name: str = Field(description="Give it as `format`")
    title: str
    media_type: str


class RefusedFormat(BaseModel):
    """A format that has no room for a part of a kernel or its op."""

    name: str
    title: str
    errors: list[FieldError] = Field(description="As an export in this format answers")


class HostTime(BaseModel):
    """Microseconds of the calling thread for one call at the smallest verified shape; on a CPU with its work."""

    workload: str
    run: float = Field(description="The kernel's own `run`, into outputs that are there")
    eager: float = Field(description="PyTorch's eager reference")
    plan: float | None = Field(None, description="A call that a launch plan serves, as an export replays it")
    launches: int | None = Field(None, description="Launches of the plan")
    unplanned: str | None = Field(None, description="Why there is no plan")


class KernelSummary(BaseModel):
    """A verified winner for (op, target)."""

    id: str
    op_id: str
    op_name: str
    target: str
    language: str
    search_id: str | None
    node_id: str | None
    title: str | None = Field(None, description="The winner's idea in one line")
    technique: str | None = None
    score: float
    ci95: list[float]
    limit_fraction: float | None
    speedup: dict[str, float] = Field(
        default_factory=dict,
        description="Geometric mean over bench workloads, by weight, of the speed-up over each baseline",
    )
    speedup_ci95: dict[str, list[float]] = Field(
        default_factory=dict,
        description="95 % interval of each, from those of the workloads; absent where a workload has none",
    )
    host_us: HostTime | None = Field(None, description="null: verified before the judge measured it, or it could not")
    workloads: list[KernelWorkload] = Field(default_factory=list)
    verification: Verification | None = None
    reverification: Reverified | None = None
    created_at: float


class KernelDocument(KernelSummary):
    """A kernel with its source, envelope and evidence."""

    source: str
    source_digest: str
    envelope: dict[str, Any]
    evidence: dict[str, Any] = Field(description="The verify verdict, whole")
    lineage: list[dict[str, Any]] = Field(description="From the root to the winner: the ideas that led there")
    formats: list[ExportFormat] = Field(default_factory=list, description="Formats that it can be exported in")
    refused_formats: list[RefusedFormat] = Field(
        default_factory=list, description="The other formats, with what in the kernel they have no room for"
    )

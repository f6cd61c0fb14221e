"""Documents of campaigns: a user's model, the searches of its regions, and what their kernels bring in the model.

The service keeps a campaign; the client that runs the model does its stages and stores each before the next begins.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from warpsmith.service.documents.searches import SearchState

CampaignState = Literal["profiling", "searching", "measuring", "finished"]
MOST_PLACES = 8
"""Places of a region that a document names."""
MODEL, COMPILED, ALL = "model", "compiled", "all"
"""Variants of `warpsmith ablate`: the model as it is, Inductor's code alone, and that with every kernel."""

_Interval = Field(None, min_length=2, max_length=2, description="95 % interval; null where too few rounds were timed")


class _Part(BaseModel):
    """A part of what a client stores: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class KernelGain(_Part):
    """Times of the model without a kernel over those with it."""

    speedup: float
    ci95: list[float] | None = _Interval
    saved_us: float


class CampaignRegion(_Part):
    """A region of the model, its search, and what became of its kernel."""

    name: str = Field(max_length=128, description="The op's name")
    operators: str = Field(max_length=1000)
    places: list[str] = Field(max_length=MOST_PLACES, description="The first of its places: modules of the model")
    count: int = Field(description="How many places it has")
    time_us: float = Field(description="Of all its places in one call of the compiled model")
    share: float | None = Field(description="Of the compiled model's time")
    limit_us: float | None
    limit_by: str | None = Field(max_length=64)
    joins: int = Field(1, description="How many regions a place of it joins")
    counted: int = Field(0, description="Its places in the set without overlap that saves most at the limit")
    saving_us: float = Field(description="What kernels at the limit would save at the counted places")
    op_id: str | None = Field(None, max_length=32)
    model: dict[str, Any] | None = Field(None, description="Who answers the model requests of its search")
    budget: dict[str, int | float] = Field(default_factory=dict, description="Its part of the campaign's budget")
    search_id: str | None = Field(None, max_length=32)
    search_state: SearchState | None = None
    kernel_id: str | None = Field(None, max_length=32, description="The best kernel that its search kept")
    score: float | None = Field(None, description="Of the kernel alone, over the fastest baseline")
    score_ci95: list[float] | None = _Interval
    served: int = Field(0, description="Places of the model in which the kernel was put")
    alone: KernelGain | None = Field(None, description="What it brings in the model without other kernels")
    beside: KernelGain | None = Field(None, description="What it brings beside the other kernels")
    kept: bool = Field(False, description="Whether the kernel stays in the model")
    reason: str | None = Field(None, max_length=2000, description="Why it has no search, no kernel or no place")


class CampaignVariant(_Part):
    """A variant of the model, timed in turns with the others."""

    variant: str = Field(max_length=300)
    ms: float
    ms_ci95: list[float] | None = _Interval
    speedup: float = Field(description="Over the model as it is")
    speedup_ci95: list[float] | None = _Interval
    over_compiled: float = Field(description="Over torch.compile alone")
    over_compiled_ci95: list[float] | None = _Interval
    agrees: bool = Field(description="Whether its results agree with the model's")


class CampaignProfile(_Part):
    """The model before: times of one call."""

    device: str = Field(max_length=128)
    graphs: int
    model_us: float
    compiled_us: float
    saving_us: float = Field(description="What kernels at the limit would save, without overlap")


class CampaignProgress(_Part):
    """What a campaign has come to."""

    state: CampaignState = "profiling"
    stopped: str | None = Field(None, max_length=2000, description="The error that stopped it, until it goes on")
    profile: CampaignProfile | None = None
    regions: list[CampaignRegion] = Field(default_factory=list, max_length=2000)
    rounds: int = Field(0, description="Measurements in the model; each takes out what did not pay in the one before")
    variants: list[CampaignVariant] = Field(default_factory=list, max_length=500, description="The last measurement")
    package: str | None = Field(None, max_length=300, description="The Python package that was written for the user")


class CampaignSettings(_Part):
    """How a campaign works. Some defaults depend on the device, and the client fills them in."""

    device: Literal["cpu", "cuda"]
    target: str = Field(max_length=64, description="Of its searches: `cpu:x86_64`, `cuda:sm_90` ...")
    language: str | None = Field(None, max_length=16)
    policy: dict[str, Any] | None = None
    budget: dict[str, Any] = Field(default_factory=dict, description="Of all searches together, as that of a search")
    model: dict[str, Any] = Field(
        description='As that of a search; `{"provider": "replay"}` takes for each op the newest stored pool of it'
    )
    top: int = Field(4, ge=1, le=64, description="How many regions are searched")
    mode: str | None = Field(None, max_length=64, description="Inductor's, as torch.compile takes it")
    time_s: float = Field(20.0, gt=0, description="Seconds of one measurement in the model")


class CampaignSummary(BaseModel):
    """A campaign as the list shows it."""

    id: str
    model_name: str = Field(description="The name of the model's file")
    target: str
    state: CampaignState
    stopped: str | None
    searches: int = Field(description="Searches that were submitted")
    kept: int = Field(description="Kernels that stay in the model")
    before_ms: float | None = Field(description="One call of the model as it is")
    compiled_ms: float | None = Field(description="By torch.compile alone")
    after_ms: float | None = Field(description="With the kernels that stay; null before they were measured")
    over_compiled: float | None = Field(description="How many times faster than by torch.compile alone")
    over_compiled_ci95: list[float] | None
    created_at: float
    updated_at: float


class CampaignDocument(CampaignSummary):
    """A campaign with all its regions."""

    model_digest: str = Field(description="SHA-256 of the model's file")
    revision: int = Field(description="Counts up with each change; a change names the one that it is based on")
    settings: CampaignSettings
    progress: CampaignProgress

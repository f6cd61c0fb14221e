"""Documents of searches and their events. Times are UTC epoch seconds; ids sort by time; lists page by `next`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from warpsmith.service.documents.workloads import WorkloadTimes

SearchState = Literal["queued", "running", "paused", "finished", "failed", "cancelled"]


class Spend(BaseModel):
    """What a search has used of each limit."""

    candidates: int
    model_calls: int
    tokens: int
    cost_usd: float | None = Field(description="null where the price of some call is not known: unknown is not free")
    wall_clock_s: float = Field(description="Running time; pauses left out")
    gpu_seconds: float = Field(0.0, description="Seconds for which the judge held the device")
    try_seconds: float = Field(0.0, description="Beside these, seconds for which it held the device for tries")
    sweep_seconds: float = Field(0.0, description="Of `gpu_seconds`, those of sweeps over tunables")


class ForecastDocument(BaseModel):
    """A play of a search, or a bound on all, in figures."""

    model_calls: int
    calls: dict[str, int] = Field(description="By kind of request: ideate, reflect, code, repair")
    candidates: int
    tokens: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None = Field(description="US dollars; null where a price is not known")
    ends: str = Field(description="Why the search would end")
    complete: bool = Field(
        description="false: too large to be played to its end, so it may take more; a bound is always complete"
    )


class EstimateDocument(BaseModel):
    """What a search will cost. Nothing is stored and no model is asked."""

    expected: ForecastDocument
    worst: ForecastDocument = Field(description="What no search exceeds, each figure by itself")
    sweep_seconds: float = Field(
        description="Device seconds that sweeps of screenings may hold at worst, at most the budget's limit of them"
    )
    unpriced: list[str] = Field(
        description="Models without a price: limit tokens, or add prices (WARPSMITH_MODEL_PRICES)"
    )
    assumptions: list[str]
    summary: str = Field(description="The estimate in one line")


class BadField(BaseModel):
    """What made a search fail, or what an op's author must change."""

    field: str | None = None
    found: Any = None
    expected: Any = None


class BestSummary(BaseModel):
    """The best accepted candidate so far, as a list shows it."""

    node_id: str
    seq: int
    title: str | None
    technique: str | None
    language: str | None
    verified: bool = Field(description="Whether it passed the full verification")
    score: float | None = Field(
        description="Geometric mean over bench workloads, by weight, of the speed-up over the fastest baseline"
    )
    ci95: list[float] | None
    limit_fraction: float | None
    speedup: dict[str, float] = Field(
        description="Geometric mean over bench workloads, by weight, of the speed-up over each baseline"
    )
    speedup_ci95: dict[str, list[float]] = Field(
        default_factory=dict,
        description="95 % interval of each, from those of the workloads; absent where a workload has none",
    )


class Best(BestSummary):
    """The best accepted candidate so far."""

    workloads: list[WorkloadTimes]


class WaitingFor(BaseModel):
    """Something that a search waits for."""

    what: Literal["model", "judge", "answer", "worker", "retry", "person", "step"] = Field(
        description="model, judge: steps that run now. answer: open asks. worker: queued steps that no live worker "
        "takes. retry: steps put off until `until`, or a pause that ends by itself then. step: queued steps. person: "
        "the search is paused"
    )
    role: Literal["model", "judge"] | None = Field(
        None, description="Of `step` and `worker`: the kind of worker that the steps are queued for"
    )
    count: int
    detail: str
    until: float | None = None


class SearchSummary(BaseModel):
    """A search as the list shows it."""

    id: str
    op_id: str
    op_name: str
    target: str
    language: str
    team: str = Field("default", description="The team that submitted it")
    state: SearchState
    reason: str | None = Field(description="Why it ended or was paused")
    policy_name: str = Field("", description="The policy's name")
    provider: str = Field("", description="Who answers its model requests: openai, replay or agent")
    model_name: str | None = Field(None, description="The models that are asked, or that its pool was recorded with")
    name: str | None = Field(None, description="Given by a person")
    tags: list[str] = Field(default_factory=list)
    notes: str | None = None
    archived_at: float | None = Field(None, description="Lists leave it out since then, unless asked")
    best_score: float | None
    best: BestSummary | None = Field(None, description="The best accepted candidate so far")
    spend: Spend
    created_at: float
    updated_at: float


class SearchDocument(SearchSummary):
    """A search with its progress."""

    branched_from: str | None = Field(None, description="The node of an older search whose candidate it starts from")
    problem: BadField | None = Field(description="Of a failed search: the field of the op or request at fault")
    policy: dict[str, Any]
    budget: dict[str, Any] = Field(description="The limits; null or absent means none")
    model: dict[str, Any]
    round: int = Field(description="The latest round with a node; 0 before the first")
    nodes: int
    nodes_by_state: dict[str, int]
    nodes_by_verdict: dict[str, int]
    baselines: list[WorkloadTimes] = Field(description="The baselines as first measured; empty before that")
    best: Best | None = Field(None, description="The best accepted candidate so far")
    kernels: list[str] = Field(description="Ids of the kernels that this search kept")
    waiting_for: list[WaitingFor]


class DeletedSearch(BaseModel):
    """A search that is gone, and what stays of it."""

    id: str
    nodes: int = Field(description="Nodes that were deleted, with their code and verdicts")
    kernels: list[str] = Field(description="Ids of its kernels: they stay, with their evidence, and are still exported")


class TagDocument(BaseModel):
    """A tag, and how many searches have it that are not archived."""

    tag: str
    searches: int


class StorySection(BaseModel):
    """One part of a story as plain text: a paragraph, and items below it."""

    heading: str
    paragraph: str
    items: list[str]


class StoryDocument(BaseModel):
    """A search told in prose. Quoted titles, mechanisms and reasons are a model's or a person's words: data, on one
    line, without control characters; in `markdown` they are escaped."""

    search_id: str
    state: SearchState
    title: str
    sections: list[StorySection]
    text: str = Field(description="The whole as plain text, wrapped at 100 columns")
    markdown: str = Field(description="The whole as CommonMark")


class EventDocument(BaseModel):
    """One event of a search; the same document is a server-sent event's data."""

    id: int
    type: str
    search_id: str
    node_id: str | None
    payload: dict[str, Any]
    created_at: float


class EventPage(BaseModel):
    """Events by rising id."""

    items: list[EventDocument]
    next_after: int | None = Field(
        description="Give it as `after` for what follows; null when nothing is there and nothing will come"
    )

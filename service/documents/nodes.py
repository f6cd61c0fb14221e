"""Documents of a search tree's nodes, their attempts, verdicts and model calls."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from warpsmith.service.documents.searches import SearchState
from warpsmith.service.documents.tries import TrySummary


class NodeSummary(BaseModel):
    """One node of the tree."""

    id: str
    seq: int
    parent_id: str | None
    round: int
    technique: str | None
    title: str | None = Field(description="The idea in one line; null on the root")
    state: str
    reason: str | None
    origin: str = Field(
        "model",
        description="Source of the idea: model, person, stored (a kept kernel), branch (an older search's node), "
        "joined (put together from others of this search)",
    )
    mark: Literal["pinned", "banned"] | None = Field(None, description="Set by a person")
    language: str | None
    variant: int
    repairs: int
    verdict: str | None
    gate: str | None
    score: float | None
    ci95: list[float] | None
    limit_fraction: float | None
    verification: str
    best: bool = Field(description="Whether this is the search's best so far")
    created_at: float
    updated_at: float


class TreePage(BaseModel):
    """Nodes by rising `seq`: a parent comes before its children."""

    search_id: str
    state: SearchState
    nodes: list[NodeSummary]
    next_after_seq: int | None = Field(description="Give it as `after_seq` for more; null when these were the last")


class AttemptDocument(BaseModel):
    """One execution of one step."""

    id: str
    kind: str
    ordinal: int
    state: str
    owner: str | None
    tries: int
    deferrals: int
    error: str | None
    created_at: float
    started_at: float | None
    finished_at: float | None


class ModelCallDocument(BaseModel):
    """One model call with its prompt and its reply."""

    id: str
    kind: str = Field(description="reflect, ideate, code or repair")
    request: str = Field(description="SHA-256 that a pool replays by")
    ordinal: int
    provider: str
    model: str | None
    messages: list[dict[str, Any]]
    reply: str | None
    finish_reason: str | None
    error: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cost_usd: float | None
    latency_s: float | None
    created_at: float


class VerdictRecord(BaseModel):
    """One verdict, whole; `source` is the candidate as it was judged."""

    id: str
    level: str
    verdict: str
    gate: str
    source: str | None
    document: dict[str, Any]
    created_at: float


class NodeReference(BaseModel):
    """Another node in a few words."""

    id: str
    seq: int
    title: str | None
    technique: str | None
    state: str
    verdict: str | None
    score: float | None


class NodeCost(BaseModel):
    """The cost of a node so far, all its attempts together."""

    model_calls: int = Field(description="Calls that brought a reply")
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None = Field(description="null where the price of some call is not known")
    judge_s: float = Field(description="Seconds that the judge took, compilation included")
    gpu_seconds: float = Field(description="Of these, seconds for which the judge held the device")


class NodeDocument(NodeSummary):
    """A node with all its records."""

    search_id: str
    idea: dict[str, Any] | None
    source: str | None
    parent: NodeReference | None = Field(description="null on the root")
    champion: NodeReference | None = Field(description="The search's best so far")
    children: list[NodeReference] = Field(description="By `seq`")
    kernel_id: str | None = Field(description="The kernel that was kept of this node")
    cost: NodeCost
    verdicts: list[VerdictRecord]
    attempts: list[AttemptDocument]
    tries: list[TrySummary] = Field(description="Candidates that were tried for it, the latest, oldest first")
    model_calls: list[ModelCallDocument]


class SourceDocument(BaseModel):
    """A node's code alone, for comparisons."""

    id: str
    seq: int
    title: str | None
    language: str | None
    source: str | None = Field(description="null on the root and before a candidate is written")


class IdeaDocument(BaseModel):
    """A person's idea in the tree: one planned node for each candidate of it."""

    search_id: str
    nodes: list[NodeSummary]

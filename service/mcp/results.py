"""Documents that the tools return. `next` advises the agent; times are UTC epoch seconds."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from warpsmith.service.documents.asks import AskState, AskSummary
from warpsmith.service.documents.kernels import KernelSummary
from warpsmith.service.documents.ops import OpSummary
from warpsmith.service.documents.profiles import ProfileRowDocument
from warpsmith.service.documents.searches import BadField, SearchState
from warpsmith.service.documents.workloads import WorkloadTimes


class Ops(BaseModel):
    """Stored ops, newest first."""

    ops: list[OpSummary]
    next: str


class OpSpec(BaseModel):
    """One op with its spec."""

    id: str | None = Field(description="null for an example that ships and is not stored")
    name: str
    spec: dict[str, Any]


class SearchReport(BaseModel):
    """A search and its progress."""

    id: str
    op: str
    target: str
    language: str
    state: SearchState
    reason: str | None = Field(description="Why it ended or was paused")
    problem: BadField | None = Field(None, description="Of a failed search: the field that the op's author must change")
    round: int | None = None
    nodes: int | None = None
    best_score: float | None = Field(description="Speed-up of the best candidate over the fastest baseline")
    best_node_id: str | None = None
    candidates: int = Field(description="Candidates judged so far")
    kernels: list[str] = Field(default_factory=list, description="Kernels that it kept: export_kernel takes them")
    waiting_for: list[str] = Field(default_factory=list)


class Searches(BaseModel):
    """Searches, newest first."""

    searches: list[SearchReport]
    next: str


class Submitted(BaseModel):
    """A search that was submitted."""

    search: SearchReport
    next: str


class Asks(BaseModel):
    """Open asks, oldest first, and the search's progress."""

    asks: list[AskSummary]
    search: SearchReport | None
    next: str


class AskPrompt(BaseModel):
    """An ask with the prompt that a model would have been sent."""

    id: str
    search_id: str
    node_id: str
    kind: str = Field(description="ideate, code or repair: the kind of reply")
    state: AskState
    issue: int
    expires_at: float | None
    messages: list[dict[str, Any]] = Field(description="The prompt: it says what form the reply has")
    replaced_by: str | None = Field(description="The open ask to answer instead, where this one is not open")
    answered_by: str | None
    next: str


class Answered(BaseModel):
    """An answer that was taken."""

    ask_id: str
    search_id: str
    node_id: str
    state: AskState
    compiled: TryReport | None = Field(
        None, description="Of code: what gate and compiler say; pending where they have not said it within 15 s"
    )
    not_compiled: str | None = Field(None, description="Of code: why no compiler has read it")
    ideas: str | None = Field(None, description="Of ideas: how many become nodes, and how many the ask wants")
    left_out: list[str] = Field(description="Of ideas: each that becomes no node, with why")
    next: str


class TryReport(BaseModel):
    """A candidate that was tried for a node, and what the judge found."""

    id: str
    node_id: str
    level: str
    state: str = Field(description="done; failed: without a verdict, as reason says; pending, running: not ended yet")
    verdict: str | None = Field(description="ambiguous at level compile and profile, which decide nothing")
    gate: str | None
    reason: str | None
    score: float | None = Field(description="Speed-up over the fastest baseline")
    feedback: str | None = Field(description="What the judge found, registers, spills and occupancy included")
    compiled: bool = Field(description="At level compile and profile: it compiled, and nothing else failed")
    kernels: list[str] = Field(description="At level compile: registers, spilled and shared bytes of each kernel")
    workloads: list[WorkloadTimes]
    profile: list[ProfileRowDocument] = Field(description="At level profile, as the candidate's process reports it")
    device_s: float
    seconds: dict[str, float] = Field(description="What each gate took")
    spent_s: float = Field(description="Device seconds that tries of the search have held")
    limit_s: float = Field(description="Device seconds that they may hold")
    next: str


class TreeNode(BaseModel):
    """One node of the tree in short."""

    id: str
    seq: int
    parent_seq: int | None
    round: int
    technique: str | None
    title: str | None
    state: str
    verdict: str | None
    gate: str | None
    score: float | None
    repairs: int
    reason: str | None
    verification: str
    best: bool
    origin: str = Field(description="model, person, stored (a kernel that the search started from), branch or joined")
    mark: str | None = Field(description="pinned or banned by a person")


class TreeReport(BaseModel):
    """The tree of a search by rising `seq`; 0 is the reference with its baselines."""

    search: SearchReport
    nodes: list[TreeNode]
    next: str


class NodeReport(BaseModel):
    """One candidate: its idea, its code, and the judge's verdict."""

    id: str
    search_id: str
    seq: int
    state: str
    idea: dict[str, Any] | None
    language: str | None
    source: str | None
    verdict: str | None
    gate: str | None
    score: float | None
    ci95: list[float] | None
    limit_fraction: float | None
    repairs: int
    verification: str
    reason: str | None
    feedback: str | None = Field(description="The latest verdict as the model of the search reads it")
    workloads: list[WorkloadTimes] = Field(description="Times of the latest verdict; hold-out shapes are left out")


class JudgeReport(BaseModel):
    """A verdict on one candidate, by the judge of the machine that this server runs on."""

    verdict: str = Field(description="accepted, rejected, quarantined or ambiguous")
    gate: str
    reason: str
    op: str
    target: str
    language: str
    tier: Literal["gated", "sandbox"] = Field(description="sandbox: free Python, which no gate has read")
    level: str
    score: float | None = Field(
        description="Speed-up over the fastest baseline, geometric mean of bench workloads by weight"
    )
    score_ci95: list[float] | None
    feedback: str
    workloads: list[WorkloadTimes] = Field(description="Times; hold-out shapes are left out")
    sandbox: str = Field(description="How far the candidate's code was confined")
    note: str | None = Field(description="Checks that this machine could not do")
    next: str


class PromptFile(BaseModel):
    """A file that prompts are made of."""

    name: str
    title: str


class PromptFiles(BaseModel):
    """The files that prompts are made of, and the text of the one that was asked for."""

    files: list[PromptFile]
    name: str | None
    text: str | None


class Kernels(BaseModel):
    """Kept kernels, newest first."""

    kernels: list[KernelSummary]
    next: str


class Exported(BaseModel):
    """A package that was written."""

    kernel_id: str
    project: str = Field(description="Directory of the package's project: put it on sys.path, or pip install it")
    package: str = Field(description="Name to import")
    files: list[str]
    note: str | None = Field(None, description="A warning where the kernel has drifted from its evidence")
    next: str

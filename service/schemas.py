"""The documents that the API answers. Times are UTC epoch seconds; ids sort by time; lists page by `next`."""

from __future__ import annotations

from collections import Counter
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, Field

from warpsmith.service.field_error import FieldError

SearchState = Literal["queued", "running", "paused", "finished", "failed", "cancelled"]
TERMINAL_STATES = ("finished", "failed", "cancelled")
AskState = Literal["open", "answered", "withdrawn", "expired"]
Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    """One page of a list, newest first."""

    items: list[Item]
    next: str | None = Field(None, description="Give it as `after` for the next page; null on the last one")


class OpSummary(BaseModel):
    """An op without its spec."""

    id: str
    name: str
    digest: str = Field(description="SHA-256 of the canonical spec; the same spec is stored once")
    created_at: float


class OpDocument(OpSummary):
    """An op with its spec."""

    spec: dict[str, Any]


class Spend(BaseModel):
    """What a search has used of each limit."""

    candidates: int
    model_calls: int
    tokens: int
    cost_usd: float | None = Field(description="null where the price of some call is not known: unknown is not free")
    wall_clock_s: float = Field(description="Running time; pauses left out")
    gpu_seconds: float = Field(0.0, description="Seconds for which the judge held the device")


class ForecastDocument(BaseModel):
    """One play of a search in figures."""

    model_calls: int
    calls: dict[str, int] = Field(description="By kind of request: ideate, reflect, code, repair")
    candidates: int
    tokens: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None = Field(description="US dollars; null where a price is not known")
    ends: str = Field(description="Why the search would end")
    complete: bool = Field(description="false: too large to be played to its end, so it may take more")


class EstimateDocument(BaseModel):
    """What a search will cost. Nothing is stored and no model is asked."""

    expected: ForecastDocument
    worst: ForecastDocument = Field(description="The worst of each figure by itself")
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


class WorkloadTimes(BaseModel):
    """One workload, timed. Times are microseconds by contender; speed-ups are keyed by baseline."""

    id: str
    role: str
    time_us: dict[str, float]
    speedup: dict[str, float] = Field(default_factory=dict)
    ci95: dict[str, list[float]] = Field(default_factory=dict, description="95 % interval of each speed-up")
    limit_fraction: float | None = None


class BestSummary(BaseModel):
    """The best accepted candidate so far, as a list shows it."""

    node_id: str
    seq: int
    title: str | None
    technique: str | None
    language: str | None
    verified: bool = Field(description="Whether it passed the full verification")
    score: float | None = Field(
        description="Geometric mean over bench workloads of the speed-up over the fastest baseline"
    )
    ci95: list[float] | None
    limit_fraction: float | None
    speedup: dict[str, float] = Field(
        description="Geometric mean over bench workloads of the speed-up over each baseline"
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
    state: SearchState
    reason: str | None = Field(description="Why it ended or was paused")
    policy_name: str = Field("", description="The policy's name")
    provider: str = Field("", description="Who answers its model requests: openai, replay or agent")
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
        "model", description="Whose idea: model, person, stored (a kept kernel), branch (a node of an older search)"
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


class ProfileRowDocument(BaseModel):
    """What a profiled run did under one name."""

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
    """One kernel; what took longest comes first."""

    name: str
    launches: int
    metrics: dict[str, float] = Field(
        description="By Nsight Compute's own names, means over the launches; microseconds, bytes, percent"
    )


class NsightDocument(BaseModel):
    """What `ncu` measured in a process of its own."""

    kernels: list[NsightKernelDocument]
    reason: str | None = Field(None, description="Why there are no metrics, with the remedy where one is known")
    sandbox: dict[str, Any] | None = Field(None, description="What stood around that process: level and layers")


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
        "runner", description="Whose word this is: the process's in which the candidate ran. It decides nothing"
    )
    trace: dict[str, Any] | None = Field(description="A Chrome trace, for chrome://tracing or Perfetto, if asked for")
    created_at: float


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
    """One model call with its prompt and its reply, as they were."""

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
    """What a node has cost so far, all its attempts together."""

    model_calls: int = Field(description="Calls that brought a reply")
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None = Field(description="null where the price of some call is not known")
    judge_s: float = Field(description="Seconds that the judge took, compilation included")
    gpu_seconds: float = Field(description="Of these, seconds for which the judge held the device")


class NodeDocument(NodeSummary):
    """A node with everything that is known of it."""

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
    model_calls: list[ModelCallDocument]


class SourceDocument(BaseModel):
    """A node's code alone, to compare another's with."""

    id: str
    seq: int
    title: str | None
    language: str | None
    source: str | None = Field(description="null on the root and before a candidate is written")


class IdeaDocument(BaseModel):
    """A person's idea in the tree: one planned node for each candidate that is to realise it."""

    search_id: str
    nodes: list[NodeSummary]


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


class PoolDocument(BaseModel):
    """A recorded pool of model replies."""

    id: str
    digest: str
    header: dict[str, Any]
    replies: int
    created_at: float


class AskSummary(BaseModel):
    """A model request that waits for an answer, without its prompt."""

    id: str
    search_id: str
    node_id: str
    kind: str = Field(description="reflect, ideate, code or repair")
    state: AskState
    issue: int = Field(0, description="How often the request was issued before: it counts up when an ask expires")
    op_name: str
    target: str
    seq: int = Field(description="Of the node that it is asked for")
    title: str | None = Field(description="That node's idea in one line")
    created_at: float
    expires_at: float | None = Field(None, description="When it expires and is issued again; null: never")
    answered_at: float | None
    answered_by: str | None


class AskStep(BaseModel):
    """The step that an ask belongs to: whether the answer could be used."""

    kind: str = Field(description="ideate or code")
    state: str = Field(description="waiting while it waits for the answer; succeeded once the answer was used")
    error: str | None = Field(description="Why an answer could not be used")


class AskDocument(AskSummary):
    """An ask with its prompt and, once answered, its reply."""

    step: AskStep
    node: NodeSummary = Field(description="The node that it is asked for, with the verdict once there is one")

    messages: list[dict[str, Any]]
    reply: str | None
    replaced_by: str | None = Field(None, description="The open ask of the same request, where this one is not open")


class KernelWorkload(BaseModel):
    """A shape that a kernel was verified on."""

    id: str
    role: str
    axes: dict[str, Any] | None = Field(description="Its sizes; null where the op no longer declares it")


class Verification(BaseModel):
    """When and where a kernel was verified in full, and whether that still says something here."""

    verdict: str
    verified_at: float
    device: str | None
    sandbox: str | None = Field(description="What stood around the candidate: its level")
    fingerprint: str | None = Field(description="SHA-256 of device, versions and protocol")
    versions: dict[str, str]
    current: bool | None = Field(
        description="Whether the latest verdict on this target has the same fingerprint. false: device, versions or "
        "protocol are others now, so verify it anew; null: nothing tells"
    )


class Reverified(BaseModel):
    """Whether a kernel still is what its evidence says, by the latest time that somebody looked."""

    state: Literal["verified", "holds", "wrong", "slower", "uncompilable"] = Field(
        description="verified: as it was kept, and no re-verification since has come to a result. holds: right and not "
        "slower than its fastest baseline; wrong, slower, uncompilable: it has drifted"
    )
    drifted: bool
    at: float | None = Field(description="When that was found; null for a kernel that is as it was kept")
    due: bool = Field(
        description="Nobody has judged it under what its target has now (device, versions), or not for too long"
    )
    under_way: str | None = Field(description="The re-verification that is to come to a result")


class ExportFormat(BaseModel):
    """A form in which a kernel can be taken away."""

    name: str = Field(description="Give it as `format`")
    title: str
    media_type: str


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
        default_factory=dict, description="Geometric mean over bench workloads of the speed-up over each baseline"
    )
    speedup_ci95: dict[str, list[float]] = Field(
        default_factory=dict,
        description="95 % interval of each, from those of the workloads; absent where a workload has none",
    )
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
    formats: list[ExportFormat] = Field(default_factory=list, description="What it can be exported as")


class Measured(BaseModel):
    """A full verification of a kernel in short."""

    device: str | None
    versions: dict[str, str]
    fingerprint: str | None = Field(description="SHA-256 of device, versions and protocol")
    score: float | None = Field(description="Geometric mean over bench workloads of the speed-up over the fastest one")
    ci95: list[float] | None
    speedup: dict[str, float] = Field(
        description="Geometric mean over bench workloads of the speed-up over each baseline"
    )
    speedup_ci95: dict[str, list[float]]


class ReverificationSummary(BaseModel):
    """One judging anew of a stored kernel."""

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
    before: Measured | None = Field(description="What the kernel was kept for; null until it is done")
    now: Measured | None = Field(description="What was found; null where the judge gave no verdict")
    created_at: float
    started_at: float | None
    finished_at: float | None


class ReverificationDocument(ReverificationSummary):
    """The same with the judge's verdict."""

    verdict: dict[str, Any] | None = Field(description="The verdict, whole; null where the judge gave none")


class ReverificationBatch(BaseModel):
    """Re-verifications that were asked for together."""

    asked: int = Field(description="How many are new")
    under_way: int = Field(description="How many were under way already; they are not judged twice")
    left: int = Field(description="Kernels that match and found no room under `limit`; asked again, they come next")
    items: list[ReverificationSummary]


class BundleDocument(BaseModel):
    """Judge jobs that leave for a host which this service cannot reach."""

    format: Literal["warpsmith-bundle"]
    version: int
    id: str
    search_id: str
    op: str
    target: str
    created_at: float
    count: int = Field(description="Jobs in the bundle")
    left: int = Field(description="Steps that wait for a judge and found no room: they are for another bundle")
    jobs: list[str] = Field(description="The lines of jobs.jsonl, each a signed job as JSON, to be kept as they are")


class BundleSummary(BaseModel):
    """A bundle that was made and not dropped."""

    id: str
    search_id: str
    op_name: str
    target: str
    created_at: float
    jobs: int = Field(description="Jobs in the bundle")
    merged: int = Field(description="Of these, jobs whose verdicts have come")
    out: int = Field(description="Of these, jobs whose verdicts are still to come")
    unjudged: int = Field(description="Of those that are out, jobs that their host could not judge")


class UnjudgedJob(BaseModel):
    """A job of a bundle that its host could not judge."""

    nonce: str
    attempt_id: str
    node_id: str
    seq: int = Field(description="The node's number in its search")
    step: Literal["judge", "verify"]
    reason: str = Field(
        description="refused, timeout or died, and what the judge there said: it could not read the job, had no "
        "verdict in time, or fell"
    )


class DroppedBundle(BaseModel):
    """What was dropped of a bundle."""

    id: str
    search_id: str
    returned: int = Field(description="Steps that returned to the queue")
    failed: int = Field(description="Steps that failed, since their host could not judge them")
    merged: int = Field(description="Jobs whose verdicts had come; they stay")


class MergedLine(BaseModel):
    """What became of one line of verdicts.jsonl or unjudged.jsonl."""

    line: int = Field(description="Its number in the body, from 1")
    nonce: str | None = Field(description="The job's, where that could be read")
    bundle_id: str | None = Field(None, description="The job's bundle, where that could be read")
    outcome: Literal["merged", "unjudged", "already", "late", "refused"] = Field(
        description="merged: stored now. unjudged: its host could not judge the job, and `detail` says why; it stays "
        "out. already: this very verdict was stored before, or the job has one. late: its search ended, or its step is "
        "somebody else's. refused: the line is; `error` says why, and nothing of it was stored"
    )
    search_id: str | None = None
    detail: str | None = Field(None, description="Of one that is unjudged, came already or late: since when, or why")
    error: FieldError | None = None


class MergeReport(BaseModel):
    """What became of lines that came back."""

    merged: int
    unjudged: int
    already: int
    late: int
    refused: int
    lines: list[MergedLine]

    @classmethod
    def of(cls, lines: list[MergedLine]) -> MergeReport:
        """The lines, and how many had each outcome."""
        counts = Counter(line.outcome for line in lines)
        return cls(
            merged=counts["merged"],
            unjudged=counts["unjudged"],
            already=counts["already"],
            late=counts["late"],
            refused=counts["refused"],
            lines=lines,
        )


class WorkerDocument(BaseModel):
    """A worker process that reported in."""

    name: str
    role: str
    target: str | None
    alive: bool = Field(description="Whether it reported in lately")
    facts: dict[str, Any]
    started_at: float
    seen_at: float


class SessionDocument(BaseModel):
    """Whether keys are in force here, and who asks."""

    keys_required: bool = Field(description="false: every request is served, and nobody need sign in")
    name: str | None = Field(description="The name of the key that the request came or the session began with")
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

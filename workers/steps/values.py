"""What goes in and out of the steps: messages, work, recorded model calls, and the errors.

WrongState     the search (or ask) is not in a state that allows this
LookupError    there is no such search or ask
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from warpsmith.kernels_db.job.documents import Level, NsightKernel, Verdict
from warpsmith.kernels_db.job.sweep_documents import SWEEP_S
from warpsmith.kernels_db.store.counterexamples import Counterexample
from warpsmith.kernels_db.store.quotas import Usage
from warpsmith.workers.llm.base import ModelReply, ModelRequest

StepKind = Literal["ideate", "code", "judge", "verify"]

EventType = Literal[
    "ask.answered",
    "ask.expired",
    "ask.opened",
    "attempt.deferred",
    "attempt.expired",
    "attempt.failed",
    "budget.changed",
    "bundle.created",
    "bundle.dropped",
    "bundle.merged",
    "bundle.unjudged",
    "idea.added",
    "kernel.kept",
    "node.banned",
    "node.closed",
    "node.coded",
    "node.created",
    "node.judged",
    "node.pinned",
    "node.seeded",
    "node.tried",
    "node.unbanned",
    "node.unpinned",
    "node.verified",
    "round.started",
    "search.branched",
    "search.cancelled",
    "search.created",
    "search.failed",
    "search.finished",
    "search.paused",
    "search.resumed",
    "search.started",
]
"""The events of a search's history."""


class UnknownSearch(LookupError):  # noqa: N818 - named for what it is
    """No search has this id, or it was deleted meanwhile."""

    def __init__(self, search_id: str) -> None:
        super().__init__(f"search: found {search_id!r}, expected the id of a stored search")
        self.search_id = search_id


class WrongState(Exception):  # noqa: N818 - named for what it is
    """What was asked cannot be done in the state that was found."""

    def __init__(self, what: str, found: str, expected: str) -> None:
        super().__init__(f"{what}: found {found}, expected {expected}")
        self.what = what
        self.found = found
        self.expected = expected


@dataclass(frozen=True)
class Message:
    """A pending attempt and the queue that its step belongs to; to be sent after the commit."""

    attempt_id: str
    queue: str


@dataclass(frozen=True)
class ModelCall:
    """One call to a model, to be recorded with the step that made it.

    A reply that could not be read has both `reply` and `error`; a call that failed has `error` alone. Times in seconds,
    cost in US dollars; None where not counted.
    """

    kind: str
    request: str
    ordinal: int
    provider: str
    messages: tuple[dict[str, str], ...]
    model: str | None = None
    reply: str | None = None
    finish_reason: str | None = None
    error: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None

    @classmethod
    def answered(
        cls, request: ModelRequest, provider: str, reply: ModelReply, unreadable: str | None = None
    ) -> ModelCall:
        """Record a call that was answered; `unreadable` says what is wrong with the reply."""
        return cls(
            kind=request.kind,
            request=request.identity,
            ordinal=request.ordinal,
            provider=provider,
            messages=request.messages,
            model=reply.model,
            reply=reply.text,
            finish_reason=reply.finish_reason,
            error=unreadable,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cost_usd=reply.cost_usd,
            latency_s=reply.latency_s,
        )

    @classmethod
    def failed(
        cls,
        request: ModelRequest,
        provider: str,
        error: str,
        latency_s: float | None = None,
        *,
        model: str | None = None,
    ) -> ModelCall:
        """Record a call that brought no reply; `model` is the one that was asked."""
        return cls(
            kind=request.kind,
            request=request.identity,
            ordinal=request.ordinal,
            provider=provider,
            messages=request.messages,
            model=model,
            error=error,
            latency_s=latency_s,
        )


@dataclass(frozen=True)
class NodeRecord:
    """A node with its code.

    For model steps alone: `document`, its latest verdict, None before the first, and `metrics`, Nsight Compute's, of
    this code, where they are known.
    """

    id: str
    seq: int
    round: int
    technique: str | None
    idea: dict[str, Any] | None
    variant: int
    language: str | None
    source: str | None
    source_digest: str | None
    repairs: int
    verdict: str | None
    score: float | None
    document: Verdict | None
    metrics: tuple[NsightKernel, ...] = ()


class BenchTime(NamedTuple):
    """A candidate on one bench workload.

    Its time, and its speed-up over the fastest baseline beside it.
    """

    workload: str
    time_us: float
    speedup: float


class Tried(NamedTuple):
    """One candidate that was tried and its outcome, for the ledger.

    `idea` is None where it came without one. `times`, `built`, the compile report of its screening, `sweep`, over its
    tunables where it has any, and `tuned`, what Triton's autotuner took once it was verified: of an accepted one, of
    the search's latest ones alone.
    """

    seq: int
    idea: Mapping[str, Any] | None
    verdict: str | None
    gate: str | None
    score: float | None
    reason: str | None
    ci_low: float | None = None
    ci_high: float | None = None
    times: tuple[BenchTime, ...] = ()
    built: Mapping[str, Any] | None = None
    sweep: Mapping[str, Any] | None = None
    tuned: tuple[str, ...] = ()


LEAST_SWEEP_S = 0.01
"""Device seconds of the shortest sweep that requests name: shares are fractions, whose sum may leave a little."""


@dataclass(frozen=True)
class ExpectedSweep:
    """The device seconds that a candidate's sweep may hold, and how many configurations it should time in them.

    timed: at the pace of the search's sweeps so far, MOST_CONFIGURATIONS at most; None where there was none.
    """

    seconds: float = SWEEP_S
    timed: int | None = None

    @property
    def is_worthwhile(self) -> bool:
        """Whether it should time a configuration beside the default, which is the first."""
        return self.seconds >= LEAST_SWEEP_S and (self.timed is None or self.timed > 1)


@dataclass(frozen=True)
class Work:
    """A claimed attempt with all that its step needs.

    op: the spec's document. model: the search's model document. level: of a judge or verify step. node: the step's own;
    parent: the node that its idea builds on (for ideate: the node itself), None where that is the root. baselines: the
    root's verdict; while it travels in a bundle, that of the latest other search of the op on the target (`earlier`),
    None without one. best: the champion so far. Model steps alone have both, `ledger` (ideate: all ideas tried so far),
    `asked` (ideate: how often ideas were asked for on this node before), `variants` (code: of how many candidates
    for its idea this is one) and `replies` (those that the step had before it was put off). A judge step has
    `known_binaries`: the first node of every binary that the search judged. counterexamples: of the op, newest first;
    of a candidate's steps and of model steps. other: a second candidate to build on, where there is a parent: for
    ideate one that is faster than the parent on the bench workloads `leads_on`, for code one that the idea names.
    joins: the search's policy joins candidates by size itself. sweep_s: of a screening, the device seconds that its
    sweep may hold, None where the budget does not limit them or it has none; of a verification, for `configurations`:
    the values of those that its sweep found faster than the chosen one on some workload. `expected_sweep`, of model
    steps: what the sweep of a new candidate has. reached: the quota of its team that keeps the step from spending; None
    where it may.
    """

    attempt_id: str
    search_id: str
    kind: StepKind
    ordinal: int
    params: dict[str, Any]
    tries: int
    deferrals: int
    op: dict[str, Any]
    target: str
    language: str
    model: dict[str, Any]
    level: Level | None
    node: NodeRecord
    parent: NodeRecord | None
    baselines: Verdict | None
    best: NodeRecord | None
    earlier: bool = False
    ledger: tuple[Tried, ...] = ()
    asked: int = 0
    variants: int = 1
    replies: int = 0
    known_binaries: Mapping[str, int] = field(default_factory=dict)
    counterexamples: tuple[Counterexample, ...] = ()
    other: NodeRecord | None = None
    leads_on: tuple[str, ...] = ()
    joins: bool = False
    sweep_s: float | None = None
    expected_sweep: ExpectedSweep = ExpectedSweep()
    configurations: tuple[Mapping[str, int], ...] = ()
    reached: Usage | None = None

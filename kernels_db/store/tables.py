"""Every table of Warpsmith, in SQLAlchemy 2.0 style.

SQLite and PostgreSQL share the one definition. Rows are created and changed only through `kernels_db.store`
(plain records), `workers.steps` (a search's state) and `warpsmith.workers.reverification` (whether a kernel
still holds). Times are UTC epoch seconds as floats: they compare alike on both databases and survive JSON.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Integer, LargeBinary, String, Text, UniqueConstraint
from sqlalchemy.engine.default import DefaultExecutionContext
from sqlalchemy.orm import Mapped, mapped_column

from warpsmith.kernels_db.store.table_base import Base, Document, Leased

METADATA = Base.metadata
"""All of them."""

DEFAULT_TEAM = "default"
"""The team of keys and searches that name none, and of a service without keys."""

SHIPPED = ""
"""The team of the kernels that ship: everyone reads them."""


class TeamRow(Base):
    """A team of API keys and of what they submit; it is never deleted. A quota that is None has no limit."""

    __tablename__ = "teams"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    visibility: Mapped[str] = mapped_column(String(16))  # shared: other teams may read it; private: they may not
    open_searches: Mapped[int | None]
    candidates_a_day: Mapped[int | None]
    cost_usd_a_day: Mapped[float | None]
    device_seconds_a_day: Mapped[float | None]
    created_at: Mapped[float]


class TeamDayRow(Base):
    """What a team spent on one day of UTC; it changes in the transaction that spends."""

    __tablename__ = "team_days"
    team: Mapped[str] = mapped_column(String(64), primary_key=True)
    day: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # since the epoch
    candidates: Mapped[int]
    cost_usd: Mapped[float]
    device_seconds: Mapped[float]


class TurnRow(Base):
    """When a team last had a step of a queue, for queues in which several teams wait."""

    __tablename__ = "turns"
    queue: Mapped[str] = mapped_column(String(80), primary_key=True)
    team: Mapped[str] = mapped_column(String(64), primary_key=True)
    taken_at: Mapped[float]


class HoldingRow(Base):
    """A team that submitted an op or a pool, which is stored once; one without any team is everyone's."""

    __tablename__ = "holdings"
    object_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    team: Mapped[str] = mapped_column(String(64), primary_key=True)


class OpRow(Base):
    """An op spec as submitted; the same spec is stored once (`digest`)."""

    __tablename__ = "ops"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(128), index=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    spec: Mapped[dict[str, Any]] = mapped_column(Document)
    created_at: Mapped[float]


class WorkloadRow(Base):
    """One binding of an op's axes for a device type (`cpu` or `cuda`)."""

    __tablename__ = "workloads"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    op_id: Mapped[str] = mapped_column(ForeignKey("ops.id"))
    device: Mapped[str] = mapped_column(String(16))
    name: Mapped[str] = mapped_column(String(128))
    role: Mapped[str] = mapped_column(String(16))
    axes: Mapped[dict[str, Any]] = mapped_column(Document)
    __table_args__ = (UniqueConstraint("op_id", "device", "name"),)


class PoolRow(Base):
    """A recorded pool of model replies, from which searches replay."""

    __tablename__ = "pools"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    header: Mapped[dict[str, Any]] = mapped_column(Document)
    replies: Mapped[int]
    created_at: Mapped[float]


class PoolReplyRow(Base):
    """One recorded reply; `ordinal` counts the replies to the same request (re-asks)."""

    __tablename__ = "pool_replies"
    pool_id: Mapped[str] = mapped_column(ForeignKey("pools.id"), primary_key=True)
    request: Mapped[str] = mapped_column(String(64), primary_key=True)
    ordinal: Mapped[int] = mapped_column(primary_key=True)
    reply: Mapped[dict[str, Any]] = mapped_column(Document)


class SearchRow(Base):
    """One run of the tree search.

    The counters change in the transaction that spends: a budget survives any restart.
    """

    __tablename__ = "searches"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    op_id: Mapped[str] = mapped_column(ForeignKey("ops.id"), index=True)
    target: Mapped[str] = mapped_column(String(64))
    language: Mapped[str] = mapped_column(String(16))
    policy: Mapped[dict[str, Any]] = mapped_column(Document)
    budget: Mapped[dict[str, Any]] = mapped_column(Document)
    model: Mapped[dict[str, Any]] = mapped_column(Document)
    state: Mapped[str] = mapped_column(String(16))  # queued running paused finished failed cancelled
    reason: Mapped[str | None] = mapped_column(Text)
    problem: Mapped[dict[str, Any] | None] = mapped_column(Document)  # {field, found, expected} of a failed search
    best_node_id: Mapped[str | None] = mapped_column(String(32))
    round: Mapped[int] = mapped_column(default=0)  # the latest that was started
    next_seq: Mapped[int] = mapped_column(default=1)
    candidates: Mapped[int] = mapped_column(default=0)
    model_calls: Mapped[int] = mapped_column(default=0)
    tokens: Mapped[int] = mapped_column(BigInteger, default=0)
    cost_usd: Mapped[float] = mapped_column(default=0.0)
    unpriced_calls: Mapped[int] = mapped_column(default=0, server_default="0")  # of unknown cost: not in cost_usd
    gpu_seconds: Mapped[float] = mapped_column(default=0.0, server_default="0")  # the device held by the judge for it
    try_seconds: Mapped[float] = mapped_column(default=0.0, server_default="0")  # held for tries, not among these
    sweep_seconds: Mapped[float] = mapped_column(default=0.0, server_default="0")  # of gpu_seconds, held for sweeps
    active_s: Mapped[float] = mapped_column(default=0.0)  # running time so far, pauses left out
    running_since: Mapped[float | None]
    branched_from: Mapped[str | None] = mapped_column(String(32))  # the node of an older search that it starts from
    team: Mapped[str] = mapped_column(String(64), default=DEFAULT_TEAM, server_default=DEFAULT_TEAM)
    created_at: Mapped[float]
    updated_at: Mapped[float]
    pruned_at: Mapped[float | None]  # when what only its watchers needed was deleted (`workers.steps.pruning`)
    # Of the best node, -1 where there is none: kept by triggers, and written by nothing else. Lists are sorted by them.
    best_score: Mapped[float] = mapped_column(default=-1.0, server_default="-1")
    best_limit: Mapped[float] = mapped_column(default=-1.0, server_default="-1")
    # Given by people, and what they look for a search by. The policy reads none of it.
    name: Mapped[str | None] = mapped_column(String(120))
    notes: Mapped[str | None] = mapped_column(Text)
    model_name: Mapped[str | None] = mapped_column(Text)  # as a list shows it; None: unknown
    archived_at: Mapped[float | None]  # lists leave it out since then
    __table_args__ = (
        Index(None, "created_at", "id"),
        Index(None, "state", "team"),
        Index(None, "pruned_at", "updated_at"),
        Index(None, "target", "created_at", "id"),
        Index(None, "best_score", "id"),
        Index(None, "best_limit", "id"),
    )


class SearchTagRow(Base):
    """A word by which people group searches."""

    __tablename__ = "search_tags"
    search_id: Mapped[str] = mapped_column(ForeignKey("searches.id"), primary_key=True)
    tag: Mapped[str] = mapped_column(String(40), primary_key=True, index=True)


class NodeRow(Base):
    """One step of the tree.

    The root (`seq` 0) is the reference with its baselines; its verdict is the baselines'. The values that the
    policy reads are columns here, so that `advance` reads this table alone. The narrow columns come before the
    wide ones: SQLite keeps the head of a long row in place and the rest on overflow pages, which `advance` then
    never touches.
    """

    __tablename__ = "nodes"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    search_id: Mapped[str] = mapped_column(ForeignKey("searches.id"))
    seq: Mapped[int]
    parent_id: Mapped[str | None] = mapped_column(String(32))
    round: Mapped[int]
    technique: Mapped[str | None] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))  # planned coding coded judging judged closed
    repairs: Mapped[int] = mapped_column(default=0)
    verdict: Mapped[str | None] = mapped_column(String(16))
    gate: Mapped[str | None] = mapped_column(String(16))
    score: Mapped[float | None]
    ci_low: Mapped[float | None]
    ci_high: Mapped[float | None]
    limit_fraction: Mapped[float | None]
    ideation: Mapped[str] = mapped_column(String(16), default="none")  # none open done
    ideated: Mapped[int] = mapped_column(default=0)  # the last round for which ideas were asked for on this node
    verification: Mapped[str] = mapped_column(String(16), default="none")  # none open passed failed
    variant: Mapped[int] = mapped_column(default=0)
    mark: Mapped[str | None] = mapped_column(String(16))  # pinned, banned: by a person
    # model person stored branch joined
    origin: Mapped[str] = mapped_column(String(16), default="model", server_default="model")
    joins: Mapped[str | None] = mapped_column(String(64))  # numbers of the nodes that a joined one is made of, as 3,7
    language: Mapped[str | None] = mapped_column(String(16))
    source_digest: Mapped[str | None] = mapped_column(String(64))  # of the normalised source
    created_at: Mapped[float]
    updated_at: Mapped[float]
    speedups: Mapped[str | None] = mapped_column(Text)  # by bench workload, over the fastest baseline, with weights
    idea: Mapped[dict[str, Any] | None] = mapped_column(Document)
    reason: Mapped[str | None] = mapped_column(Text)  # why it was closed, or the verdict's reason
    source: Mapped[str | None] = mapped_column(Text)
    # Of the latest change, by a trigger on PostgreSQL; 0 on SQLite, and before the first change under that trigger.
    revision: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    __table_args__ = (
        UniqueConstraint("search_id", "seq"),
        Index(None, "search_id", "parent_id"),
        Index(None, "search_id", "revision"),
        Index(None, "search_id", "source_digest"),
    )


class AttemptRow(Leased):
    """One execution of one step for a node: it may wait; it ends succeeded, failed, cancelled."""

    __tablename__ = "attempts"
    search_id: Mapped[str] = mapped_column(ForeignKey("searches.id"))
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"))
    kind: Mapped[str] = mapped_column(String(16))  # ideate code judge verify
    ordinal: Mapped[int]
    params: Mapped[dict[str, Any]] = mapped_column(Document)
    deferrals: Mapped[int] = mapped_column(default=0)  # times it was put off because the model was unavailable
    not_before: Mapped[float] = mapped_column(default=0.0)
    error: Mapped[str | None] = mapped_column(Text)
    __table_args__ = (
        UniqueConstraint("node_id", "kind", "ordinal"),  # makes creation idempotent
        Index(None, "search_id", "state"),
        Index(None, "state", "lease_expires_at"),
    )


class ModelCallRow(Base):
    """One call to a model, failures included. `request` is the identity that a pool replays by."""

    __tablename__ = "model_calls"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    search_id: Mapped[str] = mapped_column(ForeignKey("searches.id"), index=True)
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"), index=True)
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id"), index=True)
    kind: Mapped[str] = mapped_column(String(16))  # reflect ideate code repair
    request: Mapped[str] = mapped_column(String(64))
    ordinal: Mapped[int] = mapped_column(default=0)  # re-asks of the same request count up
    provider: Mapped[str] = mapped_column(String(16))
    model: Mapped[str | None] = mapped_column(String(128))
    messages: Mapped[list[dict[str, str]]] = mapped_column(Document)
    reply: Mapped[str | None] = mapped_column(Text)
    finish_reason: Mapped[str | None] = mapped_column(String(32))
    error: Mapped[str | None] = mapped_column(Text)  # transport error, or why the reply could not be read
    prompt_tokens: Mapped[int | None]
    completion_tokens: Mapped[int | None]
    cost_usd: Mapped[float | None]
    latency_s: Mapped[float | None]
    created_at: Mapped[float]


class AskRow(Base):
    """A model request of agent mode that waits for an answer; the attempt waits with it."""

    __tablename__ = "asks"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    search_id: Mapped[str] = mapped_column(ForeignKey("searches.id"), index=True)
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"), index=True)
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id"))
    kind: Mapped[str] = mapped_column(String(16))
    request: Mapped[str] = mapped_column(String(64))
    ordinal: Mapped[int] = mapped_column(default=0)
    messages: Mapped[list[dict[str, str]]] = mapped_column(Document)
    issue: Mapped[int] = mapped_column(default=0, server_default="0")  # counts up when an expired ask is issued again
    state: Mapped[str] = mapped_column(String(16))  # open answered withdrawn expired
    reply: Mapped[str | None] = mapped_column(Text)
    answered_by: Mapped[str | None] = mapped_column(String(128))
    created_at: Mapped[float]
    expires_at: Mapped[float | None]
    answered_at: Mapped[float | None]
    __table_args__ = (UniqueConstraint("attempt_id", "request", "ordinal", "issue"),)


class VerdictRow(Base):
    """One whole verdict of the judge; append-only."""

    __tablename__ = "verdicts"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    search_id: Mapped[str] = mapped_column(ForeignKey("searches.id"))
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"), index=True)
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id"), unique=True)
    level: Mapped[str] = mapped_column(String(16))  # baseline screen verify
    verdict: Mapped[str] = mapped_column(String(16))
    gate: Mapped[str] = mapped_column(String(16))
    source: Mapped[str | None] = mapped_column(Text)  # the candidate as judged: repairs replace the node's
    document: Mapped[dict[str, Any]] = mapped_column(Document)
    created_at: Mapped[float]
    __table_args__ = (Index(None, "search_id", "id"),)


class ProfileRow(Leased):
    """One profiled run of a node's candidate, made on request; it ends as done or failed."""

    __tablename__ = "profiles"
    search_id: Mapped[str] = mapped_column(ForeignKey("searches.id"))
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"), index=True)
    document: Mapped[dict[str, Any]] = mapped_column(Document)
    trace: Mapped[dict[str, Any] | None] = mapped_column(Document)


class TryRow(Leased):
    """A candidate that was tried for a node before the node was answered; it ends as done or failed.

    `document` is the judge's verdict, without samples and traces; of a failed one `reason` says why there is none.
    """

    __tablename__ = "candidate_tries"
    search_id: Mapped[str] = mapped_column(ForeignKey("searches.id"), index=True)
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.id"), index=True)
    level: Mapped[str] = mapped_column(String(16))  # compile screen profile
    language: Mapped[str] = mapped_column(String(16))
    source: Mapped[str] = mapped_column(Text)
    asked_by: Mapped[str | None] = mapped_column(String(128))
    verdict: Mapped[str | None] = mapped_column(String(16))
    gate: Mapped[str | None] = mapped_column(String(16))
    reason: Mapped[str | None] = mapped_column(Text)
    score: Mapped[float | None]
    device_s: Mapped[float] = mapped_column(default=0.0)  # for which the judge held the device
    document: Mapped[dict[str, Any]] = mapped_column(Document)
    returned_at: Mapped[float | None]  # when a dropped bundle gave it back: its wait for a judge begins anew
    __table_args__ = (Index(None, "state"),)


class BundleJobRow(Base):
    """A judge job exported in a bundle; `id` is its nonce, and its verdict is taken once.

    It is of a step, a profile or a try. `screening`: of a verification that is judged only where the screening with
    that nonce comes out best; until it is merged, `attempt_id` is that screening's step. Of a candidate that was
    screened before the bundle was made it is the id of that step. `source_sha256`: of a profile, the code that it is
    of. `sweep_s`: of a verification without a step, the search's sweep seconds that are reserved for it; None where it
    has none, or the step that screens its candidate still reserves them.
    """

    __tablename__ = "bundle_jobs"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    bundle_id: Mapped[str] = mapped_column(String(32), index=True)
    search_id: Mapped[str] = mapped_column(ForeignKey("searches.id"))
    attempt_id: Mapped[str | None] = mapped_column(ForeignKey("attempts.id"), index=True)
    profile_id: Mapped[str | None] = mapped_column(ForeignKey("profiles.id"), index=True)
    try_id: Mapped[str | None] = mapped_column(ForeignKey("candidate_tries.id"), index=True)
    job_digest: Mapped[str] = mapped_column(String(64))
    workloads: Mapped[list[str] | None] = mapped_column(Document)  # their ids; None: it left before they were kept
    created_at: Mapped[float]
    merged_at: Mapped[float | None]
    screening: Mapped[str | None] = mapped_column(String(32))
    source_sha256: Mapped[str | None] = mapped_column(String(64))
    sweep_s: Mapped[float | None]


def _created_at(context: DefaultExecutionContext) -> Any:
    return context.get_current_parameters()["created_at"]  # type: ignore[no-untyped-call] # SQLAlchemy's


class KernelRow(Base):
    """A verified winner for (op, target), with its envelope and evidence."""

    __tablename__ = "kernels"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    op_id: Mapped[str] = mapped_column(ForeignKey("ops.id"))
    target: Mapped[str] = mapped_column(String(64))
    search_id: Mapped[str | None] = mapped_column(ForeignKey("searches.id"))
    node_id: Mapped[str | None] = mapped_column(ForeignKey("nodes.id"), index=True)
    language: Mapped[str] = mapped_column(String(16))
    source: Mapped[str] = mapped_column(Text)
    source_digest: Mapped[str] = mapped_column(String(64))
    score: Mapped[float]
    ci_low: Mapped[float]
    ci_high: Mapped[float]
    limit_fraction: Mapped[float | None]
    envelope: Mapped[dict[str, Any]] = mapped_column(Document)
    evidence: Mapped[dict[str, Any]] = mapped_column(Document)  # the verify verdict's document
    lineage: Mapped[list[dict[str, Any]]] = mapped_column(Document)  # root to winner
    prompts: Mapped[list[dict[str, Any]] | None] = mapped_column(Document)  # of a kernel that came without its search
    created_at: Mapped[float]
    verified_at: Mapped[float] = mapped_column(default=_created_at, server_default="0")  # when the evidence was made
    team: Mapped[str] = mapped_column(String(64), default=DEFAULT_TEAM, server_default=DEFAULT_TEAM)  # or SHIPPED
    standing: Mapped[str] = mapped_column(String(16), default="verified", server_default="verified")
    # verified (not judged again since then) holds wrong slower uncompilable: the latest re-verification's result
    reverified_at: Mapped[float | None]  # of that; None where there is none since `verified_at`
    __table_args__ = (
        UniqueConstraint("op_id", "target", "source_digest", "team"),
        Index(None, "created_at", "id"),
        Index(None, "score", "id"),
        Index(None, "search_id"),
        Index(None, "target"),
    )


class ReverificationRow(Leased):
    """One judging anew of a stored kernel; it ends as done and is kept permanently.

    (`kernel_id`, `ordinal`) makes asking idempotent. `fingerprint` and `verdict` are None where the judge gave none.
    """

    __tablename__ = "reverifications"
    kernel_id: Mapped[str] = mapped_column(ForeignKey("kernels.id"))
    ordinal: Mapped[int]
    target: Mapped[str] = mapped_column(String(64))  # the kernel's
    cause: Mapped[str] = mapped_column(String(16))  # asked schedule
    asked_by: Mapped[str | None] = mapped_column(String(128))  # the name of an API key
    team: Mapped[str | None] = mapped_column(String(64))  # whose device seconds it spends; None: nobody's
    outcome: Mapped[str | None] = mapped_column(String(16))  # holds wrong slower uncompilable unknown
    reason: Mapped[str | None] = mapped_column(Text)
    fingerprint: Mapped[str | None] = mapped_column(String(64))
    verdict: Mapped[dict[str, Any] | None] = mapped_column(Document)  # the judge's document, whole
    before: Mapped[dict[str, Any] | None] = mapped_column(Document)  # of the evidence that it was held against
    __table_args__ = (
        UniqueConstraint("kernel_id", "ordinal"),
        Index(None, "created_at", "id"),
        Index(None, "state", "lease_expires_at"),
        Index(None, "target", "finished_at"),
    )


class CounterexampleRow(Base):
    """Values on which a candidate of an op was found wrong; later candidates of the op are asked them first.

    Kept by the op's row and the type of device: a recipe names a workload and inputs of that very spec, and the values
    that it begins with are drawn on the device. Of declared workloads alone.
    """

    __tablename__ = "counterexamples"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    op_id: Mapped[str] = mapped_column(ForeignKey("ops.id"))
    device: Mapped[str] = mapped_column(String(16))  # cpu cuda
    workload: Mapped[str] = mapped_column(String(128))
    digest: Mapped[str] = mapped_column(String(64))  # of the canonical recipe
    recipe: Mapped[dict[str, Any]] = mapped_column(JSON)  # as it was written: binary JSON makes 1e300 a whole number
    description: Mapped[str] = mapped_column(Text)  # the recipe in plain words, a line for each change
    node_id: Mapped[str | None] = mapped_column(ForeignKey("nodes.id"), index=True)  # the candidate that was wrong
    kernel_id: Mapped[str | None] = mapped_column(ForeignKey("kernels.id"))  # or the kernel that was judged again
    created_at: Mapped[float]
    __table_args__ = (
        UniqueConstraint("op_id", "device", "digest"),
        Index(None, "op_id", "created_at", "id"),
    )


class ImportRow(Leased):
    """An upload that a model worker reads and stores; it ends as done or failed.

    `body` is what was sent, until the end. `result` is what was stored, `problem` why nothing was
    (`workers.imports`).
    """

    __tablename__ = "imports"
    kind: Mapped[str] = mapped_column(String(16))  # pool op
    team: Mapped[str] = mapped_column(String(64), default=DEFAULT_TEAM, server_default=DEFAULT_TEAM)
    asked_by: Mapped[str | None] = mapped_column(String(128))  # the name of an API key
    size: Mapped[int]  # bytes
    body: Mapped[bytes | None] = mapped_column(LargeBinary, deferred=True)
    stage: Mapped[str | None] = mapped_column(String(16))  # reading running storing
    done: Mapped[int] = mapped_column(default=0)  # of `total`, in this stage
    total: Mapped[int | None]
    result: Mapped[dict[str, Any] | None] = mapped_column(Document)
    problem: Mapped[dict[str, Any] | None] = mapped_column(Document)
    __table_args__ = (Index(None, "created_at", "id"), Index(None, "state", "team"))


class CampaignRow(Base):
    """A user's model whose regions are searched; the client that runs it stores each stage (`revision` counts them).

    The file itself stays with the user.
    """

    __tablename__ = "campaigns"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    model_name: Mapped[str] = mapped_column(String(255))
    model_digest: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(16))  # profiling searching measuring finished
    settings: Mapped[dict[str, Any]] = mapped_column(Document)
    progress: Mapped[dict[str, Any]] = mapped_column(Document)
    revision: Mapped[int]
    created_at: Mapped[float]
    updated_at: Mapped[float]
    team: Mapped[str] = mapped_column(String(64), default=DEFAULT_TEAM, server_default=DEFAULT_TEAM)
    __table_args__ = (Index(None, "created_at", "id"),)


class EventRow(Base):
    """Append-only history of a search; `id` is the server-sent event's id.

    Written under the search's row lock, so the ids of one search commit in order.
    """

    __tablename__ = "events"
    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)
    search_id: Mapped[str] = mapped_column(ForeignKey("searches.id"))
    node_id: Mapped[str | None] = mapped_column(String(32))
    type: Mapped[str] = mapped_column(String(32))
    payload: Mapped[dict[str, Any]] = mapped_column(Document)
    created_at: Mapped[float]
    __table_args__ = (Index(None, "search_id", "id"), {"sqlite_autoincrement": True})


class TallyRow(Base):
    """A change of a count: a trigger of the table that is counted adds it, in the transaction that changes the table.

    The sum of `change` over (`counted`, `label_1`, `label_2`) is the count; `kernels_db.store.tallies` reads the sums
    and folds the rows. A label that does not apply is empty.
    """

    __tablename__ = "tallies"
    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)
    counted: Mapped[str] = mapped_column(String(16))  # a table, or `spend`
    label_1: Mapped[str] = mapped_column(String(64))
    label_2: Mapped[str] = mapped_column(String(64))
    change: Mapped[float]


class WorkerRow(Base):
    """A worker process that reported in; it counts as alive while `seen_at` is recent."""

    __tablename__ = "workers"
    name: Mapped[str] = mapped_column(String(128), primary_key=True)
    role: Mapped[str] = mapped_column(String(16))  # model judge reconciler
    target: Mapped[str | None] = mapped_column(String(64))
    facts: Mapped[dict[str, Any]] = mapped_column(Document)  # host, pid, versions, device
    started_at: Mapped[float]
    seen_at: Mapped[float]
    draining_since: Mapped[float | None]  # it was told to end after what it has in hand; a new start begins with None


class InviteRow(Base):
    """An invitation of hosts to run workers. `digest` is the SHA-256 of its token's secret."""

    __tablename__ = "invites"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(128))
    digest: Mapped[str] = mapped_column(String(64))
    uses: Mapped[int]  # hosts that may join with it
    used: Mapped[int]
    created_at: Mapped[float]
    expires_at: Mapped[float]
    revoked_at: Mapped[float | None]


class IdempotencyRow(Base):
    """A POST of a team answered under an Idempotency-Key.

    The same body gets the same answer, another body is refused.
    """

    __tablename__ = "idempotency_keys"
    team: Mapped[str] = mapped_column(String(64), primary_key=True, server_default=DEFAULT_TEAM)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    path: Mapped[str] = mapped_column(String(255), primary_key=True)
    body_digest: Mapped[str] = mapped_column(String(64))
    status: Mapped[int]
    headers: Mapped[dict[str, Any]] = mapped_column(Document)
    response: Mapped[dict[str, Any]] = mapped_column(Document)
    created_at: Mapped[float]


class ApiKeyRow(Base):
    """An API key: `prefix` finds the row, `digest` is the SHA-256 of the secret.

    The digest is compared in constant time.
    """

    __tablename__ = "api_keys"
    prefix: Mapped[str] = mapped_column(String(16), primary_key=True)
    digest: Mapped[str] = mapped_column(String(64))
    name: Mapped[str] = mapped_column(String(128))
    team: Mapped[str] = mapped_column(String(64), default=DEFAULT_TEAM, server_default=DEFAULT_TEAM)
    scopes: Mapped[str] = mapped_column(String(64), server_default="read submit steer")  # with a space between
    created_at: Mapped[float]
    revoked_at: Mapped[float | None]


class SessionRow(Base):
    """A browser that signed in with an API key. `digest` is the SHA-256 of the cookie's value."""

    __tablename__ = "sessions"
    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    key_prefix: Mapped[str] = mapped_column(ForeignKey("api_keys.prefix"))
    created_at: Mapped[float]
    expires_at: Mapped[float]


class AuditRow(Base):
    """One change that a caller made or was refused. Append-only: a trigger refuses every update.

    Written in the transaction of the change. Old rows are deleted (`kernels_db.store.audit`).
    """

    __tablename__ = "audit"
    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)
    created_at: Mapped[float] = mapped_column(index=True)
    team: Mapped[str | None] = mapped_column(String(64))
    key_prefix: Mapped[str | None] = mapped_column(String(16))  # None where no key was needed
    key_name: Mapped[str | None] = mapped_column(String(128))
    action: Mapped[str] = mapped_column(String(64))  # the operation's id in the OpenAPI document, or the command
    object_id: Mapped[str | None] = mapped_column(String(64))
    source: Mapped[str] = mapped_column(String(64))  # the caller's address, or `command line`
    result: Mapped[str] = mapped_column(String(16))  # done, unchanged, or the status of the refusal
    __table_args__ = ({"sqlite_autoincrement": True},)

"""Full reports of verdicts: failures, times of every workload, and rooflines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.attack_summary import summarise_attack
from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.job.means import weight_of
from warpsmith.kernels_db.job.peaks import arithmetic_of, bandwidth_gbs
from warpsmith.kernels_db.job.sweep_documents import describe_sweep, describe_tuned
from warpsmith.kernels_db.spec.op import Op, SpecErrors, Target, parse_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.kernels_db.store.tables import NodeRow, OpRow, SearchRow, VerdictRow
from warpsmith.service.documents.speedups import compute_median_interval
from warpsmith.service.views.importance import ImportanceDocument, explain_times

CANDIDATE = "candidate"
PointKind = Literal["node", "parent", "champion", "baseline"]


class CompiledKernel(BaseModel):
    """One kernel of a compiled candidate."""

    name: str
    registers: int | None = Field(None, description="Per thread")
    spills: int | None = Field(None, description="Bytes per thread that did not fit in registers")
    shared: int | None = Field(None, description="Bytes of shared memory per block")


class CompileDocument(BaseModel):
    """The compiler's result for a candidate."""

    seconds: float | None = None
    cached: bool | None = Field(None, description="Whether the binary was there already")
    log: str | None = Field(None, description="The compiler's messages")
    digest: str | None = Field(None, description="Digest of the binaries and the host code")
    kernels: list[CompiledKernel] = Field(default_factory=list)


class FailureDocument(BaseModel):
    """A failure. Of wrong values: workload, tensor, index, expected, found, limit."""

    kind: str
    message: str
    workload: str | None = None
    family: str | None = Field(None, description="The input family, where the inputs were not the declared ones")
    field: str | None = None
    tensor: str | None = None
    index: list[int] | None = None
    expected: Any = None
    found: Any = None
    limit: float | str | None = None
    wrong_elements: int | None = None
    elements: int | None = None
    samples: list[dict[str, Any]] | None = Field(None, description="The worst of the examined wrong elements")
    pattern: str | None = Field(None, description="Properties that the wrong elements share")
    log: str | None = None
    eager: Any = Field(None, description="PyTorch eager's value of the element, of a counterexample")
    description: str | None = Field(
        None, description="The inputs that a search found, in plain words, a line for each change"
    )
    recipe: dict[str, Any] | None = Field(None, description="The same for the judge: it makes these inputs again")


class AttackDocument(BaseModel):
    """The search for inputs on which the candidate is wrong and PyTorch right."""

    tries: int = Field(description="Questions asked")
    seconds: float
    ratio: float | str | None = Field(
        description="The worst error as a multiple of what is allowed; null: no question was fair"
    )
    found: bool = Field(description="Whether it found such inputs: then they are the failure's")
    skipped: str | None = Field(None, description="The reason why nothing was searched")


class SweptConfigurationDocument(BaseModel):
    """One configuration of a candidate's tunables."""

    values: dict[str, int]
    time_us: dict[str, float] = Field(description="By bench workload; empty where it is out")
    rounds: int = Field(
        description="Rounds of the sweep that timed it; its times are of the last, scaled to the last of all"
    )
    unscaled: list[str] = Field(
        default_factory=list, description="Workloads whose time is as it was read: it was left early there"
    )
    failure: str | None = Field(None, description="Why it is out: it does not compile, or is wrong")


class SweepDocument(BaseModel):
    """The sweep over a candidate's tunables; the verdict is on the chosen configuration."""

    chosen: dict[str, int]
    configurations: list[SweptConfigurationDocument] = Field(description="The fastest first")
    seconds: float
    compile_s: float | None = Field(
        None, description="Seconds of the compilations, added up; null: judged before they were counted"
    )
    left_out: int = Field(0, description="Configurations for which there was no time")
    not_compiled: int = Field(0, description="Of those left out, how many were not compiled either")
    limit_s: float | None = Field(None, description="The device seconds that the budget left, where they ended it")
    summary: str = Field(description="In a line: the best, and by how much others are slower")
    importance: ImportanceDocument = Field(description="How much of the differences in time each tunable explains")


class ErrorDocument(BaseModel):
    """Relative L2 errors against the float64 reference."""

    candidate: float | str | None = None
    eager: float | str | None = None
    limit: float | str | None = None


class FamilyError(BaseModel):
    """The candidate's worst error on one family of inputs."""

    name: str
    error: float | str | None = None
    limit: float | str | None = None


class Timing(BaseModel):
    """One contender on one workload."""

    contender: str = Field(description="candidate, eager, compile, max_autotune or an expert of the op")
    time_us: float = Field(description="Median over the blocks, microseconds")
    ci95: list[float] | None = Field(description="95 % interval of that median; null for fewer than six blocks")
    samples: list[float] = Field(description="The blocks' medians in the order in which they were measured")
    speedup: float | None = Field(description="The candidate's speed-up over this baseline")
    speedup_ci95: list[float] | None = Field(description="Its 95 % interval")


class RooflinePoint(BaseModel):
    """One contender under the roofline."""

    kind: PointKind
    contender: str
    node_id: str | None = None
    seq: int | None = None
    time_us: float
    gbs: float = Field(description="The workload's bytes by this time, GB/s")
    gflops: float | None = Field(None, description="The workload's operations by this time, GFLOP/s")
    limit_fraction: float | None = Field(None, description="Share of the physical limit")


class Roofline(BaseModel):
    """A workload's work, the device's measured peaks for it, and the contenders."""

    bytes: int = Field(description="Bytes that no kernel can avoid to move")
    operations: int | None = Field(description="Operations that no kernel can avoid; null where the spec has none")
    intensity: float | None = Field(description="Operations per byte")
    arithmetic: str = Field(description="The arithmetic whose peak bounds the operations")
    bandwidth_gbs: float | None = Field(description="Measured peak at this footprint, GB/s")
    gflops: float | None = Field(description="Measured peak of this arithmetic, GFLOP/s")
    limit_us: float | None = Field(description="The time below which the workload cannot go")
    limit_by: Literal["bytes", "operations"] | None
    points: list[RooflinePoint]


class WorkloadReport(BaseModel):
    """One workload: errors, times, and its roofline."""

    id: str
    role: str
    weight: float = Field(description="How often it occurs: its part in the score")
    axes: dict[str, Any] | None = Field(description="Its sizes; null for one that the op does not declare")
    error: ErrorDocument
    families: list[FamilyError]
    repeatable: bool | None = Field(description="Whether the same inputs gave the same bits; null: not examined")
    kernels: list[str] = Field(description="Device kernels that one call ran, in order")
    timings: list[Timing] = Field(description="The candidate first")
    not_timed: dict[str, str] = Field(description="By baseline of the op: why it was not timed on this workload")
    roofline: Roofline | None = Field(description="null where nothing was timed")


class ReportDocument(BaseModel):
    """A verdict of the judge, in full."""

    node_id: str
    verdict_id: str
    level: str = Field(description="baseline, screen or verify")
    verdict: str
    gate: str
    reason: str
    created_at: float
    score: float | None
    score_ci95: list[float] | None
    failure: FailureDocument | None
    compile: CompileDocument | None
    attack: AttackDocument | None = Field(None, description="null where no search for a counterexample was asked for")
    sweep: SweepDocument | None = Field(None, description="null for a candidate without tunables, or not screened")
    tuned: str | None = Field(
        None,
        description="What Triton's autotuner took on the bench workloads of a verification; else null",
    )
    workloads: list[WorkloadReport]
    device: dict[str, Any] = Field(description="The device that it ran on, with the measured peaks")
    versions: dict[str, str]
    experts: dict[str, dict[str, str]] = Field(
        default_factory=dict, description="Of the op, by name: the packages that each imports, with their versions"
    )
    sandbox: dict[str, Any] = Field(description="The sandbox around the candidate: level and layers")
    fingerprint: str | None
    seconds: dict[str, float] = Field(description="Wall clock by gate; `exclusive`: how long the device was held")


def make_report(session: Session, node: NodeRow, verdict_id: str | None = None) -> ReportDocument | None:
    """Make the report of the node's newest verdict, or of the one of that id; None without one."""
    row = _find_verdict(session, node.id, verdict_id)
    if row is None:
        return None
    search = session.get_one(SearchRow, node.search_id)
    found = row.document
    others = list(_list_others(session, node, search))
    resolved = _resolve_workloads(session.get_one(OpRow, search.op_id), search.target)
    device = found.get("device") or {}
    failure, compiled = found.get("failure"), found.get("compile")
    attack = summarise_attack(found.get("attack"))
    return ReportDocument(
        node_id=node.id,
        verdict_id=row.id,
        level=row.level,
        verdict=row.verdict,
        gate=row.gate,
        reason=str(found.get("reason") or ""),
        created_at=row.created_at,
        score=found.get("score"),
        score_ci95=found.get("score_ci95"),
        failure=FailureDocument(**_pick_fields(FailureDocument, failure)) if failure else None,
        compile=CompileDocument(**_pick_fields(CompileDocument, compiled)) if compiled else None,
        attack=None if attack is None else AttackDocument(**attack),
        sweep=_make_sweep(found),
        tuned=describe_tuned(found.get("workloads") or []),
        workloads=[
            _make_workload(item, resolved.get(item["id"]), device, node, others)
            for item in found.get("workloads") or []
        ],
        device=device,
        versions=found.get("versions") or {},
        experts=found.get("experts") or {},
        sandbox=found.get("sandbox") or {},
        fingerprint=found.get("fingerprint"),
        seconds=found.get("seconds") or {},
    )


def _make_sweep(found: Mapping[str, Any]) -> SweepDocument | None:
    sweep = found.get("sweep")
    if not sweep:
        return None
    weights = {item["id"]: weight_of(item) for item in found.get("workloads") or []}
    return SweepDocument(
        **_pick_fields(SweepDocument, sweep),
        summary=describe_sweep(sweep, weights),
        importance=explain_times(sweep, weights),
    )


def _find_verdict(session: Session, node_id: str, verdict_id: str | None) -> VerdictRow | None:
    query = select(VerdictRow).where(VerdictRow.node_id == node_id).order_by(VerdictRow.id.desc()).limit(1)
    return session.scalar(query if verdict_id is None else query.where(VerdictRow.id == verdict_id))


Other = tuple[Literal["parent", "champion"], NodeRow, Mapping[str, float]]
"""Another node to compare with, and its candidate's time by workload."""


def _list_others(session: Session, node: NodeRow, search: SearchRow) -> Iterator[Other]:
    kinds: dict[str | None, Literal["parent", "champion"]] = {node.parent_id: "parent"}
    kinds[search.best_node_id] = "champion"
    for other_id, kind in kinds.items():
        row = session.get(NodeRow, other_id) if other_id not in (None, node.id) else None
        judged = _find_verdict(session, row.id, None) if row is not None else None
        if row is not None and judged is not None:
            workloads = judged.document.get("workloads") or []
            yield kind, row, {each["id"]: time for each in workloads if (time := each["time_us"].get(CANDIDATE))}


def _resolve_workloads(op_row: OpRow, target: str) -> dict[str, tuple[ResolvedWorkload, Op]]:
    """Resolve the op's workloads, with every axis bound; none for an old spec that fails."""
    try:
        op = parse_op(op_row.spec)
        workloads = [resolve_workload(op, item) for item in op.workloads_for(Target.parse(target))]
    except SpecErrors:
        return {}
    return {workload["id"]: (workload, op) for workload in workloads}


def _make_workload(
    item: Mapping[str, Any],
    resolved: tuple[ResolvedWorkload, Op] | None,
    device: Mapping[str, Any],
    node: NodeRow,
    others: list[Other],
) -> WorkloadReport:
    families = item.get("families") or {}
    return WorkloadReport(
        id=item["id"],
        role=item["role"],
        weight=weight_of(item),
        axes=dict(resolved[0]["axes"]) if resolved else None,
        error=ErrorDocument(**_pick_fields(ErrorDocument, item.get("error") or {})),
        families=[
            FamilyError(name=name, error=each.get("error"), limit=each.get("limit")) for name, each in families.items()
        ],
        repeatable=item.get("repeatable"),
        kernels=item.get("kernels") or [],
        timings=list(_make_timings(item)),
        not_timed=item.get("not_timed") or {},
        roofline=_make_roofline(item, resolved, device, node, others) if resolved and item["time_us"] else None,
    )


def _make_timings(item: Mapping[str, Any]) -> Iterator[Timing]:
    times, samples = item["time_us"], item.get("samples") or {}
    for name in sorted(times, key=lambda name: name != CANDIDATE):  # stable: the baselines keep their order
        yield Timing(
            contender=name,
            time_us=times[name],
            ci95=compute_median_interval(samples.get(name, [])),
            samples=samples.get(name, []),
            speedup=(item.get("speedup") or {}).get(name),
            speedup_ci95=(item.get("ci95") or {}).get(name),
        )


def _make_roofline(
    item: Mapping[str, Any],
    resolved: tuple[ResolvedWorkload, Op],
    device: Mapping[str, Any],
    node: NodeRow,
    others: list[Other],
) -> Roofline:
    workload, op = resolved
    size, operations, limit_us = workload["min_bytes"], workload["flops"], item.get("limit_us")
    peaks, arithmetic = device.get("peaks") or {}, arithmetic_of(workload, op.math)
    known = device.get("type") in ("cpu", "cuda")
    points: list[RooflinePoint] = []

    def add(kind: PointKind, contender: str, us: float, row: NodeRow | None) -> None:
        points.append(
            RooflinePoint(
                kind=kind,
                contender=contender,
                node_id=row.id if row else None,
                seq=row.seq if row else None,
                time_us=us,
                gbs=size / (us * 1e3),
                gflops=operations / (us * 1e3) if operations else None,
                limit_fraction=limit_us / us if limit_us else None,
            )
        )

    for name, us in item["time_us"].items():
        if us > 0:
            add("node" if name == CANDIDATE else "baseline", name, us, node if name == CANDIDATE else None)
    for kind, row, times in others:
        if (us := times.get(item["id"], 0.0)) > 0:
            add(kind, CANDIDATE, us, row)
    return Roofline(
        bytes=size,
        operations=operations,
        intensity=operations / size if operations and size else None,
        arithmetic=arithmetic,
        bandwidth_gbs=bandwidth_gbs(workload, device["type"], peaks) if known else None,
        gflops=(peaks.get("gflops") or {}).get(arithmetic),
        limit_us=limit_us,
        limit_by=item.get("limit_by"),
        points=points,
    )


def _pick_fields(model: type[BaseModel], document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: document[name] for name in model.model_fields if name in document}

"""Exemplars: verified kernels of other ops that are worth reading for an op. Takes a Session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Text, case, cast, func, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.spec.op import Op, Target
from warpsmith.kernels_db.store.exemplar import Exemplar
from warpsmith.kernels_db.store.lineage import last_idea
from warpsmith.kernels_db.store.records import parsed
from warpsmith.kernels_db.store.structure import LEAST, likeness, structure
from warpsmith.kernels_db.store.tables import KernelRow, OpRow
from warpsmith.kernels_db.store.teams import is_readable

MOST_OPS = 1000
"""Ops with such kernels that are looked at, the newest. They are parsed once in a process; later only ids are read."""

NEARLY_AS_ALIKE = 0.2
"""An op whose likeness is below the likest's by more comes after those within it, whatever its technique."""

MOST_OF_AN_OP, MOST_READ = 4, 40
"""Kernels of an op that are compared, and kernels of all ops whose lineage is read."""


class _Made(NamedTuple):
    """What is asked of a stored op, whose spec never changes."""

    digest: str
    name: str
    description: str
    features: frozenset[str]


_MADE: dict[str, _Made | None] = {}


def find_exemplars(
    session: Session, op: Op, target: Target, language: str, technique: str | None, most: int, team: str | None
) -> tuple[Exemplar, ...]:
    """Return up to `most` kernels of other ops in `language` that are worth reading, each of another op.

    Of the target's type of device, that `team` may read, that surely beat the fastest baseline, that an idea led to,
    and whose ops are made of the same (`structure`). First the ops that are nearly as alike as the likest, within each
    part those that won by `technique`, then the likest ops, then the same architecture, then the fastest: the same rows
    give the same kernels in the same order.
    """
    wanted = structure(op)
    if not wanted or most <= 0:
        return ()
    usable = (
        KernelRow.language == language,
        KernelRow.target.startswith(f"{target.device}:"),
        KernelRow.standing.in_(("verified", "holds")),
        KernelRow.ci_low > 1.0,
        *is_readable(KernelRow.team, team),
    )
    of_ops = select(OpRow.id).where(OpRow.id.in_(select(KernelRow.op_id).where(*usable)))
    newest = session.scalars(of_ops.order_by(OpRow.created_at.desc(), OpRow.id.desc()).limit(MOST_OPS)).all()
    alike: dict[str, tuple[float, _Made]] = {}
    for op_id, other in _read_ops(session, newest).items():
        if other is not None and other.digest != op.semantic_digest:
            found = likeness(wanted, other.features)
            if found >= LEAST:
                alike[op_id] = found, other
    candidates = _find_kernels(session, usable, {op_id: found for op_id, (found, _) in alike.items()}, target)
    ideas = _read_ideas(session, list(candidates))
    nearest = max((alike[candidates[kernel_id]][0] for kernel_id in ideas), default=0.0) - NEARLY_AS_ALIKE

    def precedence(kernel_id: str) -> tuple[bool, bool]:
        return alike[candidates[kernel_id]][0] < nearest, ideas[kernel_id]["technique"] != technique

    in_order = sorted(ideas, key=precedence)  # keeps the order of equals
    by_op = {alike[candidates[kernel_id]][1].name: kernel_id for kernel_id in reversed(in_order)}
    chosen = [kernel_id for kernel_id in in_order if by_op[alike[candidates[kernel_id]][1].name] == kernel_id][:most]
    return _read_kernels(session, [(one, alike[candidates[one]][1], ideas[one]) for one in chosen], wanted)


def _read_ops(session: Session, op_ids: Sequence[str]) -> dict[str, _Made | None]:
    """Return what these ops are made of; None for a spec that this version does not take. Only new ones are read."""
    if len(_MADE) > 4 * MOST_OPS:
        _MADE.clear()
    unknown = [op_id for op_id in op_ids if op_id not in _MADE]
    if unknown:
        for op_id, spec in session.execute(select(OpRow.id, OpRow.spec).where(OpRow.id.in_(unknown))).tuples():
            other = parsed(op_id, spec)
            _MADE[op_id] = None if other is None else _describe(other)
    return {op_id: _MADE.get(op_id) for op_id in op_ids}


def _describe(op: Op) -> _Made:
    return _Made(op.semantic_digest, op.name, op.description or "", structure(op))


def _find_kernels(
    session: Session, usable: Sequence[ColumnElement[bool]], alike: Mapping[str, float], target: Target
) -> dict[str, str]:
    """Return MOST_READ kernels with their ops: of the likest ops, of the same architecture, the fastest.

    No op has more than MOST_OF_AN_OP, so that one with many kernels leaves the others their place.
    """
    if not alike:
        return {}
    elsewhere = case((KernelRow.target == str(target), 0), else_=1)
    order = (elsewhere, KernelRow.score.desc(), KernelRow.source_digest, KernelRow.id)
    place = func.row_number().over(partition_by=KernelRow.op_id, order_by=order).label("place")
    columns = (KernelRow.id, KernelRow.op_id, elsewhere.label("elsewhere"), KernelRow.score, KernelRow.source_digest)
    has_idea = cast(KernelRow.lineage, Text).contains('"mechanism"')  # one without takes no other's place
    ranked = select(*columns, place).where(KernelRow.op_id.in_(list(alike)), *usable, has_idea).subquery()
    rows = session.execute(select(ranked).where(ranked.c.place <= MOST_OF_AN_OP)).all()
    best = sorted(rows, key=lambda row: (-alike[row.op_id], row.elsewhere, -row.score, row.source_digest, row.id))
    return {row.id: row.op_id for row in best[:MOST_READ]}


def _read_ideas(session: Session, kernel_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return the ideas by which these kernels won, in their order; those without one are left out."""
    if not kernel_ids:
        return {}
    query = select(KernelRow.id, KernelRow.lineage).where(KernelRow.id.in_(kernel_ids))
    lineages = dict(session.execute(query).tuples().all())
    found = {kernel_id: last_idea(lineages.get(kernel_id, [])) for kernel_id in kernel_ids}
    return {kernel_id: idea for kernel_id, idea in found.items() if idea is not None}


def _read_kernels(
    session: Session, chosen: Sequence[tuple[str, _Made, Mapping[str, Any]]], wanted: frozenset[str]
) -> tuple[Exemplar, ...]:
    """Read the kernels that were chosen, each with its op and idea; those that are gone meanwhile are left out."""
    if not chosen:
        return ()
    columns = (
        KernelRow.id,
        KernelRow.target,
        KernelRow.source,
        KernelRow.score,
        KernelRow.ci_low,
        KernelRow.ci_high,
        KernelRow.limit_fraction,
    )
    query = select(*columns).where(KernelRow.id.in_([kernel_id for kernel_id, _, _ in chosen]))
    rows = {row.id: row for row in session.execute(query)}
    return tuple(
        Exemplar(
            kernel_id=kernel_id,
            op=made.name,
            description=made.description,
            target=rows[kernel_id].target,
            source=rows[kernel_id].source,
            speedup=rows[kernel_id].score,
            low=rows[kernel_id].ci_low,
            high=rows[kernel_id].ci_high,
            share=rows[kernel_id].limit_fraction,
            idea=idea,
            shared=tuple(sorted(wanted & made.features)),
        )
        for kernel_id, made, idea in chosen
        if kernel_id in rows
    )

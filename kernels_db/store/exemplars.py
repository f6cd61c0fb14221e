"""Exemplars: verified kernels of other ops that are worth reading for an op. Takes a Session."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.spec.op import Op, Target
from warpsmith.kernels_db.store.records import MOST_KERNELS, parsed
from warpsmith.kernels_db.store.structure import LEAST, likeness, structure
from warpsmith.kernels_db.store.tables import KernelRow, OpRow
from warpsmith.kernels_db.store.teams import is_readable

_PARTS = ("technique", "title", "mechanism")
"""Parts of an idea that say how a kernel won."""


@dataclass(frozen=True)
class Exemplar:
    """A verified kernel that surely beat every baseline, and the idea that it won by.

    op, description: of its op. speedup, low, high: over the fastest baseline, with the 95 % interval. share: of the
    physical limit, None where it is not known. idea: the last of its lineage. shared: the features that both ops have.
    """

    kernel_id: str
    op: str
    description: str
    target: str
    source: str
    speedup: float
    low: float
    high: float
    share: float | None
    idea: Mapping[str, Any]
    shared: tuple[str, ...]


def find_exemplars(
    session: Session, op: Op, target: Target, language: str, technique: str | None, most: int, team: str | None
) -> tuple[Exemplar, ...]:
    """Return up to `most` kernels of other ops in `language` that are worth reading, each of another op.

    Of the target's type of device, that `team` may read, that surely beat the fastest baseline, and whose ops are made
    of the same (`structure`). First those that won by `technique`, then the likest ops, then the same architecture,
    then the fastest: the same rows give the same kernels in the same order.
    """
    wanted = structure(op)
    if not wanted:
        return ()
    columns = (
        KernelRow.id,
        KernelRow.target,
        KernelRow.source,
        KernelRow.source_digest,
        KernelRow.score,
        KernelRow.ci_low,
        KernelRow.ci_high,
        KernelRow.limit_fraction,
        KernelRow.lineage,
        OpRow.id.label("op_id"),
        OpRow.name,
        OpRow.spec,
    )
    rows = session.execute(
        select(*columns)
        .join(OpRow, OpRow.id == KernelRow.op_id)
        .where(
            KernelRow.language == language,
            KernelRow.target.startswith(f"{target.device}:"),
            KernelRow.standing.in_(("verified", "holds")),
            KernelRow.ci_low > 1.0,
            *is_readable(KernelRow.team, team),
        )
        .order_by(KernelRow.score.desc(), KernelRow.source_digest)
        .limit(MOST_KERNELS)
    )
    found: list[tuple[tuple[bool, float, bool], Exemplar]] = []
    for row in rows:
        other, idea = parsed(row.op_id, row.spec), _last_idea(row.lineage)
        if other is None or idea is None or other.semantic_digest == op.semantic_digest:
            continue
        features = structure(other)
        alike = likeness(wanted, features)
        if alike < LEAST:
            continue
        exemplar = Exemplar(
            kernel_id=row.id,
            op=row.name,
            description=other.description or "",
            target=row.target,
            source=row.source,
            speedup=row.score,
            low=row.ci_low,
            high=row.ci_high,
            share=row.limit_fraction,
            idea=idea,
            shared=tuple(sorted(wanted & features)),
        )
        found.append(((idea["technique"] != technique, -alike, row.target != str(target)), exemplar))
    found.sort(key=lambda one: one[0])  # which keeps the order of equals
    by_op = {exemplar.op: exemplar for _, exemplar in reversed(found)}
    return tuple(exemplar for _, exemplar in found if by_op[exemplar.op] is exemplar)[:most]


def _last_idea(lineage: list[dict[str, Any]]) -> Mapping[str, Any] | None:
    """Return the idea of a kernel's last step that had one; None where none says how it won."""
    for entry in reversed(lineage):
        idea = entry.get("idea")
        if isinstance(idea, Mapping) and all(isinstance(idea.get(part), str) for part in _PARTS):
            return idea
    return None

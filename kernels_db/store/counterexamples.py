"""Counterexamples of ops: kept with the verdicts that found them, asked of every later candidate.

They belong to an op's row, as its workloads and kernels do, rather than to its semantic digest: a recipe begins with
the values that this very spec declares for one of its workloads, and neither is part of that digest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import bindparam, delete, select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.job.attack_documents import Recipe
from warpsmith.kernels_db.job.bundle import canonical, digest
from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import CounterexampleRow, OpRow, WorkloadRow

MOST_KEPT = 32
"""Counterexamples of one op on one type of device: the newest stay."""

MOST_ASKED = 8
"""Counterexamples that a job carries: as many as the judge asks."""

MOST_BYTES = 8_192
"""Of a recipe. The judge's own have a few hundred; a verdict may come from a host that runs something else."""

MOST_CHARS = 2_000
"""Of a description."""


def _newest_first() -> tuple[Any, Any]:
    return CounterexampleRow.created_at.desc(), CounterexampleRow.id.desc()


_OF_WORKLOAD = (
    (WorkloadRow.op_id == CounterexampleRow.op_id)
    & (WorkloadRow.device == CounterexampleRow.device)
    & (WorkloadRow.name == CounterexampleRow.workload)
)
_KNOWN = (
    select(CounterexampleRow.recipe, CounterexampleRow.description, WorkloadRow.role)
    .join(WorkloadRow, _OF_WORKLOAD)
    .where(CounterexampleRow.op_id == bindparam("op_id"), CounterexampleRow.device == bindparam("device"))
    .order_by(*_newest_first())
    .limit(MOST_KEPT)
)


@dataclass(frozen=True)
class Counterexample:
    """Values on which a candidate of the op was wrong.

    `description`: in plain words, a line for each change. `hidden`: its workload is a hold-out, of which no prompt
    tells.
    """

    recipe: Recipe
    description: str
    hidden: bool


def found_recipe(document: Mapping[str, Any]) -> Recipe | None:
    """Return the recipe on which a full verification found its candidate wrong; None where there is none.

    None, too, where the host may be at fault, and of a document that is no recipe.
    """
    failure = document.get("failure") or {}
    if document.get("level") != "verify" or document.get("verdict") != "rejected" or failure.get("cause"):
        return None
    found = failure.get("recipe")
    return cast("Recipe", found) if _is_recipe(found) else None


def lock_op(session: Session, op_id: str) -> None:
    """Lock an op's row for its counterexamples, before any kernel's.

    Two searches of one op take turns: neither keeps what the other just did, and both see all that is to be dropped.
    """
    session.execute(select(OpRow.id).where(OpRow.id == op_id).with_for_update(key_share=True))


def keep_counterexample(
    session: Session,
    op_id: str,
    target: str,
    document: Mapping[str, Any],
    now: float,
    *,
    node_id: str | None = None,
    kernel_id: str | None = None,
) -> None:
    """Keep what a verdict found, in the verdict's transaction; nothing where it is known.

    Of a workload that the op declares for the target's type of device: no other job has a hold-out that was derived
    for this one. `document`: the verdict as it is stored.
    """
    recipe = found_recipe(document)
    if recipe is None:
        return
    device = _device(target)
    declared = select(WorkloadRow.id).where(
        WorkloadRow.op_id == op_id, WorkloadRow.device == device, WorkloadRow.name == recipe["workload"]
    )
    if session.scalar(declared) is None:
        return
    lock_op(session, op_id)
    here = CounterexampleRow.op_id == op_id, CounterexampleRow.device == device
    name = digest(recipe)
    if session.scalar(select(CounterexampleRow.id).where(*here, CounterexampleRow.digest == name)) is not None:
        return
    session.add(
        CounterexampleRow(
            id=new_id("cx"),
            op_id=op_id,
            device=device,
            workload=recipe["workload"],
            digest=name,
            recipe=dict(recipe),
            description=str(document["failure"].get("description") or "")[:MOST_CHARS],
            node_id=node_id,
            kernel_id=kernel_id,
            created_at=now,
        )
    )
    session.flush()
    newest = select(CounterexampleRow.id).where(*here).order_by(*_newest_first())
    dropped = session.scalars(newest.offset(MOST_KEPT)).all()
    if dropped:
        session.execute(delete(CounterexampleRow).where(CounterexampleRow.id.in_(dropped)))


def known_counterexamples(session: Session, op_id: str, target: str) -> tuple[Counterexample, ...]:
    """Return the counterexamples of an op on a target's type of device, newest first."""
    rows = session.connection().execute(_KNOWN, {"op_id": op_id, "device": _device(target)})
    return tuple(Counterexample(cast("Recipe", recipe), said, role == "holdout") for recipe, said, role in rows)


def ask_first(job: Job, known: Sequence[Counterexample]) -> None:
    """Have a candidate's job ask some of the op's counterexamples, newest first, before anything else.

    At most MOST_ASKED, of the job's own workloads: the newest of each workload comes before the second of any.
    """
    workloads = {workload["id"] for workload in job["workloads"]}
    able = [one.recipe for one in known if one.recipe["workload"] in workloads]
    earlier: Counter[str] = Counter()
    ranked = []
    for place, recipe in enumerate(able):
        ranked.append((earlier[recipe["workload"]] > 0, place))
        earlier[recipe["workload"]] += 1
    chosen = sorted(place for _, place in sorted(ranked)[:MOST_ASKED])
    if chosen:
        job["op"]["counterexamples"] = [able[place] for place in chosen]


def _device(target: str) -> str:
    return target.partition(":")[0]


def _is_recipe(found: Any) -> bool:
    """Check that a document has the form of a recipe; whether its moves can be made, the judge checks."""
    if not isinstance(found, Mapping) or found.keys() != Recipe.__required_keys__:
        return False
    changes = found["changes"]
    fits = isinstance(found["workload"], str) and type(found["seed"]) is int and isinstance(changes, list)
    return fits and all(isinstance(change, Mapping) for change in changes) and len(canonical(found)) <= MOST_BYTES

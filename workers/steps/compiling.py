"""Where a try at level compile goes: to a live worker that says it can compile for the target.

Judges, and the workers that only compile, announce with their heartbeat what they compile
(`machine.describe_compilers`). One of the target is preferred; where each of them has all of its slots taken, or none
is alive, those of processors take the try as well. The first that claims it has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.orm import Session

from warpsmith.kernels_db.store.tables import (
    AttemptRow,
    ImportRow,
    ProfileRow,
    ReverificationRow,
    TryRow,
    WorkerRow,
)
from warpsmith.workers.queue_names import compile_queue, judge_queue
from warpsmith.workers.settings import ALIVE_AFTER_S

HELD = (AttemptRow, ImportRow, ProfileRow, ReverificationRow, TryRow)
"""What a worker may have in hand."""

LONGEST_NAME = 90
"""Characters of a worker's name in the owner of a lease."""

MOST_NAMED = 3
"""Judges whose lack a message tells."""


@dataclass(frozen=True)
class JudgeWorker:
    """A live worker that judges, or only compiles.

    compiles: by target (`cuda:sm_90`) or type of device (`cuda`) and by language, what the worker lacks for it; empty
    where it leaves that to others; None of one that announces nothing, which takes its own target from its judge queue.
    busy: each of its slots is taken.
    """

    name: str
    target: str
    compiles: Mapping[str, Mapping[str, Sequence[str]]] | None = None
    busy: bool = False
    queue: str = field(init=False)

    def __post_init__(self) -> None:
        name = judge_queue if self.compiles is None else compile_queue
        object.__setattr__(self, "queue", name(self.target))

    def find_missing(self, target: str, language: str) -> Sequence[str] | None:
        """Return what this worker lacks to compile for a target; None where it does not compile for it at all."""
        if self.compiles is None:
            return () if self.target == target else None
        languages = self.compiles.get(target) or self.compiles.get(target.partition(":")[0])
        return None if languages is None else languages.get(language)

    def can_compile(self, target: str, language: str) -> bool:
        """Check whether this worker compiles for a target and lacks nothing for it."""
        missing = self.find_missing(target, language)
        return missing is not None and not missing


def count_in_hand(session: Session) -> Counter[str]:
    """Count what each worker has in hand, by its name's first LONGEST_NAME characters."""
    running: Counter[str] = Counter()
    for table in HELD:
        running.update(map(name_holder, session.scalars(select(table.owner).where(table.state == "running"))))
    return running


def name_holder(owner: str | None) -> str:
    """Return the worker in the owner of a lease (`WorkerProcess.claim_token`)."""
    return (owner or "").rsplit(":", 2)[0]


def list_judges(session: Session, now: float) -> list[JudgeWorker]:
    """List the workers with a judge that are alive and take steps or tries."""
    serves = WorkerRow.seen_at >= now - ALIVE_AFTER_S, WorkerRow.draining_since.is_(None)
    of_judge = WorkerRow.role.in_(("judge", "compile")), WorkerRow.target.is_not(None)
    rows = session.scalars(select(WorkerRow).where(*of_judge, *serves).order_by(WorkerRow.name)).all()
    in_hand = count_in_hand(session) if rows else Counter()
    return [
        JudgeWorker(
            name=row.name,
            target=row.target or "",
            compiles=row.facts.get("compiles"),
            busy=in_hand[row.name[:LONGEST_NAME]] >= row.facts.get("slots", 1),
        )
        for row in rows
        if "ill" not in row.facts
    ]


def choose_queues(judges: Sequence[JudgeWorker], target: str, language: str) -> list[str]:
    """Return the queues to which a try at level compile is sent, the preferred first; none where no judge can."""
    able = [judge for judge in judges if judge.can_compile(target, language)]
    own = [judge for judge in able if judge.target == target]
    if any(not judge.busy for judge in own):
        able = own
    return list(dict.fromkeys(judge.queue for judge in sorted(able, key=lambda judge: judge.target != target)))


def describe_lack(judges: Sequence[JudgeWorker], target: str, language: str) -> str:
    """Say why no judge compiles a language for a target, by the names of what is missing."""
    lacks = {judge.name: missing for judge in judges if (missing := judge.find_missing(target, language))}
    if lacks:
        told = [f"{name}: {'; '.join(missing)}" for name, missing in list(lacks.items())[:MOST_NAMED]]
        return "no judge that is alive has the compiler; " + "; ".join(told)
    if judges:
        named = ", ".join(f"{judge.name} of {judge.target}" for judge in judges[:MOST_NAMED])
        return f"no judge that is alive compiles for it ({named})"
    return "no judge worker is alive"

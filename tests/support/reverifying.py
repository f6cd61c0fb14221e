"""Stored kernels for tests of re-verification: rows with evidence, and a judge that says what it is told to."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import select

from tests.support.fleet import TARGET
from tests.support.steps_support import verdict
from warpsmith.kernels_db.job.documents import Job, Verdict
from warpsmith.kernels_db.spec.op import Op
from warpsmith.kernels_db.store import records
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.tables import KernelRow, ReverificationRow, WorkerRow
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.settings import Settings

SOURCE = "def run(x, y, out):\n    pass\n"


def evidence(fingerprint: str = "f", score: float = 2.0) -> dict[str, Any]:
    """What a kernel was kept for."""
    return dict(verdict("verify", score=score, fingerprint=fingerprint))


def keep(db: Database, op: Op, source: str = SOURCE, *, at: float | None = None, **values: Any) -> str:
    """Store a kernel of `op` that no search made; returns its id."""
    now = time.time() if at is None else at
    with db.writing() as session:
        row, _ = records.add_op(session, op)
        kernel = KernelRow(
            id=new_id("kn"),
            op_id=row.id,
            created_at=now,
            **{
                "target": TARGET,
                "language": "cpp",
                "source": source,
                "source_digest": normalised_digest(f"{source}\nUNLIKE = '{new_id('xx')}'"),
                "score": 2.0,
                "ci_low": 1.9,
                "ci_high": 2.1,
                "limit_fraction": None,
                "envelope": {},
                "evidence": evidence(),
                "lineage": [],
                **values,
            },
        )
        session.add(kernel)
        return kernel.id


def kernel(db: Database, kernel_id: str) -> KernelRow:
    """A kernel's row."""
    with db.reading() as session:
        return session.get_one(KernelRow, kernel_id)


def history(db: Database, kernel_id: str) -> list[ReverificationRow]:
    """A kernel's re-verifications, oldest first."""
    query = select(ReverificationRow).where(ReverificationRow.kernel_id == kernel_id)
    with db.reading() as session:
        return list(session.scalars(query.order_by(ReverificationRow.ordinal)))


def report_judge(db: Database, started_at: float, seen_at: float, target: str = TARGET) -> None:
    """A judge worker of the target reports in."""
    facts: dict[str, Any] = {}
    name = f"judge-{target}@here"
    with db.writing() as session:
        session.merge(
            WorkerRow(name=name, role="judge", target=target, facts=facts, started_at=started_at, seen_at=seen_at)
        )


class ToldJudge:
    """Answers each job with the next answer."""

    def __init__(self, answers: list[Verdict | Exception]) -> None:
        self.answers = answers
        self.jobs: list[Job] = []

    def judge(self, job: Job, timeout_s: float, on_wait: Callable[[], None] | None = None) -> Verdict:
        """The next answer; an exception is raised."""
        assert timeout_s > 0
        self.jobs.append(job)
        if on_wait is not None:
            on_wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class ToldWorker(WorkerProcess):
    """A worker whose judge answers what it is told to: a death cannot be ordered of a real one."""

    def __init__(self, db: Database, home: Path, *answers: Verdict | Exception) -> None:
        super().__init__(Settings(home=home))
        self.db = db
        self.double = ToldJudge(list(answers))

    def judge(self) -> Any:
        """The judge."""
        return self.double

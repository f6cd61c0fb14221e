"""A candidate to try, verdicts on it, and a worker whose judge answers what it is told to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.steps_support import verdict
from warpsmith.kernels_db.job.documents import Job, Verdict
from warpsmith.kernels_db.store.db import Database
from warpsmith.workers.judging.machine import describe_compilers
from warpsmith.workers.queue.heartbeat import Worker, beat
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.settings import Settings

RIGHT = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void add_relu(const float* x, const float* y, float* out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i] < 0 ? 0 : x[i] + y[i];
}
""")


def run(x, y, out):
    kernels.add_relu(x, y, out, out.numel())
'''
FAST = verdict("screen", score=2.5, seconds={"time": 9.0, "exclusive": 7.5})
COMPILED = verdict(
    "compile",
    "ambiguous",
    gate="compile",
    reason="it compiles; nothing of it was run",
    failure=None,
    workloads=[],
    compile={"seconds": 1.0, "log": "", "cached": False, "kernels": []},
)


def announce(db: Database, target: str, now: float, name: str = "judge@here") -> None:
    """Have a judge worker of a target report in, with what this machine compiles."""
    worker = Worker(name, "judge", target, 1, 1.0)
    beat(db, worker, {"slots": 1, "compiles": describe_compilers(target)}, now)


class Judge:
    """Answers every job alike."""

    def __init__(self, answer: Verdict | Exception) -> None:
        self.answer = answer
        self.jobs: list[Job] = []

    def judge(self, job: Job, timeout_s: float, on_wait: object = None) -> Verdict:
        self.jobs.append(job)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Here(WorkerProcess):
    """A worker whose judge answers what it is told to."""

    def __init__(self, db: Database, answer: Verdict | Exception, home: Path) -> None:
        super().__init__(Settings(home=home))
        self.db = db
        self.double = Judge(answer)

    def judge(self) -> Any:
        return self.double

"""A worker whose model and judge answer at once, to measure everything else.

Run it with `celery -A benchmarks.instant worker`. Its tasks have the names of the real ones and claim, commit,
advance and send as those do; only the work between claim and commit is gone.
"""

from __future__ import annotations

import time
from typing import Any, cast

from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.workers import steps
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.queue.tasks import perform
from warpsmith.workers.queue_names import JUDGE_TASK, MODEL_TASK
from warpsmith.workers.settings import get_settings
from warpsmith.workers.steps import Work

app = make_app(get_settings())
app.conf.include = []


def answer(here: WorkerProcess, work: Work, owner: str, following: steps.Following) -> bool:
    """Complete a step with ideas, or code that differs from node to node, without a model."""
    now = time.time()
    if work.kind == "ideate":
        ideas = [
            {"technique": "compute", "title": f"idea {number}", "mechanism": f"by way {number}"}
            for number in range(int(work.params["ideas"]))
        ]
        return steps.complete_ideate(here.db, work.attempt_id, owner, ideas, [], now, following)
    source = f"def run(x, y):\n    y[:] = {work.node.seq}\n"
    return steps.complete_code(here.db, work.attempt_id, owner, source, "cpp", [], now, following)


def accept(here: WorkerProcess, work: Work, owner: str, following: steps.Following) -> bool:
    """Complete a judge step with an accepting verdict, without a judge."""
    document: dict[str, Any] = {
        "id": work.attempt_id,
        "level": work.level,
        "verdict": "accepted",
        "gate": "time",
        "reason": "not judged: a measurement of overhead",
        "op": "scale_shift",
        "target": work.target,
        "language": work.node.language,
        "workloads": [],
        "failure": None,
        "compile": None,
        "score": None,  # nothing was measured, so nothing is kept
        "score_ci95": None,
        "sandbox": {"level": "none", "layers": []},
        "device": {},
        "versions": {},
        "fingerprint": "",
        "seconds": {},
    }
    verdict = cast("Verdict", document)
    return steps.complete_judge(here.db, work.attempt_id, owner, verdict, time.time(), following)


def model_step(attempt_id: str) -> None:
    """Run an ideate or code step."""
    perform(app, attempt_id, answer)


def judge_step(attempt_id: str) -> None:
    """Run a judge or verify step."""
    perform(app, attempt_id, accept)


app.task(model_step, name=MODEL_TASK, shared=False)
app.task(judge_step, name=JUDGE_TASK, shared=False)

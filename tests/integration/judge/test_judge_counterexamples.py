"""From a verification's counterexample to the next search's screening, by a real judge."""

from __future__ import annotations

from dataclasses import replace

from tests.support.steps_support import OP, TARGET, Driver
from warpsmith.kernels_db.job.documents import Job
from warpsmith.kernels_db.spec.op import Op, parse_op
from warpsmith.kernels_db.spec.resolve import limits_with
from warpsmith.kernels_db.store.db import Database
from warpsmith.workers import steps
from warpsmith.workers.judge.protocol.client import JudgeClient
from warpsmith.workers.queue.jobs import job_of
from warpsmith.workers.queue.model_step import request_context
from warpsmith.workers.steps import Work

LOSES_NAN = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void add_relu(const float* x, const float* y, float* out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i] > 0.0f ? x[i] + y[i] : 0.0f;
}
""")


def run(x, y, out):
    kernels.add_relu(x, y, out, x.numel())
'''
SMALL = {
    "workloads": [
        {"id": "large", "role": "bench", "axes": {"n": 20_000}},
        {"id": "small", "role": "test", "axes": {"n": 2000}},
    ],
    "objective": {"baselines": ["eager"]},
}
"""The search begins with the test workload, which a screening has only where a recipe is for it."""


def search_of(db: Database, op: Op) -> Driver:
    document = {"policy": {"name": "idea_beam"}, "budget": {}, "model": {"provider": "agent"}}
    return Driver(db, steps.create_search(db, op, TARGET, language="cpp", now=1000.0, **document))


def asked_of(work: Work, seconds: float) -> Job:
    """The job of the step, for the candidate that loses NaN."""
    job = job_of(replace(work, node=replace(work.node, source=LOSES_NAN, language="cpp")), limits_with(None))
    job["limits"] |= {"time_s": 0.05, "attack_s": seconds}
    return job


def test_what_one_verification_found_rejects_the_next_candidate_at_screening(db: Database, judge: JudgeClient) -> None:
    op = parse_op({**OP.document(), **SMALL})
    first = search_of(db, op)
    work = first.until("verify")
    verified = judge.judge(asked_of(work, 60.0), timeout_s=240)
    assert (verified["verdict"], verified["gate"]) == ("rejected", "verify"), verified["reason"]
    assert verified["failure"] is not None
    assert verified["failure"]["workload"] == "small"
    assert steps.complete_judge(db, work.attempt_id, "me", verified, first.now)

    later = search_of(db, op)
    told = request_context(later.until("code")).counterexamples
    assert told == (verified["failure"]["description"],)
    screened = judge.judge(asked_of(search_of(db, op).until("judge"), 0.0), timeout_s=240)
    assert (screened["verdict"], screened["gate"]) == ("rejected", "screen"), screened["reason"]
    assert screened["failure"] is not None
    assert screened["failure"]["kind"] == "counterexample"
    assert screened["failure"]["recipe"] == verified["failure"]["recipe"]

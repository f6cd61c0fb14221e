"""Whether an expert of an op is right on a workload: what is wrong is no baseline.

It is asked as a candidate is, on the declared inputs and by the tolerances learnt from the reference. It is not
attacked: who writes an op chooses its experts, and a wrong one can only be in their own way.
"""

from __future__ import annotations

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.workers.judge.gates.job_run import JobRun
from warpsmith.workers.judge.gates.verdict import wrong_value
from warpsmith.workers.judge.reference.answers import check_answer
from warpsmith.workers.judge.reference.baselines import WRONG, modified_input
from warpsmith.workers.judge.reference.input_checks import Question, declared
from warpsmith.workers.judge.values.workload_specs import result_positions

QUESTIONS = 3
"""On new values each: as many as a verification asks a candidate on declared inputs."""


def find_wrong(job_run: JobRun, workload: ResolvedWorkload, name: str) -> str | None:
    """Ask an expert QUESTIONS and return how it is wrong, after `WRONG`; None where it is right. Raises RunnerFault."""
    source = job_run.source(workload)
    for _ in range(QUESTIONS):
        asked = declared(job_run.runners, workload, source)
        if (wrong := _answer_wrong(job_run, workload, name, asked)) is not None:
            return f"{WRONG}{wrong}"
    return None


def _answer_wrong(job_run: JobRun, workload: ResolvedWorkload, name: str, asked: Question) -> str | None:
    runners = job_run.runners
    found = [tensor.clone() for tensor in runners.run(name, workload, asked.values)]
    memory = runners.runners[name].slots[0]
    if (outside := memory.broken_guard()) is not None:
        runners.unbind()  # on a GPU others work in the same memory, where the mark of this would stay
        return f"writes outside of {outside}"
    if (changed := modified_input(memory, workload, asked.values)) is not None:
        return f"writes its input {changed[0]}, first at {changed[0]}{changed[1]}"
    compared = check_answer(runners, workload, asked, found)
    for (tensor, _), limit, one in zip(result_positions(workload), asked.limits, compared, strict=True):
        if not one.passed:
            own = limit is not None and limit.own is not None
            return wrong_value(one, asked.place, tensor, own)["message"].removeprefix(f"workload {asked.place}: ")
    return None

"""The counterexample search of a job: which workloads, how long, and what a failure says.

After everything else that verification asks. The smallest workload that is not trivial gets half of the time, every
other its share of the rest: a kernel may have a path of its own for each. Hold-outs that were derived for the job are
asked for special values alone: no other job has them, so a recipe is of no further use. Recipes that the op keeps
(`op.counterexamples`) are asked before anything else, at screening too.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from warpsmith.kernels_db.job.attack_documents import AttackedWorkload, Recipe
from warpsmith.kernels_db.job.documents import Failure, ResolvedWorkload
from warpsmith.kernels_db.job.shown_numbers import apart, shown
from warpsmith.workers.judge.attack.oracle import Answer, Oracle
from warpsmith.workers.judge.attack.recipe import BadRecipe, check_recipe, describe
from warpsmith.workers.judge.attack.search import MOST_TRIES, search
from warpsmith.workers.judge.attack.shrink import shrink
from warpsmith.workers.judge.gates.job_run import JobRun
from warpsmith.workers.judge.gates.verdict import json_safe
from warpsmith.workers.judge.gates.workload_run import WorkloadRun
from warpsmith.workers.judge.gates.wrong import Wrong, failure_of
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle
from warpsmith.workers.judge.values.families import elements, telling
from warpsmith.workers.judge.values.workload_specs import Values, input_specs, result_specs, workload_key

MOST_KNOWN = 8
"""Recipes of the op that are asked of each candidate."""
MOST_ELEMENTS = {"cpu": 1 << 22, "cuda": 1 << 25}
"""Most elements of inputs and outputs of an attacked workload: the measure holds some ten float64 copies of them."""
SHRINK_SHARE = 0.5
"""Seconds for making a failure simple, as a share of `limits.attack_s`; at least one second."""
MOST_OF_A_HOLDOUT = 24
"""Questions of a derived hold-out: special values in single elements alone."""
_BASES = 4


@dataclass
class _Calls:
    """The candidate's calls on one workload and on variants of it with other scalars, bound as they come."""

    job_run: JobRun
    candidate: RunnerHandle
    bound: str  # the key of the workload that it is bound to
    calls: WorkloadRun | None = None

    def __call__(self, workload: ResolvedWorkload, values: Values) -> list[torch.Tensor]:
        key = workload_key(workload)
        if self.calls is None or key != self.bound:
            if key != self.bound:
                self.candidate.bind(input_specs(workload), result_specs(workload), len(self.candidate.slots))
            self.calls, self.bound = self.job_run.on_workload(workload, self.candidate), key
        return self.calls.produce(values)


def ask_known(job_run: JobRun, candidate: RunnerHandle, workloads: Sequence[ResolvedWorkload]) -> None:
    """Ask the op's own recipes of these workloads, one call each. Raises Stopped."""
    known = list(enumerate(job_run.job["op"].get("counterexamples", [])[:MOST_KNOWN]))
    if not known or job_run.interpreted:
        return
    for workload in workloads:
        mine = []
        for number, recipe in known:
            if recipe["workload"] != workload["id"]:
                continue
            try:
                check_recipe(recipe, workload, f"op.counterexamples[{number}]")
            except BadRecipe as bad:  # the op has changed since: no fault of the candidate's
                job_run.note(f"a counterexample was not asked: {bad}")
            else:
                mine.append(recipe)
        if mine:
            with job_run.bound(candidate, workload, "screen"):
                oracle = _oracle(job_run, candidate, workload)
                for recipe in mine:
                    answer = _asked(oracle, recipe)
                    if answer.failed:
                        raise Wrong(_failure(answer, workload))


def attack(job_run: JobRun, candidate: RunnerHandle) -> None:
    """Search for a counterexample, where the job gives time for it. Raises Stopped."""
    seconds = job_run.job["limits"].get("attack_s", 0.0)
    if seconds <= 0:
        return
    start = time.monotonic()
    job_run.report.attack = {"tries": 0, "seconds": 0.0, "workloads": [], "counterexample": None}
    if job_run.interpreted:
        job_run.report.attack["skipped"] = "no CUDA device: an interpreter is too slow to search with"
        return
    shares = attacked(job_run.workloads, job_run.device)
    if not shares:
        most = MOST_ELEMENTS[job_run.device.type]
        job_run.report.attack["skipped"] = f"no workload has at most {most} elements"
    try:
        for workload, share in shares:
            with job_run.bound(candidate, workload, "verify"):
                chief = workload is shares[0][0]
                _attack_workload(job_run, candidate, workload, time.monotonic() + seconds * share, chief=chief)
    finally:
        job_run.report.attack["seconds"] = round(time.monotonic() - start, 3)


def attacked(workloads: Sequence[ResolvedWorkload], device: torch.device) -> list[tuple[ResolvedWorkload, float]]:
    """Return the workloads to attack with their time, in multiples of `limits.attack_s`.

    Hold-outs that were derived for this job get none, where there is anything else: they are asked what is certain to
    be asked, for a kernel may have a path of its own for them too.
    """
    able = sorted((one for one in workloads if _size(one) <= MOST_ELEMENTS[device.type]), key=_size)
    searched = [one for one in able if not one.get("derived")] or able
    if not searched:
        return []
    first = telling(searched)
    others = [one for one in searched if one is not first]
    found = [(first, 1.0), *((one, 1.0 / len(others)) for one in others)]
    return found + [(one, 0.0) for one in able if not any(one is other for other, _ in found)]


def _size(workload: ResolvedWorkload) -> int:
    return elements(workload) + sum(spec.elements for spec in result_specs(workload))


def _attack_workload(
    job_run: JobRun, candidate: RunnerHandle, workload: ResolvedWorkload, end: float, *, chief: bool
) -> None:
    """Search on one workload until `end` and note what came of it. Raises Wrong, RunnerFault."""
    report = job_run.report.attack
    assert report is not None
    oracle = _oracle(job_run, candidate, workload)
    entry: AttackedWorkload = {"workload": workload["id"], "tries": 0, "ratio": None, "recipe": None}
    report["workloads"].append(entry)
    rng = random.Random(job_run.number())  # noqa: S311 - seeded from the job's secret
    try:
        most = MOST_OF_A_HOLDOUT if workload.get("derived") and not chief else MOST_TRIES
        seconds = end - time.monotonic()
        found = search(workload, functools.partial(_asked, oracle), rng, seconds, chief=chief, most=most)
        if found.worst is None:
            return
        worst = found.worst
        if worst.failed:
            allowed = max(1.0, job_run.job["limits"].get("attack_s", 0.0) * SHRINK_SHARE)
            worst = shrink(worst, functools.partial(_asked, oracle, thorough=False), allowed)
            simple = _asked(oracle, worst.recipe)
            worst = simple if simple.failed else found.worst
            report["counterexample"] = worst.recipe
        entry["ratio"], entry["recipe"] = worst.ratio, worst.recipe
        if worst.failed:
            raise Wrong(_failure(worst, workload))
    except Wrong as wrong:
        if report["counterexample"] is None and "recipe" in wrong.failure:  # the call itself went wrong
            report["counterexample"] = entry["recipe"] = wrong.failure["recipe"]
        raise
    finally:
        entry["tries"] = oracle.asked
        report["tries"] += oracle.asked


def _oracle(job_run: JobRun, candidate: RunnerHandle, workload: ResolvedWorkload) -> Oracle:
    """Return an oracle on a workload to which the candidate is bound. Raises RunnerFault."""
    op = job_run.job["op"]
    seed = job_run.number()

    @functools.lru_cache(maxsize=_BASES)
    def draw(seed: int) -> Values:
        return job_run.sources.seeded(workload["inputs"], seed).draw()

    oracle = Oracle(
        workload,
        job_run.runners,
        _Calls(job_run, candidate, workload_key(workload)),
        draw,
        op["math"],
        op.get("accuracy", "componentwise"),
        random.Random(job_run.number()),  # noqa: S311 - seeded from the job's secret
    )
    oracle.prepare(seed)
    return oracle


def _asked(oracle: Oracle, recipe: Recipe, *, thorough: bool = True) -> Answer:
    """Ask a recipe; a call that goes wrong in another way says by which recipe. Raises Wrong, RunnerFault."""
    try:
        return oracle.ask(recipe, thorough=thorough)
    except Wrong as wrong:
        raise Wrong(_with_recipe(wrong.failure, recipe)) from wrong
    except RunnerFault as fault:
        if fault.external or fault.runner != "candidate":
            raise
        raise Wrong(_with_recipe(failure_of(fault, oracle.workload["id"]), recipe)) from fault


def _with_recipe(failure: Failure, recipe: Recipe) -> Failure:
    said = describe(recipe)
    message = f"{failure['message']}, on these values: {'; '.join(said.splitlines())}"
    return {**failure, "message": message, "recipe": recipe, "description": said}


def _failure(answer: Answer, workload: ResolvedWorkload) -> Failure:
    """Return the failure of a counterexample."""
    worst = answer.worst
    assert worst is not None
    element = f"{worst.tensor}{worst.index}"
    times = f", {worst.ratio:.3g} times what is allowed" if worst.ratio < 1e8 else ""
    found, expected = apart(worst.found, worst.expected)
    message = (
        f"workload {workload['id']}: {element} is {found}, expected {expected} "
        f"(PyTorch eager: {shown(worst.eager)}){times}; {worst.wrong} of {worst.elements} elements are wrong"
    )
    failure: Failure = {
        "kind": "counterexample",
        "message": message,
        "workload": workload["id"],
        "tensor": worst.tensor,
        "index": worst.index,
        "expected": json_safe(worst.expected),
        "found": json_safe(worst.found),
        "eager": json_safe(worst.eager),
        "limit": worst.limit or 0.0,
        "wrong_elements": worst.wrong,
        "elements": worst.elements,
    }
    return _with_recipe(failure, answer.recipe)

"""The gates that look at results.

Calls on declared inputs, on input families, and on the same inputs again.
"""

from __future__ import annotations

import math
import random

import torch

from warpsmith.kernels_db.job.documents import Failure, Gate, ResolvedWorkload
from warpsmith.workers.gate import own_kernels
from warpsmith.workers.judge.gates.job_run import JobRun
from warpsmith.workers.judge.gates.verdict import Stopped
from warpsmith.workers.judge.reference.input_checks import Unsuited, ask
from warpsmith.workers.judge.runner.kernel_names import foreign
from warpsmith.workers.judge.runner.runner_handle import RunnerHandle
from warpsmith.workers.judge.values import families
from warpsmith.workers.judge.values.compare import first_difference
from warpsmith.workers.judge.values.families import Family

REPEATS, MOST_BETWEEN = 2, 3
"""Repeats of a call on the same values, and the most calls on other values before each."""

THREADS_BESIDE_CORES = 3
"""Threads of OpenMP beyond one for each core, in a call of native code. Another call has one thread alone."""

TRACING_S = 30.0
"""Time for the driver's tracing to begin."""


def check(job_run: JobRun, candidate: RunnerHandle, workloads: list[ResolvedWorkload], seeds: int, gate: Gate) -> None:
    """Check calls on the declared inputs, each with its own seed.

    On a CPU another call, on one core and on values of its own, goes before or after each: code that sees that it has
    one core has answered nothing of what it is asked there.
    """
    shared = job_run.device.type == "cpu" and not job_run.interpreted
    for workload in workloads:
        with job_run.bound(candidate, workload, gate):
            for _ in range(seeds):
                calls = job_run.on_workload(workload, candidate)
                first = shared and job_run.rng.random() < 0.5
                try:
                    if first:
                        calls.check_on_one_core()
                    calls.check_candidate()
                    if shared and not first:
                        calls.check_on_one_core()
                finally:
                    job_run.note_error(workload, calls)


def verify(job_run: JobRun, candidate: RunnerHandle, interpreted: bool) -> None:
    """Check what only verification asks: input families, and the same inputs again.

    An interpreter is asked little.
    """
    asked = families.plan(job_run.workloads, job_run.rng, sparing=interpreted, ties=job_run.runners.decides_ties)
    for workload in job_run.workloads:
        if interpreted and workload["id"] not in asked:
            continue
        with job_run.bound(candidate, workload, "verify"):
            if not interpreted:
                job_run.entry(workload)["repeatable"] = _repeat(job_run, workload, candidate)
                _check_surroundings(job_run, workload, candidate)
            for family in asked[workload["id"]]:
                _ask(job_run, workload, family, candidate)
    if job_run.unsuited:
        job_run.report.notes.append(f"input families that do not suit the op: {', '.join(sorted(job_run.unsuited))}")


def _check_surroundings(job_run: JobRun, workload: ResolvedWorkload, candidate: RunnerHandle) -> None:
    """Check native code with inputs closed to writes, with this host's number of threads and with others.

    The usual number is among them, in an order by chance, so that no number of threads says that inputs are closed.
    """
    asked = job_run.job["candidate"]
    if asked is None or asked["language"] != "cpp":
        return
    calls = job_run.on_workload(workload, candidate)
    counts = [0, 1, torch.get_num_threads() + THREADS_BESIDE_CORES]
    job_run.rng.shuffle(counts)
    for threads in counts:
        calls.check_with_threads(threads)
    job_run.note_error(workload, calls)


def _ask(job_run: JobRun, workload: ResolvedWorkload, family: Family, candidate: RunnerHandle) -> None:
    """Check one call on an input family. Raises Wrong, RunnerFault."""
    calls = job_run.on_workload(workload, candidate, family)
    try:
        question = ask(job_run.runners, workload, family, calls.source, job_run.job["op"]["math"], job_run.rng)
    except Unsuited:
        job_run.unsuited.add(family.name)
        return
    limits = [limit for limit in question.limits if limit is not None and limit.own is None]
    largest = max((limit.l2 for limit in limits if math.isfinite(limit.l2)), default=None)
    try:
        calls.check_candidate(question)
    finally:
        entry = {"error": calls.candidate_l2, "limit": largest}
        job_run.entry(workload).setdefault("families", {})[family.name] = entry


def _repeat(job_run: JobRun, workload: ResolvedWorkload, candidate: RunnerHandle) -> bool:
    """Check whether repeated calls on the same values give the same bits.

    The repeats have other pointers and come after other work. Before one of them the outputs hold what the call is to
    give, but for an element.
    """
    calls = job_run.on_workload(workload, candidate)
    question = calls.question()
    first = [tensor.clone() for tensor in calls.check_candidate(question)]
    same = True
    for number in range(REPEATS):
        for _ in range(calls_between(len(candidate.slots), job_run.rng)):
            calls.call_candidate()
        again = calls.check_candidate(question, left=first if number == 0 else None, right=first)
        same &= all(first_difference(one, other) is None for one, other in zip(again, first, strict=True))
    return same


def calls_between(slots: int, rng: random.Random) -> int:
    """Return how many calls on other values come before a repeat.

    Calls take the slots, two or more, in turn, and a repeat is to lie in another than the call that it repeats or its
    last repeat.
    """
    return rng.choice([count for count in range(MOST_BETWEEN + 1) if (count + 1) % slots != 0])


def name_kernels(job_run: JobRun, candidate: RunnerHandle) -> None:
    """Note which kernels a call runs on each bench workload.

    Raises Stopped for a kernel that is not the candidate's.

    Comes last: tracing slows whatever the runner does afterwards.
    """
    assert job_run.job["candidate"] is not None
    own = own_kernels(job_run.job["candidate"]["source"], job_run.job["candidate"]["language"])
    for workload in job_run.timed_workloads():
        with job_run.bound(candidate, workload, "verify"):
            candidate.fill(0, job_run.source(workload).draw())
            names, calls, tuned = candidate.kernels(0, job_run.job["limits"]["call_s"] + TRACING_S)
        entry = job_run.entry(workload)
        entry["kernels"], entry["kernel_calls"] = names, calls
        if tuned:
            entry["configurations"] = tuned
        if strangers := foreign(names, own, job_run.job["op"]["library_calls"]):
            message = f"workload {workload['id']}: ran {strangers[0]}, which is none of the candidate's own kernels"
            failure: Failure = {"kind": "foreign_kernel", "message": message, "workload": workload["id"]}
            failure |= {"found": strangers[0], "expected": ", ".join(sorted(own))}
            raise Stopped("rejected", "verify", message, failure)

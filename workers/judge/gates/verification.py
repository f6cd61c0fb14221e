"""The gates that look at results: calls on declared inputs, on input families, on the same inputs again."""

from __future__ import annotations

import math
import random

from warpsmith.kernels_db.job.documents import Failure, Gate, ResolvedWorkload
from warpsmith.workers.gate import own_kernels
from warpsmith.workers.judge.gates.job_run import Case
from warpsmith.workers.judge.gates.verdict import Stopped
from warpsmith.workers.judge.reference.input_checks import Unsuited, ask
from warpsmith.workers.judge.runner.kernel_names import foreign
from warpsmith.workers.judge.runner.runner_handle import Contender
from warpsmith.workers.judge.values import families
from warpsmith.workers.judge.values.compare import first_difference
from warpsmith.workers.judge.values.families import Family

REPEATS, MOST_BETWEEN = 2, 3
"""How often a call is repeated on the same values, and the most calls on other values before each."""

TRACING_S = 30.0
"""Time for the driver's tracing to begin."""


def check(case: Case, candidate: Contender, workloads: list[ResolvedWorkload], seeds: int, gate: Gate) -> None:
    """Calls on the declared inputs, each with a seed of its own; on a CPU another on one core for each, before it or
    after it: whoever sees that it has one core, and remembers, has answered nothing yet or shares the cores next.
    """
    shared = case.device.type == "cpu" and not case.interpreted
    for workload in workloads:
        with case.bound(candidate, workload, gate):
            for _ in range(seeds):
                trial = case.trial(workload, candidate)
                question = trial.question()
                first = shared and case.rng.random() < 0.5
                try:
                    if first:
                        trial.check_on_one_core(question)
                    trial.check_candidate(question)
                    if shared and not first:
                        trial.check_on_one_core(question)
                finally:
                    case.note_error(workload, trial)


def verify(case: Case, candidate: Contender, interpreted: bool) -> None:
    """What only verification asks: input families, and the same inputs again. An interpreter is asked little."""
    asked = families.plan(case.workloads, case.rng, sparing=interpreted)
    for workload in case.workloads:
        if interpreted and workload["id"] not in asked:
            continue
        with case.bound(candidate, workload, "verify"):
            if not interpreted:
                case.entry(workload)["repeatable"] = _repeat(case, workload, candidate)
            for family in asked[workload["id"]]:
                _ask(case, workload, family, candidate)
    if case.unsuited:
        case.report.notes.append(f"input families that do not suit the op: {', '.join(sorted(case.unsuited))}")


def _ask(case: Case, workload: ResolvedWorkload, family: Family, candidate: Contender) -> None:
    """One call on an input family. Raises Wrong, ContenderFault."""
    trial = case.trial(workload, candidate, family)
    try:
        question = ask(case.runners, workload, family, trial.source, case.job["op"]["math"], case.rng)
    except Unsuited:
        case.unsuited.add(family.name)
        return
    limits = [limit for limit in question.limits if limit is not None and limit.own is None]
    largest = max((limit.l2 for limit in limits if math.isfinite(limit.l2)), default=None)
    try:
        trial.check_candidate(question)
    finally:
        entry = {"error": trial.candidate_l2, "limit": largest}
        case.entry(workload).setdefault("families", {})[family.name] = entry


def _repeat(case: Case, workload: ResolvedWorkload, candidate: Contender) -> bool:
    """Whether calls on the same values, with other pointers and after other work, give the same bits."""
    trial = case.trial(workload, candidate)
    question = trial.question()
    first = [tensor.clone() for tensor in trial.check_candidate(question)]
    same = True
    for _ in range(REPEATS):
        for _ in range(calls_between(len(candidate.slots), case.rng)):
            trial.call_candidate()
        again = trial.check_candidate(question)
        same &= all(first_difference(one, other) is None for one, other in zip(again, first, strict=True))
    return same


def calls_between(slots: int, rng: random.Random) -> int:
    """How many calls on other values come before a repeat. Calls take the slots, two or more, in turn, and a repeat is
    to lie in another than the call that it repeats or its last repeat.
    """
    return rng.choice([count for count in range(MOST_BETWEEN + 1) if (count + 1) % slots != 0])


def name_kernels(case: Case, candidate: Contender) -> None:
    """Note which kernels a call runs on each bench workload. Raises Stopped for one that is not the candidate's.

    Comes last: tracing slows whatever the runner does afterwards.
    """
    assert case.job["candidate"] is not None
    own = own_kernels(case.job["candidate"]["source"], case.job["candidate"]["language"])
    for workload in case.bench():
        with case.bound(candidate, workload, "verify"):
            candidate.fill(0, case.source(workload).draw())
            names, calls = candidate.kernels(0, case.job["limits"]["call_s"] + TRACING_S)
        entry = case.entry(workload)
        entry["kernels"], entry["kernel_calls"] = names, calls
        if strangers := foreign(names, own, case.job["op"]["library_calls"]):
            message = f"workload {workload['id']}: ran {strangers[0]}, which is none of the candidate's own kernels"
            failure: Failure = {"kind": "foreign_kernel", "message": message, "workload": workload["id"]}
            failure |= {"found": strangers[0], "expected": ", ".join(sorted(own))}
            raise Stopped("rejected", "verify", message, failure)

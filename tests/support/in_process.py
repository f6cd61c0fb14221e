"""The reference's runners without processes: the same questions, tolerances and mutants, at the price of a call."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.job.float64 import in_float64
from warpsmith.workers.judge.reference.answers import check_answer
from warpsmith.workers.judge.reference.baselines import OpRunners, WorkloadFacts
from warpsmith.workers.judge.reference.input_checks import Question, ask
from warpsmith.workers.judge.reference.learning import learn
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.values.families import Family
from warpsmith.workers.judge.values.inputs import CPU, InputSource, InputSources
from warpsmith.workers.judge.values.workload_specs import Values, result_positions


def no_code(*_: object) -> torch.Tensor:
    raise AssertionError("nothing here draws its inputs by code")


class InProcess(OpRunners):
    """Runs a reference's source in this process."""

    def __init__(self, reference: str) -> None:
        """What OpRunners has for starting processes and timing them is left out: nothing here does either."""
        self.device = CPU
        self.known: dict[str, WorkloadFacts] = {}
        self.reference = reference
        self.namespace: dict[str, Any] = {}
        exec(reference, self.namespace)

    def run(self, mode: str, workload: ResolvedWorkload, values: Values, slot: int = 0) -> list[torch.Tensor]:
        wide = mode == "float64"
        run: Callable[..., Any] = self.namespace["run"]
        with torch.no_grad():
            arguments = call_arguments(workload, values, wide=wide)
            try:
                returned = (in_float64(run) if wide else run)(*arguments)
            except Exception as error:
                raise RunnerFault(mode, "raises", str(error)) from error
        outputs = [] if returned is None else list(returned) if isinstance(returned, tuple) else [returned]
        produced = outputs + [arguments[at] for at, item in enumerate(workload["inputs"]) if item["mutated"]]
        assert len(produced) == len(result_positions(workload))
        return [tensor.to(torch.float64) if wide and tensor.is_floating_point() else tensor for tensor in produced]

    def untouched(self, workload: ResolvedWorkload, values: Values) -> None:
        """Arguments are copies here."""


def call_arguments(workload: ResolvedWorkload, values: Values, *, wide: bool = False) -> list[Any]:
    """Copies of the values, in float64 where asked, with the scalars between them."""
    return [
        item["value"]
        if value is None
        else (value.to(torch.float64) if wide and value.is_floating_point() else value.clone())
        for item, value in zip(workload["inputs"], values, strict=True)
    ]


def learnt(reference: str, workload: ResolvedWorkload, seed: int = 1) -> InProcess:
    """Runners that have learnt a workload."""
    runners = InProcess(reference)
    learn(runners, workload, InputSources(random.Random(seed), no_code))
    return runners


def question_on(runners: InProcess, workload: ResolvedWorkload, family: Family, seed: int) -> Question:
    """A question on a family. Raises Unsuited."""
    source = InputSource(workload["inputs"], seed, no_code, CPU, family)
    return ask(runners, workload, family, source, "ieee", random.Random(seed))


def wrong_on(
    runners: InProcess, workload: ResolvedWorkload, question: Question, answer: Callable[..., Any]
) -> str | None:
    """What is wrong with an answer to a question; None where nothing is."""
    with torch.no_grad():
        returned = answer(*call_arguments(workload, question.values))
    found = list(returned) if isinstance(returned, tuple) else [returned]
    for (name, _), one in zip(
        result_positions(workload), check_answer(runners, workload, question, found), strict=True
    ):
        if not one.passed:
            return (
                f"{question.place}: {name}{one.index} is {one.found}, expected {one.expected} within {one.limit}, "
                f"{one.wrong_elements} of {one.elements}; l2 {one.l2:.3g} limit {one.l2_limit:.3g}"
            )
    return None

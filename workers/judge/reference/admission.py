"""The admission of an op: whether its spec can tell a wrong answer from a right one.

Deliberately wrong answers (`mutants`) are put to the same questions as candidates are: the declared inputs
of the workloads, the smallest bench workload first, then the input families. Each must be found wrong at least once. An
op on which one is never found wrong is not admitted: a search on it would be won by that answer. An op with a tolerance
of its own must find them out on the declared inputs: the tolerance was chosen for those, and that a family's larger
results leave it behind says nothing of it.

Two kinds only warn. Lower precision passes where the op's author set a tolerance, and may have meant to. One operand
read for another passes where an op really treats them alike.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

from warpsmith.kernels_db.job.documents import AdmissionCheck, JobOp, ResolvedWorkload
from warpsmith.workers.judge.reference.baselines import OpRunners
from warpsmith.workers.judge.reference.input_checks import Question, Unsuited, ask, declared
from warpsmith.workers.judge.reference.mutants import REDRAWS, Mutant, Results, Scene, mutants, same
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.values.compare import Comparison, norm_floor
from warpsmith.workers.judge.values.families import Family, elements, families
from warpsmith.workers.judge.values.inputs import InputSource, InputSources
from warpsmith.workers.judge.values.workload_specs import Values, result_positions

ULP_ROUNDOFFS = 2.0
"""Units of roundoff in a unit in the last place, at most: so far from the float64 result is right, however computed."""

_FEW = frozenset({"code", "randint", "bernoulli", "permutation", "indptr", "ends"})
"""Distributions of which two draws may be the same."""


@dataclass
class _Fate:
    """What became of one wrong answer."""

    mutant: Mutant
    caught: AdmissionCheck | None = None
    passed: list[str] = field(default_factory=list)  # questions that it answered well enough though not right
    right: int = 0  # questions to which it is the right answer

    @property
    def uncaught(self) -> bool:
        """Whether the spec cannot tell it from a right answer."""
        return self.caught is None and (bool(self.passed) or (self.mutant.right_is_wrong and self.right > 0))


@dataclass
class _Asked:
    """A question with the scene that wrong answers to it are made of."""

    scene: Scene
    question: Question
    runners: OpRunners
    family: Family | None

    def compare(self, found: Results) -> Iterator[Comparison]:
        """Compare each result with its expected value, as far as the caller reads on.

        A wrong answer to one of several results has eager's own tensors for the others, which are compared once for all
        wrong answers.
        """
        for position, (one, right) in enumerate(zip(found, self.scene.right, strict=True)):
            yield self._of_right[position] if one is right else self._check(position, one)

    @cached_property
    def _of_right(self) -> list[Comparison]:
        return [self._check(position, right) for position, right in enumerate(self.scene.right)]

    def _check(self, position: int, one: torch.Tensor) -> Comparison:
        at = slice(position, position + 1)
        return self.runners.check([one], self.question.expected[at], self.question.limits[at])[0]


def examine(
    op: JobOp, workloads: Sequence[ResolvedWorkload], runners: OpRunners, sources: InputSources, rng: random.Random
) -> list[AdmissionCheck]:
    """Find out what became of every wrong answer. Raises RunnerFault.

    `runners` has learnt the workloads.
    """
    fates: dict[str, _Fate] = {}
    seed = "\n".join(item["name"] for item in workloads[0]["inputs"])  # so that an op is asked the same in each check
    for workload in workloads:
        for mutant in mutants(workload, op["math"], random.Random(seed)):  # noqa: S311 - it decides what is asked of the spec
            fates.setdefault(mutant.name, _Fate(mutant))
    own = any(one["tolerance"] is not None and any(one["tolerance"].values()) for one in workloads[0]["outputs"])
    for workload, family, cheap in _asked(workloads, runners, rng):
        if own and family is not None:
            continue
        open_fates = [fate for fate in fates.values() if fate.caught is None]
        if not cheap and not any(fate.uncaught for fate in open_fates):
            break
        drawn = sources.of(workload["inputs"], family)
        try:
            question = (
                declared(runners, workload, drawn)
                if family is None
                else ask(runners, workload, family, drawn, op["math"], rng)
            )
            asked = _Asked(_scene(runners, workload, question, drawn), question, runners, family)
        except Unsuited:
            continue
        for fate in open_fates:
            _judge(fate, asked)
    return [_told(fate, workloads, runners) for fate in fates.values() if fate.caught or fate.passed or fate.uncaught]


def _asked(
    workloads: Sequence[ResolvedWorkload], runners: OpRunners, rng: random.Random
) -> Iterator[tuple[ResolvedWorkload, Family | None, bool]]:
    """Yield the questions, the cheapest first: most wrong answers fail the first question.

    The cheap ones are asked in any case, the others while an answer is still accepted as right.
    """
    bench = sorted((one for one in workloads if one["role"] == "bench"), key=elements)
    others = sorted((one for one in workloads if one["role"] != "bench"), key=elements)
    first = (bench or others)[0]
    yield first, None, True
    others = [one for one in others if one is not first]
    yield from ((one, None, True) for one in others if elements(one) <= elements(first))
    yield from ((one, None, False) for one in others if elements(one) > elements(first))
    yield from ((first, family, False) for family in families(first, rng, ties=runners.decides_ties(first)))
    yield from ((one, None, False) for one in bench[1:])


def _scene(runners: OpRunners, workload: ResolvedWorkload, question: Question, source: InputSource) -> Scene:
    def eager(values: Values) -> Results | None:
        try:
            return [tensor.clone() for tensor in runners.run("eager", workload, values)]
        except RunnerFault as fault:
            if fault.external:
                raise
            return None

    right, other_values = eager(question.values), source.draw()
    other = eager(other_values)
    if right is None or other is None:
        raise Unsuited("the reference fails on it")
    for _ in range(REDRAWS if _has_few_values(workload) else 0):
        if not any(same(one, two) for one, two in zip(right, other, strict=True)):
            break
        again = source.draw()
        if (fresh := eager(again)) is None:
            break
        other_values, other = again, fresh
    return Scene(workload, question.values, right, other_values, other, eager, source.draw_one)


def _has_few_values(workload: ResolvedWorkload) -> bool:
    """Check whether two draws of the inputs may be alike: by code, or of few numbers."""
    return any(item["shape"] is not None and item["dist"]["kind"] in _FEW for item in workload["inputs"])


def _judge(fate: _Fate, asked: _Asked) -> None:
    scene = asked.scene
    found = fate.mutant.make(scene)
    if found is None:
        return
    if all(same(one, right) for one, right in zip(found, scene.right, strict=True)):
        fate.right += 1
        return
    exact = True
    for (name, _), one, right in zip(result_positions(scene.workload), asked.compare(found), scene.right, strict=True):
        if not one.passed:
            fate.caught = _caught(fate.mutant, one, name, scene.workload["id"], asked.family)
            return
        exact &= not right.is_floating_point() or one.l2 <= ULP_ROUNDOFFS * norm_floor(right.dtype)
    if exact and fate.mutant.lower_precision:  # a mean of many values, say, in which their rounding is lost
        fate.right += 1
    else:
        fate.passed.append(asked.question.place)


def _caught(mutant: Mutant, found: Comparison, tensor: str, workload: str, family: Family | None) -> AdmissionCheck:
    wrong = isinstance(found.found, int | float) and isinstance(found.expected, int | float)
    by_norm = found.wrong_elements == 0
    return {
        "answer": mutant.name,
        "caught": True,
        "needed": True,
        "field": mutant.blames,
        "remedy": mutant.remedy,
        "workload": workload,
        "family": None if family is None else family.name,
        "tensor": tensor,
        "error": found.l2 if by_norm else abs(found.found - found.expected) if wrong else None,  # type: ignore[operator]
        "limit": found.l2_limit if by_norm else found.limit,
    }


def _told(fate: _Fate, workloads: Sequence[ResolvedWorkload], runners: OpRunners) -> AdmissionCheck:
    if fate.caught is not None:
        return fate.caught
    mutant = fate.mutant
    own = _own_tolerance(mutant, workloads, runners) if fate.passed else None
    return {
        "answer": mutant.name,
        "caught": False,
        "needed": mutant.needed and not (mutant.lower_precision and own is not None),
        "field": mutant.blames if own is None else own[0],
        "remedy": mutant.remedy if own is None else own[1],
        "workload": None,
        "family": None,
        "tensor": None,
        "error": None,
        "limit": None,
    }


def _own_tolerance(mutant: Mutant, workloads: Sequence[ResolvedWorkload], runners: OpRunners) -> tuple[str, str] | None:
    """Find the field of the op's own tolerance that let an answer pass, and a better value.

    None where there is none.
    """
    for position, output in enumerate(workloads[0]["outputs"]):
        touched = mutant.blames == f"outputs.{output['name']}" or not mutant.blames.startswith("outputs.")
        limit = runners.limits(workloads[0])[position]
        if touched and limit is not None and limit.own is not None and limit.own != (0.0, 0.0):
            rtol, atol = limit.own
            size = f"the root mean square of {output['name']} is {limit.size:.3g}"
            remedy = (
                f"a smaller tolerance than rtol {rtol:g} and atol {atol:g}, for {size}; or none: it is then derived"
            )
            return f"outputs.{output['name']}.tolerance", remedy
    return None

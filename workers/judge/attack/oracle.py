"""Ask one recipe of a candidate: run the references and the candidate, and hold its result to the measure.

Most questions are settled by three calls: eager, float64 and the candidate. Only where the candidate may be worse than
allowed are the references run on moved inputs, few times, then many; and a failure near the ends of the dtype must
stand when everything is scaled away from them.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from warpsmith.kernels_db.job.attack_documents import Accuracy, Recipe
from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.workers.judge.attack.bounds import kind_of
from warpsmith.workers.judge.attack.measure import (
    BORDER,
    FEW,
    HIGHEST,
    MANY,
    MOST,
    POINTWISE_INPUTS,
    Rule,
    Special,
    Spread,
    Worst,
    backward_step,
    is_ordered,
)
from warpsmith.workers.judge.attack.nearby import scaled, with_signs
from warpsmith.workers.judge.attack.recipe import DrawBase, build, variant
from warpsmith.workers.judge.attack.references import References
from warpsmith.workers.judge.attack.special_values import SpecialValues, is_special
from warpsmith.workers.judge.attack.surroundings import Surroundings
from warpsmith.workers.judge.reference.baselines import OpRunners
from warpsmith.workers.judge.values.steps import Ties
from warpsmith.workers.judge.values.workload_specs import Values, is_exact, own_tolerance, result_positions

Call = Callable[[ResolvedWorkload, Values], Sequence[torch.Tensor]]
"""Calls the candidate on a workload's values and returns what it produced, once everything that it may have touched has
been looked at. Raises where something is wrong with that, and RunnerFault."""

CLOSE, NEAR = 0.25, 0.5
"""Bounds of the ratio from above below which it is not worth knowing nearer: without moved inputs, and with few."""
NOT_STANDING = 0.99
"""The ratio of a failure that does not stand further from the ends of the dtype."""
SIGNS = 4
"""Choices of signs with which it is seen whether a reference overflows in a sum: two of one sign, two at random."""
_NEAR_END = 2.0**8
_NEAR_TINY = 2.0**26


@dataclass(frozen=True)
class Answer:
    """What came of one recipe. `worst` is None where nothing about it was fair."""

    recipe: Recipe
    worst: Worst | None

    @property
    def ratio(self) -> float:
        """The candidate's worst error as a multiple of what is allowed; -1 where nothing was fair."""
        return -1.0 if self.worst is None else self.worst.ratio

    @property
    def failed(self) -> bool:
        """Whether the recipe is a counterexample."""
        return self.ratio > 1.0


@dataclass
class Oracle:
    """Asks recipes on one workload. `draw` gives its declared values under a seed; `rng` chooses how inputs are moved.

    `asked` counts the questions.
    """

    workload: ResolvedWorkload
    runners: OpRunners
    call: Call
    draw: DrawBase
    math: str
    accuracy: Accuracy
    rng: random.Random
    asked: int = 0
    most: int = MOST
    rules: list[Rule] = field(default_factory=list)

    def prepare(self, seed: int) -> None:
        """Find out how many inputs an output depends on, from the reference. Raises RunnerFault."""
        facts = self.runners.facts(self.workload)
        fan_in = facts.fan_in
        if fan_in is None:
            fan_in, whole = self._references.measure_fan_in(self.workload, self.draw(seed), self.rng)
            if whole:  # of the reference alone: what one verification found holds for the next
                facts.fan_in = fan_in
        if facts.rounds_once is None and fan_in <= POINTWISE_INPUTS:  # of no use to sums
            facts.rounds_once = self._references.rounds_once(self.workload, self.draw(seed))
        dtypes = [getattr(torch, item["dtype"]) for item in self.workload["inputs"] if item["shape"] is not None]
        outputs = [getattr(torch, item["dtype"]) for item in self.workload["outputs"]]
        floating = [one for one in dtypes if one.is_floating_point] or [one for one in outputs if one.is_floating_point]
        step = backward_step(floating, fan_in, self.math, once=bool(facts.rounds_once))
        ordered = is_ordered(self.runners.reference)
        self.rules = [
            Rule(name, own_tolerance(self.workload, name), self.accuracy, step, fan_in, ordered)
            for name, _ in result_positions(self.workload)
        ]

    def ask(self, recipe: Recipe, *, thorough: bool = True) -> Answer:
        """Ask a recipe; a failure that is not `thorough` may not stand when it is asked again.

        Raises RunnerFault and what `call` raises, where the candidate is at fault.
        """
        self.asked += 1
        workload = variant(self.workload, recipe)
        values = build(recipe, workload, self.draw(recipe["seed"]))
        if (self.accuracy == "normwise" or self._chooses) and any(map(is_special, values)):
            return Answer(recipe, None)  # such algorithms mix terms; and which of two infinities comes first is open
        self.most = MOST if thorough else MANY
        worst = self._worst(workload, values)
        if worst is not None and worst.ratio > 1 and not self._stands(workload, values, worst):
            worst = Worst(NOT_STANDING, worst.tensor, worst.index)
        return Answer(recipe, worst)

    @property
    def _references(self) -> References:
        return References(self.runners)

    @property
    def _chooses(self) -> bool:
        """Whether the op makes integers of floating values, as a sort does, and may break ties as it likes.

        What has the check `exact` is the reference's.
        """
        floating = any("float" in item["dtype"] for item in self.workload["inputs"] if item["shape"] is not None)
        chosen = (at for at, item in enumerate(self.workload["outputs"]) if "float" not in item["dtype"])
        return floating and any(not is_exact(self.workload, at) for at in chosen)

    def _worst(self, workload: ResolvedWorkload, values: Values) -> Worst | None:
        references = self._references
        eager, wide = references.run("eager", workload, values), references.run("float64", workload, values)
        if eager is None or wide is None or not self._means_nan(workload, values, eager):
            return None
        found = [tensor.clone() for tensor in self.call(workload, values)]
        special = Special.of(values)
        worst = self._compare(found, eager, wide, [None] * len(found), special, values)
        if worst is None or worst.ratio <= CLOSE:
            return worst
        spreads = [Spread.of(one) for one in wide]
        rule, indices = self.rules[0], self.runners.facts(self.workload).indices
        around = Surroundings(workload, references, rule.step, self.accuracy, self.rng, indices)
        special_values = SpecialValues(around, sums=rule.fan_in > 1, draws=self.most)
        made = 0
        for draws, enough in ((FEW, NEAR), (MANY, 1.0), (self.most, 1.0)):
            if made and not (
                around.measure(values, wide, spreads) and special_values.measure(values, found, wide, spreads)
            ):
                return None
            if not around.add_moved(values, range(made, draws), wide, spreads, ties=self._chooses):
                return None
            made = draws
            worst = self._compare(found, eager, wide, spreads, special, values)
            settled = made >= MANY and not self._chooses and worst is not None and worst.ratio == HIGHEST  # a class
            if worst is None or worst.ratio <= enough or settled:
                break
        return worst

    def _means_nan(self, workload: ResolvedWorkload, values: Values, eager: Sequence[torch.Tensor]) -> bool:
        """Return whether the reference tells no NaN from another.

        PyTorch's sort on a GPU goes by the bits, so that a NaN with its sign set comes first: which NaN it is is
        nothing that a kernel is to answer for.
        """
        plain = [_with_one_nan(value) for value in values]
        if all(one is value for one, value in zip(plain, values, strict=True)):
            return True
        again = self._references.run("eager", workload, plain)
        return again is not None and all(map(_alike, again, eager))

    def _compare(
        self,
        found: Sequence[torch.Tensor],
        eager: Sequence[torch.Tensor],
        wide: Sequence[torch.Tensor],
        spreads: Sequence[Spread | None],
        special: Special,
        values: Values,
    ) -> Worst | None:
        every = [
            rule.worst(one, own, exact, spread, special, self._ties(at, values))
            for at, (rule, one, own, exact, spread) in enumerate(
                zip(self.rules, found, eager, wide, spreads, strict=True)
            )
            if one.numel()
        ]
        return max((one for one in every if one is not None), key=lambda one: one.ratio, default=None)

    def _ties(self, at: int, values: Values) -> Ties | None:
        """Return whether indices of a result select equal entries, where their order is open."""
        indices = self.runners.facts(self.workload).indices.get(at)
        if indices is None or not indices.any_order:
            return None
        return functools.partial(indices.select_alike, values, torch.Size(self.workload["outputs"][at]["shape"]))

    def _stands(self, workload: ResolvedWorkload, values: Values, worst: Worst) -> bool:
        """Check whether a failure near the ends of the dtype also stands further from them."""
        near_most, near_least = _nearness(values, worst)
        down = BORDER * self._excess_of_sums(workload, values, worst)
        bounded = [
            item["shape"] is None or kind_of(item) != "float" or item.get("values", {}).get("range") is not None
            for item in workload["inputs"]
        ]
        for near, power in ((near_most, 1 / down), (near_least, BORDER)):
            if near and not all(bounded):
                again = self._worst(workload, scaled(values, power, bounded))
                if again is None or again.ratio <= 1:
                    return False
        return True

    def _excess_of_sums(self, workload: ResolvedWorkload, values: Values, worst: Worst) -> float:
        """Return by how much a sum that the op makes of its inputs as they are may exceed the largest number.

        A power of two, 1 where none may. In any order the parts of a sum of N terms are at most N times the largest, so
        once divided by this no honest sum is infinite. Eager itself must overflow at that element where inputs of the
        same sizes have other signs, and have been right by luck: a softmax or a maximum is right for all signs, however
        large its inputs are.
        """
        rule = self.rules[0]
        excess = 1.0 if _is_of_one_class(worst) or rule.ordered else _excess(values, rule.fan_in)
        if excess == 1.0:
            return excess
        at = next(number for number, one in enumerate(self.rules) if one.name == worst.tensor)
        for number in range(SIGNS):
            inputs = with_signs(values, number, self.rng)
            eager, wide = (self._references.run(mode, workload, inputs) for mode in ("eager", "float64"))
            if eager is not None and wide is not None and _is_far(eager[at], wide[at], tuple(worst.index)):
                return excess
        return 1.0


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Check that two results are equal, any NaN to any other."""
    if not one.is_floating_point():
        return torch.equal(one, other)
    first, second = one.to(torch.float64), other.to(torch.float64)  # torch compares no 8-bit floats
    return bool(((first == second) | (first.isnan() & second.isnan())).all())


def _with_one_nan(value: torch.Tensor | None) -> torch.Tensor | None:
    """Return a tensor with PyTorch's own NaN for those with the sign set; itself where there are none."""
    if value is None or not value.is_floating_point():
        return value
    wide = value.to(torch.float64)
    negative = wide.isnan() & wide.signbit()
    return torch.where(negative, torch.nan, value).to(value.dtype) if bool(negative.any()) else value


def _is_of_one_class(worst: Worst) -> bool:
    """Check whether what was found and what was expected are both finite, or neither is."""
    classes = [isinstance(one, float) and not math.isfinite(one) for one in (worst.found, worst.expected)]
    return classes[0] == classes[1]


def _is_far(eager: torch.Tensor, wide: torch.Tensor, index: tuple[int, ...]) -> bool:
    """Check whether eager misses a finite element by half of the root mean square of the result, or is not finite.

    So is zero for a normal number: what was divided by an infinite sum.
    """
    own, exact = eager[index].to(torch.float64), wide[index]
    size = torch.where(wide.isfinite(), wide, 0.0).square().mean().sqrt()
    vanished = (own == 0) & (exact.abs() >= torch.finfo(eager.dtype).smallest_normal)
    return bool(exact.isfinite()) and (bool(vanished) or not bool((own - exact).abs() <= size / 2))


def _excess(values: Values, fan_in: int) -> float:
    """Return by how much the sum of as many terms, each as large as an input's largest, exceeds the largest number.

    A power of two, at least 1. Numbers of 16 bits are summed in float32, as PyTorch sums them: a float16 sum that
    overflows where PyTorch's does not is a mistake.
    """
    most = 1.0
    for value in values:
        if value is not None and value.is_floating_point() and value.numel():
            size = value.to(torch.float64).abs()
            sums = torch.float64 if value.dtype == torch.float64 else torch.float32
            largest = float(torch.where(size.isfinite(), size, 0.0).amax())
            most = max(most, fan_in * (largest / torch.finfo(sums).max))
    return 2.0 ** math.ceil(math.log2(most))


def _nearness(values: Values, worst: Worst) -> tuple[bool, bool]:
    """Return whether a failure may be one of overflow, and whether it may be one of underflow."""
    most, least = not _is_of_one_class(worst), False
    for value in values:
        if value is None or not value.is_floating_point() or not value.numel():
            continue
        size = value.to(torch.float64).abs()
        information = torch.finfo(value.dtype)
        most |= bool((torch.isfinite(size) & (size > float(information.max) / _NEAR_END)).any())
        reach = _NEAR_TINY if information.smallest_normal < _NEAR_TINY**-1 else BORDER
        least |= bool(((size > 0) & (size < float(information.smallest_normal) * reach)).any())
    return most, least

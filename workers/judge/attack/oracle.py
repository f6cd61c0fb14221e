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
    CLOSER,
    CLOSER_DRAWS,
    ENLARGED,
    FEW,
    HIGHEST,
    MANY,
    MOST,
    NEIGHBOURS,
    NOISE_DRAWS,
    POINTWISE_INPUTS,
    REPLACED,
    Rule,
    Special,
    Spread,
    Without,
    Worst,
    backward_step,
    grows_to,
    idle,
    is_ordered,
    is_rounded_once,
)
from warpsmith.workers.judge.attack.nearby import (
    enlarged,
    jittered,
    lost_in_float64,
    moved,
    neighbours,
    numbered,
    one_in_each_line,
    replaced,
    scaled,
    with_signs,
)
from warpsmith.workers.judge.attack.recipe import DrawBase, build, variant
from warpsmith.workers.judge.reference.baselines import OpRunners
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.runner.limits import Mode
from warpsmith.workers.judge.values.steps import Ties
from warpsmith.workers.judge.values.workload_specs import Values, is_exact, own_tolerance, result_positions

Call = Callable[[ResolvedWorkload, Values], Sequence[torch.Tensor]]
"""Calls the candidate on a workload's values and returns what it produced, once everything that it may have touched has
been looked at. Raises where something is wrong with that, and RunnerFault."""

PROBES = 3
CLOSE, NEAR = 0.25, 0.5
"""Bounds of the ratio from above below which it is not worth knowing nearer: without moved inputs, and with few."""
NOT_STANDING = 0.99
"""The ratio of a failure that does not stand further from the ends of the dtype."""
SINGLES = 16
"""Infinities of a line that are looked at one by one."""
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
            fan_in, whole = self._fan_in(self.draw(seed))
            if whole:  # of the reference alone: what one verification found holds for the next
                facts.fan_in = fan_in
        if facts.rounds_once is None and fan_in <= POINTWISE_INPUTS:  # of no use to sums
            facts.rounds_once = self._rounds_once(self.draw(seed))
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
        if (self.accuracy == "normwise" or self._chooses) and any(map(_is_special, values)):
            return Answer(recipe, None)  # such algorithms mix terms; and which of two infinities comes first is open
        self.most = MOST if thorough else MANY
        worst = self._worst(workload, values)
        if worst is not None and worst.ratio > 1 and not self._stands(workload, values, worst):
            worst = Worst(NOT_STANDING, worst.tensor, worst.index)
        return Answer(recipe, worst)

    @property
    def _chooses(self) -> bool:
        """Whether the op makes integers of floating values, as a sort does, and may break ties as it likes.

        What has the check `exact` is the reference's.
        """
        floating = any("float" in item["dtype"] for item in self.workload["inputs"] if item["shape"] is not None)
        chosen = (at for at, item in enumerate(self.workload["outputs"]) if "float" not in item["dtype"])
        return floating and any(not is_exact(self.workload, at) for at in chosen)

    def _worst(self, workload: ResolvedWorkload, values: Values) -> Worst | None:
        eager, wide = self._reference("eager", workload, values), self._reference("float64", workload, values)
        if eager is None or wide is None or not self._means_nan(workload, values, eager):
            return None
        found = [tensor.clone() for tensor in self.call(workload, values)]
        special = Special.of(values)
        worst = self._compare(found, eager, wide, [None] * len(found), special, values)
        if worst is None or worst.ratio <= CLOSE:
            return worst
        spreads = [Spread.of(one) for one in wide]
        made = 0
        for draws, enough in ((FEW, NEAR), (MANY, 1.0), (self.most, 1.0)):
            if made and not self._look_around(workload, values, found, wide, spreads):
                return None
            for number in range(made, draws):
                step, ties = self.rules[0].step, self._chooses
                inputs = moved(values, step, self.rng, number, self.accuracy, ties=ties)
                if not self._add("float64", workload, inputs, wide, spreads, Spread.add):
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
        again = self._reference("eager", workload, plain)
        return again is not None and all(map(_alike, again, eager))

    def _look_around(
        self,
        workload: ResolvedWorkload,
        values: Values,
        found: Sequence[torch.Tensor],
        wide: Sequence[torch.Tensor],
        spreads: Sequence[Spread],
    ) -> bool:
        """Measure what is known before a failure stands beside `S`; false where the reference fails."""
        measured = self._measure_around(workload, values, wide, spreads)
        return measured and self._look_without_special(workload, values, found, wide, spreads)

    def _measure_around(
        self, workload: ResolvedWorkload, values: Values, wide: Sequence[torch.Tensor], spreads: Sequence[Spread]
    ) -> bool:
        """Measure eager's error at neighbours, float64's noise and jumps; false where the reference fails there."""
        for spread in spreads:
            spread.lost = lost_in_float64(values)
        for _ in range(NOISE_DRAWS):
            if not self._add("float64", workload, jittered(values, self.rng), wide, spreads, Spread.add_noise):
                return False
        for number in range(CLOSER_DRAWS):
            inputs = moved(values, CLOSER * self.rules[0].step, self.rng, number, self.accuracy)
            if not self._add("float64", workload, inputs, wide, spreads, Spread.add_close):
                return False
        for distance in NEIGHBOURS:
            near = neighbours(values, distance, self.rng)
            exact = self._reference("float64", workload, near)
            if exact is None or not self._add("eager", workload, near, exact, spreads, Spread.add_eager):
                return False
        return self._look_at_ties(workload, values, wide, spreads)

    def _look_without_special(
        self,
        workload: ResolvedWorkload,
        values: Values,
        found: Sequence[torch.Tensor],
        wide: Sequence[torch.Tensor],
        spreads: Sequence[Spread],
    ) -> bool:
        """Find out what NaN and infinities of the inputs do, by other numbers; false where the reference fails there.

        They are replaced in all inputs together. In a sum also in each alone: one that weighs nothing may only be seen
        to where another input keeps its own.
        """
        special = [place for place, value in enumerate(values) if _is_special(value)]
        if not special:
            return True
        sums = self.rules[0].fan_in > 1
        for only in (None, *special) if sums and len(special) > 1 else (None,):
            if not self._look_without(workload, values, only, wide, spreads):
                return False
        return not sums or self._look_for_infinities(workload, values, found, wide, spreads)

    def _look_without(
        self,
        workload: ResolvedWorkload,
        values: Values,
        only: int | None,
        wide: Sequence[torch.Tensor],
        spreads: Sequence[Spread],
    ) -> bool:
        """Measure what results that are not finite are without NaN and infinities of one input, or of all."""
        known = self._references(workload, [replaced(values, size, only) for size in REPLACED])
        if known is None:
            return False
        same = [idle([one[at] for one in known]) & ~torch.isfinite(exact) for at, exact in enumerate(wide)]
        if not any(bool(one.any()) for one in same):
            return True
        given = [
            one if one is None or value is None else one.to(value.dtype)
            for one, value in zip(replaced(values, 1.0, only), values, strict=True)
        ]
        eager, exact = self._reference("eager", workload, given), self._reference("float64", workload, given)
        if eager is None or exact is None:
            return False
        around = [Spread.of(one) for one in exact]
        if not self._measure_around(workload, given, exact, around):
            return False
        for number in range(self.most):
            inputs = moved(given, self.rules[0].step, self.rng, number, self.accuracy)
            if not self._add("float64", workload, inputs, exact, around, Spread.add):
                return False
        for each in zip(spreads, same, eager, exact, around, strict=True):
            each[0].without.append(Without(*each[1:]))
        return True

    def _look_for_infinities(
        self,
        workload: ResolvedWorkload,
        values: Values,
        found: Sequence[torch.Tensor],
        wide: Sequence[torch.Tensor],
        spreads: Sequence[Spread],
    ) -> bool:
        """Find where NaN comes of infinities or NaN that weigh nothing beside infinities that count, all to one.

        The result must grow to that infinity with all of them, and to no other with those of one sign. Taken one by
        one, each makes the result this infinity or a number; or NaN, and its size does not matter. NaN of the inputs
        must not matter at all: whatever numbers stand there, the result is the same. These then stand there.
        """
        if not Special.of(values).infinities:
            return True
        plainly = self._references(workload, [numbered(enlarged(values, 1.0), size) for size in REPLACED])
        if plainly is None:
            return False
        plain = plainly[0]
        without_nan = [idle([one[at] for one in plainly]) for at in range(len(wide))]
        values = numbered(values, REPLACED[0])
        grown: list[list[torch.Tensor]] = []
        for sign in (0, 1, -1):
            known = self._references(workload, [enlarged(values, size, sign) for size in ENLARGED])
            if known is None:
                return False
            grown.append([grows_to([one[at] for one in known]) for at in range(len(wide))])
        open_ = [
            exact.isnan() & same & (one.to(torch.float64) == whole) & (up != -whole) & (down != -whole)
            for exact, one, same, whole, up, down in zip(wide, found, without_nan, *grown, strict=True)
        ]
        if not any(bool(one.any()) for one in open_):
            return True
        for place, value in enumerate(values):
            if value is None or not _is_special(value):
                continue
            proven = [torch.zeros_like(one) for one in open_]
            for axis in range(value.dim()):
                along = self._one_by_one(workload, values, (place, axis), plain, grown[0])
                if along is None:
                    return False
                proven = [one | other for one, other in zip(proven, along, strict=True)]
            open_ = [one & other for one, other in zip(open_, proven, strict=True)]
        for spread, one, whole in zip(spreads, open_, grown[0], strict=True):
            spread.towards = torch.where(one, whole, torch.nan)
        return True

    def _one_by_one(
        self,
        workload: ResolvedWorkload,
        values: Values,
        line: tuple[int, int],
        plain: Sequence[torch.Tensor],
        towards: Sequence[torch.Tensor],
    ) -> list[torch.Tensor] | None:
        """Return where no infinity of an input, one in each line along an axis, makes but what it may; None: failed."""
        right = [torch.ones(one.shape, dtype=torch.bool, device=one.device) for one in plain]
        for number in range(SINGLES):
            inputs = one_in_each_line(values, *line, number, SINGLES)
            if inputs is None:
                break
            known = self._references(workload, inputs)
            if known is None:
                return None
            single, large = known
            for fine, one, other, without, whole in zip(right, single, large, plain, towards, strict=True):
                fine.logical_and_(torch.isfinite(one) | (one == whole) | (one.isnan() & (other == without)))
        return right

    def _look_at_ties(
        self, workload: ResolvedWorkload, values: Values, wide: Sequence[torch.Tensor], spreads: Sequence[Spread]
    ) -> bool:
        """Find where the reference chooses among equals that it made itself; false where it fails.

        The softmax of numbers near zero is one number, whatever their order: of such entries, in reverse, the reference
        names others, and where the order of equals is open so may anybody.
        """
        for at, indices in self.runners.facts(self.workload).indices.items():
            if indices is None or not indices.any_order:
                continue
            source = values[indices.position]
            assert source is not None
            reversed_ = [*values[: indices.position], source.flip(indices.axis), *values[indices.position + 1 :]]
            again = self._reference("float64", workload, reversed_)
            if again is None:
                return False
            spreads[at].add(wide[at], source.shape[indices.axis] - 1 - again[at])
        return True

    def _add(
        self,
        mode: Mode,
        workload: ResolvedWorkload,
        inputs: Values,
        wide: Sequence[torch.Tensor],
        spreads: Sequence[Spread],
        add: Callable[[Spread, torch.Tensor, torch.Tensor], None],
    ) -> bool:
        """Run a reference on inputs near the question's and add what it gives; false where it fails."""
        again = self._reference(mode, workload, inputs)
        for spread, one, other in zip(spreads, wide, again or [], strict=again is not None):
            add(spread, one, other)
        return again is not None

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
            eager, wide = (self._reference(mode, workload, inputs) for mode in ("eager", "float64"))
            if eager is not None and wide is not None and _is_far(eager[at], wide[at], tuple(worst.index)):
                return excess
        return 1.0

    def _reference(self, mode: Mode, workload: ResolvedWorkload, values: Values) -> list[torch.Tensor] | None:
        """Return what the reference makes of values; None where it fails on them, which makes them unfair."""
        try:
            return [tensor.clone() for tensor in self.runners.run(mode, workload, values)]
        except RunnerFault as fault:
            if fault.external:
                raise
            return None

    def _references(self, workload: ResolvedWorkload, several: Sequence[Values]) -> list[list[torch.Tensor]] | None:
        """Return what the reference makes of several inputs in float64; None where it fails on one."""
        found = []
        for values in several:
            one = self._reference("float64", workload, values)
            if one is None:
                return None
            found.append(one)
        return found

    def _rounds_once(self, values: Values) -> bool:
        """Return whether eager rounds floating results alone; not where it fails, or a result is no floating number."""
        eager, wide = self._reference("eager", self.workload, values), self._reference("float64", self.workload, values)
        if eager is None or wide is None:
            return False
        floating = all(one.is_floating_point() for one in eager)
        return floating and all(is_rounded_once(one, exact) for one, exact in zip(eager, wide, strict=True))

    def _fan_in(self, values: Values) -> tuple[int, bool]:
        """Return the most elements of an input that an element of the results depends on; and whether no call failed.

        One element of each input is changed at a time: the results that change with it, times the input's elements, by
        the elements of the results.
        """
        plain = self._reference("float64", self.workload, values)
        most, whole = 1.0, plain is not None
        for place, value in enumerate(values):
            if value is None or not value.is_floating_point() or plain is None or value.numel() == 0:
                continue
            for _ in range(PROBES):
                wide = value.to(torch.float64).clone(memory_format=torch.contiguous_format)
                at = self.rng.randrange(wide.numel())
                one = float(wide.view(-1)[at])
                wide.view(-1)[at] = 1.5 * one + (0.5 if one >= 0 else -0.5)
                changed = self._reference("float64", self.workload, [*values[:place], wide, *values[place + 1 :]])
                whole &= changed is not None
                for one_result, other in zip(plain, changed or [], strict=changed is not None):
                    if one_result.numel():
                        count = int(((one_result != other) & ~(one_result.isnan() & other.isnan())).sum())
                        most = max(most, count * value.numel() / one_result.numel())
        return max(1, round(most)), whole


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


def _is_special(value: torch.Tensor | None) -> bool:
    """Check whether a tensor holds NaN or infinities."""
    return value is not None and value.is_floating_point() and not bool(torch.isfinite(value.to(torch.float64)).all())


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

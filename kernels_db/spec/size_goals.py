"""What shapes for a candidate's own numbers are to reach.

A kernel sees sizes of tensors and products of neighbouring ones: `x.numel() // n` rows, the elements of all. Each
number of a candidate parts such a size into stretches, and is one of its own; a modulus asks for a remainder. A goal is
one of these, within what the workloads' envelope admits. Two axes of one size are a goal, too, and more elements than
any workload has.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from warpsmith.kernels_db.job.native_numbers import SizeNumbers

SAMPLE = 48
"""Numbers of each kind that are looked at, drawn at random where a candidate has more."""

_MOST_PARTS = 8

Quantity = tuple[int | str, ...]
"""Axes and sizes that are multiplied; one alone is an axis."""
Sizes = Mapping[str, int]

COMPARED, COMPUTED, OF_PRODUCT, USED, OF_TWO, USED_OF_TWO, USED_OF_PRODUCT = -0.3, 0.3, 0.6, 0.8, 0.8, 1.0, 1.4
"""Ranks of goals: less goes first. A draw between 0 and 1 is added, so that every goal has a chance."""


@dataclass(frozen=True)
class Goal:
    """A quantity from `low` to `high` that leaves `remainder` modulo `modulus`; `equal_to`: and equals another."""

    quantity: Quantity
    low: int
    high: int
    modulus: int = 1
    remainder: int = 0
    equal_to: Quantity | None = None

    def is_met(self, axes: Sizes) -> bool:
        """Check whether a shape reaches the goal."""
        size = size_of(self.quantity, axes)
        if self.equal_to is not None and size != size_of(self.equal_to, axes):
            return False
        return self.low <= size <= self.high and size % self.modulus == self.remainder

    def draw(self, rng: random.Random) -> int:
        """Return a size that reaches the goal, small ones more often; the nearest where there is none."""
        low, high = self.low, self.high
        size = round(math.exp(rng.uniform(math.log(low), math.log(high)))) if low < high else low
        size += (self.remainder - size) % self.modulus
        return size if size <= high else max(low, size - self.modulus)


def are_met(goals: Sequence[Goal], axes: Sizes) -> bool:
    """Check whether a shape reaches all goals."""
    return all(goal.is_met(axes) for goal in goals)


def size_of(quantity: Quantity, axes: Sizes) -> int:
    """Return how much a quantity is."""
    return math.prod(axes[factor] if isinstance(factor, str) else factor for factor in quantity)


def quantities(shapes: Sequence[Sequence[int | str]], known: Sequence[Sizes]) -> list[Quantity]:
    """Return the products of neighbouring axes of `shapes`, one axis alone among them, that vary over `known`.

    Of those that are the same in all of `known` one is returned.
    """
    kept: dict[tuple[int, ...], Quantity] = {}
    for shape in shapes:
        for first, last in itertools.combinations(range(len(shape) + 1), 2):
            values = tuple(size_of(tuple(shape[first:last]), axes) for axes in known)
            if len(set(values)) > 1:
                kept.setdefault(values, tuple(shape[first:last]))
    return list(kept.values())


def goals(
    numbers: SizeNumbers,
    asked: Sequence[Quantity],
    known: Sequence[Sizes],
    corners: tuple[Sizes, Sizes],
    rng: random.Random,
) -> list[tuple[Goal, ...]]:
    """Return what no known shape reaches, in the order in which it is to be tried: one goal, or two at once.

    `asked` are the quantities, axes among them; `corners` have every axis at its smallest, and at its largest.
    """
    ranked: dict[tuple[Goal, ...], float] = {}

    def add(goal: tuple[Goal, ...], rank: float) -> None:
        if not any(are_met(goal, axes) for axes in known):
            ranked[goal] = min(rank + rng.random(), ranked.get(goal, math.inf))

    compared, computed, used = (
        _sampled(kind, rng) for kind in (numbers.compared, _computed(numbers, rng), numbers.used)
    )
    for quantity in asked:
        low, high = (size_of(quantity, corner) for corner in corners)
        alone = len(quantity) == 1
        for stretch in _stretches(low, high, compared):
            add((Goal(quantity, *stretch),), COMPARED if alone else OF_PRODUCT)
        for stretch in _stretches(low, high, [*compared, *computed]):
            add((Goal(quantity, *stretch),), COMPUTED if alone else USED_OF_PRODUCT)
        for stretch in _stretches(low, high, [*compared, *used]):
            add((Goal(quantity, *stretch),), USED if alone else USED_OF_PRODUCT)
        for modulus in _sampled([one for one in numbers.moduli if one <= high], rng):
            for remainder in {*(one for one in compared if one < modulus), 0, modulus - 1}:
                rank = COMPARED if remainder in compared else USED
                add((Goal(quantity, low, high, modulus, remainder),), rank if alone else rank + OF_PRODUCT)
        most = max(size_of(quantity, axes) for axes in known)
        if not alone and most < high:
            add((Goal(quantity, most + 1, high),), OF_PRODUCT)
    for one, other in itertools.combinations([quantity for quantity in asked if len(quantity) == 1], 2):
        spans = [(size_of(quantity, corners[0]), size_of(quantity, corners[1])) for quantity in (one, other)]
        for bounds in (compared, [*compared, *used]):
            for first, second in itertools.product(*(_parts(low, high, bounds) for low, high in spans)):
                add((Goal(one, *first), Goal(other, *second)), OF_TWO if bounds is compared else USED_OF_TWO)
        low, high = max(low for low, _ in spans), min(high for _, high in spans)
        if low <= high:
            add((Goal(one, low, high, equal_to=other),), OF_PRODUCT)
    return sorted(ranked, key=lambda goal: ranked[goal])


def _computed(numbers: SizeNumbers, rng: random.Random) -> list[int]:
    """Return what is a bound once it is computed: `n / 64 > 37` at 2,368, `4 * n > 1000` at 250."""
    compared, factors, addends = (_sampled(kind, rng) for kind in (numbers.compared, numbers.factors, numbers.addends))
    scaled = {size for one, factor in itertools.product(compared, factors) for size in (one * factor, one // factor)}
    moved = {size for one, addend in itertools.product(compared, addends) for size in (one + addend, one - addend)}
    return sorted(size for size in scaled | moved if size > 0)


def _sampled(values: Sequence[int], rng: random.Random) -> list[int]:
    return sorted(rng.sample(list(values), min(SAMPLE, len(values))))


def _stretches(low: int, high: int, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the stretches into which numbers part a range, first and last size of each; a number is one of its own."""
    inside = sorted({number for number in numbers if low <= number <= high})
    if not inside:
        return
    for left, right in itertools.pairwise([low - 1, *inside, high + 1]):
        if right - left > 1:
            yield left + 1, right - 1
    for number in inside:
        yield number, number


def _parts(low: int, high: int, numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the stretches into which numbers part a range, each number the first of one; at most _MOST_PARTS."""
    inside = sorted({number for number in numbers if low < number <= high})[:_MOST_PARTS]
    return [(left, right - 1) for left, right in itertools.pairwise([low, *inside, high + 1])]

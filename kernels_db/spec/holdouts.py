"""Hold-out shapes, derived from an op's own workloads and drawn anew for each job.

A kernel that is right at the declared shapes alone (a hard-coded size, a tail that is never there) is wrong at
its neighbours. The derived shapes stay where an honest kernel must be right: every axis between the smallest
and the largest size that the workloads give it; a multiple of the number that divides all of them; no larger
in bytes than the largest workload; equal, ordered and divisible where two axes are so in all workloads; within
the op's constraints. An axis of one size keeps it, so an op whose workloads vary in nothing has no derived
hold-outs.

Where a candidate's host code compares with numbers, these part an axis into stretches, and each number is one of its
own. A stretch on which no shape lies gets a hold-out: it may be a way through the code that nothing else takes. Numbers
that are compared with something else than a size cost a hold-out and do no harm.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence

from warpsmith.kernels_db.job.axis_relations import find_relations, holds
from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.spec import expr
from warpsmith.kernels_db.spec.errors import SpecErrors
from warpsmith.kernels_db.spec.schema import Op, Workload
from warpsmith.kernels_db.spec.tensors import VarAxis

DERIVED = 3
"""Hold-outs derived for one job.

The first is near a declared shape or anywhere between, the second beside tiles, the third even where all were odd, and
odd where all were even.
"""

BRANCHED = 3
"""Further hold-outs at most, for ways of a candidate's host code that no other shape takes."""

_TILE = 64

_TRIES = 200

Bind = Callable[[Workload], ResolvedWorkload]
Sizes = Mapping[str, int]


def derived_holdouts(
    op: Op,
    workloads: Sequence[Workload],
    bind: Bind,
    bytes_of: Callable[[ResolvedWorkload], int],
    rng: random.Random,
    compared: Sequence[int] = (),
) -> list[Workload]:
    """Return up to DERIVED workloads of role `holdout` near `workloads`, and up to BRANCHED for `compared`.

    There are fewer where no other shape fits. `bind` resolves a workload and raises SpecErrors where it cannot be
    one; `bytes_of` is the size of its tensors; `compared`: the numbers with which the candidate compares.
    """
    axes = {
        name: sorted({item.axes[name] for item in workloads})
        for name, axis in op.axes.items()
        if isinstance(axis, VarAxis)
    }
    if not any(len(sizes) > 1 for sizes in axes.values()):
        return []
    relations = find_relations([item.axes for item in workloads], list(axes))
    constraints = [expr.parse(text, "boolean") for text in op.constraints]
    most = max(bytes_of(bind(item)) for item in workloads)
    known = [item.axes for item in workloads]
    taken = {item.id for item in workloads}
    names = (f"holdout-{number}" for number in itertools.count(1) if f"holdout-{number}" not in taken)
    found: list[Workload] = []

    def keep(like: Workload, sizes: dict[str, int]) -> bool:
        if sizes in known or not all(holds(relation, sizes) for relation in relations):
            return False
        workload = Workload(id="holdout", role="holdout", axes=sizes, inputs=like.inputs)
        if not _fits(workload, bind, bytes_of, constraints, most):
            return False
        known.append(sizes)
        found.append(workload.model_copy(update={"id": next(names)}))
        return True

    for _ in range(_TRIES):
        if len(found) == DERIVED:
            break
        like = rng.choice(list(workloads))
        wanted = {name: _wanted(len(found), name, like.axes[name], axes[name], known, rng) for name in axes}
        keep(like, {name: _between(size, axes[name]) for name, size in wanted.items()})
    stretches = [(name, stretch) for name, declared in axes.items() for stretch in _stretches(declared, compared)]
    rng.shuffle(stretches)
    branched = 0
    for name, (low, high) in stretches:
        if branched == BRANCHED:
            break
        if any(low <= sizes[name] <= high for sizes in known):
            continue
        equal = {name, *(other for one, how, other in relations if how == "==" and one == name)}
        equal |= {one for one, how, other in relations if how == "==" and other == name}
        for like in rng.sample(list(workloads), len(workloads)):
            size = _between(rng.randint(low, high), axes[name])
            if low <= size and keep(like, {**like.axes, **dict.fromkeys(equal, size)}):
                branched += 1
                break
    return found


def _stretches(declared: Sequence[int], compared: Sequence[int]) -> list[tuple[int, int]]:
    """Return the stretches into which numbers part an axis, first and last size of each; a number is one of its own."""
    low, high = declared[0], declared[-1]
    inside = sorted({number for number in compared if low <= number <= high})
    if not inside:
        return []
    ends = [low - 1, *inside, high + 1]
    between = [(left + 1, right - 1) for left, right in itertools.pairwise(ends) if right - left > 1]
    return [*between, *((number, number) for number in inside)]


def _fits(
    workload: Workload,
    bind: Bind,
    bytes_of: Callable[[ResolvedWorkload], int],
    constraints: Sequence[expr.Expression],
    most: int,
) -> bool:
    try:
        bound = bind(workload)
        return bytes_of(bound) <= most and all(constraint.boolean(bound["axes"]) for constraint in constraints)
    except (SpecErrors, expr.ExprError):  # a derived axis below 1, a division by zero
        return False


def _wanted(
    number: int, name: str, size: int, declared: Sequence[int], known: Sequence[Sizes], rng: random.Random
) -> int:
    """Return a size for an axis of the hold-out of a number; it may lie outside of the declared ones."""
    if number == 1:
        return rng.randint(declared[0], declared[-1]) // _TILE * _TILE + rng.choice((-1, 1))
    near = _between(_near(size, declared, rng), declared)
    if number < 2 or any(sizes[name] % 2 != near % 2 for sizes in known):
        return near
    return near + 1 if near == declared[0] else near - 1


def _between(wanted: int, declared: Sequence[int]) -> int:
    """Return the nearest size below that the declared ones allow."""
    low, high, step = declared[0], declared[-1], math.gcd(*declared)
    return min(high, max(low, wanted // step * step))


def _near(size: int, declared: Sequence[int], rng: random.Random) -> int:
    """Return a size near a declared one, or anywhere between the smallest and the largest."""
    low, high, step = declared[0], declared[-1], math.gcd(*declared)
    return rng.choice(
        (
            size,
            size - step,
            size + step,
            size // 2,
            _prime_below(size),
            rng.randint(low, high) | 1,
            round(math.exp(rng.uniform(math.log(low), math.log(high)))),
        )
    )


def _prime_below(size: int) -> int:
    """Return the largest prime below `size`, or 2."""
    return next((n for n in range(size - 1, 2, -1) if all(n % d for d in range(2, math.isqrt(n) + 1))), 2)

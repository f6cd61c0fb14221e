"""Hold-out shapes, derived from an op's own workloads and drawn anew for each job.

A kernel that is right at the declared shapes alone (a hard-coded size, a tail that is never there) is wrong at
its neighbours. The derived shapes stay where an honest kernel must be right (`admitted_shapes`), and are no larger in
bytes than the largest workload. An axis of one size keeps it, so an op whose workloads vary in nothing has no derived
hold-outs.

A candidate's own numbers part a size into stretches, and each number is one of its own (`size_goals`). A stretch on
which no shape lies gets a hold-out: it may be a way through the code that nothing else takes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.kernels_db.job.native_numbers import SizeNumbers
from warpsmith.kernels_db.spec.admitted_shapes import AdmittedShapes, Bind
from warpsmith.kernels_db.spec.branch_shapes import keep_branches
from warpsmith.kernels_db.spec.schema import Op, Workload

DERIVED = 3
"""Hold-outs derived for one job.

The first is near a declared shape or anywhere between, the second beside tiles, the third even where all were odd, and
odd where all were even.
"""

_TILE = 64

_TRIES = 200


def derived_holdouts(
    op: Op,
    workloads: Sequence[Workload],
    bind: Bind,
    bytes_of: Callable[[ResolvedWorkload], int],
    rng: random.Random,
    numbers: SizeNumbers | None = None,
    taken: Sequence[str] = (),
) -> list[Workload]:
    """Return up to DERIVED workloads of role `holdout` near `workloads`, and those for a candidate's `numbers`.

    There are fewer where no other shape fits. `bind` resolves a workload and raises SpecErrors where it cannot be
    one; `bytes_of` is the size of its tensors; `numbers`: None without a candidate; `taken`: ids of others. All of
    `workloads` have the same dtypes.
    """
    shapes = AdmittedShapes(op, workloads, bind, bytes_of, taken)
    if not shapes.varying:
        return []
    most = max(bytes_of(bind(item)) for item in workloads)
    for _ in range(_TRIES):
        if len(shapes.found) == DERIVED:
            break
        like = rng.choice(list(workloads))
        near = {name: shapes.nearest(name, _wanted(shapes, name, like.axes[name], rng)) for name in shapes.axes}
        shape = shapes.shaped(like, near)
        if shapes.admits(shape, most):
            shapes.keep(shape)
    if numbers is not None:
        keep_branches(shapes, numbers, rng)
    return shapes.found


def _wanted(shapes: AdmittedShapes, name: str, size: int, rng: random.Random) -> int:
    """Return a size for an axis of the next hold-out; it may lie outside of the declared ones."""
    number, declared = len(shapes.found), shapes.axes[name]
    if number == 1:
        return rng.randint(declared[0], declared[-1]) // _TILE * _TILE + rng.choice((-1, 1))
    near = shapes.nearest(name, _near(size, declared, rng))
    if number < 2 or any(sizes[name] % 2 != near % 2 for sizes in shapes.known):
        return near
    return near + 1 if near == declared[0] else near - 1


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

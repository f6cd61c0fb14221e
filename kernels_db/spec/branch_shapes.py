"""Hold-out shapes for a candidate's own numbers: each reaches as many of their goals as it can.

Every axis may be large at once, as it is in no workload, for an export admits that: such a shape may have more bytes
than any workload, within limits.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from warpsmith.kernels_db.job.native_numbers import SizeNumbers
from warpsmith.kernels_db.spec.admitted_shapes import AdmittedShapes, Sizes
from warpsmith.kernels_db.spec.schema import Workload
from warpsmith.kernels_db.spec.size_goals import Goal, are_met, goals, quantities, size_of

BRANCHED = 6
"""Hold-outs at most for one job."""

BEYOND_BYTES, BEYOND = 16 << 20, 16
"""The most bytes of a hold-out's tensors where no workload has as many, and how many times the largest workload's.

One as large as a workload is chosen only where no smaller one will do.
"""

BEYOND_FLOPS = 8
"""The most operations of a hold-out, as a multiple of the most of a workload, where the op says how many there are."""

_TRIED, _DRAWS = 60, 4
"""Goals of a job that a shape is looked for, and draws for each."""
_JOINED, _TOGETHER = 16, 4
"""Further goals that a shape is changed for, and the most that it reaches."""


@dataclass(frozen=True)
class _Room:
    """What a hold-out may need at most."""

    bytes: int
    flops: int | None


def keep_branches(shapes: AdmittedShapes, numbers: SizeNumbers, rng: random.Random) -> None:
    """Keep up to BRANCHED shapes that reach what no other one does."""
    op, declared = shapes.op, [shapes.bind(item) for item in shapes.workloads]
    largest = max(shapes.bytes_of(one) for one in declared)
    flops = [one["flops"] for one in declared if one["flops"] is not None]
    room = _Room(max(largest, min(BEYOND_BYTES, BEYOND * largest)), BEYOND_FLOPS * max(flops) if flops else None)
    small = replace(room, bytes=min(room.bytes, BEYOND_BYTES))
    known = [bound for sizes in shapes.known if (bound := shapes.bound(sizes)) is not None]
    lowest, highest = ({name: end(axes[name] for axes in known) for name in known[0]} for end in (min, max))
    arguments = [*op.inputs, *(state.as_input() for state in op.state)]
    tensors = [item.shape for item in arguments if item.shape is not None] + [item.shape for item in op.outputs]
    asked = quantities([*([name] for name in shapes.varying), *tensors], known)
    wanted = goals(numbers, asked, known, (lowest, highest), rng)[:_TRIED]
    kept = 0
    while wanted and kept < BRANCHED:
        goal = wanted.pop(0)
        if any(are_met(goal, axes) for axes in known):
            continue
        likes = rng.sample(list(shapes.workloads), len(shapes.workloads))
        for within, like in itertools.product((small, room), likes):
            shape = _reach(shapes, like, goal, (), within, rng, _DRAWS)
            if shape is not None:
                shape = _extended(shapes, shape, goal, wanted[:_JOINED], within, rng)
                shapes.keep(shape)
                known.append(shapes.bound(shape.axes) or {})
                kept += 1
                break


def _extended(
    shapes: AdmittedShapes,
    shape: Workload,
    goal: tuple[Goal, ...],
    others: Sequence[tuple[Goal, ...]],
    room: _Room,
    rng: random.Random,
) -> Workload:
    """Return a shape that reaches more of `others`, and `goal` still."""
    met, count = goal, 1
    for other in others:
        further = _reach(shapes, shape, other, met, room, rng, 1)
        if further is not None:
            shape, met, count = further, (*met, *other), count + 1
        if count == _TOGETHER:
            break
    return shape


def _reach(
    shapes: AdmittedShapes,
    like: Workload,
    wanted: Sequence[Goal],
    kept: Sequence[Goal],
    room: _Room,
    rng: random.Random,
    draws: int,
) -> Workload | None:
    """Return a new shape that reaches `wanted` and `kept`, made of another by moving axes for `wanted`, or None."""
    for _ in range(draws):
        sizes: Sizes | None = like.axes
        for goal in wanted:
            sizes = None if sizes is None else _moved(shapes, sizes, goal, rng)
        bound = None if sizes is None else shapes.bound(sizes)
        if sizes is None or bound is None or not are_met((*wanted, *kept), bound):
            continue
        shape = shapes.shaped(like, dict(sizes))
        if shapes.admits(shape, room.bytes, room.flops):
            return shape
    return None


def _moved(shapes: AdmittedShapes, start: Sizes, goal: Goal, rng: random.Random) -> Sizes | None:
    """Return the axes of a shape, one after the other moved toward a goal until it is reached; None where it is not."""
    sizes, drawn = start, goal.draw(rng)
    for name in rng.sample(shapes.varying, len(shapes.varying)):
        bound = shapes.bound(sizes)
        if bound is None:
            return None
        if goal.is_met(bound):
            return sizes
        target = drawn if goal.equal_to is None else size_of(goal.equal_to, bound)
        size = shapes.nearest(name, round(sizes[name] * target / size_of(goal.quantity, bound)))
        moved = {**sizes, **dict.fromkeys(shapes.together(name), size)}
        after = shapes.bound(moved)
        if after is not None and size_of(goal.quantity, after) != size_of(goal.quantity, bound):
            sizes = moved
    return sizes

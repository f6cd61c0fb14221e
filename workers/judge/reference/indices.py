"""Whether an integer result holds indices into an input, shown by the reference itself.

The entries of an input along an axis are put in another order. Where the result then names the same entries at their
new places, it holds indices along that axis, and the op treats the entries alike: two that are equal may stand for each
other, as far as the op leaves the order of equals open.

Whether it is left open is read from the reference's source: PyTorch promises the first of equals for `argmax`,
`argmin`, `max` and `min`, keeps their order in a stable sort, and promises nothing for the functions of `UNORDERED`. A
check of kind `indices` in the spec says so instead.

A *sharp* result tells neighbouring numbers of the dtype from each other: no rounded arithmetic lies between the input
and the choice. Then there is no near tie, and nothing but equals is excused.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from warpsmith.kernels_db.job.python_parsing import parse_module
from warpsmith.workers.judge.values.steps import alike
from warpsmith.workers.judge.values.workload_specs import Values

UNORDERED = frozenset({"topk", "sort", "argsort", "msort", "kthvalue", "median", "nanmedian", "mode"})
"""Functions of torch that leave the order of equals open; `sort` and `argsort` unless `stable=True`."""

MOST_TRIED = 8
"""Most pairs of an input and an axis that are tried for one result."""

_SMALLEST, _LARGEST = 2.0**-12, 2.0**12
"""The numbers that sharpness is tried on lie between these."""

_FAR_APART = 8
"""Numbers of the dtype between two that are far apart; as many of them are tried as have room."""

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Run = Callable[[str, Values], torch.Tensor]
"""Runs the reference in a mode on values and returns the result in question."""


@dataclass(frozen=True)
class Indices:
    """A result holds indices into the input at `position` among the values, along `axis`.

    `along`: the result has the input's other axes, so each index selects one number there; otherwise it selects a slice
    (a row of a codebook). `kept`: the result has the axis, too. `any_order`: the order of equals is open. `sharp`: see
    the module.
    """

    position: int
    axis: int
    along: bool
    kept: bool
    any_order: bool
    sharp: bool = False

    def select_alike(
        self, values: Values, shape: torch.Size, places: torch.Tensor, found: torch.Tensor, wanted: torch.Tensor
    ) -> torch.Tensor:
        """Check at flat positions of a result of `shape` whether found and wanted indices select equal entries."""
        source = values[self.position]
        assert source is not None
        size = source.shape[self.axis]
        inside = (found >= 0) & (found < size)
        rows = source.movedim(self.axis, 0)
        one, other = found.clamp(0, size - 1), wanted.clamp(0, size - 1)
        if self.along:
            where = torch.unravel_index(places, shape)
            rest = tuple(at for axis, at in enumerate(where) if not (self.kept and axis == self.axis))
            first, second = rows[(one, *rest)], rows[(other, *rest)]
        else:
            first, second = (rows.reshape(size, -1)[at] for at in (one, other))
        same = alike(first, second)
        return inside & (same if self.along else same.all(-1))


def leaves_order_open(reference: str) -> bool:
    """Check whether a reference calls a function that leaves the order of equals open."""
    try:
        tree = parse_module(reference)
    except SyntaxError:  # the runner says so
        return False
    return any(isinstance(node, ast.Call) and _is_unordered(node) for node in ast.walk(tree))


def _is_unordered(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    stable = any(
        word.arg == "stable" and isinstance(word.value, ast.Constant) and word.value.value is True
        for word in call.keywords
    )
    return name in UNORDERED and not stable


def find_indices(
    run: Run, values: Values, result: torch.Tensor, rng: random.Random, *, any_order: bool
) -> Indices | None:
    """Find what `result`, the float64 reference's on `values`, holds indices into; None where that is not certain."""
    if result.dtype == torch.bool or not result.numel() or int(result.min()) < 0:
        return None
    for candidate in _candidates(values, result, int(result.max()), any_order)[:MOST_TRIED]:
        if _follows(run, candidate, values, result, rng):
            return sharpened(run, candidate, values, rng)
    return None


def sharpened(run: Run, one: Indices, values: Values, rng: random.Random) -> Indices:
    """Return the indices with what a trial of their sharpness tells."""
    return replace(one, sharp=one.along and _is_sharp(run, one, values, rng))


def _candidates(values: Values, result: torch.Tensor, most: int, any_order: bool) -> list[Indices]:
    """Return the inputs and axes that a result may hold indices into, the likeliest first."""
    along, tables = [], []
    for position, value in enumerate(values):
        if value is None or value.dtype == torch.bool:
            continue
        for axis, size in enumerate(value.shape):
            if size < 2 or size <= most:
                continue
            rest = [other for at, other in enumerate(value.shape) if at != axis]
            kept = (
                result.dim() == value.dim() and [other for at, other in enumerate(result.shape) if at != axis] == rest
            )
            if kept or list(result.shape) == rest:
                along.append(Indices(position, axis, True, kept, any_order))
            else:
                tables.append(Indices(position, axis, False, False, any_order))
    return along + tables


def _follows(run: Run, one: Indices, values: Values, result: torch.Tensor, rng: random.Random) -> bool:
    """Check whether the indices follow their entries to other places."""
    source = values[one.position]
    assert source is not None
    shuffled = torch.randperm(source.shape[one.axis], generator=torch.Generator().manual_seed(rng.getrandbits(62)))
    order = torch.empty_like(shuffled)
    order[shuffled] = shuffled.roll(1)  # one cycle: every entry moves
    order = order.to(source.device)
    other = [*values]
    other[one.position] = source.index_select(one.axis, order)
    found = run("float64", other).reshape(-1).to(torch.int64)
    wanted = result.reshape(-1).to(torch.int64)
    if not bool(((found >= 0) & (found < order.numel())).all()) or torch.equal(found, wanted):
        return False
    places = torch.arange(wanted.numel(), device=wanted.device)
    return bool(one.select_alike(values, result.shape, places, order[found], wanted).all())


def _is_sharp(run: Run, one: Indices, values: Values, rng: random.Random) -> bool:
    """Check whether eager chooses alike among neighbouring numbers and among numbers far apart, in the same order."""
    source = values[one.position]
    assert source is not None
    if not source.is_floating_point():
        return True
    raw, size = _BITS[source.dtype.itemsize], source.shape[one.axis]
    ends = torch.tensor([_SMALLEST, _LARGEST], dtype=source.dtype).view(raw).to(torch.int64)
    first, levels = int(ends[0]), min(size, int(ends[1] - ends[0]) // _FAR_APART)
    if levels < 2:
        return False
    generator = torch.Generator(source.device).manual_seed(rng.getrandbits(62))
    ranks = torch.rand(source.shape, generator=generator, device=source.device).argsort(one.axis) * levels // size
    chosen = []
    for distance in (1, int(ends[1] - ends[0]) // levels):
        ordered = [*values]
        ordered[one.position] = (ranks * distance + first).to(raw).view(source.dtype)
        chosen.append(run("eager", ordered).clone())
    return torch.equal(*chosen)

"""What share of each large input a call has to read, shown by the reference itself.

The physical limit would have every input read once. An embedding, a gather or a paged cache reads the rows that an
index names, a search the few numbers on its way. So the referee replaces parts of an input by other values of it: what
does not change the float64 results need not be read. Two questions:

- All rows along an axis that no number of an integer input names are replaced at once. Where nothing changes, only the
  named rows count. This costs a run for each such pair, and is asked of every workload with an integer input.
- Single units of memory, drawn at random, are replaced one after the other, `SAMPLES` of each large input. That takes
  many runs, and is asked only before a time is called too good to be true.

Both err on the side of less: a limit that is too low lets a kernel pass which other gates have found right; one that is
too high takes an honest kernel for a cheat.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.workers.judge.reference.baselines import OpRunners
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.values.inputs import InputSource
from warpsmith.workers.judge.values.steps import alike
from warpsmith.workers.judge.values.workload_specs import Values, result_positions

LEAST_BYTES, LEAST_SHARE = 1 << 16, 0.05
"""A large input has so many bytes, and such a share of what the workload moves."""

UNIT_BYTES = 32
"""Of the units that are replaced: a sector, the least that a GPU reads from its memory."""

SAMPLES = 24
"""Units that are replaced in one input; where each of them matters, all are taken to matter.

Of weights of which two thirds are read, all of 12 matter once in 130 times, all of 24 once in 17,000.
"""

SPREAD = 2.0
"""Standard deviations of a sampled share by which the share is taken to be less."""

PATIENCE_S = 60.0
"""Longest sampling of one workload."""


@dataclass(frozen=True)
class _Scene:
    """Values of a call, others of the same kind, and the float64 results for the first."""

    runners: OpRunners
    workload: ResolvedWorkload
    values: Values
    others: Values
    results: list[torch.Tensor]

    def matters(self, position: int, replaced: torch.Tensor) -> bool:
        """Check whether the results change where the elements of an input under a mask are replaced.

        By other values, and by larger ones of either sign than there are, which a maximum sees.
        """
        value, other = self.values[position], self.others[position]
        assert value is not None
        assert other is not None
        if not self.is_unread(position, replaced, other):
            return True
        if not value.is_floating_point():
            return False
        most = 2 * float(value.to(torch.float64).abs().amax())
        extremes = (torch.full_like(value, sign * most) for sign in (1, -1))
        return any(not self.is_unread(position, replaced, extreme) for extreme in extremes)

    def is_unread(self, position: int, replaced: torch.Tensor, other: torch.Tensor) -> bool:
        """Check whether the results stay the same where `other` replaces elements of an input.

        A mutated input keeps there what replaced them.
        """
        value = self.values[position]
        assert value is not None
        changed = [*self.values]
        changed[position] = torch.where(replaced, other, value)
        try:
            results = self.runners.run("float64", self.workload, changed)
        except RunnerFault as fault:
            if fault.external:
                raise
            return False
        for (_, place), before, after in zip(result_positions(self.workload), self.results, results, strict=True):
            wanted = torch.where(replaced, other.to(before.dtype), before) if place == position else before
            if not bool(alike(wanted, after).all()):
                return False
        return True


def least_bytes(
    runners: OpRunners, workload: ResolvedWorkload, open_source: Callable[[], InputSource], *, sampled: bool = False
) -> int:
    """Return the bytes that a call has to move at least: `min_bytes`, less what is seen not to be read.

    `open_source` gives values of the declared inputs. `sampled`: also look unit by unit. `runners` has learnt the
    workload.
    """
    shares = runners.facts(workload).read_shares
    large = [at for at in _large(workload) if at not in shares or (sampled and shares[at] == 1.0)]
    by_index = any(_is_index(item["dtype"]) for item in workload["inputs"] if item["shape"] is not None)
    if large and (sampled or by_index):
        source = open_source()
        values = source.draw()
        results = [tensor.clone() for tensor in runners.run("float64", workload, values)]
        scene = _Scene(runners, workload, values, source.draw(), results)
        rng, end = random.Random(0), time.monotonic() + PATIENCE_S  # noqa: S311 - the values are secret
        for at in large:
            share = min(_indexed_shares(scene, at), default=1.0)
            shares[at] = min(share, _sampled_share(scene, at, rng, end)) if sampled else share
    moved = sum(_moved_bytes(workload, at) * shares.get(at, 1.0) for at in range(len(workload["inputs"])))
    moved += sum(math.prod(item["shape"]) * _size(item["dtype"]) for item in workload["outputs"])
    return max(1, min(workload["min_bytes"], int(moved)))


def _large(workload: ResolvedWorkload) -> list[int]:
    least = max(LEAST_BYTES, LEAST_SHARE * workload["min_bytes"])
    return [at for at in range(len(workload["inputs"])) if _moved_bytes(workload, at) >= least]


def _moved_bytes(workload: ResolvedWorkload, position: int) -> int:
    item = workload["inputs"][position]
    if item["shape"] is None:
        return 0
    strides = item["strides"] or [1] * len(item["shape"])
    distinct = [size for size, stride in zip(item["shape"], strides, strict=True) if stride != 0]
    return math.prod(distinct) * _size(item["dtype"]) * (2 if item["mutated"] else 1)


def _size(dtype: str) -> int:
    found: torch.dtype = getattr(torch, dtype)
    return found.itemsize


def _is_index(dtype: str) -> bool:
    return dtype in ("int64", "int32", "int16", "uint8")


def _indexed_shares(scene: _Scene, position: int) -> Iterator[float]:
    """Yield the shares of an input's rows to which numbers of an integer input confine what is read."""
    value, other = scene.values[position], scene.others[position]
    assert value is not None
    assert other is not None
    for at, index in enumerate(scene.values):
        if at == position or index is None or not _is_index(str(index.dtype).removeprefix("torch.")):
            continue
        named = torch.unique(index)
        if not index.numel() or int(named[0]) < 0:
            continue
        for axis, size in enumerate(value.shape):
            if int(named[-1]) >= size or named.numel() >= size:
                continue
            unnamed = torch.ones(size, dtype=torch.bool, device=value.device)
            unnamed[named.to(torch.int64)] = False
            shape = [size if place == axis else 1 for place in range(value.dim())]
            if scene.is_unread(position, unnamed.view(shape).expand(value.shape), other):
                yield named.numel() / size


def _sampled_share(scene: _Scene, position: int, rng: random.Random, end: float) -> float:
    """Return the least share of an input's units that matter, from a sample of them."""
    value = scene.values[position]
    assert value is not None
    unit = max(1, UNIT_BYTES // value.dtype.itemsize)
    asked = mattered = 0
    for _ in range(SAMPLES):
        if time.monotonic() > end:
            break
        mask = torch.zeros(value.numel(), dtype=torch.bool, device=value.device)
        start = rng.randrange(-(-value.numel() // unit)) * unit
        mask[start : start + unit] = True
        asked += 1
        mattered += scene.matters(position, mask.view(value.shape))
    if asked == mattered:
        return 1.0
    share = mattered / asked
    return max(0.0, share - SPREAD * math.sqrt(share * (1 - share) / asked))

"""The right results besides the expected one, for results that have steps (`values.steps`).

The float64 reference's own, eager's, and those of the float64 reference on inputs moved by a few units of roundoff
(`moved_inputs`): by `STEPS` of float32's, as a family's are. Where eager itself computes in 16 bits, which is seen by
results that no such inputs explain, they are moved by `NARROW_STEPS` units of the op's narrowest dtype of 16 bits or
more: eager's own roundings are then as large.

Nothing is run before a result differs from the expected one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.workers.judge.reference.moved_inputs import moved, step_of
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.values.compare import Tolerance, unit_roundoff
from warpsmith.workers.judge.values.steps import Limit, Steps, wrong_places
from warpsmith.workers.judge.values.workload_specs import Values, is_exact, result_positions, result_spec

if TYPE_CHECKING:
    from warpsmith.workers.judge.reference.baselines import OpRunners

MOVES, MOVES_BEFORE = 64, 6
"""Moved inputs that are asked at most, and how many of them show whether eager computes in 16 bits.

Three in four move elements each for itself. At a boundary between two elements of the input, such as half of a row's
largest, each of those explains 0.44 of the elements: one in 10^12 is left over. After 32 sets it was one in a million,
of which a result of 58 million 8-bit floats has more.
"""

NARROW_STEPS = 2
"""Units of roundoff of a 16-bit dtype by which inputs move where eager computes in it."""

MOST_BYTES = 1 << 30
"""Of the results that are kept for one question; at least `FEWEST` of each are. Others are made when asked for."""
FEWEST = 6


class NearResults:
    """Makes the right results for one question, and keeps those that have steps."""

    def __init__(self, runners: OpRunners, workload: ResolvedWorkload, values: Values, kept: Sequence[int]) -> None:
        """`kept`: the positions of results that have steps."""
        self._runners = runners
        self._workload = workload
        self._values = values
        self._kept = kept
        self._results: list[dict[int, torch.Tensor]] = []
        self._step = step_of(values, runners.math)
        self._failed = False
        self._more = self._make()

    def of(self, position: int) -> Iterator[torch.Tensor]:
        """Return the right results at one position, each made when it is asked for."""
        number = 0
        while number < len(self._results) or self._advance():
            yield self._results[number][position]
            number += 1
        for number in range(len(self._results) - 2, MOVES if self._moves else 0):
            again = self._moved(number)
            if again is None:
                return
            yield again[position]

    def is_open(self) -> bool:
        """Check whether eager's own choices are not those of any inputs that cannot be told from the given ones.

        What is chosen then hangs on roundoff: another right kernel chooses otherwise.
        """
        while len(self._results) < 2 + MOVES_BEFORE and self._advance():
            pass
        return self._is_narrow(self._results[1])

    def _advance(self) -> bool:
        try:
            self._results.append(next(self._more))
        except StopIteration:
            return False
        return True

    def _make(self) -> Iterator[dict[int, torch.Tensor]]:
        yield self._run("float64", self._values)
        yield self._run("eager", self._values)
        for number in range(self._most() if self._moves else 0):
            again = self._moved(number)
            if again is None:
                return
            yield again

    @property
    def _moves(self) -> bool:
        """Whether there is an input that moves, and the reference has not failed on moved ones."""
        return not self._failed and any(one is not None and one.is_floating_point() for one in self._values)

    def _moved(self, number: int) -> dict[int, torch.Tensor] | None:
        """Return the results on one set of moved inputs; None where the reference fails near these values."""
        if number == MOVES_BEFORE and self._is_narrow(self._results[1]):
            self._step = max(self._step, NARROW_STEPS * self._narrowest())
        rng = random.Random(number)  # noqa: S311 - the values are secret, which way they move need not be
        inputs = moved(self._values, self._step, rng, together=number % 4 == 1, uneven=True)
        try:
            return self._run("float64", inputs)
        except RunnerFault as fault:
            if fault.external:
                raise
            self._failed = True  # there are no more right results to be had
            return None

    def _run(self, mode: str, values: Values) -> dict[int, torch.Tensor]:
        results = self._runners.run(mode, self._workload, values)
        dtypes = [result_spec(self._workload, position).dtype for position in range(len(results))]
        return {at: results[at].to(dtypes[at], copy=True) for at in self._kept}

    def _is_narrow(self, eager: dict[int, torch.Tensor]) -> bool:
        """Check whether more of eager's results are unexplained so far than luck leaves over."""
        for position, result in eager.items():
            known = [results[position] for number, results in enumerate(self._results) if number != 1]
            found = self._runners.facts(self._workload).indices.get(position)
            ties = None if found is None else partial(found.select_alike, self._values, result.shape)
            steps = Steps(partial(iter, known[1:]), between=found is None, ties=ties)
            different = int((_bytes(result) != _bytes(known[0])).any(-1).sum())
            if wrong_places(result, known[0], steps).numel() > max(4, different // 4):
                return True
        return False

    def _narrowest(self) -> float:
        dtypes = [value.dtype for value in self._values if value is not None]
        dtypes += [result_spec(self._workload, at).dtype for at, _ in enumerate(result_positions(self._workload))]
        return max((unit_roundoff(one) for one in dtypes if one.is_floating_point and one.itemsize > 1), default=0.0)

    def _most(self) -> int:
        size = sum(self._results[0][position].nbytes for position in self._kept)
        return max(FEWEST, min(MOVES, MOST_BYTES // max(1, size)))


def _bytes(result: torch.Tensor) -> torch.Tensor:
    return result.contiguous().reshape(-1, 1).view(torch.uint8)


def question_limits(
    runners: OpRunners,
    workload: ResolvedWorkload,
    values: Values,
    limits: Sequence[Tolerance | None],
    *,
    floats: bool = True,
) -> list[Limit]:
    """Return how the results of a question on `values` are compared.

    As `limits` say, except for results that have steps; `floats`: also those that are 8-bit floats.
    """
    kept = [at for at, limit in enumerate(limits) if (limit is None or floats) and has_steps(workload, at, limit)]
    if not kept:
        return list(limits)
    near = NearResults(runners, workload, values, kept)
    return [
        _steps(runners, workload, values, near, position, limit) if position in kept else limit
        for position, limit in enumerate(limits)
    ]


def has_steps(workload: ResolvedWorkload, position: int, limit: Tolerance | None) -> bool:
    """Check whether a result is compared by steps: an integer or an 8-bit float that need not be exact."""
    dtype = result_spec(workload, position).dtype
    if dtype.is_floating_point:
        return dtype.itemsize == 1 and limit is not None and limit.own is None
    return not is_exact(workload, position)


def _steps(
    runners: OpRunners,
    workload: ResolvedWorkload,
    values: Values,
    near: NearResults,
    position: int,
    limit: Tolerance | None,
) -> Steps:
    facts = runners.facts(workload)
    if position not in facts.indices:
        return Steps(partial(near.of, position), tolerance=limit)
    found = facts.indices[position]
    if found is None:
        return Steps(_nothing_else, between=False)
    shape = torch.Size(workload["outputs"][position]["shape"])
    ties = partial(found.select_alike, values, shape) if found.any_order or not found.sharp else None
    others = _nothing_else if found.sharp else partial(near.of, position)
    return Steps(others, False, ties, found.axis if found.any_order and found.along and found.kept else None)


def _nothing_else() -> tuple[torch.Tensor, ...]:
    return ()

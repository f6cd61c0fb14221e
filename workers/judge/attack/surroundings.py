"""Measure what an op's references do near a question's values: what moved inputs, noise and ties allow for."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from warpsmith.kernels_db.job.attack_documents import Accuracy
from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.workers.judge.attack.measure import CLOSER, CLOSER_DRAWS, NEIGHBOURS, NOISE_DRAWS, Spread
from warpsmith.workers.judge.attack.nearby import jittered, lost_in_float64, moved, neighbours
from warpsmith.workers.judge.attack.references import References
from warpsmith.workers.judge.reference.indices import Indices
from warpsmith.workers.judge.runner.limits import Mode
from warpsmith.workers.judge.values.workload_specs import Values

Add = Callable[[Spread, torch.Tensor, torch.Tensor], None]
"""Adds what a reference gave to the spread of a result, beside what the exact one gave."""


@dataclass(frozen=True)
class Surroundings:
    """The references of one workload near values.

    `step`: by how much inputs are moved, relative; `indices`: of the results that select entries of an input, by their
    position. Methods return false where a reference fails.
    """

    workload: ResolvedWorkload
    references: References
    step: float
    accuracy: Accuracy
    rng: random.Random
    indices: Mapping[int, Indices | None]

    def measure(self, values: Values, wide: Sequence[torch.Tensor], spreads: Sequence[Spread]) -> bool:
        """Measure eager's error at neighbours, float64's noise, jumps and ties."""
        for spread in spreads:
            spread.lost = lost_in_float64(values)
        for _ in range(NOISE_DRAWS):
            if not self._add("float64", jittered(values, self.rng), wide, spreads, Spread.add_noise):
                return False
        for number in range(CLOSER_DRAWS):
            inputs = moved(values, CLOSER * self.step, self.rng, number, self.accuracy)
            if not self._add("float64", inputs, wide, spreads, Spread.add_close):
                return False
        for distance in NEIGHBOURS:
            near = neighbours(values, distance, self.rng)
            exact = self.references.run("float64", self.workload, near)
            if exact is None or not self._add("eager", near, exact, spreads, Spread.add_eager):
                return False
        return self._look_at_ties(values, wide, spreads)

    def add_moved(
        self,
        values: Values,
        draws: Sequence[int],
        wide: Sequence[torch.Tensor],
        spreads: Sequence[Spread],
        *,
        ties: bool = False,
    ) -> bool:
        """Add what float64 gives for moved inputs, one for each number of `draws`."""
        for number in draws:
            inputs = moved(values, self.step, self.rng, number, self.accuracy, ties=ties)
            if not self._add("float64", inputs, wide, spreads, Spread.add):
                return False
        return True

    def _look_at_ties(self, values: Values, wide: Sequence[torch.Tensor], spreads: Sequence[Spread]) -> bool:
        """Find where the reference chooses among equals that it made itself.

        The softmax of numbers near zero is one number, whatever their order: of such entries, in reverse, the reference
        names others, and where the order of equals is open so may anybody.
        """
        for at, indices in self.indices.items():
            if indices is None or not indices.any_order:
                continue
            source = values[indices.position]
            assert source is not None
            reversed_ = [*values[: indices.position], source.flip(indices.axis), *values[indices.position + 1 :]]
            again = self.references.run("float64", self.workload, reversed_)
            if again is None:
                return False
            spreads[at].add(wide[at], source.shape[indices.axis] - 1 - again[at])
        return True

    def _add(
        self,
        mode: Mode,
        inputs: Values,
        wide: Sequence[torch.Tensor],
        spreads: Sequence[Spread],
        add: Add,
    ) -> bool:
        """Run a reference on inputs near the question's and add what it gives."""
        again = self.references.run(mode, self.workload, inputs)
        for spread, one, other in zip(spreads, wide, again or [], strict=again is not None):
            add(spread, one, other)
        return again is not None

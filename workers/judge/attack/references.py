"""Run an op's references on values. What they fail on is unfair to ask, not wrong."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.workers.judge.attack.measure import is_rounded_once
from warpsmith.workers.judge.reference.baselines import OpRunners
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.runner.limits import Mode
from warpsmith.workers.judge.values.workload_specs import Values

PROBES = 3


@dataclass(frozen=True)
class References:
    """The references of one op. Raises RunnerFault where a runner fails for another reason than the values."""

    runners: OpRunners

    def run(self, mode: Mode, workload: ResolvedWorkload, values: Values) -> list[torch.Tensor] | None:
        """Return what a reference makes of values; None where it fails on them."""
        try:
            return [tensor.clone() for tensor in self.runners.run(mode, workload, values)]
        except RunnerFault as fault:
            if fault.external:
                raise
            return None

    def run_each(self, workload: ResolvedWorkload, several: Sequence[Values]) -> list[list[torch.Tensor]] | None:
        """Return what the reference makes of several inputs in float64; None where it fails on one."""
        found = []
        for values in several:
            one = self.run("float64", workload, values)
            if one is None:
                return None
            found.append(one)
        return found

    def rounds_once(self, workload: ResolvedWorkload, values: Values) -> bool:
        """Return whether eager rounds floating results alone.

        Not where it fails, or a result is no floating number.
        """
        eager, wide = self.run("eager", workload, values), self.run("float64", workload, values)
        if eager is None or wide is None:
            return False
        floating = all(one.is_floating_point() for one in eager)
        return floating and all(is_rounded_once(one, exact) for one, exact in zip(eager, wide, strict=True))

    def measure_fan_in(self, workload: ResolvedWorkload, values: Values, rng: random.Random) -> tuple[int, bool]:
        """Return the most elements of an input that an element of the results depends on; and whether no call failed.

        One element of each input is changed at a time: the results that change with it, times the input's elements, by
        the elements of the results.
        """
        plain = self.run("float64", workload, values)
        most, whole = 1.0, plain is not None
        for place, value in enumerate(values):
            if value is None or not value.is_floating_point() or plain is None or value.numel() == 0:
                continue
            for _ in range(PROBES):
                wide = value.to(torch.float64).clone(memory_format=torch.contiguous_format)
                at = rng.randrange(wide.numel())
                one = float(wide.view(-1)[at])
                wide.view(-1)[at] = 1.5 * one + (0.5 if one >= 0 else -0.5)
                changed = self.run("float64", workload, [*values[:place], wide, *values[place + 1 :]])
                whole &= changed is not None
                for one_result, other in zip(plain, changed or [], strict=changed is not None):
                    if one_result.numel():
                        count = int(((one_result != other) & ~(one_result.isnan() & other.isnan())).sum())
                        most = max(most, count * value.numel() / one_result.numel())
        return max(1, round(most)), whole

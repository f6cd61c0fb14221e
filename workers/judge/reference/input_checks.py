"""Questions on input families: values of a family, the right results, and the tolerance.

The tolerance is derived anew for each family, on the very values that are asked, with the formula of the declared
inputs: k E0 by magnitude and k e0 in the norm. On a family that alone would reject honest kernels. PyTorch's error may
be zero by luck or by exactness (whole numbers, constant rows) where a kernel that sums in another order or uses a fast
exponential rounds once more; where values cancel (a variance of nearly zero) two right algorithms differ by far more
than each does on declared inputs. So a family's limits are at least:

- what moving every floating input by `moved_inputs.STEPS` units of roundoff of the arithmetic does to the float64
  result, by magnitude: the error of an algorithm that is right for inputs which cannot be told from the given ones. The
  inputs are moved twice: each element up or down at random, and each tensor as a whole, as naive summation drifts. A
  16-bit result of 16-bit inputs may also be off by what moving these by units of their own roundoff does;
- the same share of the largest element, for algorithms that are exact only in the norm (Winograd, Strassen, FFT);
- `ULPS` units in the last place of each element, and the smallest normal number, because a GPU may flush below it;
- `ULPS` units of float64's own roundoff of the largest value of an input that is drawn from a distribution: where the
  reference loses a result among values of that size (1 + tanh(x) for x below -20 is 0 in float64), a kernel that keeps
  it is the more accurate one. Inputs that code makes (a mask of the smallest numbers, say) count for nothing here.

The unit is float32's also for 16-bit inputs, whose kernels accumulate in float32; under `math: tf32` it is TF32's. An
op with a tolerance of its own gets it here too: its rtol as a share of each element and, if larger, as the roundoff by
which inputs move; its atol scaled down as the results are smaller than on declared inputs, so that zeros do not pass
because a family's results are small. An exact op stays exact.

All this is wide beside the declared inputs' tolerance, which every kernel has to meet too. It is narrow beside what a
family is there to catch: results that are wrong by their own size.

A family does not suit an op, and is left out, where the reference fails on it, or where it leads to values that are not
finite although the declared inputs never do (an overflow, the logarithm of a negative number).
"""

from __future__ import annotations

import math as _math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.workers.judge.reference import moved_inputs
from warpsmith.workers.judge.reference.baselines import OpRunners
from warpsmith.workers.judge.reference.moved_inputs import Arithmetic, noise_step, step_of, widened_by
from warpsmith.workers.judge.reference.near_results import NearResults, question_limits
from warpsmith.workers.judge.runner.faults import RunnerFault
from warpsmith.workers.judge.values.compare import Tolerance, ToleranceBuilder, unit_roundoff
from warpsmith.workers.judge.values.families import Family
from warpsmith.workers.judge.values.inputs import InputSource
from warpsmith.workers.judge.values.steps import Limit
from warpsmith.workers.judge.values.workload_specs import Values, result_positions, result_spec

ULPS = 4

EXACT = (0.0, 0.0)

_OF_A_SIZE = frozenset({"normal", "uniform"})
"""Distributions whose values have a size that families choose.

The size has no other meaning.
"""


@dataclass(frozen=True)
class Question:
    """Values to call on, the right results, and their tolerance.

    `family` is None for declared inputs.
    """

    values: Values
    expected: Sequence[torch.Tensor]
    limits: Sequence[Limit]
    workload: str
    family: str | None = None

    @property
    def place(self) -> str:
        """What messages call it."""
        return self.workload if self.family is None else f"{self.workload}, {self.family} inputs"


class Unsuited(Exception):  # noqa: N818 - named for what happened
    """A family does not suit an op; the message says why."""


def declared(runners: OpRunners, workload: ResolvedWorkload, source: InputSource) -> Question:
    """Ask a question on the declared inputs, under the tolerances learnt from them."""
    return declared_on(runners, workload, source.draw())


def declared_on(runners: OpRunners, workload: ResolvedWorkload, values: Values) -> Question:
    """Ask a question on values of the declared inputs, under the tolerances learnt from others."""
    expected = runners.expected(workload, values)
    limits = question_limits(runners, workload, values, runners.limits(workload))
    return Question(values, expected, limits, workload["id"])


def ask(
    runners: OpRunners,
    workload: ResolvedWorkload,
    family: Family,
    source: InputSource,
    math: Arithmetic,
    rng: random.Random,
) -> Question:
    """Ask a question on `family`, whose values `source` draws.

    `runners` has learnt the workload. Raises Unsuited; RunnerFault where a runner was killed from outside.
    """
    unsuited = runners.facts(workload).unsuited
    if family.name in unsuited:
        raise Unsuited(unsuited[family.name])
    try:
        return _asked(runners, workload, family, source, math, rng)
    except Unsuited as found:
        unsuited[family.name] = str(found)
        raise
    except RunnerFault as fault:
        if fault.external:
            raise
        unsuited[family.name] = f"the reference fails on it ({(str(fault).splitlines() or [''])[0][:200]})"
        raise Unsuited(unsuited[family.name]) from fault


def _asked(
    runners: OpRunners,
    workload: ResolvedWorkload,
    family: Family,
    source: InputSource,
    math: Arithmetic,
    rng: random.Random,
) -> Question:
    values = source.draw()
    eager = [tensor.clone() for tensor in runners.run("eager", workload, values)]
    expected = [tensor.clone() for tensor in runners.run("float64", workload, values)]
    declared = runners.limits(workload)
    builders = [
        None if one is None or one.own == EXACT else ToleranceBuilder(found.dtype)
        for found, one in zip(eager, declared, strict=True)
    ]
    for (name, _), found, wide, one in zip(result_positions(workload), eager, expected, declared, strict=True):
        if one is not None:
            _refuse_non_finite(name, found, wide, runners.facts(workload).finite)
    for builder, found, wide in zip(builders, eager, expected, strict=True):
        if builder is not None:
            builder.add(found, wide)
    moved = [ToleranceBuilder(found.dtype) for found in eager]
    step = max([step_of(values, math), *(one.own[0] for one in declared if one is not None and one.own is not None)])
    if any(builders):
        for together in (False, True):
            results = runners.run("float64", workload, moved_inputs.moved(values, step, rng, together=together))
            for builder, found, wide, noise in zip(builders, results, expected, moved, strict=True):
                if builder is not None:
                    noise.add(found, wide)
    lost = _lost_in_float64(workload, values)
    tolerances = [
        one if builder is None or one is None else _widened(builder, noise, one, step, lost)
        for builder, noise, one in zip(builders, moved, declared, strict=True)
    ]
    for at, one in enumerate(tolerances):
        share = noise_step(workload, at)
        if one is not None and builders[at] is not None and share is not None and share > step:
            tolerances[at] = _with_own_noise(runners, workload, values, expected, at, one, share, rng)
    limits = question_limits(runners, workload, values, tolerances, floats=False)
    _refuse_open_choices(runners, workload, values)
    wanted = [own if one is None else wide for own, wide, one in zip(eager, expected, declared, strict=True)]
    for (name, _), comparison in zip(result_positions(workload), runners.check(eager, wanted, limits), strict=True):
        if not comparison.passed:
            raise Unsuited(f"PyTorch eager itself misses the tolerance of {name}")
    return Question(values, wanted, limits, workload["id"], family.name)


def _with_own_noise(
    runners: OpRunners,
    workload: ResolvedWorkload,
    values: Values,
    expected: Sequence[torch.Tensor],
    at: int,
    found: Tolerance,
    share: float,
    rng: random.Random,
) -> Tolerance:
    """Return the tolerance of a 16-bit result with what moving its inputs by units of their own roundoff does."""
    noise = ToleranceBuilder(result_spec(workload, at).dtype)
    for _ in range(moved_inputs.moves_for(expected[at].numel())):
        inputs = moved_inputs.moved(values, share, rng, together=False)
        noise.add(runners.run("float64", workload, inputs)[at], expected[at])
    return widened_by(found, noise.finish(), share, 0.0)


def _lost_in_float64(workload: ResolvedWorkload, values: Values) -> float:
    """Return the most that float64 loses of a result among values as large as the inputs."""
    largest = 0.0
    for item, value in zip(workload["inputs"], values, strict=True):
        if value is not None and value.is_floating_point() and value.numel() and item["dist"]["kind"] in _OF_A_SIZE:
            most = _most(value)
            if not _math.isfinite(most):
                size = value.to(torch.float64).abs()
                most = float(torch.where(size.isfinite(), size, 0.0).max())
            largest = max(largest, most)
    return ULPS * unit_roundoff(torch.float64) * largest


def _widened(
    eager: ToleranceBuilder, noise: ToleranceBuilder, declared: Tolerance, step: float, lost: float
) -> Tolerance:
    """Return eager's tolerance on a family, at least as wide as the module says."""
    found = widened_by(eager.finish(), noise.finish(), step, eager.largest)
    flush = float(torch.finfo(torch.float32).smallest_normal) if eager.dtype in (torch.float32, torch.bfloat16) else 0.0
    element = found.element.clamp_min(max(flush, lost))
    norm = max(found.l2, ULPS * unit_roundoff(eager.dtype), lost / found.size if found.size else 0.0)
    relative = 0.0
    if declared.own is not None:
        relative, atol = declared.own
        norm = float("inf")
        element = element + atol * (min(1.0, found.size / declared.size) if declared.size else 1.0)
    return Tolerance(found.eager_l2, norm, found.edges, element, None, ULPS, relative, found.size)


def _refuse_open_choices(runners: OpRunners, workload: ResolvedWorkload, values: Values) -> None:
    indices = runners.facts(workload).indices
    chosen = [at for at, found in indices.items() if found is not None and not found.sharp]
    if chosen and NearResults(runners, workload, values, chosen).is_open():
        raise Unsuited("what is chosen on it hangs on roundoff")


def _most(values: torch.Tensor) -> float:
    """Return the largest magnitude; no finite number where one of them is none."""
    wide = values.to(torch.float32) if values.dtype.itemsize == 1 else values  # torch knows little of 8-bit floats
    least, most = torch.stack(wide.aminmax()).tolist()
    return max(-least, most) if _math.isfinite(least + most) else _math.inf


def _refuse_non_finite(name: str, eager: torch.Tensor, expected: torch.Tensor, always_finite: bool) -> None:
    # Rounding keeps the order: where the largest stays finite, all do.
    extreme = torch.tensor(_most(expected), dtype=torch.float64) if expected.numel() else torch.zeros(())
    if eager.numel() and torch.isfinite(extreme.to(eager.dtype).to(torch.float32)) and _math.isfinite(_most(eager)):
        return
    finite, wide = torch.isfinite(eager.to(torch.float32)), torch.isfinite(expected.to(eager.dtype).to(torch.float32))
    if always_finite and not bool((finite & wide).all()):
        raise Unsuited(f"{name} is not finite on it")
    if bool((finite != wide).any()) or not bool(wide.any()):
        raise Unsuited(f"{name} is not finite on it where PyTorch eager is, or the reverse")

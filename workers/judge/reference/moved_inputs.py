"""Inputs that cannot be told from the given ones, and what moving to them does to a result.

An algorithm is right (backward stable) where its result is the exact one for inputs moved by a few units of roundoff:
Higham, Accuracy and Stability of Numerical Algorithms, 2002, ch. 1.5. So the float64 reference on moved inputs says how
far apart two right results may lie, without a look at PyTorch's own error, which may be zero by luck, by exactness, or,
for a float64 op, because it is what the float64 reference computes.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Literal

import torch

from warpsmith.kernels_db.job.documents import ResolvedWorkload
from warpsmith.workers.judge.machine.buffers import TensorSpec
from warpsmith.workers.judge.values.compare import Tolerance, unit_roundoff
from warpsmith.workers.judge.values.workload_specs import Values, input_specs, result_spec

STEPS = 256
"""Units of roundoff by which floating inputs are moved to find a tolerance.

Honest algorithms for the examples (sums in one chain of 1,024 and in eight of 32,768, Strassen's products, fast
exponentials) stayed within 20 of these on every family; a one-pass variance, whose error grows with the square of the
mean, within 150.
"""

FLOAT64_STEPS = 1 << 16
"""Units of roundoff of float64 by which inputs of a float64 op are moved.

A sum of 100,000 elements in one chain needs 400, one of equal elements 20,000. There is room: a single
rounding to float32 costs up to 2**29 of them.
"""

NARROW_STEPS, NARROW_ELEMENT = 2.5, 8
"""Units of roundoff of a 16-bit dtype that a sum in it, by a tree or of rounded partial sums, may be off.

In the norm (a tree of 12 levels was off by 2.0, a chain of 257 by 4.7, inputs rounded to 8 bits by 6), and in an
element as a share of the root mean square: where terms cancel, the error is that of the terms.
The norm of few elements is less steady (`narrow_norm`).
"""

STEADY_ELEMENTS, MOST_MOVES = 64, 16
"""How many results the norm of moved inputs pools on a family, in at most so many moves, where an output is small.

Of one move the norm of 5 results may be a third of the usual one: then it refuses a sum by a tree, whose own norm is
above the usual one as often. On 5 rows of 4,099 float16 elements one in 80 questions did, on one row of 1,021 one in
20.
"""

TF32_STEP = 2.0**-9
"""Four units of roundoff of TF32, which keeps 10 bits of the fraction."""

Arithmetic = Literal["ieee", "tf32"]


def step_of(values: Values, math: str) -> float:
    """Return the share by which inputs move: the unit is float32's unless all of them are float64."""
    dtypes = {value.dtype for value in values if value is not None and value.is_floating_point()}
    if dtypes == {torch.float64}:
        return FLOAT64_STEPS * unit_roundoff(torch.float64)
    return TF32_STEP if math == "tf32" else STEPS * unit_roundoff(torch.float32)


def moved(
    values: Values, step: float, rng: random.Random, *, together: bool, uneven: bool = False
) -> list[torch.Tensor | None]:
    """Return the floating values in float64, each moved by `step` of its size.

    Up or down, all of a tensor alike (`together`) or each for itself. `uneven`: of those half by less, drawn uniformly:
    the quotient of two elements then changes, too.
    """
    found: list[torch.Tensor | None] = []
    for value in values:
        if value is None or not value.is_floating_point():
            found.append(value)
            continue
        wide = value.to(torch.float64)
        if together:
            found.append(wide * (1 + rng.choice((-step, step))))
            continue
        generator = torch.Generator(value.device).manual_seed(rng.getrandbits(62))
        up = torch.rand(value.shape, generator=generator, device=value.device) < 0.5
        if not uneven:
            more, less = (torch.tensor(1 + by, dtype=torch.float64, device=value.device) for by in (step, -step))
            found.append(torch.where(up, more, less).mul_(wide))
            continue
        share = torch.rand(value.shape, dtype=torch.float64, generator=generator, device=value.device)
        by = step * (2 * share).clamp_max(1.0)
        found.append(wide * (1 + torch.where(up, by, -by)))
    return found


def noise_step(workload: ResolvedWorkload, position: int) -> float | None:
    """Return the share by which inputs move to find how far apart right results at a position may lie.

    None where eager's own error says it: for float32, and for 16-bit results of wider inputs.
    """
    dtype = result_spec(workload, position).dtype
    if dtype == torch.float64:
        return FLOAT64_STEPS * unit_roundoff(torch.float64)
    sizes = [spec.dtype.itemsize for spec in input_specs(workload) if spec.shape is not None and _is_float(spec)]
    narrow = dtype in (torch.bfloat16, torch.float16) and max(sizes, default=4) <= dtype.itemsize
    return NARROW_STEPS * unit_roundoff(dtype) if narrow else None


def narrow_norm(elements: int) -> float:
    """Return by how many units of roundoff the norm of a 16-bit sum of so many elements may be off.

    A tree of 12 levels is off by 1.6 units of the results' size: one rounding in each level, of partial sums that are
    together as large as the result. Of n results that is 1.6 chi_n / sqrt(n), measured against the largest size of up
    to 16 seeds. It is above this limit once in 10,000 draws at most, of whatever n; above `NARROW_STEPS` one result is
    once in 140 and five are once in 2,300, and a verification has many draws. From 14 results on it is `NARROW_STEPS`.
    """
    return max(NARROW_STEPS, 2.3 + 2.7 / max(elements, 1))


def moves_for(elements: int) -> int:
    """Return how often inputs are moved for a result of so many elements."""
    return min(MOST_MOVES, -(-STEADY_ELEMENTS // max(elements, 1)))


def _is_float(spec: TensorSpec) -> bool:
    return spec.dtype.is_floating_point


def with_noise(found: Tolerance, noise: Tolerance, dtype: torch.dtype, elements: int) -> Tolerance:
    """Return the tolerance of a result of `dtype`, of so many elements, with what moving inputs by `noise_step` does.

    A float64 result may be off by all of it. A 16-bit one may be off as a sum in its own precision is, whose error is
    that of its terms however small the sum, and no more where the op magnifies what the inputs move.
    """
    if dtype == torch.float64:
        return widened_by(found, noise, FLOAT64_STEPS * unit_roundoff(dtype), 0.0)
    unit = unit_roundoff(dtype)
    most = (noise.element / 4).clamp_max(NARROW_ELEMENT * unit * found.size)
    element, l2 = torch.maximum(found.element, most), max(found.l2, narrow_norm(elements) * unit)
    return replace(found, element=element, l2=l2, least_size=found.size)


def widened_by(found: Tolerance, noise: Tolerance, step: float, largest: float) -> Tolerance:
    """Return a tolerance at least as wide as what moving the inputs by `step` does, which `noise` holds.

    A share of `step` of the `largest` result counts, too, for algorithms that are exact only in the norm (Winograd,
    Strassen, FFT).
    """
    element = torch.maximum(found.element, noise.element / 4).clamp_min(step * largest)
    return replace(found, element=element, l2=max(found.l2, noise.eager_l2, step))

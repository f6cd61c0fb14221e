"""Inputs near those of a question: moved as an honest algorithm may move them, neighbours, replaced, scaled.

`measure` says what each is for.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import torch

from warpsmith.kernels_db.job.attack_documents import Accuracy
from warpsmith.workers.judge.values.compare import unit_roundoff
from warpsmith.workers.judge.values.workload_specs import Values

NOISE_STEP = 2.0**-51
"""Share by which inputs move to show float64's own roundoff."""
_TINY = float(torch.finfo(torch.float32).smallest_normal)
_SPLIT_TAIL = 2.0**24
_REPLACED_SEED = 1
_LARGE = 2.0**20


def moved(
    values: Values,
    step: float,
    rng: random.Random,
    number: int,
    accuracy: Accuracy = "componentwise",
    *,
    ties: bool = False,
) -> list[torch.Tensor | None]:
    """Return the floating values in float64 as an honest algorithm may move them.

    Normwise each moves by the share of the largest. `ties`: equal elements are to differ, so each moves by a share of
    its own of that, and zeros as the smallest others do.

    The kind of move goes by `number`: each tensor as a whole (1, 9, 17), one tensor's elements all upwards (5, 13, 21),
    by which a sum that cancels moves as far as its terms are large, or elements up or down at random.
    """
    floating = [place for place, value in enumerate(values) if value is not None and value.is_floating_point()]
    upwards = rng.choice(floating) if floating and number % 8 == 5 else -1
    found: list[torch.Tensor | None] = []
    for place, value in enumerate(values):
        if value is None or not value.is_floating_point():
            found.append(value)
            continue
        wide = value.to(torch.float64)
        size = _largest(wide).expand_as(wide) if accuracy == "normwise" else wide.abs()
        if ties:
            least = torch.where(size == 0, torch.inf, size).amin()
            size = torch.where(size == 0, torch.where(least.isinf(), 1.0, least), size)
        if number % 8 == 1:
            found.append(wide * (1 + rng.choice((-step, step))))
        elif place == upwards:
            found.append(_moved_by(wide, step * size, value.dtype, torch.ones_like(wide)))
        else:
            generator = torch.Generator(value.device).manual_seed(rng.getrandbits(62))
            share = torch.rand(value.shape, dtype=torch.float64, generator=generator, device=value.device)
            sign = 2 * share - 1 if ties else torch.where(share < 0.5, 1.0, -1.0).to(torch.float64)
            found.append(_moved_by(wide, step * size * sign, value.dtype, sign))
    return found


def _largest(wide: torch.Tensor) -> torch.Tensor:
    """Return the largest finite size in a tensor."""
    size = wide.abs()
    return torch.where(size.isfinite(), size, 0.0).amax() if wide.numel() else torch.zeros((), dtype=wide.dtype)


def _moved_by(wide: torch.Tensor, by: torch.Tensor, dtype: torch.dtype, sign: torch.Tensor) -> torch.Tensor:
    """Return moved values; where the low part of one may be flushed, it moves by the smallest normal number more."""
    moving = torch.where(by.isnan() | by.isinf(), 0.0, by)
    if dtype in (torch.float32, torch.bfloat16):
        small = (wide != 0) & (wide.abs() < _TINY * _SPLIT_TAIL)
        moving = torch.where(small, moving + sign * wide.abs().clamp_max(_TINY), moving)
    return torch.where(moving == 0, wide, wide + moving)  # -0.0 stays what it is


def neighbours(values: Values, distance: float, rng: random.Random) -> list[torch.Tensor | None]:
    """Return floating values of the same dtypes, each up to `distance` of its size away, or two units in its place."""
    return [
        value if value is None or not value.is_floating_point() else _nearby(value, distance, rng) for value in values
    ]


def _nearby(value: torch.Tensor, distance: float, rng: random.Random) -> torch.Tensor:
    generator = torch.Generator(value.device).manual_seed(rng.getrandbits(62))
    share = torch.rand(value.shape, dtype=torch.float64, generator=generator, device=value.device)
    wide, most = value.to(torch.float64), max(distance, 2 * float(torch.finfo(value.dtype).eps))
    near = (wide * (1 + most * (2 * share - 1))).to(value.dtype).to(torch.float64)
    return torch.where(torch.isfinite(near), near, wide).to(value.dtype)


def jittered(values: Values, rng: random.Random) -> list[torch.Tensor | None]:
    """Return floating values in float64, moved by its own roundoff."""
    return moved(values, NOISE_STEP, rng, 0)


def lost_in_float64(values: Values) -> float:
    """Return four units of float64's roundoff of the largest finite input."""
    sizes = [_largest(value.to(torch.float64)) for value in values if value is not None and value.is_floating_point()]
    return 4 * unit_roundoff(torch.float64) * max((float(size) for size in sizes), default=0.0)


def replaced(values: Values, size: float, only: int | None = None) -> list[torch.Tensor | None]:
    """Return values in float64 with multiples of the largest finite element, or of 1, for NaN and infinities.

    Each has a multiple of its own, `size` / 2 to `size`: what is the same for equal numbers only, such as the softmax
    of a row, is not the same whatever the numbers are. `only`: the place of the one input of which they are replaced.
    """
    return [
        value if one is None or only not in (None, place) else torch.where(torch.isfinite(one), one, size * share)
        for place, (value, (one, share)) in enumerate(zip(values, _with_shares(values), strict=True))
    ]


def numbered(values: Values, size: float) -> list[torch.Tensor | None]:
    """Return values in float64 with numbers as `replaced` has them for NaN; infinities stay."""
    return [
        value if one is None else torch.where(one.isnan(), size * share, one)
        for value, (one, share) in zip(values, _with_shares(values), strict=True)
    ]


def enlarged(values: Values, size: float, sign: int = 0) -> list[torch.Tensor | None]:
    """Return values in float64 with numbers as `replaced` has them for infinities, of their signs; NaN stays.

    sign: infinities of the other sign become numbers of size 1; 0: none do.
    """
    return [
        value
        if one is None
        else torch.where(one.isinf(), one.sign() * share * torch.where(one.sign() == -sign, 1.0, size), one)
        for value, (one, share) in zip(values, _with_shares(values), strict=True)
    ]


def one_in_each_line(
    values: Values, place: int, axis: int, number: int, most: int
) -> tuple[list[torch.Tensor | None], list[torch.Tensor | None]] | None:
    """Return values in float64 with numbers of their signs for infinities, but for one in each line along an axis.

    In a line of at most `most` infinities `number` counts them; in a longer one it takes `most` at equal distances.
    The second values have a large number for the one that is left. None where no line has as many.
    """
    value = values[place]
    assert value is not None
    infinite = value.to(torch.float64).isinf()
    rank, count = infinite.cumsum(axis) - 1, infinite.sum(axis, keepdim=True)
    wanted = torch.where(count > most, number * count // most, number)
    chosen = infinite & (rank == wanted)
    if not bool(chosen.any()):
        return None
    small, large = enlarged(values, 1.0), enlarged(values, _LARGE)
    one, other = small[place], large[place]
    assert one is not None
    assert other is not None
    kept = torch.where(chosen, value.to(torch.float64), one)
    return [*small[:place], kept, *small[place + 1 :]], [
        *small[:place],
        torch.where(chosen, other, one),
        *small[place + 1 :],
    ]


def with_signs(values: Values, number: int, rng: random.Random) -> list[torch.Tensor | None]:
    """Return floating values of the same sizes: all above zero (0), all below (1), or of signs at random."""
    found: list[torch.Tensor | None] = []
    for value in values:
        if value is None or not value.is_floating_point():
            found.append(value)
            continue
        generator = torch.Generator(value.device).manual_seed(rng.getrandbits(62))
        share = torch.rand(value.shape, dtype=torch.float64, generator=generator, device=value.device)
        sign = torch.where(share < (0.0, 1.0, 0.5)[min(number, 2)], -1.0, 1.0)
        found.append((value.to(torch.float64).abs() * sign).to(value.dtype))
    return found


def _with_shares(values: Values) -> Iterator[tuple[torch.Tensor | None, torch.Tensor]]:
    """Yield each floating tensor in float64 with 0.5 to 1 times its largest finite element, or 1; None for others.

    Each has shares of its own: those of two inputs of one shape would cancel in a difference.
    """
    for place, value in enumerate(values):
        if value is None or not value.is_floating_point():
            yield None, torch.empty(0)
            continue
        wide = value.to(torch.float64)
        generator = torch.Generator(value.device).manual_seed(_REPLACED_SEED + place)
        share = 0.5 + 0.5 * torch.rand(wide.shape, dtype=torch.float64, generator=generator, device=wide.device)
        yield wide, max(1.0, float(_largest(wide))) * share


def scaled(values: Values, power: float, bounded: Sequence[bool]) -> list[torch.Tensor | None]:
    """Return the floating values times a power of two, those of inputs that are `bounded` as they are."""
    return [
        value
        if value is None or fixed or not value.is_floating_point()
        else (value.to(torch.float64) * power).to(value.dtype)
        for value, fixed in zip(values, bounded, strict=True)
    ]

"""Whether values are right: tolerances derived from float64 and from PyTorch's own error. Pure functions of tensors.

Let `y64` be the reference in float64, `e0` the relative L2 error of PyTorch eager in the op's own dtypes (worst over
seeds), `E0` eager's largest absolute error among elements of like magnitude, `u` the unit roundoff of the output dtype.
A result `y` passes if

    |y - y64|_2 / |y64|_2 <= max(2 e0, u)     and, for every element,     |y - y64| <= 4 E0 + ulp(y64).

"Like magnitude" is one of at most 32 groups of equal count by |y64| and its two neighbours; zeros belong to the
smallest. Non-finite values must be expected ones, at the same places, of the same sign. Integers and booleans compare
exactly with eager's. Everything is done in slices, so memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from workers.judge.buffers import poison_byte

GROUPS = 32
FEWEST_IN_GROUP = 32
SLICE = 1 << 21
_SAMPLE = 1 << 16


@dataclass(frozen=True)
class Tolerance:
    """Limits for one output. `edges` (float64, at most GROUPS - 1, rising) part |y64| into groups; `element` holds 4 E0
    of each group.

    `own` is the op's own (rtol, atol), which then replaces both tests: |y - y64| <= atol + rtol |y64|.
    """

    eager_l2: float
    l2: float
    edges: torch.Tensor
    element: torch.Tensor
    own: tuple[float, float] | None = None

    def limits(self, expected: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Largest error allowed for each element; `expected` is float64 and finite."""
        if self.own is not None:
            rtol, atol = self.own
            return atol + rtol * expected.abs()
        groups = torch.bucketize(expected.abs(), self.edges)
        return self.element[groups] + ulp(expected, dtype)


@dataclass(frozen=True)
class Comparison:
    """Outcome for one tensor. `l2` is the relative L2 error; index, expected, found and limit belong to the worst
    element, None if all pass.
    """

    passed: bool
    kind: str  # "" or wrong_value, non_finite, not_written
    l2: float
    l2_limit: float
    wrong_elements: int
    elements: int
    index: list[int] | None = None
    expected: float | int | bool | None = None
    found: float | int | bool | None = None
    limit: float | None = None


def unit_roundoff(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next number of a floating dtype."""
    return float(torch.finfo(dtype).eps) / 2


def ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Distance between neighbours of `dtype` around each value (float64 in and out); at least the smallest
    subnormal.
    """
    information = torch.finfo(dtype)
    _, exponent = torch.frexp(values)
    smallest = float(information.smallest_normal) * float(information.eps)
    distance = torch.ldexp(torch.full_like(values, float(information.eps)), exponent - 1).clamp_min(smallest)
    return torch.where(values == 0, smallest, distance)  # the exponent of zero is 0, which would be that of 0.5


def _slices(*tensors: torch.Tensor) -> Iterator[tuple[int, list[torch.Tensor]]]:
    flat = [tensor.reshape(-1) for tensor in tensors]
    for start in range(0, flat[0].numel(), SLICE):
        yield start, [tensor[start : start + SLICE] for tensor in flat]


class ToleranceBuilder:
    """Derives a Tolerance from eager's errors on several seeds; add() each seed, then finish()."""

    def __init__(self, dtype: torch.dtype, own: tuple[float, float] | None = None) -> None:
        self._dtype = dtype
        self._own = own
        self._edges: torch.Tensor | None = None
        self._largest = torch.zeros(GROUPS, dtype=torch.float64)
        self._l2 = 0.0

    def add(self, eager: torch.Tensor, expected: torch.Tensor) -> None:
        """Take in eager's result and the float64 one for the same inputs. Elements where either is not finite are left
        out.
        """
        if self._edges is None:
            self._edges = group_edges(expected)
        squares, norm = 0.0, 0.0
        for _, (found, wanted) in _slices(eager, expected):
            found64 = found.to(torch.float64)
            finite = torch.isfinite(found64) & torch.isfinite(wanted)
            error = torch.where(finite, found64 - wanted, 0.0).abs()
            kept = torch.where(finite, wanted, 0.0)
            groups = torch.bucketize(kept.abs(), self._edges)
            self._largest.scatter_reduce_(0, groups, error, "amax")
            squares += float((error * error).sum())
            norm += float((kept * kept).sum())
        if norm > 0:
            self._l2 = max(self._l2, (squares / norm) ** 0.5)

    def finish(self) -> Tolerance:
        """The tolerance that all seeds together give."""
        assert self._edges is not None
        padded = torch.nn.functional.pad(self._largest[: len(self._edges) + 1], (1, 1))
        like = torch.stack([padded[:-2], padded[1:-1], padded[2:]]).amax(0)
        return Tolerance(self._l2, max(2 * self._l2, unit_roundoff(self._dtype)), self._edges, 4 * like, self._own)


def group_edges(expected: torch.Tensor) -> torch.Tensor:
    """Magnitudes that part the finite nonzero elements of `expected` into groups of equal count; taken from an even
    sample.
    """
    flat = expected.reshape(-1)
    step = (flat.numel() // _SAMPLE) | 1  # odd, so that it does not meet the same column of every row
    sample = flat[::step].abs()
    sample = sample[torch.isfinite(sample) & (sample > 0)]
    groups = min(GROUPS, max(1, sample.numel() // FEWEST_IN_GROUP))
    if groups == 1:
        return torch.empty(0, dtype=torch.float64)
    quantiles = torch.arange(1, groups, dtype=torch.float64) / groups
    positions = (quantiles * (sample.numel() - 1)).round().long()
    edges: torch.Tensor = torch.unique(sample.sort().values[positions])
    return edges


def compare_floats(found: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> Comparison:
    """Compare a floating result with the float64 reference of the same shape.

    Where the op asks for exactness (own tolerance of 0, 0) the reference is rounded to the result's dtype first.
    """
    dtype = found.dtype
    exact = tolerance.own == (0.0, 0.0)
    squares, norm, wrong = 0.0, 0.0, 0
    worst_ratio, worst_at, worst_limit = -1.0, 0, 0.0
    for start, (part, wanted_part) in _slices(found, expected):
        wanted = wanted_part.to(dtype).to(torch.float64) if exact else wanted_part
        value = part.to(torch.float64)
        rounded = wanted.to(dtype).to(torch.float64)
        special = ~torch.isfinite(rounded)
        # A finite value that rounds to infinity may also stay the largest finite number.
        overflow = special & torch.isfinite(wanted) & torch.isfinite(value)
        same_special = (torch.isnan(rounded) & torch.isnan(value)) | (rounded == value)
        judged = (~special & torch.isfinite(value)) | overflow
        limits = tolerance.limits(torch.where(judged, wanted, 0.0), dtype)
        error = torch.where(judged, value - wanted, 0.0).abs()
        bad = (judged & (error > limits)) | (~judged & ~(special & same_special))
        ratio = torch.where(
            judged, error / limits.clamp_min(torch.finfo(torch.float64).tiny), torch.where(bad, torch.inf, 0.0)
        )
        squares += float((error * error).sum())
        norm += float(torch.where(judged, wanted * wanted, 0.0).sum())
        wrong += int(bad.sum())
        at = int(ratio.argmax())
        if float(ratio[at]) > worst_ratio:
            worst_ratio, worst_at, worst_limit = float(ratio[at]), start + at, float(limits[at])
    l2 = (squares / norm) ** 0.5 if norm > 0 else 0.0
    within = l2 <= tolerance.l2 or tolerance.own is not None
    if (wrong == 0 and within) or found.numel() == 0:
        return Comparison(True, "", l2, tolerance.l2, 0, found.numel())
    worst = found.reshape(-1)[worst_at]
    value_found, value_expected = float(worst), float(expected.reshape(-1)[worst_at])
    finite = torch.isfinite(worst.to(torch.float64)).item()
    kind = "not_written" if _is_poison(worst) else "wrong_value" if finite else "non_finite"
    return Comparison(
        False,
        kind,
        l2,
        tolerance.l2,
        wrong,
        found.numel(),
        _unravel(worst_at, found.shape),
        value_expected,
        value_found,
        worst_limit,
    )


def compare_exactly(found: torch.Tensor, expected: torch.Tensor) -> Comparison:
    """Compare integers or booleans of one dtype, element by element. Booleans are compared as bytes: 0xA5 is neither
    true nor false.
    """
    first, wrong = -1, 0
    raw = torch.uint8 if found.dtype == torch.bool else found.dtype
    for start, (part, wanted) in _slices(found.view(raw), expected.view(raw)):
        bad = part != wanted
        count = int(bad.sum())
        if count and first < 0:
            first = start + int(bad.to(torch.uint8).argmax())
        wrong += count
    if not wrong:
        return Comparison(True, "", 0.0, 0.0, 0, found.numel())
    element = found.view(raw).reshape(-1)[first]
    kind = "not_written" if _is_poison(element) else "wrong_value"
    wanted_element: Any = expected.reshape(-1)[first].item()
    return Comparison(
        False,
        kind,
        wrong / found.numel(),
        0.0,
        wrong,
        found.numel(),
        _unravel(first, found.shape),
        wanted_element,
        element.item(),
        0.0,
    )


def _is_poison(element: torch.Tensor) -> bool:
    raw = element.reshape(1).contiguous().view(torch.uint8)
    return bool((raw == poison_byte(element.dtype)).all())


def _unravel(position: int, shape: torch.Size) -> list[int]:
    index: list[int] = []
    for size in reversed(shape):
        index.append(position % size)
        position //= size
    return index[::-1]


def first_difference(found: torch.Tensor, expected: torch.Tensor) -> list[int] | None:
    """Index of the first element whose bytes differ, or None; for tensors of one shape and dtype."""
    width = found.dtype.itemsize
    raw = (
        torch.uint8
        if found.dtype == torch.bool
        else {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[width]
    )
    for start, (part, wanted) in _slices(found, expected):
        bad = part.contiguous().view(raw) != wanted.contiguous().view(raw)
        if bool(bad.any()):
            return _unravel(start + int(bad.to(torch.uint8).argmax()), found.shape)
    return None


def differs(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether two results for the same inputs differ by more than another order of summation explains (a relative L2
    distance of 32 u).
    """
    if first_difference(first, second) is None:
        return False
    if not first.is_floating_point():
        return True
    one, other = first.to(torch.float64), second.to(torch.float64)
    if bool((torch.isfinite(one) != torch.isfinite(other)).any()):
        return True
    finite = torch.isfinite(one)
    distance = torch.linalg.vector_norm(torch.where(finite, one - other, 0.0))
    size = torch.linalg.vector_norm(torch.where(finite, one, 0.0))
    return bool(distance > 32 * unit_roundoff(first.dtype) * size)

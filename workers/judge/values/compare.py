"""Check values against tolerances from float64 and PyTorch's own error, by pure functions.

Let `y64` be the reference in float64, `e0` the relative L2 error of PyTorch eager in the op's own dtypes (worst over
seeds), `E0` eager's largest absolute error among elements of like magnitude, `u` the unit roundoff of the output dtype.
A result `y` passes if

    |y - y64|_2 / |y64|_2 <= max(k e0, c u)     and, for every element,     |y - y64| <= k E0 + c ulp(y64),

where c is 8 for float32 and float64 results and 1 for narrower ones, and k is 8 for float32 and float64 results whose
e0 is below 64 u and 4 for all others. In float32 the order of a summation decides, and PyTorch's own kernels differ: on
a CPU its compiled softmax has 4.0 times the e0 of its eager one (rows of 512; 6.4 u), a product summed in one chain of
1024 has 2.3 times, and 4.3 times (in an element 7) that of a product which splits the chain in 32, as libraries on a
GPU do; a softmax of 128 columns summed in one chain is off by up to 6.8 ulps in an element, an RMS normalisation of
1021 by 8.8. An e0 of 64 u and more is no summation's: it is narrower arithmetic (TF32 has 4,000 u), and that is the
same for all, as is the rounding of a narrower result. Either limit is below a hundredth of what the next narrower
arithmetic costs in float32.

"Like magnitude" is one of at most 32 groups of equal count by |y64| and its two neighbours; zeros belong to the
smallest. Non-finite values must be expected ones, at the same places, of the same sign. Everything is done in slices.
`steps` compares results that have steps: integers, booleans, 8-bit floats.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from warpsmith.workers.judge.machine.buffers import poison_byte
from warpsmith.workers.judge.values.rounding import DTYPES, Nearer, nearer_to_zero

GROUPS = 32
FEWEST_IN_GROUP = 32
SUMMATION_UNITS = 64.0
"""Units of roundoff of eager's L2 error: of summation order below, of its arithmetic above."""
SLICE, SLICE_ON_DEVICE = 1 << 18, 1 << 25
"""Elements that are compared in one go.

On a CPU as many as its caches hold, on a GPU as many as its temporaries (about a dozen of 8 bytes each) may take.
"""
_SAMPLE = 1 << 16
_LANES_ON_DEVICE = 1 << 12
"""Partial maxima per group on a GPU: on one number thousands of threads would wait in turn."""
_EXPONENT_BITS = 0x7FF << 52
_MAGNITUDE_BITS = (1 << 63) - 1
_KEY_SHIFT, _KEYS = 47, 1 << 16
_TINIEST = torch.finfo(torch.float64).tiny
_LimitsOf = Callable[[torch.Tensor], torch.Tensor]
"""From finite float64 values to the largest error allowed for each."""
_RAW = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Tolerance:
    """Limits for one output.

    `edges` (float64, at most GROUPS - 1, rising) part |y64| into groups; `element` holds k E0 of each group; `ulps` and
    `relative` come on top, as so many units in the last place and as a share of |y64|. `size` is the root mean square
    of |y64|; a result whose own is below `least_size` is measured against that.

    `own` is the op's own (rtol, atol), which then replaces both tests: |y - y64| <= atol + rtol |y64|. `rounds`: eager
    rounds its results of 16 bits to the nearest, and so must a candidate.
    """

    eager_l2: float
    l2: float
    edges: torch.Tensor
    element: torch.Tensor
    own: tuple[float, float] | None = None
    ulps: float = 1.0
    relative: float = 0.0
    size: float = 0.0
    least_size: float = 0.0
    rounds: bool = False

    def limits(self, expected: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Largest error allowed for each element; `expected` is float64 and finite."""
        return self.by_size(dtype, expected.device)(expected)

    def by_size(self, dtype: torch.dtype, device: torch.device) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return what gives the limits of values of results of a dtype; its table is made once."""
        if self.own is not None:
            rtol, atol = self.own
            return lambda expected: atol + rtol * expected.abs()
        table = _by_key(self.edges.to(device), self.element.to(device)) + self.ulps * _ulps(dtype, device)
        if not self.relative:
            return lambda expected: table[_keys(expected)]
        return lambda expected: table[_keys(expected)] + self.relative * expected.abs()


@dataclass(frozen=True)
class Comparison:
    """Outcome for one tensor, with its relative L2 error `l2`.

    index, expected, found and limit belong to the worst element, None if all pass. largest: the largest |y - y64| of a
    result that passes; None where it is not known (results that have steps).
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
    largest: float | None = None
    cut: bool = False  # every element is within its limit, and they are cut toward zero; those are `wrong_elements`


def unit_roundoff(dtype: torch.dtype) -> float:
    """Half the distance from 1 to the next number of a floating dtype."""
    return float(torch.finfo(dtype).eps) / 2


def order_factor(dtype: torch.dtype) -> float:
    """Return c: the units of its rounding that another order of summation may cost a dtype."""
    return 8.0 if dtype.itemsize >= torch.float32.itemsize else 1.0


def eager_factor(dtype: torch.dtype, eager_l2: float) -> float:
    """Return k: how many times eager's relative L2 error `eager_l2` a right result may have."""
    summation = dtype.itemsize >= torch.float32.itemsize and eager_l2 < SUMMATION_UNITS * unit_roundoff(dtype)
    return 8.0 if summation else 4.0


def norm_floor(dtype: torch.dtype) -> float:
    """Return c u: the relative L2 error that is right however small eager's own is."""
    return order_factor(dtype) * unit_roundoff(dtype)


def ulp(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the distance between neighbours of `dtype` around each value, in float64.

    The values are float64 too; it is at least the smallest subnormal.
    """
    information = torch.finfo(dtype)
    smallest = float(information.smallest_normal) * float(information.eps)
    power = (values.view(torch.int64) & _EXPONENT_BITS).view(torch.float64)  # the power of two at or below; 0 for 0
    return (power * float(information.eps)).clamp_min(smallest)


def _slices(*tensors: torch.Tensor) -> Iterator[tuple[int, list[torch.Tensor]]]:
    flat = [tensor.reshape(-1) for tensor in tensors]
    length = SLICE if flat[0].device.type == "cpu" else SLICE_ON_DEVICE
    for start in range(0, flat[0].numel(), length):
        yield start, [tensor[start : start + length] for tensor in flat]


class ToleranceBuilder:
    """Derives a Tolerance from eager's errors on several seeds; add() each seed, then finish()."""

    def __init__(self, dtype: torch.dtype, own: tuple[float, float] | None = None) -> None:
        self.dtype = dtype
        self.largest = 0.0  # of all |y64|
        self.elements = 0  # of one result
        self._own = own
        self._edges: torch.Tensor | None = None
        self._largest = torch.zeros(GROUPS, dtype=torch.float64)
        self._l2 = 0.0
        self._size = 0.0
        self._nearer = Nearer()

    def add(self, eager: torch.Tensor, expected: torch.Tensor) -> None:
        """Add eager's result and the float64 one for the same inputs, where both are finite."""
        if eager.dtype == self.dtype and self.dtype in DTYPES:
            self._nearer = self._nearer.joined(nearer_to_zero(eager, expected))
        self.elements = expected.numel()
        device = expected.device
        lanes = 1 if device.type == "cpu" else _LANES_ON_DEVICE
        if self._edges is None:
            self._edges = group_edges(expected)
        edges = self._edges.to(device)
        group = _by_key(edges, torch.arange(edges.numel() + 1, device=device))
        errors = torch.zeros(GROUPS * lanes, dtype=torch.float64, device=device)
        squares, norm = 0.0, 0.0
        for _, (found, wanted) in _slices(eager, expected):
            error, kept = (found.to(torch.float64) - wanted).abs_(), wanted
            numbers = [torch.dot(error, error), torch.dot(wanted, wanted), *wanted.aminmax()]
            error_squares, squares_here, least, most = torch.stack(numbers).tolist()
            largest = max(-least, most)
            if not math.isfinite(error_squares + squares_here):
                finite = torch.isfinite(error)  # false where either is not finite
                error, kept = torch.where(finite, error, 0.0), torch.where(finite, wanted, 0.0)
                numbers = [torch.dot(error, error), torch.dot(kept, kept), kept.abs().amax()]
                error_squares, squares_here, largest = torch.stack(numbers).tolist()
            place = group[_keys(kept)]
            if lanes > 1:
                place.mul_(lanes).add_(torch.arange(place.numel(), device=device).remainder_(lanes))
            errors.scatter_reduce_(0, place, error, "amax")
            squares, norm, self.largest = squares + error_squares, norm + squares_here, max(self.largest, largest)
        self._largest = torch.maximum(self._largest, errors.view(GROUPS, lanes).amax(1).cpu())
        if norm > 0:
            self._l2 = max(self._l2, (squares / norm) ** 0.5)
            self._size = max(self._size, (norm / expected.numel()) ** 0.5)

    def finish(self) -> Tolerance:
        """Return the tolerance that all seeds together give."""
        assert self._edges is not None
        padded = torch.nn.functional.pad(self._largest[: len(self._edges) + 1], (1, 1))
        like = torch.stack([padded[:-2], padded[1:-1], padded[2:]]).amax(0)
        times = eager_factor(self.dtype, self._l2)
        limit = max(times * self._l2, norm_floor(self.dtype))
        return Tolerance(
            self._l2,
            limit,
            self._edges.cpu(),
            times * like,
            self._own,
            order_factor(self.dtype),
            size=self._size,
            rounds=self._nearer.rounds,
        )


def group_edges(expected: torch.Tensor) -> torch.Tensor:
    """Return the magnitudes that divide the elements into groups of about equal count.

    The elements are the finite nonzero ones of `expected`; the magnitudes come from an even sample. They are cut to the
    bits of a key, so that values which differ by less than 3 % are in one group.
    """
    flat = expected.reshape(-1)
    step = (flat.numel() // _SAMPLE) | 1  # odd, so that it does not meet the same column of every row
    sample = flat[::step].abs()
    sample = sample[torch.isfinite(sample) & (sample > 0)]
    groups = min(GROUPS, max(1, sample.numel() // FEWEST_IN_GROUP))
    if groups == 1:
        return torch.empty(0, dtype=torch.float64, device=expected.device)
    quantiles = torch.arange(1, groups, dtype=torch.float64, device=expected.device) / groups
    positions = (quantiles * (sample.numel() - 1)).round().long()
    keys: torch.Tensor = torch.unique(_keys(sample.sort().values[positions]))
    return (keys << _KEY_SHIFT).view(torch.float64)


def _keys(values: torch.Tensor) -> torch.Tensor:
    """Return exponent and first 5 fraction bits of float64 values, as an integer below _KEYS.

    It rises with the magnitude, and looking a key up is ten times as fast as searching the edges.
    """
    return (values.view(torch.int64) & _MAGNITUDE_BITS) >> _KEY_SHIFT


@functools.cache
def _ulps(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return `ulp` by key: it hangs on a value's exponent alone."""
    return ulp((torch.arange(_KEYS, device=device) << _KEY_SHIFT).view(torch.float64), dtype)


def _by_key(edges: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return each key's entry of `values` (one more than edges), by the edges that it exceeds."""
    bounds = torch.nn.functional.pad(_keys(edges) + 1, (1, 1))
    bounds[-1] = _KEYS
    return torch.repeat_interleave(values, bounds.diff(), output_size=_KEYS)


def compare_floats(found: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> Comparison:
    """Compare a floating result with the float64 reference of the same shape.

    Where the op asks for exactness (own tolerance of 0, 0) the reference is rounded to the result's dtype first.
    """
    dtype = found.dtype
    exact = tolerance.own == (0.0, 0.0)
    limits_of = tolerance.by_size(dtype, found.device)
    slices = []
    for start, (part, wanted_part) in _slices(found, expected):
        wanted = wanted_part.to(dtype).to(torch.float64) if exact else wanted_part
        slices.append((start, part, wanted, _outcome(part, wanted, limits_of)))
    squares = sum(outcome.error_squares for *_, outcome in slices)
    norm = max(sum(outcome.squares for *_, outcome in slices), tolerance.least_size**2 * found.numel())
    wrong = sum(outcome.wrong for *_, outcome in slices)
    l2 = (squares / norm) ** 0.5 if norm > 0 else 0.0
    within = l2 <= tolerance.l2 or tolerance.own is not None
    if (wrong == 0 and within) or found.numel() == 0:
        largest = max((outcome.largest for *_, outcome in slices), default=0.0)
        return _rounded(found, expected, tolerance, l2, largest)
    _, worst_at, worst_limit = max(_worst(start, part, wanted, limits_of) for start, part, wanted, _ in slices)
    worst = found.reshape(-1)[worst_at]
    value_found, value_expected = float(worst), float(expected.reshape(-1)[worst_at])
    finite = torch.isfinite(worst.to(torch.float64)).item()
    kind = "not_written" if is_poison(worst) else "wrong_value" if finite else "non_finite"
    return Comparison(
        False,
        kind,
        l2,
        tolerance.l2,
        wrong,
        found.numel(),
        unravel(worst_at, found.shape),
        value_expected,
        value_found,
        worst_limit,
    )


def _rounded(
    found: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance, l2: float, largest: float
) -> Comparison:
    """Return the outcome for a result whose elements are all within their limits: it may still be cut."""
    if tolerance.rounds and tolerance.own is None and found.dtype in DTYPES:
        nearer = nearer_to_zero(found, expected)
        if nearer.is_cut and nearer.first is not None:
            values = float(expected.reshape(-1)[nearer.first]), float(found.reshape(-1)[nearer.first])
            at = unravel(nearer.first, found.shape)
            return Comparison(
                False, "wrong_value", l2, tolerance.l2, nearer.nearer, found.numel(), at, *values, cut=True
            )
    return Comparison(True, "", l2, tolerance.l2, 0, found.numel(), largest=largest)


def wrong_elements(found: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance | None) -> torch.Tensor:
    """Return a flat mask of wrong elements: beyond their limits, or unequal without a tolerance."""
    if tolerance is None:
        raw = torch.uint8 if found.dtype == torch.bool else found.dtype
        parts = [part != wanted for _, (part, wanted) in _slices(found.view(raw), expected.view(raw))]
    else:
        exact = tolerance.own == (0.0, 0.0)
        wide = expected.to(found.dtype).to(torch.float64) if exact else expected
        limits_of = tolerance.by_size(found.dtype, found.device)
        parts = [_judged(part, wanted, limits_of)[0] for _, (part, wanted) in _slices(found, wide)]
    return torch.cat(parts) if parts else torch.empty(0, dtype=torch.bool, device=found.device)


class _Outcome(NamedTuple):
    """Of one slice: sums of squares of errors and of expected values, how many are wrong, the largest error."""

    error_squares: float
    squares: float
    wrong: int
    largest: float


def _outcome(found: torch.Tensor, wanted: torch.Tensor, limits_of: _LimitsOf) -> _Outcome:
    """Judge one slice; `wanted` is float64."""
    error = found.to(torch.float64) - wanted
    error_squares, squares = torch.stack([torch.dot(error, error), torch.dot(wanted, wanted)]).tolist()
    if math.isfinite(error_squares) and math.sqrt(squares) <= torch.finfo(found.dtype).max:  # as almost always
        wrong = (error.abs_() > limits_of(wanted)).sum()
        count, largest = torch.stack([wrong.to(torch.float64), error.amax()]).tolist()
        return _Outcome(error_squares, squares, int(count), largest)
    bad, _, error, kept, _ = _judged(found, wanted, limits_of)
    return _Outcome(float(torch.dot(error, error)), float(torch.dot(kept, kept)), int(bad.sum()), float(error.amax()))


def _worst(start: int, found: torch.Tensor, wanted: torch.Tensor, limits_of: _LimitsOf) -> tuple[float, int, float]:
    """Return of a slice's worst element, by its error as a multiple of its limit: that, its place, its limit."""
    _, ratio, _, _, limits = _judged(found, wanted, limits_of)
    at = int(ratio.argmax())
    return float(ratio[at]), start + at, float(limits[at])


def _judged(
    found: torch.Tensor, wanted: torch.Tensor, limits_of: _LimitsOf
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Judge one slice, element by element.

    Whether an element is wrong, its error as a multiple of its limit, its error, its expected value (both 0 where
    either is no number to compare), its limit.
    """
    dtype, value = found.dtype, found.to(torch.float64)
    error = (value - wanted).abs_()
    rounded = wanted.to(dtype).to(torch.float64)
    special = ~torch.isfinite(rounded)
    # A finite value that rounds to infinity may also stay the largest finite number.
    overflow = special & torch.isfinite(wanted) & torch.isfinite(value)
    same_special = (torch.isnan(rounded) & torch.isnan(value)) | (rounded == value)
    judged = (~special & torch.isfinite(value)) | overflow
    kept, error = torch.where(judged, wanted, 0.0), torch.where(judged, error, 0.0)
    limits = limits_of(kept)
    bad = (judged & (error > limits)) | (~judged & ~(special & same_special))
    ratio = torch.where(judged, error / limits.clamp_min(_TINIEST), torch.where(bad, torch.inf, 0.0))
    return bad, ratio, error, kept, limits


def compare_exactly(found: torch.Tensor, expected: torch.Tensor) -> Comparison:
    """Compare integers, or booleans as bytes (0xA5 is neither true nor false), one by one."""
    raw = torch.uint8 if found.dtype == torch.bool else found.dtype
    wrong, first = _differences(found.view(raw), expected.view(raw))
    if not wrong:
        return Comparison(True, "", 0.0, 0.0, 0, found.numel(), largest=0.0)
    element = found.view(raw).reshape(-1)[first]
    kind = "not_written" if is_poison(element) else "wrong_value"
    wanted_element: Any = expected.reshape(-1)[first].item()
    return Comparison(
        False,
        kind,
        wrong / found.numel(),
        0.0,
        wrong,
        found.numel(),
        unravel(first, found.shape),
        wanted_element,
        element.item(),
        0.0,
    )


def _differences(found: torch.Tensor, expected: torch.Tensor) -> tuple[int, int]:
    """Return how many elements differ, and the position of the first (0 where none does)."""
    starts: list[int] = []
    counts: list[torch.Tensor] = []
    for start, (part, wanted) in _slices(found, expected):
        if torch.equal(part, wanted):
            continue
        bad = part != wanted
        counts.append(torch.stack([bad.sum(), bad.to(torch.uint8).argmax()]))
        starts.append(start)
    rows = torch.stack(counts).tolist() if counts else []
    first = next((start + at for start, (count, at) in zip(starts, rows, strict=True) if count), 0)
    return sum(count for count, _ in rows), first


def is_poison(element: torch.Tensor) -> bool:
    """Check whether an element still has the bytes that buffers are filled with before a call."""
    raw = element.reshape(1).contiguous().view(torch.uint8)
    return bool((raw == poison_byte(element.dtype)).all())


def unravel(position: int, shape: torch.Size) -> list[int]:
    """Return the index of a flat position."""
    index: list[int] = []
    for size in reversed(shape):
        index.append(position % size)
        position //= size
    return index[::-1]


def first_difference(found: torch.Tensor, expected: torch.Tensor) -> list[int] | None:
    """Return the index of the first element whose bytes differ, or None; same shape and dtype."""
    raw = _RAW[found.dtype.itemsize]
    wrong, first = _differences(found.contiguous().view(raw), expected.contiguous().view(raw))
    return unravel(first, found.shape) if wrong else None


def differs(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Check whether results for the same inputs differ by more than summation order explains.

    That is by a relative L2 distance of more than 32 u.
    """
    if first_difference(first, second) is None:
        return False
    if not first.is_floating_point():
        return True
    sums = torch.zeros(3, dtype=torch.float64, device=first.device)
    for _, narrow in _slices(first, second):
        one, other = (part.to(torch.float64) for part in narrow)
        finite = torch.isfinite(one) & torch.isfinite(other)
        kept = torch.where(finite, one, 0.0)
        distance = kept - torch.where(finite, other, 0.0)
        unlike = (torch.isfinite(one) != torch.isfinite(other)).sum()
        sums += torch.stack([unlike.to(torch.float64), distance.square().sum(), kept.square().sum()])
    unlike_elements, distance_squares, squares = sums.tolist()
    unit = unit_roundoff(first.dtype)
    return bool(unlike_elements > 0 or distance_squares > (32 * unit) ** 2 * squares)

"""The measure of a counterexample: the candidate's error as a multiple of what an honest algorithm may have.

Let `y` be the float64 reference, `e` PyTorch eager's error, `N` the most input elements that an output element depends
on, `u` the unit roundoff of float32 (float64 for float64 ops). An honest algorithm is right for inputs that cannot be
told from the given ones: its result is `f(x (1 + d))` with `|d|` bounded, element by element of x (backward stability;
Higham, Accuracy and Stability of Numerical Algorithms, 2002, ch. 1.5 and 3.1). `d` is here

    products, sums          (64 + N) u     a chain in any order has gamma_N = N u / (1 - N u) (Higham 2002, 3.1, 4.2);
                                           64 u are the split products (three TF32 or bfloat16 products lose 2 to 4
                                           units of 2^-18; 2.7 for the arithmetic), and Kahan's sum is within both
    pointwise (N <= 4)      (8 + N) u      a fast exponential moves its argument by some units
    16-bit and 8-bit inputs v + N u        v of that dtype: an intermediate result of a sum may be rounded to it once.
                                           A pointwise op that eager computes in float32, with one rounding at the
                                           end, is held to that; not where a result is no floating number, for the
                                           step on which it falls moves by such a rounding
    math: tf32              2^-11 + N 2^-23    operands of 10 bits, sums in the tensor cores' width

The probabilistic bound (Higham and Mary, A New Approach to Probabilistic Rounding Error Analysis, 2019) has sqrt(N) for
N. It is not used: it does not hold where roundings lean one way, and a chain over equal elements does so.

What `d` does to an element is measured, for the reference is any PyTorch code: the float64 reference runs on moved
inputs, and `S` is the largest change of the element over the draws. Elements move up or down at random, tensors as a
whole or one of them upwards, and numbers so small that arithmetic flushes them (or the low part of a split) move by
the smallest normal number. A sum that happens to cancel in one draw does not in the others, and a comparison does not
come out the same way in all: a first look takes `FEW` draws, and a failure must stand after `MANY` and after `MOST`.
An element passes within

    e + 4 S + N u |y| + 8 ulp(y) + 256 m

with 2 ulp for results narrower than float32; m is the smallest normal float32, for an intermediate result may be
flushed (none for float16 and float64 results); N u |y|, for N > 4, allows for sums of values that do not move with the
inputs. For a matrix product this is 4 (64 + N) u times the norm of the element's own terms, which is never above
|a||b|: a column that is small is held to its own size. That is `accuracy: componentwise`. Under `normwise` inputs move
by `d` times the largest of their tensor and every element has the largest 4 S of the result, as Strassen's and
Winograd's products need, whose error is bounded by the norms alone (Higham 2002, 23.2.2); they mix terms, so inputs are
finite there.

Before a failure stands, two more things are measured. Eager may be exact at one element by luck: its error is taken at
neighbours of the inputs too, and eight times the largest is allowed. float64 may have lost what the candidate keeps
(1 + tanh(x) for x below -20 is 0 there): what inputs moved by float64's own roundoff change is allowed `NOISE` times,
and where the result is zero however inputs move, four units of float64's roundoff of the largest input.
Where the result jumps, `S` bounds nothing: equal elements have the variance 0, any rounding of their mean is divided by
sqrt(eps), and inputs moved by `d` show none of that, for their variance is no longer 0. So where inputs moved by
`CLOSER` d still change an element by `JUMP` S, every finite value of it passes.
Nor does `S` see what a composition loses in between: a bias of 2^20 before a normalization costs its sums 0.06 and
cancels without a trace, so that no moved input shows it. Eager loses the same there, and its error says how much, but
not at every element: one that a relu cuts to zero is exact by luck, and so may be a whole channel. So where eager is
beyond all that is allowed at some elements, `EAGER_SLACK` times its largest error there is allowed at every element of
the result: the question asks little of anybody. A sum or a product gains nothing from that: eager's is within the
bound of any order.

An element counts only where eager is itself within all of this but e, where eager's class (NaN, infinities, finite)
is that of `y` rounded to the dtype and that of every moved result, and where neither the result nor the terms that it
is summed from are within 2^4 of overflow. One that is NaN or infinite for the sake of an input which does not matter
(zero times NaN is NaN, and a kernel may skip what weighs nothing) may also be what the reference makes of numbers in
that place, within the measure there; nothing else. Where some infinities matter and others do not, the result may be
the infinity of the first: weights of zero and of one times infinity are NaN together. There infinities are looked at
one by one: none may make NaN unless numbers in its place change nothing, and no two may be opposed. Integers and
booleans are exact, and count where float64 and all moved results agree with eager.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from warpsmith.kernels_db.job.attack_documents import Accuracy
from warpsmith.kernels_db.job.reference_operations import operations
from warpsmith.workers.judge.values.compare import ulp, unit_roundoff
from warpsmith.workers.judge.values.steps import Ties

FEW, MANY, MOST = 3, 12, 48
"""Draws of moved inputs at a first look, at a second, and before a failure stands."""
NEIGHBOURS, EAGER_SLACK = (2.0**-20, 2.0**-14, 2.0**-8) * 2, 8.0
"""How far away, as a share of each element, eager's error is taken, and how many times the largest is allowed.

An error that comes from a rounding near 1 stays the same for thousands of neighbouring inputs.
"""
NOISE_DRAWS, NOISE = 3, 16.0
"""The same for float64's own roundoff."""
ONCE, ONCE_SHARE = 0.625, 0.02
"""Units in the last place that one rounding is off at most, with room for float32's own; the share that may be more."""
CLOSER_DRAWS, CLOSER, JUMP = 3, 2.0**-10, 2.0**-3
"""A result that is smooth changes by about 2^-10 S where inputs move by 2^-10 d; one that jumps, by S."""

SPLIT_UNITS, POINTWISE_UNITS, POINTWISE_INPUTS = 64, 8, 4
SLACK = 4.0
ULPS, NARROW_ULPS = 8.0, 2.0
FLUSHED = 256.0
"""Smallest normal numbers that a result may be off: where a factor of it was flushed to zero."""
BORDER = 2.0**4
"""Distance from overflow within which honest algorithms may differ."""
TF32_UNIT, TF32_SUM = 2.0**-11, 2.0**-23
REPLACED = (1.0, -(2.0**20), 2.0**20)
"""What NaN and infinities are replaced by, in multiples of the largest other element, to see whether they matter."""
ENLARGED = (2.0**20, 2.0**40)
"""By what infinities are replaced, in multiples of the largest other element, to see what the result grows to."""
GROWS = 2.0**10
"""How many times a result is larger, at least, where it grows with what the infinities were replaced by."""
HIGHEST = 1e9
"""The ratio of an element whose class is wrong, or that is exact and differs."""
_TINY = float(torch.finfo(torch.float32).smallest_normal)


def backward_step(dtypes: Sequence[torch.dtype], fan_in: int, arithmetic: str, *, once: bool = False) -> float:
    """Return `d`: the share of its size by which an honest algorithm moves an input of these floating dtypes.

    once: whether eager rounds results alone to such a dtype, and nothing on the way to them.
    """
    wide = bool(dtypes) and all(dtype == torch.float64 for dtype in dtypes)
    unit = unit_roundoff(torch.float64 if wide else torch.float32)
    if arithmetic == "tf32" and torch.float32 in dtypes:
        return TF32_UNIT + fan_in * TF32_SUM
    if fan_in <= POINTWISE_INPUTS and once:
        return (POINTWISE_UNITS + fan_in) * unit
    own = POINTWISE_UNITS if fan_in <= POINTWISE_INPUTS else SPLIT_UNITS
    narrow = max((unit_roundoff(dtype) for dtype in dtypes if dtype.itemsize < torch.float32.itemsize), default=0.0)
    return max(own * unit, narrow) + fan_in * unit


def is_rounded_once(eager: torch.Tensor, wide: torch.Tensor) -> bool:
    """Check whether a floating result of eager's is float64's with one rounding: nearly all elements are."""
    found = eager.to(torch.float64)  # what floats of 8 bits can be asked is little
    fair = torch.isfinite(wide) & torch.isfinite(found) & (wide.abs() > FLUSHED * _TINY)
    off = (found - wide).abs() > ONCE * ulp(torch.where(fair, wide, 1.0), eager.dtype)
    return int((off & fair).sum()) <= ONCE_SHARE * max(1, int(fair.sum()))


@dataclass
class Spread:
    """What is known of one result around the inputs: `S`, eager's error, float64's noise, where the class changes.

    `close`: the largest change where inputs move by `CLOSER` d.
    `lost`: what float64 may lose where the result is zero however inputs move; None until noise was measured.
    """

    largest: torch.Tensor
    border: torch.Tensor
    eager: torch.Tensor
    noise: torch.Tensor
    close: torch.Tensor
    lost: float | None = None
    without: list[Without] = field(default_factory=list)
    towards: torch.Tensor | None = None  # the infinity that it is without infinities that weigh nothing; NaN: none

    @classmethod
    def of(cls, wide: torch.Tensor) -> Spread:
        """Return the spread of a result of which nothing is known yet."""
        border = torch.zeros(wide.shape, dtype=torch.bool, device=wide.device)
        largest, eager, noise, close = (border.to(torch.float64) for _ in range(4))
        return cls(largest, border, eager, noise, close)

    def add(self, wide: torch.Tensor, moved: torch.Tensor) -> None:
        """Add what moved inputs made of the result."""
        if not wide.is_floating_point():
            self.border |= wide != moved
            return
        self.border |= ~_same_class(wide, moved)
        _raise(self.largest, wide, moved)

    def add_noise(self, wide: torch.Tensor, moved: torch.Tensor) -> None:
        """Add what inputs moved by float64's roundoff made of the result."""
        _raise(self.noise, wide, moved)

    def add_close(self, wide: torch.Tensor, moved: torch.Tensor) -> None:
        """Add what inputs moved by `CLOSER` d made of the result."""
        _raise(self.close, wide, moved)

    def add_eager(self, wide: torch.Tensor, eager: torch.Tensor) -> None:
        """Add eager's error at neighbours of the inputs, where `wide` is the result."""
        _raise(self.eager, wide, eager.to(torch.float64))


@dataclass(frozen=True)
class Without:
    """A result without NaN and infinities that do not matter to it: with numbers in their places.

    idle: where it is one finite number, whatever the numbers are. There it may be this in place of NaN.
    """

    idle: torch.Tensor
    eager: torch.Tensor
    wide: torch.Tensor
    spread: Spread


def idle(found: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return where results with several numbers in the places of NaN and infinities are one finite number."""
    same = torch.isfinite(found[0])
    for one in found[1:]:
        same &= one == found[0]
    return same


def grows_to(found: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the infinity that a result goes to with a large number, then a larger one, for infinities; NaN: none."""
    less, more = found
    if not more.is_floating_point():
        return torch.full(more.shape, torch.nan, device=more.device)
    grows = torch.isfinite(more) & (more.sign() == less.sign()) & (more.abs() > GROWS * less.abs())
    return torch.where(grows, more.sign() * torch.inf, torch.nan)


def _raise(largest: torch.Tensor, wide: torch.Tensor, other: torch.Tensor) -> None:
    """Raise each element of `largest` to the distance of a floating result from another."""
    if wide.is_floating_point():
        torch.maximum(largest, _distance(wide, other), out=largest)


def _distance(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the distance of each element where both are finite, otherwise 0."""
    finite = torch.isfinite(one) & torch.isfinite(other)
    return torch.where(finite, (one - other).abs(), 0.0)


@dataclass(frozen=True)
class Worst:
    """The worst element of one question: `ratio` above 1 fails. All values are as the verdict shows them."""

    ratio: float
    tensor: str = ""
    index: list[int] = field(default_factory=list)
    expected: float | int | bool | None = None
    found: float | int | bool | None = None
    eager: float | int | bool | None = None
    limit: float | None = None
    wrong: int = 0
    elements: int = 0
    kind: str = ""


class Special(NamedTuple):
    """What the inputs hold beside finite numbers."""

    nan: bool = False
    infinities: bool = False

    @classmethod
    def of(cls, values: Sequence[torch.Tensor | None]) -> Special:
        """Look at the floating inputs of a question."""
        wide = [one.to(torch.float64) for one in values if one is not None and one.is_floating_point()]
        return cls(any(bool(one.isnan().any()) for one in wide), any(bool(one.isinf().any()) for one in wide))


@dataclass(frozen=True)
class Rule:
    """How one result is held: its dtype's own limits, and the op's.

    ordered: the op has no terms that a kernel may split, so what is infinite stays infinite (`is_ordered`).
    """

    name: str
    own: tuple[float, float] | None
    accuracy: Accuracy
    step: float
    fan_in: int
    ordered: bool = False

    def worst(
        self,
        found: torch.Tensor,
        eager: torch.Tensor,
        wide: torch.Tensor,
        spread: Spread | None,
        special: Special,
        ties: Ties | None = None,
    ) -> Worst | None:
        """Return the worst element that counts; None where none does.

        Without a `spread` the ratio is a bound from above: S is taken for zero. Where an input holds infinities a split
        makes NaN of an infinite term, so a sum that is infinite may be NaN, but not in an op that is `ordered`. Where
        all inputs are finite, terms of a float64 sum overflowed, and whether that ends as infinity or NaN is up to its
        order and to products that are added unrounded. `ties`: where an index that selects an equal entry is right.
        """
        if not wide.is_floating_point():
            ratio, limit = self._exact(found, eager, wide, spread, ties)
        else:
            ratio, limit = self._floating(found, eager, wide, spread, special)
        counted = ~ratio.isnan()
        if not bool(counted.any()):
            return None
        flat = torch.where(counted, ratio, -1.0).reshape(-1)
        at = int(flat.argmax())
        expected = wide if wide.is_floating_point() else eager
        return Worst(
            min(HIGHEST, float(flat[at])),
            self.name,
            [int(place) for place in np.unravel_index(at, ratio.shape)],  # torch's own takes seconds at first
            expected.reshape(-1)[at].item(),
            _item(found, at),
            eager.reshape(-1)[at].item(),
            float(limit.reshape(-1)[at]),
            int((flat > 1).sum()),
            flat.numel(),
        )

    def _exact(
        self, found: torch.Tensor, eager: torch.Tensor, wide: torch.Tensor, spread: Spread | None, ties: Ties | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        raw = torch.uint8 if eager.dtype == torch.bool else eager.dtype
        wrong = found.view(raw) != eager.view(raw)
        if ties is not None and bool(wrong.any()):
            places = wrong.reshape(-1).nonzero().reshape(-1)
            one, other = (each.reshape(-1)[places].to(torch.int64) for each in (found, eager))
            wrong.view(-1)[places] = ~ties(places, one, other)
        unfair = wide != eager if spread is None else (wide != eager) | spread.border
        ratio = torch.where(wrong, HIGHEST, 0.0).to(torch.float64)
        return torch.where(unfair, torch.nan, ratio), torch.zeros_like(ratio)

    def _floating(
        self,
        found: torch.Tensor,
        eager: torch.Tensor,
        wide: torch.Tensor,
        spread: Spread | None,
        special: Special,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return each element's ratio, NaN where it does not count, and its limit."""
        dtype = found.dtype
        rounded, mine, value = wide.to(dtype).to(torch.float64), eager.to(torch.float64), found.to(torch.float64)
        target = rounded if self.exact else wide
        finite = torch.isfinite(rounded)
        error, missed = (value - target).abs(), (mine - target).abs()
        own = torch.where(finite, missed, 0.0)
        unfair = ~_same_class(mine, rounded)
        allowed = self._base(wide, dtype)
        if spread is not None and not self.exact:
            allowed = allowed + self._of_spread(wide, spread)
            unfair |= spread.border | _near_overflow(wide, spread.largest, dtype, self)
            own = torch.maximum(own, EAGER_SLACK * spread.eager)
        if spread is not None:
            mistake = torch.where(finite & (missed > allowed), missed, 0.0)
            unfair |= mistake > 0
            if spread.lost is not None and not self.exact and mistake.numel():  # all of what is allowed was measured
                own = torch.maximum(own, EAGER_SLACK * mistake.max())
        limit = allowed + own
        both = finite & torch.isfinite(value)
        ratio = torch.where(both, error / limit.clamp_min(torch.finfo(torch.float64).tiny), HIGHEST)
        ratio = torch.where(both & (error == 0), 0.0, ratio)
        agrees = _same_class(value, rounded) & ~finite
        if special.infinities and self.fan_in > 1 and not self.ordered:
            agrees |= rounded.isinf() & value.isnan()
            if spread is not None and spread.towards is not None:
                agrees |= rounded.isnan() & (value == spread.towards)
        if special == Special() and self.fan_in > 1 and dtype == torch.float64:
            agrees |= ~finite & ~torch.isfinite(value)
        ratio = torch.where(agrees, 0.0, ratio)
        for one in [] if spread is None else spread.without:
            instead, _ = self._floating(found, one.eager, one.wide, one.spread, Special())
            ratio = torch.where(one.idle & ~finite & ~(instead > ratio), instead, ratio)
        return torch.where(unfair, torch.nan, ratio), limit

    @property
    def exact(self) -> bool:
        """Whether the result must be float64's, rounded to its dtype."""
        return self.own == (0.0, 0.0)

    def _base(self, wide: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return what is allowed however the result moves with the inputs."""
        if self.exact:
            return torch.zeros_like(wide)
        kept = torch.where(torch.isfinite(wide), wide, 0.0)
        narrow = dtype.itemsize < torch.float32.itemsize
        limit = (NARROW_ULPS if narrow else ULPS) * ulp(kept, dtype)
        if dtype in (torch.float32, torch.bfloat16):
            limit = limit + FLUSHED * _TINY
        if self.fan_in > POINTWISE_INPUTS:
            sums = torch.float64 if dtype == torch.float64 else torch.float32
            limit = limit + self.fan_in * unit_roundoff(sums) * kept.abs()
        if self.own is not None:
            limit = limit + self.own[1] + self.own[0] * kept.abs()
        return limit

    def _of_spread(self, wide: torch.Tensor, spread: Spread) -> torch.Tensor:
        """Return what is allowed because the result moves with the inputs."""
        largest = spread.largest
        if self.accuracy == "normwise":
            largest = largest.max().expand_as(largest)
        allowed = SLACK * largest + NOISE * spread.noise
        allowed = torch.where(spread.close > JUMP * spread.largest, torch.inf, allowed)
        if spread.lost is None:
            return allowed
        vanishes = (wide == 0) & (spread.largest == 0)
        return torch.where(vanishes, allowed + spread.lost, allowed)  # of two numbers `where` would make float32


_ORDERED = frozenset(
    {"max", "amax", "min", "amin", "maximum", "minimum", "aminmax", "cummax", "cummin", "sort", "topk", "kthvalue"}
    | {"median", "clamp", "relu", "max_pool1d", "max_pool2d", "max_pool3d", "logsumexp", "logaddexp", "logcumsumexp"}
)
_BESIDE = _ORDERED | frozenset(
    {"add", "sub", "mul", "div", "neg", "abs", "where", "masked_fill", "to", "float", "half", "bfloat16", "view"}
    | {"reshape", "flatten", "permute", "transpose", "contiguous", "squeeze", "unsqueeze", "expand", "chunk", "split"}
)


def is_ordered(reference: str) -> bool:
    """Return whether an op compares its terms, or sums exponentials of them, and does little beside.

    There an infinite result is no accident of a sum: a row that is masked whole has its maximum and the logarithm of
    its sum of exponentials at minus infinity, and who gives NaN for it did not think of it.
    """
    names = operations(reference)
    return bool(names & _ORDERED) and names <= _BESIDE


def _same_class(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    finite = torch.isfinite(one) & torch.isfinite(other)
    return finite | (one.isnan() & other.isnan()) | (one.isinf() & (one == other))


def _near_overflow(wide: torch.Tensor, moved: torch.Tensor, dtype: torch.dtype, rule: Rule) -> torch.Tensor:
    """Return where a finite result, or the terms that it is summed from, come near the largest number."""
    most = float(torch.finfo(dtype).max) / BORDER
    sums = float(torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).max) / BORDER
    terms = moved * (math.sqrt(rule.fan_in) / rule.step)
    return torch.isfinite(wide) & ((wide.abs() > most) | (terms > sums))


def _item(tensor: torch.Tensor, at: int) -> float | int | bool:
    """Return an element; a boolean byte as the number that it is."""
    flat = tensor.reshape(-1)
    value: float | int | bool = flat.view(torch.uint8)[at].item() if tensor.dtype == torch.bool else flat[at].item()
    return value

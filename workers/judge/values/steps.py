"""Compare results that have steps: integers, booleans and 8-bit floats. Pure functions.

A value that lies near the boundary between two steps before it is rounded, or two sums that are nearly equal before one
is chosen, may go either way in honest arithmetic. So each element has a set of right values: eager's, the float64
reference's, and those that the float64 reference gives for inputs which cannot be told from the given ones. Elsewhere
than at a boundary these are one and the same value, and any other is wrong.

An index into an input is also right where it selects what the right index selects, if the op leaves the order of equals
open (`topk`, an unstable `sort`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import torch

from warpsmith.workers.judge.values import compare
from warpsmith.workers.judge.values.compare import Comparison, Tolerance, compare_floats, is_poison, unravel

HOPELESS_AFTER, HOPELESS_SHARE, HOPELESS_LEAST = 6, 0.75, 64
"""Sets of right values after which a result is wrong where this share of its doubtful elements is still unexplained.

Each set explains a quarter of what lies at a boundary, or more: among so many doubtful elements chance decides nothing.
"""
ELSEWHERE = 16.0
"""Times as wide as by the CPU's own error: cumsum over 1,000 elements in plain float32 missed that by 3.

An interpreter's check finds what is wrong, and no rounding: that is the device's to judge.
"""

Ties = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Whether two indices select equal values: flat positions in the result, found and wanted indices there."""


@dataclass(frozen=True)
class Steps:
    """How a result of steps is compared.

    `others` gives right results besides the expected one, each made when it is asked for. `between`: what lies between
    two right values is right. `ties`: where an index that selects an equal value is right. `distinct`: the axis along
    which no index may come twice. `tolerance` gives the errors of an 8-bit float that verdicts show.
    """

    others: Callable[[], Iterable[torch.Tensor]] = field(repr=False)
    between: bool = True
    ties: Ties | None = field(default=None, repr=False)
    distinct: int | None = None
    tolerance: Tolerance | None = None
    own: tuple[float, float] | None = None  # as a Tolerance has; a result with one has no Steps
    l2: float = float("inf")


def alike(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Compare element by element; NaN is like NaN."""
    if not one.is_floating_point():
        return one == other
    if one.dtype.itemsize == 1:  # torch knows little of these
        one, other = one.to(torch.float32), other.to(torch.float32)
    same: torch.Tensor = (one == other) | (one.isnan() & other.isnan())
    return same


Limit = Tolerance | Steps | None
"""How one result is compared; None: it equals eager's."""


def elsewhere(limit: Limit, found: torch.Tensor) -> Limit:
    """Return the limit of a result that is for another device than the reference ran on; the op's own as it is.

    A CPU's PyTorch keeps running sums in float64 where a GPU's does not, so its own error says little of a GPU's.
    """
    if not isinstance(limit, Tolerance) or limit.own is not None or found.dtype.itemsize < torch.float32.itemsize:
        return limit
    return replace(limit, l2=ELSEWHERE * limit.l2, element=ELSEWHERE * limit.element, ulps=ELSEWHERE * limit.ulps)


def compare_result(found: torch.Tensor, expected: torch.Tensor, limit: Limit) -> Comparison:
    """Compare a result with the expected one."""
    if limit is None:
        return compare.compare_exactly(found, expected)
    return compare_steps(found, expected, limit) if isinstance(limit, Steps) else compare_floats(found, expected, limit)


def wrong_elements(found: torch.Tensor, expected: torch.Tensor, limit: Limit) -> torch.Tensor:
    """Return a flat mask of wrong elements."""
    if not isinstance(limit, Steps):
        return compare.wrong_elements(found, expected, limit)
    mask = torch.zeros(found.numel(), dtype=torch.bool, device=found.device)
    mask[wrong_places(found, expected, limit)] = True
    return mask


def compare_steps(found: torch.Tensor, expected: torch.Tensor, steps: Steps) -> Comparison:
    """Compare a result with the expected one, which may be float64 where the result is an 8-bit float."""
    wrong = wrong_places(found, expected, steps)
    l2 = _relative_l2(found, expected, steps)
    limit = 0.0 if steps.tolerance is None else steps.tolerance.l2
    if not wrong.numel():
        return Comparison(True, "", l2, limit, 0, found.numel())
    first = int(wrong[0])
    element, wanted = found.reshape(-1)[first], _as(expected, found.dtype).reshape(-1)[first]
    kind = "not_written" if is_poison(element) else "wrong_value"
    if found.dtype == torch.bool:
        element = element.view(torch.uint8)
    share = l2 if found.is_floating_point() else wrong.numel() / found.numel()
    return Comparison(
        False,
        kind,
        share,
        limit,
        wrong.numel(),
        found.numel(),
        unravel(first, found.shape),
        wanted.item(),
        element.item(),
        0.0,
    )


def wrong_places(found: torch.Tensor, expected: torch.Tensor, steps: Steps) -> torch.Tensor:
    """Return the flat positions, rising, of elements that are none of their right values."""
    wanted = _as(expected, found.dtype)
    flat, right = _raw(found), _raw(wanted)
    left = (flat != right).nonzero().reshape(-1)
    doubled = _doubled(found, steps.distinct) if left.numel() and steps.distinct is not None else left[:0]
    left = left[~_is_right(found, wanted, left, steps)]
    values, low = _values(found, left), _values(wanted, left)
    high, doubtful = low, left.numel()
    for number, other in enumerate(steps.others() if left.numel() else ()):
        if not left.numel() or (
            number >= HOPELESS_AFTER and left.numel() > max(HOPELESS_LEAST, HOPELESS_SHARE * doubtful)
        ):
            break
        theirs = _values(other, left)
        low, high = torch.fmin(low, theirs), torch.fmax(high, theirs)  # nothing lies between a number and NaN
        right_here = _is_right(found, other, left, steps)
        if steps.between:
            right_here |= (low <= values) & (values <= high)
        left, values, low, high = (kept[~right_here] for kept in (left, values, low, high))
    places: torch.Tensor = torch.unique(torch.cat([left, doubled]))
    return places


def _is_right(found: torch.Tensor, wanted: torch.Tensor, places: torch.Tensor, steps: Steps) -> torch.Tensor:
    values, right = _values(found, places), _values(wanted, places)
    same = alike(values, right)
    return same if steps.ties is None else same | steps.ties(places, values, right)


def _doubled(found: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the flat positions of values that came before along the axis."""
    ordered, order = found.sort(dim=axis, stable=True)
    again = torch.zeros_like(found, dtype=torch.bool)
    length = found.shape[axis]
    same = ordered.narrow(axis, 1, length - 1) == ordered.narrow(axis, 0, length - 1)
    again.scatter_(axis, order.narrow(axis, 1, length - 1), same)
    return again.reshape(-1).nonzero().reshape(-1)


def _as(expected: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return expected if expected.dtype == dtype else expected.to(dtype)


def _raw(result: torch.Tensor) -> torch.Tensor:
    """Return the flat bytes of one-byte elements, which torch compares in every dtype; others as they are."""
    flat = result.reshape(-1)
    return flat.view(torch.uint8) if result.dtype.itemsize == 1 else flat


def _values(result: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the elements at flat positions as numbers that torch orders."""
    flat = _raw(result)[places]
    if not result.is_floating_point():
        return flat.view(torch.int8).to(torch.int64) if result.dtype == torch.int8 else flat.to(torch.int64)
    return flat.view(result.dtype).to(torch.float64)


def _relative_l2(found: torch.Tensor, expected: torch.Tensor, steps: Steps) -> float:
    if steps.tolerance is None or not found.is_floating_point():
        return 0.0
    return compare_floats(found, expected, steps.tolerance).l2

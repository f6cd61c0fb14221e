"""The common pattern of wrong elements: samples, the places where they lie, their values.

For a reader who has to find the defect; nothing is decided here.
"""

from __future__ import annotations

import torch

from warpsmith.kernels_db.job.documents import Failure, WrongElement
from warpsmith.workers.judge.values.steps import Limit, wrong_elements

MOST_ELEMENTS = 1 << 27
"""Most elements of a tensor whose wrong elements are described.

A mask of them takes a byte each.
"""
SHOWN, SAMPLED = 4, 1 << 12
ALIKE = 0.01
"""Ratios of found to expected that differ by less are one factor."""


def described(failure: Failure, found: torch.Tensor, expected: torch.Tensor, limit: Limit) -> Failure:
    """Return the failure with `samples` and `pattern`, where any element is beyond its limit."""
    if found.numel() > MOST_ELEMENTS:
        return failure
    wrong = wrong_elements(found, expected, limit)
    count = int(wrong.sum())
    if not count:
        return failure
    flat_found, flat_expected = found.reshape(-1), expected.reshape(-1)
    at = wrong.nonzero().reshape(-1)
    some = at[:: max(1, count // SAMPLED)][:SAMPLED]
    values, wanted = flat_found[some].to(torch.float64), flat_expected[some].to(torch.float64)
    told = [*_places(wrong.view(found.shape), count), *_values(values, wanted)]
    error = torch.nan_to_num((values - wanted).abs(), nan=torch.inf)
    worst = some[error.argsort(descending=True, stable=True)[:SHOWN]].tolist()
    samples = [_element(position, found, expected) for position in worst]
    return {**failure, "samples": samples, "pattern": "; ".join(told)}


def along(positions: torch.Tensor, size: int) -> str | None:
    """Describe where `positions` (rising) of an axis of `size` lie.

    None where they are all of it, or lie without a pattern.
    """
    first, last, count = int(positions[0]), int(positions[-1]), len(positions)
    if count == size:
        return None
    if count == 1:
        return f"only at {first}"
    if last - first + 1 == count:
        if last == size - 1:
            return f"only the last {count}, from {first} on"
        return f"only the first {count}" if first == 0 else f"only from {first} to {last}"
    steps = positions.diff()
    regular = count > 2 and bool((steps == steps[0]).all())
    return f"only every {int(steps[0])}th, from {first} on" if regular else None


def _places(wrong: torch.Tensor, count: int) -> list[str]:
    """Return one statement for each axis along which the wrong elements are not everywhere."""
    if count == wrong.numel():
        return ["every element is wrong"]
    told = []
    for axis, size in enumerate(wrong.shape):
        others = [other for other in range(wrong.dim()) if other != axis]
        hit = wrong.any(dim=others) if others else wrong
        where = along(hit.nonzero().reshape(-1), size)
        if where is not None:
            told.append(f"axis {axis} (size {size}): {where}")
    return told or ["wrong elements lie all over the tensor"]


def _values(found: torch.Tensor, wanted: torch.Tensor) -> list[str]:
    """Describe the common features of the wrong values."""
    if bool((found == 0).all()):
        return ["each of them is 0"]
    if bool(found.isnan().all()):
        return ["each of them is NaN"]
    usable = wanted != 0
    ratios = (found[usable] / wanted[usable]).nan_to_num(nan=torch.inf)
    if ratios.numel() < 2 or not bool(ratios.isfinite().all()):
        return []
    middle = float(ratios.median())
    near = bool(((ratios - middle).abs() <= ALIKE * abs(middle)).all())
    return [f"each is about {middle:.4g} times the expected value"] if near and abs(middle - 1) > ALIKE else []


def _element(position: int, found: torch.Tensor, expected: torch.Tensor) -> WrongElement:
    index = [int(place) for place in torch.unravel_index(torch.tensor(position), found.shape)]
    return {
        "index": index,
        "expected": expected.reshape(-1)[position].item(),
        "found": found.reshape(-1)[position].item(),
    }

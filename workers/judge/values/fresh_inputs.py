"""New numbers for every call from a stock that is drawn once.

A window of a stock at another place holds the same numbers, and so do a few whole tensors in turn: a candidate that
remembers numbers, and not calls, would find them again and copy what it has computed before. So a call's values are
made from the stock: two windows of normal numbers at a random angle are normal again, uniform numbers stay uniform
under a rotation of their range, a permutation stays one when its places and its numbers are rotated. Small inputs are
drawn anew.
"""

from __future__ import annotations

import math
import random
from typing import Any

import torch

from warpsmith.kernels_db.job import draws

DRAWN_ANEW = 1 << 16
"""Most elements of structured values that are drawn anew for each call.

Sorting so many takes some milliseconds.
"""

_ROUNDED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def window(stock: torch.Tensor, elements: int, choose: random.Random) -> torch.Tensor:
    """So many elements of a flat stock from a random place on."""
    start = choose.randrange(stock.numel() - elements + 1)
    return stock[start : start + elements]


def independent(dist: dict[str, Any], stock: torch.Tensor, elements: int, choose: random.Random) -> torch.Tensor:
    """Return flat values for one call from a stock of independent ones.

    Integers and booleans, which have few values anyway, and floating types without arithmetic are a window.
    """
    first = window(stock, elements, choose)
    if stock.dtype not in _ROUNDED:
        return first
    if dist["kind"] == "normal":
        angle = choose.uniform(0.0, 2.0 * math.pi)
        along, across = math.cos(angle), math.sin(angle)
        mixed = torch.mul(first, along).add_(window(stock, elements, choose), alpha=across)
        mean = dist.get("mean", 0.0)
        return mixed.add_(mean * (1.0 - along - across)) if mean else mixed
    if dist["kind"] == "uniform":
        low, high = dist.get("low", 0.0), dist.get("high", 1.0)
        turned = first + choose.uniform(0.0, high - low)
        return torch.where(turned >= high, turned - (high - low), turned).clamp_(low, high)
    return first


def structured(
    dist: dict[str, Any],
    variants: list[torch.Tensor],
    generator: torch.Generator,
    choose: random.Random,
) -> torch.Tensor:
    """Return values for one call of a kind whose elements depend on each other.

    There are `variants` of them.

    A constant is itself; the user's own code and large `spd` matrices come as they were drawn.
    """
    chosen = choose.choice(variants)
    kind = dist["kind"]
    if kind in ("constant", "code"):
        return chosen
    if chosen.numel() <= DRAWN_ANEW or kind == "indptr":
        return draws.draw(dist, tuple(chosen.shape), chosen.dtype, generator)
    if kind == "permutation":
        length = chosen.shape[-1]
        return chosen.roll(choose.randrange(length), -1).add_(choose.randrange(length)).remainder_(length)
    return chosen

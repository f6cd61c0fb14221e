"""Whether a result of 16 bits is rounded to the nearest number, as PyTorch rounds, or cut toward zero.

A cut is off by less than one unit in the last place, which every limit of an element allows: another order of sums
may cost as much. But it is off in one direction, in every element, and sums over such results drift. It is counted:
of the elements whose nearest number is the one farther from zero a right kernel takes nearly none nearer to zero where
PyTorch eager takes nearly none, and one that sums in coarser parts about half; one that cuts takes all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

DTYPES = (torch.float16, torch.bfloat16)
SAMPLE = 1 << 16
"""Elements that are looked at, evenly."""

FEWEST = 64
"""Different numbers that must be among those that tell."""

EAGER_AT_MOST, CUT_AT_LEAST = 0.1, 0.9
"""Shares of those that tell which are nearer to zero: in eager's results, and in results that are cut.

Under independent errors of any size a share of 0.9 of 64 has a chance below 10^-10.
"""


@dataclass(frozen=True)
class Nearer:
    """How many elements tell, and how many of them are the neighbour of their number that is nearer to zero.

    different: how many numbers are among those that tell; first: flat place of the first that is nearer, None for none.
    """

    telling: int = 0
    nearer: int = 0
    different: int = 0
    first: int | None = None

    def joined(self, other: Nearer) -> Nearer:
        """Return both together; `different` is that of the richer one."""
        most = max(self.different, other.different)
        return Nearer(self.telling + other.telling, self.nearer + other.nearer, most, self.first)

    @property
    def rounds(self) -> bool:
        """Check that this is the result of rounding to the nearest."""
        return self.different >= FEWEST and self.nearer <= EAGER_AT_MOST * self.telling

    @property
    def is_cut(self) -> bool:
        """Check that this is the result of a cut."""
        return self.different >= FEWEST and self.nearer >= CUT_AT_LEAST * self.telling


def nearer_to_zero(found: torch.Tensor, expected: torch.Tensor) -> Nearer:
    """Count in a result of one of DTYPES; `expected` is float64, of the same shape."""
    step = max(1, found.numel() // SAMPLE) | 1  # odd, so that it does not meet the same column of every row
    values, wanted = found.reshape(-1)[::step], expected.reshape(-1)[::step]
    nearest = wanted.to(found.dtype)
    wide = nearest.to(torch.float64)
    below = (nearest.view(torch.int16) - 1).view(found.dtype)  # of the same sign: where it counts none is zero
    tells = torch.isfinite(nearest) & (wide.abs() > wanted.abs())
    tells &= (wide - wanted).abs() < (below.to(torch.float64) - wanted).abs()  # which way a tie goes is left open
    nearer = tells & (values == below)
    places = nearer.nonzero()
    return Nearer(
        int(tells.sum()),
        places.numel(),
        torch.unique(nearest[tells]).numel(),
        int(places[0]) * step if places.numel() else None,
    )

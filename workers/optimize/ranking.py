"""Compute what a kernel at the physical limit would save, end to end.

Pure arithmetic; all times in microseconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Opportunity:
    """A spec, or a region without one.

    `time_us` is the time of all its places in one call of the model, `limit_us` what they need at least, `limit_by` the
    peak that binds; None where no limit is known. `joins`: how many regions one place of it joins, 1 for one that joins
    none; `bytes_saved`: what those write and read between them, of all its places. `counted`: how many of its places
    the total has: where regions overlap, one of them is in it.
    """

    name: str
    operators: str
    places: tuple[str, ...]
    time_us: float
    limit_us: float | None
    limit_by: str | None
    file: str | None = None
    reason: str | None = None
    """Why there is no spec."""
    joins: int = 1
    bytes_saved: int = 0
    counted: int = 0

    @property
    def saving_us(self) -> float:
        """Microseconds that kernels at the limit would save in one call of the model."""
        if self.limit_us is None:
            return 0.0
        return max(0.0, self.time_us - self.limit_us)

    def document(self, model_us: float) -> dict[str, Any]:
        """Write the opportunity as JSON; `model_us` is the time of one call of the model."""
        left = model_us - self.saving_us
        return {
            "name": self.name,
            "operators": self.operators,
            "places": list(self.places),
            "time_us": round(self.time_us, 3),
            "share": round(self.time_us / model_us, 4) if model_us else None,
            "limit_us": None if self.limit_us is None else round(self.limit_us, 3),
            "limit_by": self.limit_by,
            "saving_us": round(self.saving_us, 3),
            "model_speedup": round(model_us / left, 4) if left > 0 else None,
            "joins": self.joins,
            "bytes_saved": self.bytes_saved,
            "counted": self.counted,
            "file": self.file,
            "reason": self.reason,
        }


def without_overlap(savings: Sequence[tuple[float, Sequence[frozenset[Hashable]]]]) -> list[int]:
    """Return how many places of each op are taken where those that save most go first and no two overlap.

    savings: of each op what one place saves, in microseconds, and what each of its places is made of.
    """
    used: set[Hashable] = set()
    counted = [0] * len(savings)
    for number, (saving, places) in sorted(enumerate(savings), key=lambda each: -each[1][0]):
        for place in places if saving > 0 else ():
            if not place & used:
                used |= place
                counted[number] += 1
    return counted


def ranked(opportunities: Iterable[Opportunity]) -> list[Opportunity]:
    """Sort by the time they would save, then by the time they take."""
    return sorted(opportunities, key=lambda one: (-one.saving_us, -one.time_us, one.name))

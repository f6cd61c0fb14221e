"""Compute what a kernel at the physical limit would save, end to end.

Pure arithmetic; all times in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Opportunity:
    """A spec, or a region without one.

    `time_us` is the time of all its places in one call of the model, `limit_us` what they need at least, `limit_by` the
    peak that binds; None where no limit is known.
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
            "file": self.file,
            "reason": self.reason,
        }


def ranked(opportunities: Iterable[Opportunity]) -> list[Opportunity]:
    """Sort by the time they would save, then by the time they take."""
    return sorted(opportunities, key=lambda one: (-one.saving_us, -one.time_us, one.name))


def scaled(times_us: dict[str, float], model_us: float) -> dict[str, float]:
    """Scale the operators' times so that together they take no longer than the model.

    A profiler slows the code it watches.
    """
    total = sum(times_us.values())
    if total <= model_us or total == 0:
        return dict(times_us)
    return {name: time * model_us / total for name, time in times_us.items()}

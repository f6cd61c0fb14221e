"""What a counterexample search came to, in a few numbers. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict


class AttackSummary(TypedDict):
    """A search for a counterexample over all its workloads.

    `ratio`: the worst error as a multiple of what is allowed; None where no question was fair, `inf` as text.
    """

    tries: int
    seconds: float
    ratio: float | str | None
    found: bool
    skipped: NotRequired[str]


def summarise_attack(attack: Mapping[str, Any] | None) -> AttackSummary | None:
    """Summarise a verdict's `attack`, also as it was stored, where numbers that JSON cannot hold are text."""
    if not attack:
        return None
    ratios = [float(entry["ratio"]) for entry in attack.get("workloads") or [] if entry.get("ratio") is not None]
    worst = max((ratio for ratio in ratios if not math.isnan(ratio)), default=None)
    summary: AttackSummary = {
        "tries": int(attack.get("tries") or 0),
        "seconds": float(attack.get("seconds") or 0.0),
        "ratio": str(worst) if worst is not None and math.isinf(worst) else worst,
        "found": attack.get("counterexample") is not None,
    }
    if attack.get("skipped"):
        summary["skipped"] = str(attack["skipped"])
    return summary

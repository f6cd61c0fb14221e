"""Read budgets, and grant the steps that a search may still open under one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.kernels_db.spec.near_misses import one_of
from warpsmith.workers.search.tree import Budget, Spend, Tree

CALLS_PER_STEP = 3
"""Model calls of an `ideate` or `code` step: the request, and two re-asks if unreadable."""

LARGEST_COUNT = 10**12
LARGEST_AMOUNT = 1e9

COUNTS = ("candidates", "model_calls", "tokens")

TRY_SECONDS = 300.0
"""Device seconds that the tries of a search may hold where its budget names no other limit."""

ENDS_NOTHING = ("try_seconds", "sweep_seconds")
"""Limits that refuse what they limit, and end no search."""

_LIMITS = tuple(limit.name for limit in fields(Budget))


def parse_budget(document: object) -> Budget:
    """Read a budget from its document, for example `{"candidates": 40, "cost_usd": 2.5}`.

    A limit that is null or missing is no limit.

    Raises SpecError naming the field: an unknown limit, a value that is not a number, zero or below.
    """
    if not isinstance(document, Mapping):
        raise SpecError("budget", document, "an object such as {'candidates': 40}")
    values: dict[str, Any] = {}
    for name, found in document.items():
        if name not in _LIMITS:
            raise SpecError(f"budget.{name}", found, one_of(name, _LIMITS))
        if found is not None:
            values[name] = _positive(name, found)
    return Budget(**values)


def budget_document(budget: Budget) -> dict[str, int | float]:
    """Write `budget` as a document for `parse_budget`, without the limits that are not set."""
    return {name: value for name in _LIMITS if (value := getattr(budget, name)) is not None}


def try_limit(budget: Budget) -> float:
    """Return the device seconds that tries may hold."""
    return TRY_SECONDS if budget.try_seconds is None else budget.try_seconds


def sweep_seconds_left(budget: Budget, spent: float) -> float | None:
    """Return the device seconds that a further sweep may hold after those `spent`; None where nothing limits it."""
    return None if budget.sweep_seconds is None else max(0.0, budget.sweep_seconds - spent)


def _positive(name: str, found: object) -> int | float:
    count = name in COUNTS
    most = LARGEST_COUNT if count else LARGEST_AMOUNT
    expected = f"a whole number from 1 to {most}" if count else f"a number above 0 and at most {most:.0f}"
    if isinstance(found, bool) or not isinstance(found, int | float) or (count and not isinstance(found, int)):
        raise SpecError(f"budget.{name}", found, expected)
    if not (math.isfinite(found) and 0 < found <= most):
        raise SpecError(f"budget.{name}", found, expected)
    return found


def exhausted(budget: Budget, spend: Spend) -> str | None:
    """Name the limit that is used up, in words; None while every limit has something left."""
    for name in (name for name in _LIMITS if name not in ENDS_NOTHING):
        limit, used = getattr(budget, name), getattr(spend, name)
        if limit is not None and used >= limit:
            return f"the budget is used up: {name} {used:g} of {limit:g}"
    return None


@dataclass
class Allowance:
    """What the budget still lets a policy open.

    Each grant takes its share, so that no set of open steps can exceed the budget together.

    `candidates`, `calls` and `screens` (judge steps for which there are GPU seconds) are infinite where the budget sets
    no limit. `spent` says which limit is used up: no model step may be opened. `late`: not even a judge step may be.
    `reason` says which limit refused a grant.
    """

    candidates: float
    calls: float
    screens: float
    spent: str | None
    late: bool
    reason: str | None = None

    def calls_for_step(self, candidates: int) -> int | None:
        """Grant a model step that writes `candidates` (0 or 1).

        Returns how many calls it may make; None where it may not be opened.
        """
        if self.spent is not None:
            self.reason = self.spent
            return None
        if self.candidates < max(candidates, 1):  # ideas that may not be coded are not worth a call
            self.reason = "the budget is used up: candidates"
            return None
        if self.calls < 1:
            self.reason = "the budget is used up: model_calls"
            return None
        granted = int(min(CALLS_PER_STEP, self.calls))
        self.calls -= granted
        self.candidates -= candidates
        return granted

    def keep_place(self) -> None:
        """Let a candidate that is written, and cannot be judged now, hold its place: no other takes it."""
        self.candidates -= 1

    def screen(self) -> bool:
        """Grant a judge step for a candidate that is written."""
        if self.late:
            self.reason = self.spent
            return False
        if self.candidates < 1:
            self.reason = "the budget is used up: candidates"
            return False
        if self.screens < 1:
            self.reason = "the budget is used up: gpu_seconds"
            return False
        self.candidates -= 1
        self.screens -= 1
        return True


def allowance(tree: Tree, budget: Budget, spend: Spend) -> Allowance:
    """Compute what `budget` leaves after `spend` and what the open steps may still take.

    A candidate counts as spent when it has been screened, or when it ended before: a duplicate, or replies in which no
    code could be read. While it is being written or judged, its node holds its place. A written candidate that waits
    asks for its place before anything new is written, and keeps it where it cannot be judged now.
    """
    coding = sum(node.state == "coding" for node in tree.under_way)
    judging = sum(node.state == "judging" for node in tree.under_way)
    ideating = sum(node.ideation == "open" for node in tree.under_way)
    candidates = math.inf if budget.candidates is None else budget.candidates - spend.candidates - coding - judging
    calls = math.inf if budget.model_calls is None else budget.model_calls - spend.model_calls
    calls -= CALLS_PER_STEP * (coding + ideating)
    timed = judging + sum(node.verification == "open" for node in tree.under_way)
    return Allowance(
        candidates,
        calls,
        screens=_screens(budget, spend, timed),
        spent=exhausted(budget, spend),
        late=out_of_time(budget, spend),
    )


def _screens(budget: Budget, spend: Spend, timed: int) -> float:
    """Count how many judge steps may be opened beside the `timed` open ones.

    The device time of a step is not known before it ends: as many may be open together as fit at the mean so far (the
    baselines' time included, so at first it errs on the safe side), and always one, while anything is left.
    """
    if budget.gpu_seconds is None or spend.gpu_seconds <= 0.0:
        return math.inf
    mean = spend.gpu_seconds / max(spend.candidates, 1)
    left = budget.gpu_seconds - spend.gpu_seconds
    return max(left // mean, 1.0) - timed


def out_of_time(budget: Budget, spend: Spend) -> bool:
    """Check whether the limit of the wall clock or of GPU seconds is reached.

    Then nothing but the champion's verification may still be opened. That may exceed either limit, as may steps that
    were open before; a winner must be verified.
    """
    limits = ((budget.wall_clock_s, spend.wall_clock_s), (budget.gpu_seconds, spend.gpu_seconds))
    return any(limit is not None and used >= limit for limit, used in limits)

"""Bound what a search may take, whatever its model answers and its judge finds. Pure.

Nothing is played: a play is one course, and the dearest is not known. Every request that the policy may make is counted
with every call that its step may take, so duplicates, empty replies and unreadable ones are in the bound.

A person is not: ideas, pins and bans, a budget that is raised, and a search resumed after replies that could not be
read may each add calls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from warpsmith.workers.llm.forecast import CallSize
from warpsmith.workers.search.budget import CALLS_PER_STEP
from warpsmith.workers.search.policy import Policy
from warpsmith.workers.search.tree import Budget


@dataclass(frozen=True)
class Figures:
    """What a search takes; `calls` by kind of request, `cost_usd` None where a price is not known."""

    model_calls: int
    calls: dict[str, int]
    candidates: int
    tokens: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None


def bound(policy: Policy, budget: Budget, sizes: Mapping[str, CallSize], seeds: int, together: int | None) -> Figures:
    """Return limits to the figures, each by itself, of a search under `policy` and `budget`.

    `sizes`: the largest call of each kind. `seeds`: stored candidates that the tree starts with, at most. `together`:
    model steps that may be under way at once when a limit of tokens or money is reached; None where nothing limits
    them, and such a limit bounds nothing.
    """
    growth = policy.most_growth(seeds)
    repairs = (growth.nodes + seeds) * policy.repairs
    most = math.inf if budget.candidates is None else budget.candidates
    steps = {
        "ideate": growth.requests,
        "code": int(min(most, growth.nodes)),
        "repair": int(min(most, repairs)),
    }
    written = int(min(most, growth.nodes + repairs))
    calls = {kind: CALLS_PER_STEP * count for kind, count in steps.items()}
    if getattr(policy, "reflect", False):
        calls["reflect"] = growth.requests
    total = CALLS_PER_STEP * (growth.requests + written)
    if budget.model_calls is not None:
        total = min(total, budget.model_calls)
        calls = {kind: min(count, total) for kind, count in calls.items()}
    calls = {kind: count for kind, count in sorted(calls.items()) if count}

    def most_of(size: Mapping[str, float]) -> float:
        """Return the largest sum of `size` over `total` calls: the largest kinds first, each at its own most."""
        left, found = total, 0.0
        for kind in sorted(calls, key=lambda kind: -size[kind]):
            taken = min(calls[kind], left)
            left -= taken
            found += taken * size[kind]
        return found

    def capped(found: float, limit: float | None, size: Mapping[str, float]) -> float:
        """Return `found` under a limit that the calls under way, and those before them in their steps, may exceed."""
        if limit is None or together is None:
            return found
        return min(found, limit + together * CALLS_PER_STEP * max((size[kind] for kind in calls), default=0.0))

    tokens = {kind: size.prompt + size.completion for kind, size in sizes.items()}
    all_tokens = int(capped(most_of(tokens), budget.tokens, tokens))
    prices = {kind: size.cost_usd for kind, size in sizes.items() if size.cost_usd is not None}
    known = all(kind in prices for kind in calls)
    return Figures(
        model_calls=total,
        calls=calls,
        candidates=int(min(most, growth.nodes + repairs + growth.joins + seeds)),
        tokens=all_tokens,
        prompt_tokens=min(all_tokens, int(most_of({kind: size.prompt for kind, size in sizes.items()}))),
        completion_tokens=min(all_tokens, int(most_of({kind: size.completion for kind, size in sizes.items()}))),
        cost_usd=capped(most_of(prices), budget.cost_usd, prices) if known else None,
    )

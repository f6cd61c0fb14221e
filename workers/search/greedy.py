"""The greedy chain: always build on the best so far, one idea at a time. A control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from warpsmith.workers.search.fields import number, whole
from warpsmith.workers.search.policy_base import Growth, RoundsPolicy, Turn
from warpsmith.workers.search.tree import Step


@dataclass(frozen=True)
class Greedy(RoundsPolicy):
    """Parameters of the greedy chain.

    rounds: links of the chain, each one idea and its code on the best candidate so far. repairs: times a rejected
    candidate is given back with its failure. stop_fraction: share of the physical limit at which a verified champion
    ends the search.
    """

    name: ClassVar[str] = "greedy"

    rounds: int = whole(40, most=1000)
    repairs: int = whole(3, least=0, most=10)
    stop_fraction: float = number(0.95, least=0.0, most=1.0, above=True)

    def most_growth(self, seeds: int) -> Growth:
        """Return one idea for each link; the first round asks the root beside a seed."""
        links = self.rounds + min(1, seeds)
        return Growth(links, links)

    def grow(self, turn: Turn) -> list[Step]:
        """Open one idea on the best."""
        return turn.ask(turn.parents(turn.contenders[:1]), turn.rounds + 1, ideas=1, codes=1)

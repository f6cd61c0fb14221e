"""The published prose-first method: each round, ideas on a bank of the best, several codes for each idea.

After A. Ouyang, A. Mirhoseini and P. Liang, "Surprisingly fast AI-generated kernels we didn't mean to publish (yet)"
(Stanford CRFM, 28 May 2025): ideas in prose before code, a fan of codes for each, the best seed the next round, five
rounds. No rule of diversity and no restart. With `prose` off it is its own ablation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from warpsmith.workers.search.fields import number, switch, whole
from warpsmith.workers.search.policy_base import Growth, RoundsPolicy, Turn
from warpsmith.workers.search.tree import Step


@dataclass(frozen=True)
class ProseFirst(RoundsPolicy):
    """Parameters of the prose-first method.

    bank: the best candidates that a round builds on; the reference while there are none. ideas, codes: ideas per member
    of the bank, codes per idea. rounds: rounds played. repairs: times a rejected candidate is given back with its
    failure (the published method has none of its own). stop_fraction: share of the physical limit at which a verified
    champion ends the search. prose: switched off, code is asked for without an idea, for as many candidates as there
    would have been.
    """

    name: ClassVar[str] = "prose_first"

    bank: int = whole(4, most=64)
    ideas: int = whole(4, most=32)
    codes: int = whole(2, most=16)
    rounds: int = whole(5, most=100)
    repairs: int = whole(3, least=0, most=10)
    stop_fraction: float = number(0.95, least=0.0, most=1.0, above=True)
    prose: bool = switch(True)

    def most_growth(self, seeds: int) -> Growth:
        """Return the bank of every round; the first is on the root and on the seeds beside it."""
        parents = 1 + min(self.bank, seeds) + self.bank * (self.rounds - 1)
        return Growth(parents if self.prose else 0, parents * self.ideas * self.codes)

    def grow(self, turn: Turn) -> list[Step]:
        """Open ideas, or bare candidates, on the bank."""
        parents, opened = turn.parents(turn.contenders[: self.bank]), turn.rounds + 1
        if self.prose:
            return turn.ask(parents, opened, self.ideas, self.codes)
        return turn.plant(parents, opened, self.ideas * self.codes)

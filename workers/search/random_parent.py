"""Random parents: the reference and every accepted candidate are equally likely to be built on. A control."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

from warpsmith.workers.search.fields import number, whole
from warpsmith.workers.search.policy_base import Growth, RoundsPolicy, Turn
from warpsmith.workers.search.tree import NodeView, Step


@dataclass(frozen=True)
class RandomParent(RoundsPolicy):
    """Parameters of the random search.

    seed: where the choices are drawn from; a round's choice depends on the seed, the round's number and how many there
    are to choose from, so the same tree gives the same choice. rounds: parents drawn, one after another. ideas, codes:
    ideas per parent, codes per idea. repairs: times a rejected candidate is given back with its failure. stop_fraction:
    share of the physical limit at which a verified champion ends the search.
    """

    name: ClassVar[str] = "random"

    seed: int = whole(0, least=0, most=2**53)
    rounds: int = whole(40, most=1000)
    ideas: int = whole(1, most=32)
    codes: int = whole(1, most=16)
    repairs: int = whole(3, least=0, most=10)
    stop_fraction: float = number(0.95, least=0.0, most=1.0, above=True)

    def most_growth(self, seeds: int) -> Growth:
        """Return one parent for each round; the first round asks the root beside a seed that was drawn."""
        parents = self.rounds + min(1, seeds)
        return Growth(parents, parents * self.ideas * self.codes)

    def grow(self, turn: Turn) -> list[Step]:
        """Open ideas on a parent drawn at random."""
        opened = turn.rounds + 1
        return turn.ask(turn.parents([self.draw(turn, opened)]), opened, self.ideas, self.codes)

    def draw(self, turn: Turn, opened: int) -> NodeView:
        """Draw the parent of round `opened`.

        SHA-256 of seed and round, modulo the number of nodes to choose from.
        """
        choices = [turn.root, *sorted(turn.contenders, key=lambda node: node.seq)]
        digest = hashlib.sha256(f"{self.seed}:{opened}".encode()).digest()
        return choices[int.from_bytes(digest[:8], "big") % len(choices)]

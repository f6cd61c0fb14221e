"""The survey: breadth rather than the best, for recording pools from which other policies can be replayed.

A policy that exploits leaves no trace of what its other parents would have brought. The survey asks the reference for
many ideas, and then builds on good, middling and poor candidates alike, so that a policy which would have chosen any of
them finds recorded replies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from warpsmith.workers.search.fields import whole
from warpsmith.workers.search.policy_base import Growth, TreePolicy, Turn
from warpsmith.workers.search.ranking import ranked
from warpsmith.workers.search.tree import NodeView, Step, Tree


@dataclass(frozen=True)
class Survey(TreePolicy):
    """Parameters of the survey.

    root_ideas, root_codes: ideas asked for on the reference, codes for each. parents: candidates that a later round
    builds on, half of them the best, the others spread over the rest by rank. ideas, codes: ideas per parent, codes per
    idea. repairs: times a rejected candidate is given back. rounds: rounds played.
    """

    name: ClassVar[str] = "survey"
    eager: ClassVar[bool] = True

    root_ideas: int = whole(10, most=32)
    root_codes: int = whole(2, most=16)
    parents: int = whole(12, most=64)
    ideas: int = whole(2, most=32)
    codes: int = whole(1, most=16)
    repairs: int = whole(1, least=0, most=10)
    rounds: int = whole(3, most=100)

    def most_growth(self, seeds: int) -> Growth:
        """Return the root's ideas, and those of all parents of the later rounds."""
        del seeds
        later = self.parents * (self.rounds - 1)
        return Growth(1 + later, self.root_ideas * self.root_codes + later * self.ideas * self.codes)

    def settled(self, turn: Turn) -> bool:
        """Check whether the survey is over: the best is verified at the end alone."""
        over = turn.allowed.spent or turn.allowed.reason or self.stop_reason(turn)
        return turn.idle and over is not None

    def stop_reason(self, turn: Turn) -> str | None:
        """Give the reason to stop when the rounds are played."""
        if turn.rounds >= self.rounds:
            return f"{turn.rounds} rounds were played"
        if turn.rounds > 0 and turn.idle and not self.select(turn.tree):
            return "no candidate is left to build on"
        return None

    def grow(self, turn: Turn) -> list[Step]:
        """Open the requests for ideas of the next round, once the last is over."""
        if not turn.idle:
            return []
        if turn.rounds == 0:
            return turn.ask([turn.root], 1, self.root_ideas, self.root_codes)
        return turn.ask(self.select(turn.tree), turn.rounds + 1, self.ideas, self.codes)

    def select(self, tree: Tree) -> list[NodeView]:
        """Choose the parents of the next round among the candidates that were no parents yet.

        The best, and some spread evenly over the others by rank.
        """
        fresh = [node for node in ranked(tree.nodes[1:]) if node.ideated == 0]
        best = fresh[: (self.parents + 1) // 2]
        rest = fresh[len(best) :]
        wanted = min(self.parents - len(best), len(rest))
        return best + [rest[(2 * place + 1) * len(rest) // (2 * wanted)] for place in range(wanted)]

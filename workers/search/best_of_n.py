"""Best of N: independent ideas on the reference, one candidate each, and the best of them. A control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from warpsmith.workers.search.fields import whole
from warpsmith.workers.search.policy_base import Growth, TreePolicy, Turn
from warpsmith.workers.search.tree import Step


@dataclass(frozen=True)
class BestOfN(TreePolicy):
    """Parameters of best-of-N.

    n: ideas. batch: ideas asked for in one request; the next request goes out as soon as one is answered, whatever the
    verdicts. At most twice the requests that `n` takes are made: a model that has no more ideas ends the search.
    repairs: times a rejected candidate is given back with its failure.
    """

    name: ClassVar[str] = "best_of_n"
    eager: ClassVar[bool] = True

    n: int = whole(32, most=10_000)
    batch: int = whole(4, most=32)
    repairs: int = whole(3, least=0, most=10)

    def most_growth(self, seeds: int) -> Growth:
        """Return twice the requests that `n` takes, for `n` ideas in all."""
        del seeds
        return Growth(2 * -(-self.n // self.batch), self.n)

    def stop_reason(self, turn: Turn) -> str | None:
        """Give the reason to stop: all ideas were had, or the model has no more."""
        if self._left(turn) == 0:
            return f"{self.n} ideas were tried"
        if turn.rounds >= 2 * -(-self.n // self.batch):
            return f"{turn.rounds} requests brought {self.n - self._left(turn)} ideas of {self.n}"
        return None

    def grow(self, turn: Turn) -> list[Step]:
        """Open the next ideas on the root."""
        if turn.root.ideation == "open":
            return []
        return turn.ask([turn.root], turn.rounds + 1, min(self.batch, self._left(turn)), codes=1)

    def _left(self, turn: Turn) -> int:
        """Count the ideas still to be had; those of a person, and seeds, are beside the count."""
        return self.n - min(self.n, sum(node.origin == "model" for node in turn.tree.nodes[1:]))

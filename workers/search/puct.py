"""PUCT: what is built on next balances how good a node's children were against how rarely it was tried.

The rule is that of M. Yuksekgonul et al., "Learning to Discover at Test Time" (arXiv:2601.16175, 2026), who take a
node's best child rather than the mean, with ranks in place of scores; its bonus is that of D. Silver et al., "Mastering
the game of Go without human knowledge" (Nature 550, 2017), after C. Rosin, "Multi-armed bandits with episode context"
(Annals of Mathematics and Artificial Intelligence 61, 2011).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from warpsmith.workers.search.fields import number, whole
from warpsmith.workers.search.policy_base import Growth, RoundsPolicy, Turn
from warpsmith.workers.search.ranking import is_contender, is_open, pinned
from warpsmith.workers.search.tree import NodeView, Step


@dataclass(frozen=True)
class Puct(RoundsPolicy):
    """Parameters of PUCT.

    exploration: the weight c of what was rarely tried. parallel: expansions under way together; a verification takes
    the place of one. rounds: expansions, each on one node. ideas, codes: ideas per expansion, codes per idea. repairs:
    times a rejected candidate is given back with its failure. stop_fraction: share of the physical limit at which a
    verified champion ends the search.

    Of the root and the contenders, the next to be expanded is the node s with the largest

        Q(s) + c * P(s) * sqrt(1 + T) / (1 + n(s))

    where r(s) in (0, 1] is the rank of s by score (the best 1, the root last), Q(s) the best r of the children of s
    (r(s) itself before any has ended, 0 where none is accepted), P(s) = r(s) / sum of all r, n(s) how often s or a
    descendant was expanded, and T the number of all expansions. An expansion counts from when it is opened: those under
    way are virtual visits, which keep the others away. Every second expansion goes to a pinned node where there are
    any.
    """

    name: ClassVar[str] = "puct"
    eager: ClassVar[bool] = True

    exploration: float = number(1.0, least=0.0, most=100.0)
    parallel: int = whole(4, most=64)
    rounds: int = whole(40, most=1000)
    ideas: int = whole(1, most=32)
    codes: int = whole(1, most=16)
    repairs: int = whole(3, least=0, most=10)
    stop_fraction: float = number(0.95, least=0.0, most=1.0, above=True)

    def most_growth(self, seeds: int) -> Growth:
        """Return one request for each expansion."""
        del seeds
        return Growth(self.rounds, self.rounds * self.ideas * self.codes)

    def settled(self, turn: Turn) -> bool:
        """Return True: a new leader is verified at once, because much is built on it."""
        del turn
        return True

    def grow(self, turn: Turn) -> list[Step]:
        """Open as many expansions as may still run beside the open ones."""
        steps: list[Step] = []
        statistics = Statistics.of(turn, self.exploration)
        verification = turn.verification()
        checking = verification is not None or turn.verifying  # takes a place: the leader can be built on after it
        last = min(self.rounds, turn.rounds + self.parallel - len(_under_way(turn)) - checking)
        taken = set() if verification is None else {verification.node_id}
        for opened in range(turn.rounds + 1, last + 1):
            free = [node for node in statistics.nodes if not is_open(node) and node.id not in taken]
            wanted = [node for node in pinned(turn.tree.nodes) if node in free] if opened % 2 == 0 else []
            if wanted:
                chosen = min(wanted, key=lambda node: (statistics.visits[node.id], node.seq))
            elif free:
                chosen = max(free, key=statistics.value)  # of equal values the better node, which comes first
            else:
                break
            steps += turn.ask([chosen], opened, self.ideas, self.codes)
            taken.add(chosen.id)
            statistics.visit(chosen)
        return steps


@dataclass
class Statistics:
    """The tree's numbers for every node that can be expanded; see `Puct`."""

    nodes: list[NodeView]
    exploration: float
    ranks: dict[str, float]
    best: dict[str, float]
    visits: dict[str, int]
    parents: dict[str, str | None]
    ranks_total: float
    total: int

    @classmethod
    def of(cls, turn: Turn, exploration: float) -> Statistics:
        """Compute the statistics of the tree."""
        root, tree = turn.root, turn.tree
        nodes = [*turn.contenders, root]
        ranks = {node.id: (len(nodes) - place) / len(nodes) for place, node in enumerate(nodes)}
        expansions: dict[str, set[int]] = {node.id: {node.ideated} - {0} for node in tree.nodes}
        best: dict[str, float] = {}
        for node in tree.nodes[1:]:
            parent = node.parent_id or root.id
            if node.origin == "model":
                expansions[parent].add(node.round)
            if node.state in ("judged", "closed"):
                rank = ranks[node.id] if is_contender(node) else 0.0
                best[parent] = max(best.get(parent, 0.0), rank)
        visits = {node_id: len(rounds) for node_id, rounds in expansions.items()}
        total = sum(visits.values())
        parents = {node.id: node.parent_id for node in tree.nodes}
        for node in reversed(tree.nodes[1:]):  # children come after their parents
            visits[node.parent_id or root.id] += visits[node.id]
        return cls(nodes, exploration, ranks, best, visits, parents, sum(ranks.values()), total)

    def value(self, node: NodeView) -> float:
        """Compute the value of `node`: the next expansion goes to the largest."""
        quality = self.best.get(node.id, self.ranks[node.id])
        prior = self.ranks[node.id] / self.ranks_total
        return quality + self.exploration * prior * math.sqrt(1 + self.total) / (1 + self.visits[node.id])

    def visit(self, node: NodeView) -> None:
        """Count an expansion of `node` that is being opened."""
        self.total += 1
        for node_id in self._line(node):
            self.visits[node_id] += 1

    def _line(self, node: NodeView) -> Iterator[str]:
        """Yield `node` and its ancestors."""
        node_id: str | None = node.id
        while node_id is not None:
            yield node_id
            node_id = self.parents[node_id]


def _under_way(turn: Turn) -> set[int]:
    """Return the numbers of the expansions that have not ended."""
    taken_on = {step.node_id for step in turn.carried}
    asked = {node.ideated for node in turn.tree.nodes if node.ideation == "open"}
    worked = {
        node.round
        for node in turn.tree.nodes[1:]
        if node.round > 0 and (node.state in ("coding", "judging") or node.id in taken_on)
    }
    return asked | worked

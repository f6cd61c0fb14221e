"""The idea beam: ideas in prose, code for each, repairs, and the best of a round as parents of the next.

A round is the ideas asked for on its parents, the candidates that realise them, their verdicts and repairs. It closes
when nearly all of its nodes have ended; then the best contender is verified in full, and the search stops or opens
another round. Stragglers go on meanwhile and compete in later rounds. All that a decision needs is read from the tree,
so it is the same whichever process asks, however often.

Rounds are narrow and many: what a round found is worth most as a parent of the next, and few budgets pay for both width
and depth.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.kernels_db.store.lineage import JOINED
from warpsmith.workers.search.fields import number, switch, whole
from warpsmith.workers.search.policy_base import Growth, RoundsPolicy, Turn
from warpsmith.workers.search.ranking import barren, ranked, score, ties
from warpsmith.workers.search.tree import NodeView, Step

MOST_IDEAS = 32
"""Ideas that one request may ask for."""


@dataclass(frozen=True)
class IdeaBeam(RoundsPolicy):
    """Parameters of the idea beam.

    beam: parents of a round, of which `diverse` are the best of techniques that the others do not use. A parent whose
    latest request for ideas brought nothing makes room for the next best, and for the root where there is none.
    ideas, codes: ideas per parent, codes per idea. The root, which replaces a whole beam, is asked for `beam` times
    as many.
    repairs: times a rejected candidate is given back with its failure.
    rounds, max_rounds: rounds played; beyond `rounds` only while the best improves by more than the share
    `improvement`. flat_rounds: rounds without such an improvement after which the search restarts once in unused
    techniques (`restart`), or stops; as many in a row that brought nothing at all do the same, and fewer say nothing of
    progress. stop_fraction: share of the physical limit at which a verified champion ends the search. round_share:
    share of a round's nodes that must have ended before it closes. reflect: from the second round on, the model is
    asked for the meaning of the results before it is asked for ideas. joins: when a round has settled, contenders that
    win on different workloads are joined in one candidate, where that promises more than `improvement`. A join is no
    parent: ideas go to its parts, and a later join takes what came of them. tied: contenders that are verified together
    where they tie with the best, itself included.
    """

    name: ClassVar[str] = "idea_beam"

    beam: int = whole(2, most=64)
    diverse: int = whole(1, least=0, most=63)
    ideas: int = whole(2, most=MOST_IDEAS)
    codes: int = whole(1, most=16)
    repairs: int = whole(3, least=0, most=10)
    rounds: int = whole(40, most=1000)
    max_rounds: int = whole(60, most=1000)
    improvement: float = number(0.02, least=0.0, most=1.0)
    flat_rounds: int = whole(15, most=1000)
    stop_fraction: float = number(0.95, least=0.0, most=1.0, above=True)
    restart: bool = switch(True)
    round_share: float = number(0.9, least=0.5, most=1.0)
    reflect: bool = switch(False)
    joins: bool = switch(False)
    tied: int = whole(2, most=3)

    @property
    def verified_together(self) -> int:
        """Contenders that are verified together where they tie with the best, itself included."""
        return self.tied

    def check(self) -> None:
        """Raise SpecError where two parameters contradict each other."""
        if self.diverse >= self.beam:
            raise SpecError("policy.diverse", self.diverse, f"less than beam, which is {self.beam}")
        if self.max_rounds < self.rounds:
            raise SpecError("policy.max_rounds", self.max_rounds, f"at least rounds, which is {self.rounds}")

    def most_growth(self, seeds: int) -> Growth:
        """Return the growth of `max_rounds` rounds; the first is on the root and on the seeds beside it."""
        root, beside = min(self.beam * self.ideas, MOST_IDEAS), min(self.beam, seeds)
        later = self.beam * (self.max_rounds - 1)
        joins = self.max_rounds if self.joins else 0
        return Growth(1 + beside + later, self.codes * (root + self.ideas * (beside + later)), joins)

    def join(self, turn: Turn) -> list[Step]:
        """Join contenders that win on different workloads."""
        return turn.join(self.improvement) if self.joins else []

    def settled(self, turn: Turn) -> bool:
        """Check whether enough of the latest round's nodes have ended.

        An open request for ideas counts as all the nodes that it may bring.
        """
        taken_on = {step.node_id for step in turn.carried}
        latest = [node for node in turn.tree.nodes if node.round == turn.rounds and node.seq > 0]
        total = len(latest)
        under_way = sum(node.state in ("coding", "judging") or node.id in taken_on for node in latest)
        asked = [node for node in turn.tree.under_way if node.ideation == "open" and node.ideated == turn.rounds]
        awaited = self.codes * sum(self._ideas_on(node) for node in asked)
        total, under_way = total + awaited, under_way + awaited
        return total - under_way >= math.ceil(self.round_share * total - 1e-9)  # 0.9 of 10 is 9

    def stop_reason(self, turn: Turn) -> str | None:
        """Give the reason to stop: the planned rounds are played, or the search stagnates."""
        history = self._history(turn)
        if turn.rounds >= self.max_rounds:
            return f"{turn.rounds} rounds were played"
        if history.flat >= self.flat_rounds and (history.restarted or not self.restart):
            return f"no improvement of more than {self.improvement:.0%} in {history.flat} rounds"
        restarts = history.flat >= self.flat_rounds
        if turn.rounds >= self.rounds and history.flat > 0 and not restarts:
            return f"{turn.rounds} rounds were played, the last improved by {self.improvement:.0%} or less"
        return None

    def grow(self, turn: Turn) -> list[Step]:
        """Open the next round: on the beam, or on the root in unused techniques."""
        restarts = self._history(turn).flat >= self.flat_rounds
        parents = turn.parents([turn.root] if restarts else self.select(self._fertile(turn)))
        techniques = sorted(
            {node.technique for node in turn.tree.nodes if node.technique is not None and node.joins is None}
        )
        opened = turn.rounds + 1
        steps: list[Step] = []
        for node in parents:
            more: dict[str, int | str | None] = {"reflect": 1} if self.reflect and opened > 1 else {}
            if restarts and techniques and node.seq == 0:
                more["technique_not_in"] = ",".join(techniques)
            steps += turn.ask([node], opened, self._ideas_on(node), self.codes, **more)
        return steps

    def _ideas_on(self, parent: NodeView) -> int:
        return self.ideas if parent.seq > 0 else min(self.beam * self.ideas, MOST_IDEAS)

    def _fertile(self, turn: Turn) -> list[NodeView]:
        """Return the contenders that may be parents.

        If there are none, the root is the parent; if the root is barren too, all contenders may be asked again.
        """
        spent = barren(turn.tree.nodes)
        whole = [node for node in turn.contenders if node.origin != JOINED]
        fertile = [node for node in whole if node.id not in spent]
        return whole if not fertile and turn.root.id in spent else fertile

    def select(self, contenders: list[NodeView]) -> list[NodeView]:
        """Choose the beam from `contenders`, which come best first.

        The fastest `beam - diverse`, then the best of techniques not yet among them, or the next fastest.
        """
        chosen = contenders[: self.beam - self.diverse]
        rest = contenders[self.beam - self.diverse :]
        while rest and len(chosen) < self.beam:
            used = {node.technique for node in chosen}
            best = next((node for node in rest if node.technique not in used), rest[0])
            chosen.append(best)
            rest.remove(best)
        return chosen

    def _history(self, turn: Turn) -> History:
        """Summarise the rounds from today's contenders; a straggler counts for its own round."""
        best_of: dict[int, NodeView] = {}
        for node in turn.contenders:
            best_of.setdefault(node.round, node)  # contenders come best first
        # Asking the root again while contenders exist counts as a restart. Without contenders the root is asked every
        # round, and the restart is where it would have been.
        asked_again = turn.root.ideated if turn.root.ideated > 1 else 0
        restart = asked_again if any(played < asked_again for played in best_of) else 0
        best: NodeView | None = best_of.get(0)
        fruitful = {node.round for node in turn.tree.nodes if node.state != "closed" and node.joins is None}
        flat = empty = 0
        for played in range(1, turn.rounds + 1):
            if played == restart:
                flat = empty = 0
            elif max(flat, empty) >= self.flat_rounds and self.restart and not restart:
                flat, empty, restart = 0, 0, played
            found = best_of.get(played)
            empty = 0 if played in fruitful else empty + 1
            if self._improves(found, best):
                flat = 0
            elif not empty:
                flat += 1
            best = next(iter(ranked(node for node in (best, found) if node is not None)), None)
        return History(max(flat, empty), restart > 0)

    def _improves(self, found: NodeView | None, best: NodeView | None) -> bool:
        if found is None or best is None:
            return found is not None
        return score(found) > score(best) * (1.0 + self.improvement) and not ties(found, best)


@dataclass(frozen=True)
class History:
    """The progress of a search's rounds.

    flat: how many of the last rounds brought no improvement, or nothing at all, whichever is more; counted from the
    start or the restart. restarted: the forced restart has been played.
    """

    flat: int
    restarted: bool

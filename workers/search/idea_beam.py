"""The idea beam: ideas in prose, code for each, repairs, and the best of a round as parents of the next.

A round is the ideas asked for on its parents, the candidates that realise them, their verdicts and repairs. It is
complete when every node has ended; then its best contender is verified in full, and the search stops or opens another
round. All that a decision needs is read from the tree, so it is the same whichever process asks, however often.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from kernels_db.spec_errors import SpecError
from workers.search.budget import Allowance, allowance, out_of_time
from workers.search.fields import number, switch, whole
from workers.search.tree import Budget, NodeView, Spend, Step, Tree

CREDIBLE_FRACTION = 1.1
"""Nothing is faster than the physical limit: a share well above 1 says that the limit was measured wrong, and ends
nothing."""


@dataclass(frozen=True)
class IdeaBeam:
    """Parameters of the idea beam.

    beam: parents of a round, of which `diverse` are the best of techniques that the others do not use.
    ideas, codes: ideas per parent, codes per idea.
    repairs: times a rejected candidate is given back with its failure.
    rounds, max_rounds: rounds played; beyond `rounds` only while the best improves by more than the share
    `improvement`. flat_rounds: rounds without such an improvement after which the search restarts once in unused
    techniques (`restart`), or stops. stop_fraction: share of the physical limit at which a verified champion ends the
    search.
    """

    name: ClassVar[str] = "idea_beam"

    beam: int = whole(4, most=64)
    diverse: int = whole(1, least=0, most=63)
    ideas: int = whole(4, most=32)
    codes: int = whole(2, most=16)
    repairs: int = whole(3, least=0, most=10)
    rounds: int = whole(5, most=100)
    max_rounds: int = whole(8, most=100)
    improvement: float = number(0.02, least=0.0, most=1.0)
    flat_rounds: int = whole(2, most=100)
    stop_fraction: float = number(0.95, least=0.0, most=1.0, above=True)
    restart: bool = switch(True)

    def check(self) -> None:
        """Raise SpecError where two parameters contradict each other."""
        if self.diverse >= self.beam:
            raise SpecError("policy.diverse", self.diverse, f"less than beam, which is {self.beam}")
        if self.max_rounds < self.rounds:
            raise SpecError("policy.max_rounds", self.max_rounds, f"at least rounds, which is {self.rounds}")

    def steps(self, tree: Tree, budget: Budget, spend: Spend) -> list[Step]:
        """See `policy.next_steps`."""
        root = tree.nodes[0]
        if root.state != "judged" or root.verdict != "accepted":
            return _root_steps(root)
        allowed = allowance(tree, budget, spend)
        late = out_of_time(budget, spend)
        steps = [step for node in tree.nodes[1:] if (step := self._node_step(node, allowed, late)) is not None]
        if steps or any(is_open(node) for node in tree.nodes):
            return steps
        contenders = ranked(tree.nodes[1:])
        if contenders and contenders[0].verification == "none" and not _is_known(contenders):
            return [Step("verify", contenders[0].id, ordinal=contenders[0].repairs)]
        reason = allowed.spent or allowed.reason or self._stop_reason(tree, contenders)
        if reason is not None:
            return [Step("stop", reason=reason)]
        return self._open_round(tree, contenders, allowed) or [Step("stop", reason=allowed.reason)]

    def _node_step(self, node: NodeView, allowed: Allowance, late: bool) -> Step | None:
        """The step that takes `node` on; None where it has ended, is open, or the budget refuses."""
        if is_open(node):
            return None
        if node.state == "coded" and not late:
            return Step("judge", node.id, ordinal=node.repairs)
        rejected = node.state == "judged" and node.verdict == "rejected" and node.repairs < self.repairs
        if node.state == "planned" or rejected:
            calls = allowed.calls_for_step(candidates=1)
            if calls is not None:
                return Step("code", node.id, ordinal=node.repairs + 1 if rejected else 0, params={"calls": calls})
        return None

    def _stop_reason(self, tree: Tree, contenders: list[NodeView]) -> str | None:
        verified = champion(contenders)
        reached = verified.limit_fraction if verified is not None else None
        if reached is not None and self.stop_fraction <= reached <= CREDIBLE_FRACTION:
            return f"the champion reaches {reached:.0%} of the physical limit"
        history = self._history(tree, contenders)
        if history.rounds >= self.max_rounds:
            return f"{history.rounds} rounds were played"
        if history.flat >= self.flat_rounds and (history.restarted or not self.restart):
            return f"no improvement of more than {self.improvement:.0%} in {history.flat} rounds"
        restarts = history.flat >= self.flat_rounds
        if history.rounds >= self.rounds and history.flat > 0 and not restarts:
            return f"{history.rounds} rounds were played, the last improved by {self.improvement:.0%} or less"
        return None

    def _open_round(self, tree: Tree, contenders: list[NodeView], allowed: Allowance) -> list[Step]:
        """The requests for ideas of the next round, best parent first, as far as the budget goes."""
        history = self._history(tree, contenders)
        restarts = history.flat >= self.flat_rounds
        parents = [] if restarts else self.select(contenders)
        params: dict[str, int | str | None] = {"ideas": self.ideas, "codes": self.codes, "round": history.rounds + 1}
        techniques = sorted({node.technique for node in tree.nodes if node.technique is not None})
        if restarts and techniques:
            params["technique_not_in"] = ",".join(techniques)
        steps = []
        for parent in parents or [tree.nodes[0]]:
            calls = allowed.calls_for_step(candidates=0)
            if calls is None:
                break
            steps.append(Step("ideate", parent.id, ordinal=history.rounds + 1, params={**params, "calls": calls}))
        return steps

    def select(self, contenders: list[NodeView]) -> list[NodeView]:
        """The beam from `contenders`, best first: the fastest `beam - diverse`, then the best of techniques not yet
        among them; where there are no more techniques, the next fastest."""
        chosen = contenders[: self.beam - self.diverse]
        rest = contenders[self.beam - self.diverse :]
        while rest and len(chosen) < self.beam:
            used = {node.technique for node in chosen}
            best = next((node for node in rest if node.technique not in used), rest[0])
            chosen.append(best)
            rest.remove(best)
        return chosen

    def _history(self, tree: Tree, contenders: list[NodeView]) -> History:
        """How the complete rounds went, as the contenders of today tell it."""
        rounds = max(max(node.round, node.ideated) for node in tree.nodes)
        best_of: dict[int, NodeView] = {}
        for node in contenders:
            best_of.setdefault(node.round, node)  # contenders come best first
        best: NodeView | None = None
        flat, restarted = 0, False
        for played in range(1, rounds + 1):
            if flat >= self.flat_rounds and self.restart and not restarted:
                flat, restarted = 0, True
            found = best_of.get(played)
            flat = 0 if self._improves(found, best) else flat + 1
            best = next(iter(ranked(node for node in (best, found) if node is not None)), None)
        return History(rounds, flat, restarted)

    def _improves(self, found: NodeView | None, best: NodeView | None) -> bool:
        if found is None or best is None:
            return found is not None
        return score(found) > score(best) * (1.0 + self.improvement) and not ties(found, best)


@dataclass(frozen=True)
class History:
    """rounds: rounds opened so far. flat: how many of the last brought no improvement, counted from the start or the
    restart. restarted: the forced restart has been played."""

    rounds: int
    flat: int
    restarted: bool


def is_open(node: NodeView) -> bool:
    """An attempt is under way for `node`."""
    return node.state in ("coding", "judging") or node.ideation == "open" or node.verification == "open"


def score(node: NodeView) -> float:
    """The node's speed-up over the fastest baseline; 0 where there is none."""
    return node.score if node.score is not None else 0.0


def is_contender(node: NodeView) -> bool:
    """Accepted, with a score, and not failed in verification."""
    accepted = node.state == "judged" and node.verdict == "accepted" and node.score is not None
    return accepted and node.verification != "failed"


def ranked(nodes: Iterable[NodeView]) -> list[NodeView]:
    """The contenders of `nodes`, best first; of equal scores the older."""
    return sorted((node for node in nodes if is_contender(node)), key=lambda node: (-score(node), node.seq))


def champion(contenders: list[NodeView]) -> NodeView | None:
    """The best verified one."""
    return next((node for node in contenders if node.verification == "passed"), None)


def _is_known(contenders: list[NodeView]) -> bool:
    """The best contender ties with the champion, which is verified already: a full verification would not tell them
    apart, and the best of many short timings is flattered by luck."""
    verified = champion(contenders)
    return verified is not None and ties(contenders[0], verified)


def ties(one: NodeView, other: NodeView) -> bool:
    """Each one's score lies within the other's noise interval: neither is faster."""
    return _within(one, other) and _within(other, one)


def _within(node: NodeView, interval: NodeView) -> bool:
    if interval.ci_low is None or interval.ci_high is None:
        return False
    return interval.ci_low <= score(node) <= interval.ci_high


def _root_steps(root: NodeView) -> list[Step]:
    if is_open(root):
        return []
    if root.state in ("planned", "coded"):
        return [Step("judge", root.id)]
    found = f"{root.verdict or root.state} at {root.gate or 'no gate'}"
    return [Step("stop", reason=f"the op was not admitted: {found}")]

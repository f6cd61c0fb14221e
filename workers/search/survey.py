"""The survey: breadth rather than the best, for recording pools from which other policies can be replayed.

A policy that exploits leaves no trace of what its other parents would have brought. The survey asks the reference for
many ideas, and then builds on good, middling and poor candidates alike, so that a policy which would have chosen any of
them finds recorded replies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from workers.search.budget import Allowance, allowance, out_of_time
from workers.search.fields import whole
from workers.search.idea_beam import _root_steps, is_open, ranked
from workers.search.tree import Budget, NodeView, Spend, Step, Tree


@dataclass(frozen=True)
class Survey:
    """Parameters of the survey.

    root_ideas, root_codes: ideas asked for on the reference, codes for each. parents: candidates that a later round
    builds on, half of them the best, the others spread over the rest by rank. ideas, codes: ideas per parent, codes per
    idea. repairs: times a rejected candidate is given back. rounds: rounds played.
    """

    name: ClassVar[str] = "survey"

    root_ideas: int = whole(10, most=32)
    root_codes: int = whole(2, most=16)
    parents: int = whole(12, most=64)
    ideas: int = whole(2, most=32)
    codes: int = whole(1, most=16)
    repairs: int = whole(1, least=0, most=10)
    rounds: int = whole(3, most=100)

    def check(self) -> None:
        """Nothing here contradicts."""

    def steps(self, tree: Tree, budget: Budget, spend: Spend) -> list[Step]:
        """See `policy.next_steps`."""
        root = tree.nodes[0]
        if root.state != "judged" or root.verdict != "accepted":
            return _root_steps(root)
        allowed, late = allowance(tree, budget, spend), out_of_time(budget, spend)
        steps = [step for node in tree.nodes[1:] if (step := self._node_step(node, allowed, late)) is not None]
        if steps or any(is_open(node) for node in tree.nodes):
            return steps
        played = max(max(node.round, node.ideated) for node in tree.nodes)
        reason = allowed.spent or allowed.reason or (f"{played} rounds were played" if played >= self.rounds else None)
        if reason is None:
            steps = self._open_round(tree, played + 1, allowed)
            reason = allowed.reason or "no candidate is left to build on"
        contenders = ranked(tree.nodes[1:])
        if not steps and contenders and contenders[0].verification == "none":
            return [Step("verify", contenders[0].id, ordinal=contenders[0].repairs)]
        return steps or [Step("stop", reason=reason)]

    def _node_step(self, node: NodeView, allowed: Allowance, late: bool) -> Step | None:
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

    def _open_round(self, tree: Tree, number: int, allowed: Allowance) -> list[Step]:
        """The requests for ideas of round `number`, as far as the budget goes."""
        parents = [tree.nodes[0]] if number == 1 else self.select(tree)
        ideas, codes = (self.root_ideas, self.root_codes) if number == 1 else (self.ideas, self.codes)
        steps = []
        for parent in parents:
            calls = allowed.calls_for_step(candidates=0)
            if calls is None:
                break
            params: dict[str, int | str | None] = {"ideas": ideas, "codes": codes, "round": number, "calls": calls}
            steps.append(Step("ideate", parent.id, ordinal=number, params=params))
        return steps

    def select(self, tree: Tree) -> list[NodeView]:
        """The parents of the next round among the candidates that were none yet: the best, and some spread evenly over
        the others by rank."""
        fresh = [node for node in ranked(tree.nodes[1:]) if node.ideated == 0 and node.mark != "banned"]
        best = fresh[: (self.parents + 1) // 2]
        rest = fresh[len(best) :]
        wanted = min(self.parents - len(best), len(rest))
        return best + [rest[(2 * place + 1) * len(rest) // (2 * wanted)] for place in range(wanted)]

"""One turn of a search, common to all policies.

Nodes are carried on, the best is verified, and the tree grows or stops. A policy adds when its rounds settle, which
nodes it builds on, and when it stops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import Field, dataclass
from typing import Any, ClassVar

from warpsmith.kernels_db.store.lineage import JOINED
from warpsmith.workers.search.budget import Allowance, allowance
from warpsmith.workers.search.joining import find_join, read_parts
from warpsmith.workers.search.ranking import at_limit, is_known, is_open, pinned, ranked, ties
from warpsmith.workers.search.tree import Budget, NodeView, Spend, Step, Tree

MOST_PINNED = 8
"""Pinned parents of a round beyond those that the policy chose itself."""

NOTHING_LEFT = "nothing is left to build on"


@dataclass(frozen=True)
class Growth:
    """A limit to the growth of a tree, whatever the model answers and the judge finds.

    requests: requests for ideas. nodes: nodes for which code is asked, those whose idea turns out a repetition too.
    joins: candidates that are put together from others without a call.
    """

    requests: int
    nodes: int
    joins: int = 0


@dataclass(frozen=True)
class Turn:
    """The facts that a policy decides by.

    carried: the steps that take nodes on, already granted. contenders: best first. rounds: rounds opened so far.
    any_open: an attempt is under way. verifying: a verification is.
    """

    tree: Tree
    allowed: Allowance
    carried: list[Step]
    contenders: list[NodeView]
    rounds: int
    any_open: bool
    verifying: bool

    @property
    def root(self) -> NodeView:
        """The reference with its baselines."""
        return self.tree.nodes[0]

    @property
    def idle(self) -> bool:
        """No node is under way, and none can be taken on."""
        return not self.any_open and not self.carried

    def verification(self) -> Step | None:
        """Open the full verification of the best contender.

        None while it waits for another or is not worth it.
        """
        if not self.contenders or self.verifying:
            return None
        best = self.contenders[0]
        if best.verification != "none" or is_open(best) or is_known(self.contenders):
            return None
        return Step("verify", best.id, ordinal=best.repairs)

    def verifications(self, most: int) -> list[Step]:
        """Open the full verification of the best contender, and with it of those that tie with it: `most` in all.

        Of short timings that tie the luckiest leads; full ones tell them apart. Out of time, only the best is.
        """
        first = self.verification()
        if first is None:
            return []
        room = 0 if self.allowed.late else int(min(most - 1, max(self.allowed.screens - 1, 0)))
        best, *others = self.contenders
        tied = [node for node in others if node.verification == "none" and not is_open(node) and ties(node, best)]
        return [first, *(Step("verify", node.id, ordinal=node.repairs) for node in tied[:room])]

    def parents(self, chosen: Sequence[NodeView]) -> list[NodeView]:
        """Return the parents of the next round.

        The root in the first round and where nothing was chosen, then the chosen, then the nodes that a person pinned.
        A node whose attempt is open is left out.
        """
        wanted = {node.id: node for node in ([] if chosen and self.rounds else [self.root])}
        wanted |= {node.id: node for node in chosen}
        others = [node for node in pinned(self.tree.nodes) if node.id not in wanted]
        return [node for node in [*wanted.values(), *others[:MOST_PINNED]] if not is_open(node)]

    def ask(
        self, parents: Iterable[NodeView], number: int, ideas: int, codes: int, **more: int | str | None
    ) -> list[Step]:
        """Request ideas for round `number`, in the order of `parents`, as far as the budget goes."""
        steps = []
        for parent in parents:
            calls = self.allowed.calls_for_step(candidates=0)
            if calls is None:
                break
            params = {"ideas": ideas, "codes": codes, "round": number, **more, "calls": calls}
            steps.append(Step("ideate", parent.id, ordinal=number, params=params))
        return steps

    def join(self, least_gain: float) -> list[Step]:
        """Put one candidate together from contenders that win on different workloads, where that promises a gain.

        At most one in a round, none twice, and as far as the budget lets it be screened.
        """
        mine = [node for node in self.tree.nodes if node.joins is not None]
        if self.rounds == 0 or any(node.round == self.rounds for node in mine):
            return []
        found = find_join(self.contenders, least_gain)
        if found is None:
            return []
        asked = [set(read_parts(node.joins)) for node in mine if node.joins is not None]
        if {part.seq for part in found.parts} in asked or not self.allowed.screen():
            return []
        params: dict[str, int | str | None] = {"parts": found.key, "round": self.rounds}
        return [Step("join", found.parts[0].id, ordinal=self.rounds, params=params)]

    def plant(self, parents: Iterable[NodeView], number: int, codes: int) -> list[Step]:
        """Plant nodes without an idea: `codes` under each of `parents` in round `number`.

        As many as the budget lets code.
        """
        steps = []
        for parent in parents:
            granted = 0
            while granted < codes and self.allowed.calls_for_step(candidates=1) is not None:
                granted += 1
            if granted:
                steps.append(Step("plant", parent.id, ordinal=number, params={"codes": granted, "round": number}))
        return steps


def look(tree: Tree, allowed: Allowance, repairs: int) -> Turn:
    """Build the turn of `tree`; a rejected candidate is repaired at most `repairs` times."""
    return Turn(
        tree=tree,
        allowed=allowed,
        carried=carry_on(tree.nodes[1:], allowed, repairs),
        contenders=ranked(tree.nodes[1:]),
        rounds=tree.rounds,
        any_open=bool(tree.under_way),
        verifying=any(node.verification == "open" for node in tree.under_way),
    )


def carry_on(nodes: Sequence[NodeView], allowed: Allowance, repairs: int) -> list[Step]:
    """Return the steps that take `nodes` on, as far as the budget goes.

    Written candidates are judged first; then code and repairs are asked for.
    """
    waiting = [node for node in nodes if node.state in ("coded", "planned") or _is_repairable(node, repairs)]
    steps = []
    for node in waiting:
        if node.state != "coded" or is_open(node):
            continue
        if allowed.screen():
            steps.append(Step("judge", node.id, ordinal=node.repairs))
        else:
            allowed.keep_place()
    for node in waiting:
        rejected = node.state == "judged" and _is_repairable(node, repairs)
        if (node.state == "planned" or rejected) and not is_open(node):
            calls = allowed.calls_for_step(candidates=1)
            if calls is not None:
                ordinal = node.repairs + 1 if rejected else 0
                steps.append(Step("code", node.id, ordinal=ordinal, params={"calls": calls}))
    return steps


def _is_repairable(node: NodeView, repairs: int) -> bool:
    """Check whether the model may repair a rejected candidate; a join is not its work."""
    return node.verdict == "rejected" and node.repairs < repairs and node.origin != JOINED


class TreePolicy(ABC):
    """Base of policies: a frozen dataclass of parameters, a name, a pure function of the tree.

    Guarantees of every policy, for all outcomes and whenever a person marks or adds nodes:

    - A call on an unchanged tree gives the same steps: no clock, no I/O, no state, no luck but by a parameter.
    - No step for a node whose attempt is open, and none for a banned node (`policy.next_steps` shows it as closed).
    - Nothing beside the baselines, until they are measured; but where they travel in a bundle the first round.
    - No set of open steps may exceed the candidates and model calls of the budget.
    - `stop` comes after finitely many steps, alone in its list, and when nothing is open. The best contender is then
      verified, or ties with one that is, unless nothing could be verified.

    A policy that is not `eager` grows when its round has settled and its best is verified; an eager one grows beside
    the open steps.
    """

    name: ClassVar[str]
    eager: ClassVar[bool] = False
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    @abstractmethod
    def repairs(self) -> int:
        """Times that a rejected candidate is given back with its failure."""

    @property
    def verified_together(self) -> int:
        """Contenders that are verified together where they tie with the best, itself included."""
        return 1

    @abstractmethod
    def most_growth(self, seeds: int) -> Growth:
        """Return how far a tree that starts with `seeds` candidates may grow, if nobody marks or adds nodes."""

    @abstractmethod
    def stop_reason(self, turn: Turn) -> str | None:
        """Say why the tree grows no further; None while it does."""

    @abstractmethod
    def grow(self, turn: Turn) -> list[Step]:
        """Open the next round, as far as the budget goes; empty where no parent is free."""

    def check(self) -> None:  # noqa: B027 - most have nothing to check
        """Raise SpecError where two parameters contradict each other."""

    def join(self, turn: Turn) -> list[Step]:
        """Open what is to be put together from the contenders of a round that has settled; nothing by default."""
        del turn
        return []

    def settled(self, turn: Turn) -> bool:
        """Check whether the round is over, so that the best may be verified.

        True whenever the turn is idle.
        """
        return turn.idle

    def enough(self, turn: Turn) -> str | None:
        """Give the reason to open nothing more at all, whatever is left to do; None by default."""
        del turn
        return None

    def steps(self, tree: Tree, budget: Budget, spend: Spend) -> list[Step]:
        """See `policy.next_steps`."""
        root = tree.nodes[0]
        if root.state == "judging" and tree.baselines_away:
            return self._steps_without_baselines(tree, budget, spend)
        if root.state != "judged" or root.verdict != "accepted":
            return _root_steps(root)
        turn = look(tree, allowance(tree, budget, spend), self.repairs)
        enough = self.enough(turn)
        if enough is not None:
            return [] if turn.any_open else [turn.verification() or Step("stop", reason=enough)]
        steps, settled = list(turn.carried), self.settled(turn)
        joined = self.join(turn) if settled else []
        if joined:
            return [*steps, *joined]
        verifications = turn.verifications(self.verified_together) if settled else []
        steps += verifications
        reason = turn.allowed.spent or turn.allowed.reason
        if reason is None and (self.eager or (settled and not verifications and not turn.verifying)):
            reason = self.stop_reason(turn)
            if reason is None:
                steps += self.grow(turn)
                reason = turn.allowed.reason or NOTHING_LEFT
        if steps or turn.any_open:
            return steps
        return [Step("stop", reason=reason)]

    def _steps_without_baselines(self, tree: Tree, budget: Budget, spend: Spend) -> list[Step]:
        """Return the steps of the first round, and none of a later one, while the baselines travel.

        A trip with a bundle costs more than ideas that know no measured number. The round waits for seeds as it does
        where the baselines are measured: they are its parents. Nothing is verified, and nothing ends: the root's own
        step is open.
        """
        root = tree.nodes[0]._replace(state="judged", verdict="accepted")
        shown = Tree([root, *tree.nodes[1:]])
        turn = look(shown, allowance(shown, budget, spend), self.repairs)
        if turn.rounds or turn.allowed.spent or turn.allowed.reason or not (self.eager or self.settled(turn)):
            return turn.carried
        return [*turn.carried, *self.grow(turn)]


class RoundsPolicy(TreePolicy):
    """Base of policies that play a number of `rounds`.

    They stop early where a verified champion reaches the share `stop_fraction` of the physical limit.
    Both are fields of the dataclass that extends it.
    """

    rounds: int
    stop_fraction: float

    def enough(self, turn: Turn) -> str | None:
        """Give the reason to stop when the champion is as fast as the hardware allows."""
        return at_limit(turn.contenders, self.stop_fraction)

    def stop_reason(self, turn: Turn) -> str | None:
        """Give the reason to stop when the rounds are played."""
        return f"{turn.rounds} rounds were played" if turn.rounds >= self.rounds else None


def _root_steps(root: NodeView) -> list[Step]:
    if is_open(root):
        return []
    if root.state in ("planned", "coded"):
        return [Step("judge", root.id)]
    found = f"{root.verdict or root.state} at {root.gate or 'no gate'}"
    return [Step("stop", reason=f"the op was not admitted: {found}")]

"""Forecast the calls and candidates of a search by a play on assumed outcomes. Pure.

The policy itself is asked, so every policy is forecast, under its parameters and its budget. The play is the expected
course; `warpsmith.workers.llm.bound` has the worst. Neither says anything of speed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from warpsmith.workers.llm.reply.techniques import TECHNIQUES
from warpsmith.workers.search.budget import exhausted
from warpsmith.workers.search.policy import Policy, next_steps
from warpsmith.workers.search.tree import Budget, NodeView, Spend, Step, Tree, planned

REPAIRS_OF_TEN = (0, 0, 0, 0, 0, 0, 1, 1, 2, None)
"""Expected repairs, of ten candidates: six are right at once, three later, one never.

Three take a repair or two. With execution feedback models reach about six in ten at the first try and seven with a
profile (public studies of kernel generation).
"""

REASK_EVERY = 20
"""Expected: one step in so many needs a second call, because its reply cannot be read."""

GAIN, GAINING_ROUNDS = 1.05, 5
"""Expected: each of so many rounds makes the best faster by this factor; later ones do not."""

MOST_NODES = 20_000
MOST_VISITS = 3_000_000
"""Limits of a play: its nodes, and the nodes that its policy reads in all.

Reading takes a second or two. A larger play is cut short.
"""


@dataclass(frozen=True)
class CallSize:
    """One call: tokens of its prompt and its reply, and US dollars.

    None where a price is not known.
    """

    prompt: int
    completion: int
    cost_usd: float | None


@dataclass
class Play:
    """One play of a policy.

    `calls` by kind of request; `reason` says why it ended; `complete` is False where it was cut short for its size: the
    search may then take more.
    """

    policy: Policy
    budget: Budget
    sizes: Mapping[str, CallSize]
    nodes: list[NodeView] = field(default_factory=list)
    spend: Spend = field(default_factory=Spend)
    calls: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    steps: int = 0
    reason: str = ""
    complete: bool = True

    def run(self) -> Play:
        """Play to the end; returns itself.

        Limits of time and of the device are not played: they are not known yet.
        """
        self.budget = replace(self.budget, wall_clock_s=None, gpu_seconds=None)
        self.nodes = [planned("nd_0", 0, None, 0, None)._replace(state="judged", verdict="accepted")]
        visits = 0
        while True:
            visits += len(self.nodes)
            if visits > MOST_VISITS or len(self.nodes) > MOST_NODES:
                self.complete = False
                self.reason = f"not played beyond {len(self.nodes)} nodes"
                return self
            steps = next_steps(Tree(self.nodes), self.policy, self.budget, self.spend)
            if not steps or steps[0].kind == "stop":
                self.reason = (steps[0].reason if steps else None) or "nothing more is asked for"
                return self
            for step in steps:
                self._do(step)

    def _do(self, step: Step) -> None:
        seq = next(seq for seq, node in enumerate(self.nodes) if node.id == step.node_id)
        node = self.nodes[seq]
        match step.kind:
            case "ideate":
                self.nodes[seq] = node._replace(ideation="done", ideated=step.ordinal)
                calls = self._needed(step)
                # A reflection takes one of the step's calls where it has two, once there is something to reflect on.
                if step.params.get("reflect") and self.spend.candidates and int(step.params.get("calls") or 1) > 1:
                    calls = max(1, calls - 1) if self._ask("reflect", 1) else 0
                if calls and self._ask("ideate", calls):
                    self._plan(node, step, int(step.params["ideas"] or 0), int(step.params["codes"] or 0))
            case "plant":
                self.nodes[seq] = node._replace(ideated=max(node.ideated, step.ordinal))
                self._plan(node, step, 1, int(step.params["codes"] or 0))
            case "code":
                written = self._ask("repair" if step.ordinal else "code", self._needed(step))
                self.nodes[seq] = node._replace(
                    state="coded" if written else "closed", repairs=step.ordinal, verification="none"
                )
            case "judge":
                self.spend = replace(self.spend, candidates=self.spend.candidates + 1)
                self.nodes[seq] = self._judged(node)
            case "verify":
                self.nodes[seq] = node._replace(verification="passed")

    def _needed(self, step: Step) -> int:
        """Return the calls that the step takes."""
        self.steps += 1
        return min(int(step.params.get("calls") or 1), 2 if self.steps % REASK_EVERY == 0 else 1)

    def _ask(self, kind: str, calls: int) -> bool:
        """Make the calls of `kind`; False where a cap refuses one, as it would in the search."""
        for _ in range(calls):
            if exhausted(replace(self.budget, candidates=None), self.spend) is not None:
                return False
            size = self.sizes[kind]
            self.calls[kind] += 1
            self.prompt_tokens += size.prompt
            self.completion_tokens += size.completion
            self.spend = replace(
                self.spend,
                model_calls=self.spend.model_calls + 1,
                tokens=self.spend.tokens + size.prompt + size.completion,
                cost_usd=self.spend.cost_usd + (size.cost_usd or 0.0),
            )
        return True

    def _plan(self, parent: NodeView, step: Step, ideas: int, codes: int) -> None:
        avoided = str(step.params.get("technique_not_in") or "").split(",")
        techniques = [name for name in TECHNIQUES if name not in avoided] or list(TECHNIQUES)
        for number in range(ideas):
            technique = None if step.kind == "plant" else techniques[(len(self.nodes) + number) % len(techniques)]
            for _ in range(codes):
                seq = len(self.nodes)
                self.nodes.append(planned(f"nd_{seq}", seq, parent.id, step.ordinal, technique))

    def _judged(self, node: NodeView) -> NodeView:
        wrong = REPAIRS_OF_TEN[node.seq % 10]
        if wrong is None or node.repairs < wrong:
            return node._replace(state="judged", verdict="rejected", gate="screen")
        gain = GAIN ** min(node.round, GAINING_ROUNDS)
        score = gain * (1.0 - 1e-9 * node.seq)  # no two alike
        return node._replace(
            state="judged", verdict="accepted", gate="time", score=score, ci_low=score * 0.999, ci_high=score * 1.001
        )

"""Plays one search under a policy, in memory, against a world that answers all requests.

The world answers for the model and the judge. The tree changes as `workers.steps` changes it: ideas that were
tried are closed, a source that was seen closes its node, a rejected candidate may be repaired. Steps are done
one at a time in the order in which they were opened, and the policy is asked after each, as a single worker
would. The play ends at its model cost to the call, so that two policies are compared for the same money.

A candidate on which the world has nothing recorded is no contender in the policy's eyes: every choice that the policy
has is one that can be answered. It counts as found all the same.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Protocol, TypeVar

from benchmarks.policies.outcomes import Outcome
from benchmarks.policies.recording import price
from warpsmith.kernels_db.store.lineage import JOINED
from warpsmith.workers.search.dedup import idea_digest
from warpsmith.workers.search.joining import read_parts, winners, write_speedups
from warpsmith.workers.search.policy import Policy, next_steps
from warpsmith.workers.search.tree import Budget, NodeView, Spend, Step, Tree, planned

MOST_STEPS = 20_000
Z95 = 1.96


@dataclass(frozen=True)
class Proposal:
    """An idea as a policy sees it; `key` is the world's own."""

    technique: str
    digest: str
    key: Any


C = TypeVar("C")


@dataclass(frozen=True)
class Answer(Generic[C]):
    """A world's answer: the tokens that it cost, and the result (None: could not be read)."""

    prompt_tokens: int
    reply_tokens: int
    content: C | None


class World(Protocol):
    """Answers for the model and the judge. None means that no answer was recorded."""

    def ideas(self, parent: Any, count: int, avoid: Sequence[str]) -> Answer[list[Proposal]] | None:
        """Return up to `count` ideas on `parent` (None: the reference) that were not given before."""

    def code(self, parent: Any, proposal: Proposal | None, variant: int) -> Answer[Any] | None:
        """Return a candidate for a proposal, or for none at all."""

    def repair(self, candidate: Any) -> Answer[Any] | None:
        """Return a candidate in place of a rejected one."""

    def kept(self, candidate: Any) -> bool:
        """Check whether ideas on the candidate are available at all."""

    def digest(self, candidate: Any) -> str:
        """Return the digest that tells one source from another."""

    def outcome(self, candidate: Any) -> Outcome:
        """Return the candidate's true outcome."""

    def joined(self, chosen: Mapping[str, Any]) -> Any:
        """Return the candidate that runs each bench workload as the one does that is chosen for it."""


@dataclass(frozen=True)
class Found:
    """A point of the best-so-far curve.

    After `cost_usd` the champion's true speed-up was `best`.
    """

    cost_usd: float
    calls: int
    candidates: int
    best: float


@dataclass
class Played:
    """A finished play."""

    curve: list[Found]
    reason: str
    asked: int = 0
    unanswered: int = 0

    def best_at(self, cost_usd: float) -> float:
        """Return the champion's true speed-up at a cost; 1 where none beat a baseline."""
        best = 1.0
        for found in self.curve:
            if found.cost_usd > cost_usd + 1e-12:
                break
            best = found.best
        return max(best, 1.0)


@dataclass
class Play:
    """One play, as the module says. `most_usd`: the model's largest cost."""

    policy: Policy
    world: World
    most_usd: float
    luck: random.Random
    nodes: list[NodeView] = field(default_factory=list)
    spend: Spend = field(default_factory=Spend)
    proposals: dict[str, Proposal | None] = field(default_factory=dict)
    variants: dict[str, int] = field(default_factory=dict)
    candidates: dict[str, Any] = field(default_factory=dict)
    played: Played = field(default_factory=lambda: Played([], ""))
    _believed: dict[str, float] = field(default_factory=dict)
    _requests: set[tuple[str, str, int]] = field(default_factory=set)
    _digests: set[str] = field(default_factory=set)
    _ideas: set[str] = field(default_factory=set)

    def run(self) -> Played:
        """Play to the policy's stop or the end of the money."""
        self.nodes = [planned("n0", 0, None, 0, None)._replace(state="judged", verdict="accepted", gate="time")]
        waiting: deque[Step] = deque()
        budget = Budget(cost_usd=self.most_usd)
        for _ in range(MOST_STEPS):
            steps = next_steps(Tree(list(self.nodes)), self.policy, budget, self.spend)
            if steps and steps[0].kind == "stop":
                self.played.reason = steps[0].reason or "stop"
                return self.played
            for step in steps:
                if step.kind == "plant":
                    self._plant(step)
                elif step.kind == "join":
                    self._join(step)
                else:
                    self._open(step)
                    waiting.append(step)
            if any(step.kind in ("plant", "join") for step in steps):
                continue  # what was planted can be coded at once, and what was joined be judged
            if not waiting:
                self.played.reason = "the policy asked for nothing more"
                return self.played
            self._end(waiting.popleft())
            if self.spend.cost_usd >= self.most_usd:
                self.played.reason = "the money is spent"
                return self.played
        self.played.reason = f"{MOST_STEPS} steps were done"
        return self.played

    def _at(self, step: Step) -> NodeView:
        return self.nodes[int(str(step.node_id)[1:])]

    def _change(self, node: NodeView, **changes: Any) -> None:
        self.nodes[node.seq] = self.nodes[node.seq]._replace(**changes)

    def _open(self, step: Step) -> None:
        node = self._at(step)
        match step.kind:
            case "ideate":
                self._change(node, ideation="open", ideated=step.ordinal)
            case "code":
                self._change(node, state="coding", repairs=step.ordinal, verification="none")
            case "judge":
                self._change(node, state="judging")
            case "verify":
                self._change(node, verification="open")

    def _end(self, step: Step) -> None:
        node = self._at(step)
        match step.kind:
            case "ideate":
                self._propose(node, step)
            case "code":
                self._write(node, step)
            case "judge":
                self._judge(node)
            case "verify":
                measured = self._measured(self.world.outcome(self.candidates[node.id]))
                self._believed[node.id] = measured["score"] or 0.0
                self._change(node, verification="passed", **measured)

    def _plant(self, step: Step) -> None:
        node = self._at(step)
        self._change(node, ideated=step.ordinal)
        for _ in range(int(step.params["codes"] or 1)):
            self._plan(node, step.ordinal, None)

    def _join(self, step: Step) -> None:
        """Put a candidate together of those that seem best on each workload; it costs no money."""
        numbers = str(step.params["parts"])
        served = winners([self.nodes[seq] for seq in read_parts(numbers)])
        node = self._plan(self._at(step), step.ordinal, None)
        chosen = {name: self.candidates[f"n{seq}"] for name, seq in served.items()}
        self.candidates[node.id] = self.world.joined(chosen)
        self._change(node, origin=JOINED, joins=numbers, state="coded")

    def _pay(self, step: Step, answer: Answer[Any] | None) -> None:
        """Count the request, once however often it is made, and its answer's cost."""
        request = (step.kind, str(step.node_id), 0 if step.kind == "ideate" else step.ordinal)
        if request not in self._requests:
            self._requests.add(request)
            self.played.asked += 1
            self.played.unanswered += answer is None
        if answer is None:
            return
        cost = price(answer.prompt_tokens, answer.reply_tokens)
        self.spend = replace(
            self.spend,
            model_calls=self.spend.model_calls + 1,
            tokens=self.spend.tokens + answer.prompt_tokens + answer.reply_tokens,
            cost_usd=self.spend.cost_usd + cost,
        )

    def _propose(self, node: NodeView, step: Step) -> None:
        avoid = [name for name in str(step.params.get("technique_not_in") or "").split(",") if name]
        answer = self.world.ideas(self.candidates.get(node.id), int(step.params["ideas"] or 1), avoid)
        self._pay(step, answer)
        self._change(node, ideation="done")
        for proposal in (answer.content if answer else None) or []:
            tried = proposal.digest in self._ideas
            self._ideas.add(proposal.digest)
            for _ in range(1 if tried else int(step.params["codes"] or 1)):
                planned = self._plan(node, step.ordinal, proposal)
                if tried:
                    self._change(planned, state="closed")

    def _plan(self, parent: NodeView, number: int, proposal: Proposal | None) -> NodeView:
        technique = None if proposal is None else proposal.technique
        seq = len(self.nodes)
        node = planned(f"n{seq}", seq, parent.id, number, technique)
        siblings = [other for other in self.nodes if other.parent_id == parent.id]
        self.nodes.append(node)
        self.proposals[node.id] = proposal
        self.variants[node.id] = sum(self.proposals.get(other.id) == proposal for other in siblings)
        return node

    def _write(self, node: NodeView, step: Step) -> None:
        if step.ordinal > 0:
            answer = self.world.repair(self.candidates[node.id])
        else:
            parent = self.candidates.get(node.parent_id or "")
            answer = self.world.code(parent, self.proposals[node.id], self.variants[node.id])
        self._pay(step, answer)
        digest = None if answer is None or answer.content is None else self.world.digest(answer.content)
        if answer is None or digest is None or digest in self._digests:
            self._change(node, state="closed")
            return
        self._digests.add(digest)
        self.candidates[node.id] = answer.content
        self._change(node, state="coded", verdict=None, gate=None, score=None, ci_low=None, ci_high=None)

    def _judge(self, node: NodeView) -> None:
        outcome = self.world.outcome(self.candidates[node.id])
        measured = self._measured(outcome)
        score, share = measured["score"], outcome.limit_fraction
        kept = outcome.verdict != "accepted" or self.world.kept(self.candidates[node.id])
        if outcome.verdict == "accepted" and score is not None:
            self._believed[node.id] = score
        self._change(
            node,
            state="judged",
            verdict=outcome.verdict if kept else "ambiguous",
            gate=outcome.gate,
            limit_fraction=share,
            **measured,
        )
        self.spend = replace(self.spend, candidates=self.spend.candidates + 1)
        if self._believed:
            champion = max(self._believed, key=self._believed.__getitem__)  # of equal ones the older
            truth = self.world.outcome(self.candidates[champion]).score or 1.0
            spend = self.spend
            self.played.curve.append(Found(spend.cost_usd, spend.model_calls, spend.candidates, truth))

    def _measured(self, outcome: Outcome) -> dict[str, Any]:
        """Draw the outcome as another screening would measure it, as a node has it.

        The score is drawn anew within its interval, which moves along. Where the outcome is known by workload, each
        speed-up is drawn within its own interval, and the score moves with their mean.
        """
        if outcome.score is None or outcome.low is None or outcome.high is None:
            return {"score": outcome.score, "ci_low": outcome.low, "ci_high": outcome.high}
        factors = {name: self._factor(low, high) for name, (_, low, high) in outcome.workloads.items()}
        if factors:
            factor = math.exp(math.fsum(map(math.log, factors.values())) / len(factors))
        else:
            factor = self._factor(outcome.low, outcome.high)
        entries = []
        for name, found in outcome.workloads.items():
            speedup, *interval = (value * factors[name] for value in found)
            entries.append({"id": name, "role": "bench", "speedup": {"it": speedup}, "ci95": {"it": interval}})
        return {
            "score": outcome.score * factor,
            "ci_low": outcome.low * factor,
            "ci_high": outcome.high * factor,
            "speedups": write_speedups(entries),
        }

    def _factor(self, low: float, high: float) -> float:
        """Draw by what factor another screening would differ, from the ends of a 95 % interval."""
        return math.exp(self.luck.gauss(0.0, max(math.log(high / low), 0.0) / (2 * Z95)))


def proposal_digest(technique: str, title: str, mechanism: str) -> str:
    """Return the digest by which a search refuses an idea that was tried."""
    return idea_digest(technique, f"{title}\n{mechanism}")

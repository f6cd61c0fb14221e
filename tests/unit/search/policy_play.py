"""Playing a policy to its end with drawn outcomes, and the nodes that tests of policies are made of."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, fields, replace
from typing import Any

from hypothesis import strategies as st

from warpsmith.kernels_db.spec.errors import SpecError
from warpsmith.workers.search.budget import CALLS_PER_STEP
from warpsmith.workers.search.idea_beam import IdeaBeam
from warpsmith.workers.search.policy import POLICIES, Policy, next_steps
from warpsmith.workers.search.ranking import is_open
from warpsmith.workers.search.tree import Budget, NodeView, Spend, Step, Tree

BEAM = IdeaBeam(beam=4, ideas=4, codes=2, rounds=5, max_rounds=8, flat_rounds=2)
"""A wide idea beam of few rounds, which small trees show whole."""

TECHNIQUES = ["fusion", "memory access", "parallelism", "algorithm", "precision"]


def root(**changes: object) -> NodeView:
    """The admitted root."""
    node = NodeView("n0", 0, None, 0, None, "judged", 0, "accepted", "time", None, None, None, 0.4, "none", "none")
    return node._replace(**changes)  # type: ignore[arg-type]


def accepted(seq: int, speed: float, /, *, round: int = 1, technique: str = "fusion", **changes: object) -> NodeView:  # noqa: A002
    """A screened candidate with a narrow interval."""
    interval = (speed * 0.995, speed * 1.005)
    node = NodeView(
        f"n{seq}", seq, "n0", round, technique, "judged", 0, "accepted", "time", speed, *interval, 0.5, "none", "none"
    )
    return node._replace(**changes)  # type: ignore[arg-type]


def steps_of(
    *nodes: NodeView, policy: Policy | None = None, budget: Budget | None = None, spend: Spend | None = None
) -> list[Step]:
    """What the policy (`BEAM` where none is given) asks for on this tree."""
    return next_steps(Tree(list(nodes)), policy or BEAM, budget or Budget(), spend or Spend())


@dataclass
class Play:
    """Plays a search: opens what the policy asks for, ends open steps in any order with any outcome.

    `meddling` is how often a person marks a node or adds one; `seeds` how many stored kernels stand in the tree from
    the start. Every rule of `policy_base.TreePolicy` is checked at every turn.
    """

    policy: Policy
    budget: Budget
    luck: random.Random
    calls_are_reasked: bool = False
    meddling: int = 0
    seeds: int = 0
    nodes: list[NodeView] = field(default_factory=lambda: [root(state="planned", verdict=None)])
    spend: Spend = field(default_factory=Spend)
    asked: set[tuple[str, str, int]] = field(default_factory=set)
    open_steps: list[Step] = field(default_factory=list)
    parents: dict[int, list[str]] = field(default_factory=dict)
    restarts: int = 0

    def __post_init__(self) -> None:
        for _ in range(self.seeds):
            self.add("coded", "stored", 0)

    def run(self, limit: int) -> str:
        """Play to the policy's stop; returns its reason."""
        for _ in range(limit):
            steps = self.decide()
            planted = [step for step in steps if step.kind == "plant"]
            for step in planted:
                self.plant(step)
            if planted:
                steps = self.decide()
                assert not any(step.kind == "plant" for step in steps), "planting opens nothing: it would never end"
            if any(step.kind == "stop" for step in steps):
                assert len(steps) == 1
                assert not self.open_steps
                assert steps[0].reason
                return steps[0].reason
            for step in steps:
                self.open(step)
            self.check_budget()
            assert self.open_steps, "nothing is open and nothing was asked for: the search would hang"
            for _ in range(self.luck.randint(1, len(self.open_steps))):
                self.end(self.open_steps.pop(self.luck.randrange(len(self.open_steps))))
            if self.meddling and self.luck.random() < 0.3:
                self.meddle()
        raise AssertionError(f"the search did not end within {limit} turns")

    def decide(self) -> list[Step]:
        """What the policy asks for, twice the same."""
        steps = next_steps(Tree(list(self.nodes)), self.policy, self.budget, self.spend)
        assert steps == next_steps(Tree(list(self.nodes)), self.policy, self.budget, self.spend)
        return steps

    def node(self, step: Step) -> NodeView:
        """The step's node."""
        return self.nodes[int(str(step.node_id)[1:])]

    def change(self, node: NodeView, **changes: object) -> None:
        """Write to the tree."""
        self.nodes[node.seq] = node._replace(**changes)  # type: ignore[arg-type]

    def add(self, state: str, origin: str, opened: int, parent: str = "n0", technique: str | None = None) -> None:
        """A new node."""
        node = accepted(len(self.nodes), 1.0, round=opened, parent_id=parent, technique=technique)
        unjudged = {"verdict": None, "gate": None, "score": None, "ci_low": None, "ci_high": None}
        self.nodes.append(node._replace(state=state, origin=origin, **unjudged))  # type: ignore[arg-type]

    def plant(self, step: Step) -> None:
        """What growth does for a policy without ideas."""
        self.check_free(step)
        self.parents.setdefault(step.ordinal, []).append(str(step.node_id))
        for _ in range(int(str(step.params["codes"]))):
            self.add("planned", "model", step.ordinal, str(step.node_id))

    def meddle(self) -> None:
        """A person does something to the tree."""
        self.meddling -= 1
        rounds = max(max(node.round, node.ideated) for node in self.nodes)
        if self.luck.random() < 0.3:
            self.add(self.luck.choice(["planned", "coded"]), self.luck.choice(["person", "branch"]), rounds)
        elif len(self.nodes) > 1:
            node = self.luck.choice(self.nodes[1:])
            self.change(node, mark=self.luck.choice(["pinned", "banned", "banned", None]))

    def check_free(self, step: Step) -> None:
        """The step's node may be worked on."""
        node = self.node(step)
        assert not is_open(node), f"{step} on a node whose attempt is open"
        assert node.mark != "banned", f"{step} on a banned node"
        assert node.state != "closed"
        if step.kind in ("ideate", "plant"):
            assert (node.state, node.verdict) == ("judged", "accepted")
            assert step.ordinal == step.params["round"]

    def check_budget(self) -> None:
        """What is open cannot exceed the budget, whatever it takes."""
        writing = sum(step.kind == "code" for step in self.open_steps)
        judging = sum(step.kind == "judge" and step.node_id != "n0" for step in self.open_steps)
        most_candidates = self.spend.candidates + writing + judging
        most_calls = self.spend.model_calls + sum(int(str(step.params.get("calls", 0))) for step in self.open_steps)
        assert self.budget.candidates is None or most_candidates <= self.budget.candidates
        assert self.budget.model_calls is None or most_calls <= self.budget.model_calls

    def open(self, step: Step) -> None:
        """Open an attempt, as growth does."""
        self.check_free(step)
        node = self.node(step)
        key = (node.id, step.kind, step.ordinal)
        assert key not in self.asked, f"{key} was asked for twice"
        self.asked.add(key)
        self.open_steps.append(step)
        match step.kind:
            case "ideate":
                self.parents.setdefault(step.ordinal, []).append(node.id)
                self.restarts += "technique_not_in" in step.params
                self.change(node, ideation="open", ideated=step.ordinal)
            case "code":
                assert node.state == ("planned" if step.ordinal == 0 else "judged")
                self.change(node, state="coding", repairs=step.ordinal, verification="none")
            case "judge":
                assert step.node_id == "n0" or node.state == "coded"
                assert step.ordinal == node.repairs
                self.change(node, state="judging")
            case "verify":
                assert (node.state, node.verdict, node.verification) == ("judged", "accepted", "none")
                self.change(node, verification="open")

    def end(self, step: Step) -> None:
        """End an open attempt with an outcome by luck."""
        node = self.node(step)
        if step.kind in ("ideate", "code"):
            granted = int(str(step.params["calls"]))
            assert 1 <= granted <= CALLS_PER_STEP
            used = self.luck.randint(1, granted) if self.calls_are_reasked else 1
            self.spend = replace(self.spend, model_calls=self.spend.model_calls + used, tokens=self.spend.tokens + 100)
        else:
            self.spend = replace(self.spend, gpu_seconds=self.spend.gpu_seconds + self.luck.uniform(0.5, 2.0))
        self.spend = replace(self.spend, wall_clock_s=self.spend.wall_clock_s + 1.0)
        lucky = self.luck.random()
        match step.kind:
            case "ideate":
                self.change(node, ideation="done")
                for _ in range(0 if lucky < 0.2 else self.luck.randint(1, int(str(step.params["ideas"])))):
                    technique = self.luck.choice(TECHNIQUES)
                    for _ in range(int(str(step.params["codes"]))):
                        self.add("planned", "model", step.ordinal, node.id, technique)
            case "code" if lucky < 0.15:
                self.change(node, state="closed")
            case "code":
                self.change(node, state="coded", verdict=None, verification="none")
            case "judge" if node.seq == 0:
                self.change(node, state="judged", verdict="accepted")
            case "judge":
                self.spend = replace(self.spend, candidates=self.spend.candidates + 1)
                verdict = self.luck.choice(["accepted", "accepted", "rejected", "quarantined", "ambiguous"])
                score = self.luck.uniform(0.2, 5.0) if verdict == "accepted" else None
                fraction = self.luck.uniform(0.1, 1.0) if score else None
                interval = {"ci_low": score and score * 0.98, "ci_high": score and score * 1.02}
                self.change(node, state="judged", verdict=verdict, score=score, limit_fraction=fraction, **interval)
            case "verify" if lucky < 0.3:
                self.change(
                    node, verification="failed", verdict=self.luck.choice(["accepted", "rejected", "ambiguous"])
                )
            case "verify":
                self.change(node, verification="passed", score=(node.score or 1.0) * self.luck.uniform(0.9, 1.05))


SMALL = {"rounds": 4, "max_rounds": 6, "n": 12, "beam": 4, "parents": 4, "bank": 3, "root_ideas": 4}
"""Largest values drawn for parameters that make a search long."""


@st.composite
def policies(draw: st.DrawFn, name: str) -> Policy:
    """The policy `name` with drawn parameters, small enough to be played to its end."""
    kind = POLICIES[name]
    values: dict[str, Any] = {}
    for parameter in fields(kind):
        limits = parameter.metadata
        if limits["kind"] is bool:
            values[parameter.name] = draw(st.booleans())
        elif limits["kind"] is int:
            values[parameter.name] = draw(
                st.integers(limits["least"], min(limits["most"], SMALL.get(parameter.name, 3)))
            )
        else:
            spread = [limits["least"] or 0.5, limits["most"], parameter.default]
            values[parameter.name] = draw(st.sampled_from(spread))
    if name == IdeaBeam.name:
        values["diverse"] = min(values["diverse"], values["beam"] - 1)
        values["max_rounds"] = max(values["rounds"], values["max_rounds"])
    policy = kind(**values)
    try:
        policy.check()
    except SpecError as error:
        raise AssertionError(f"the test draws parameters that contradict each other: {error}") from error
    return policy


budgets = st.builds(
    Budget,
    candidates=st.none() | st.integers(1, 30),
    model_calls=st.none() | st.integers(1, 40),
    tokens=st.none() | st.integers(1, 3000),
    wall_clock_s=st.none() | st.integers(1, 60),
    gpu_seconds=st.none() | st.integers(1, 40),
)

"""The idea beam, played to the end with drawn outcomes, and its documents."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels_db.spec_errors import SpecError
from workers.search.budget import CALLS_PER_STEP
from workers.search.idea_beam import IdeaBeam, ties
from workers.search.policy import next_steps, parse_policy, policy_document
from workers.search.tree import Budget, NodeView, Spend, Step, Tree

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


@dataclass
class Simulation:
    """Plays a search: opens what the policy asks for, ends open steps in any order with any outcome."""

    policy: IdeaBeam
    budget: Budget
    luck: random.Random
    calls_are_reasked: bool = False
    nodes: list[NodeView] = field(default_factory=lambda: [root(state="planned", verdict=None)])
    spend: Spend = field(default_factory=Spend)
    asked: set[tuple[str, str, int]] = field(default_factory=set)
    open_steps: list[Step] = field(default_factory=list)
    parents: dict[int, list[str]] = field(default_factory=dict)
    restarts: int = 0

    def run(self, limit: int) -> str:
        """Play to the policy's stop; returns its reason."""
        for _ in range(limit):
            steps = next_steps(Tree(list(self.nodes)), self.policy, self.budget, self.spend)
            assert steps == next_steps(Tree(list(self.nodes)), self.policy, self.budget, self.spend)
            if any(step.kind == "stop" for step in steps):
                assert len(steps) == 1
                assert not self.open_steps
                assert steps[0].reason
                return steps[0].reason
            for step in steps:
                self.open(step)
            assert self.open_steps, "nothing is open and nothing was asked for: the search would hang"
            for _ in range(self.luck.randint(1, len(self.open_steps))):
                self.end(self.open_steps.pop(self.luck.randrange(len(self.open_steps))))
        raise AssertionError(f"the search did not end within {limit} turns")

    def node(self, step: Step) -> NodeView:
        return self.nodes[int(str(step.node_id)[1:])]

    def change(self, node: NodeView, **changes: object) -> None:
        self.nodes[node.seq] = node._replace(**changes)  # type: ignore[arg-type]

    def open(self, step: Step) -> None:
        node = self.node(step)
        key = (node.id, step.kind, step.ordinal)
        assert key not in self.asked, f"{key} was asked for twice"
        self.asked.add(key)
        self.open_steps.append(step)
        assert node.state not in ("coding", "judging", "closed")
        match step.kind:
            case "ideate":
                assert node.ideation != "open"
                assert node.seq == 0 or (node.state == "judged" and node.verdict == "accepted")
                assert all(other.state in ("judged", "closed") for other in self.nodes)
                assert step.ordinal == step.params["round"]
                self.parents.setdefault(step.ordinal, []).append(node.id)
                self.restarts += "technique_not_in" in step.params
                self.change(node, ideation="open", ideated=step.ordinal)
            case "code":
                assert node.state == ("planned" if step.ordinal == 0 else "judged")
                self.change(node, state="coding", repairs=step.ordinal, verification="none")
            case "judge":
                self.change(node, state="judging")
            case "verify":
                assert node.verdict == "accepted"
                self.change(node, verification="open")

    def end(self, step: Step) -> None:
        node = self.node(step)
        if step.kind in ("ideate", "code"):
            granted = int(str(step.params["calls"]))
            assert 1 <= granted <= CALLS_PER_STEP
            used = self.luck.randint(1, granted) if self.calls_are_reasked else 1
            self.spend = replace(self.spend, model_calls=self.spend.model_calls + used, tokens=self.spend.tokens + 100)
        lucky = self.luck.random()
        match step.kind:
            case "ideate":
                self.change(node, ideation="done")
                count = 0 if lucky < 0.2 else self.luck.randint(1, int(str(step.params["ideas"])))
                for _ in range(count):
                    technique = self.luck.choice(TECHNIQUES)
                    for _ in range(int(str(step.params["codes"]))):
                        new = accepted(len(self.nodes), 1.0, round=step.ordinal, technique=technique)
                        self.nodes.append(new._replace(state="planned", verdict=None, score=None, parent_id=node.id))
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


@st.composite
def policies(draw: st.DrawFn) -> IdeaBeam:
    beam = draw(st.integers(1, 4))
    rounds = draw(st.integers(1, 4))
    return IdeaBeam(
        beam=beam,
        diverse=draw(st.integers(0, beam - 1)),
        ideas=draw(st.integers(1, 3)),
        codes=draw(st.integers(1, 2)),
        repairs=draw(st.integers(0, 2)),
        rounds=rounds,
        max_rounds=draw(st.integers(rounds, 6)),
        flat_rounds=draw(st.integers(1, 3)),
        stop_fraction=draw(st.sampled_from([0.5, 0.95, 1.0])),
        restart=draw(st.booleans()),
    )


budgets = st.builds(
    Budget,
    candidates=st.none() | st.integers(1, 30),
    model_calls=st.none() | st.integers(1, 40),
    tokens=st.none() | st.integers(1, 3000),
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(policy=policies(), budget=budgets, seed=st.integers(0, 2**32), reasked=st.booleans())
def test_every_search_ends_within_its_bounds(policy: IdeaBeam, budget: Budget, seed: int, reasked: bool) -> None:
    play = Simulation(policy, budget, random.Random(seed), reasked)
    most_nodes = policy.max_rounds * policy.beam * policy.ideas * policy.codes
    play.run(limit=10 + 4 * policy.max_rounds * policy.beam + most_nodes * (policy.repairs + 1) * 4)
    assert budget.candidates is None or play.spend.candidates <= budget.candidates
    assert budget.model_calls is None or play.spend.model_calls <= budget.model_calls
    assert max(play.parents, default=0) <= policy.max_rounds
    assert sorted(play.parents) == list(range(1, len(play.parents) + 1))
    assert all(len(set(parents)) == len(parents) <= policy.beam for parents in play.parents.values())
    assert play.restarts <= 1
    assert all(node.repairs <= policy.repairs for node in play.nodes)


@settings(max_examples=60, deadline=None)
@given(policy=policies(), seed=st.integers(0, 2**32))
def test_the_champion_is_verified_at_the_end(policy: IdeaBeam, seed: int) -> None:
    play = Simulation(policy, Budget(candidates=12), random.Random(seed))
    play.run(limit=5000)
    contenders = [n for n in play.nodes if n.seq and n.verdict == "accepted" and n.verification != "failed"]
    if contenders:
        best = max(contenders, key=lambda n: (n.score or 0.0, -n.seq))
        verified = [n for n in contenders if n.verification == "passed"]
        assert best.verification == "passed" or any(ties(best, node) for node in verified)


def steps_of(
    *nodes: NodeView, policy: IdeaBeam | None = None, budget: Budget | None = None, spend: Spend | None = None
) -> list[Step]:
    return next_steps(Tree(list(nodes)), policy or IdeaBeam(), budget or Budget(), spend or Spend())


def test_the_baselines_come_first() -> None:
    assert steps_of(root(state="planned", verdict=None)) == [Step("judge", "n0")]
    assert steps_of(root(state="judging", verdict=None)) == []


def test_a_refused_reference_ends_the_search() -> None:
    (step,) = steps_of(root(verdict="rejected", gate="reference"))
    assert step.kind == "stop"
    assert step.reason == "the op was not admitted: rejected at reference"


def test_the_first_round_asks_on_the_root() -> None:
    (step,) = steps_of(root())
    assert (step.kind, step.node_id, step.ordinal) == ("ideate", "n0", 1)
    assert step.params == {"ideas": 4, "codes": 2, "round": 1, "calls": 3}


def test_the_beam_holds_the_fastest_and_the_best_of_another_technique() -> None:
    nodes = [accepted(i, 3.0 - i / 10) for i in range(1, 7)]
    nodes[0] = nodes[0]._replace(verification="passed")
    steps = steps_of(root(ideated=1), *nodes, accepted(7, 1.1, technique="algorithm"))
    assert [step.node_id for step in steps] == ["n1", "n2", "n3", "n7"]
    assert {step.params["round"] for step in steps} == {2}


def test_without_another_technique_the_next_fastest_fills_the_beam() -> None:
    nodes = [accepted(i, 3.0 - i / 10, verification="passed") for i in range(1, 7)]
    assert [step.node_id for step in steps_of(root(ideated=1), *nodes)] == ["n1", "n2", "n3", "n4"]


def test_a_tie_with_the_champion_is_not_verified() -> None:
    verified = accepted(1, 2.0, ci_low=1.8, ci_high=2.3, verification="passed")
    tied, faster = accepted(2, 2.2, ci_low=1.9, ci_high=2.5), accepted(3, 2.6, ci_low=2.4, ci_high=2.9)
    assert steps_of(root(ideated=1), verified, tied)[0].kind == "ideate"
    assert steps_of(root(ideated=1), verified, tied, faster) == [Step("verify", "n3")]


def test_a_failed_verification_takes_the_next_best() -> None:
    first, second = accepted(1, 3.0, verification="failed"), accepted(2, 2.0)
    assert steps_of(root(ideated=1), first, second) == [Step("verify", "n2")]


def test_a_rejected_candidate_is_repaired_up_to_the_limit() -> None:
    broken = accepted(1, 1.0, verdict="rejected", score=None, repairs=2)
    assert steps_of(root(ideated=1), broken) == [Step("code", "n1", ordinal=3, params={"calls": 3})]
    (step,) = steps_of(root(ideated=1), broken._replace(repairs=3))
    assert (step.kind, step.node_id) == ("ideate", "n0")


def test_other_verdicts_are_not_repaired() -> None:
    for verdict in ("quarantined", "ambiguous"):
        steps = steps_of(root(ideated=1), accepted(1, 1.0, verdict=verdict))
        assert [step.kind for step in steps] == ["ideate"]


def test_a_round_waits_for_its_open_steps() -> None:
    done = accepted(1, 2.0, verification="passed")
    assert steps_of(root(ideated=1, ideation="open"), done) == []
    assert steps_of(root(ideated=1), done, accepted(2, 1.0, state="judging")) == []
    assert steps_of(root(ideated=1), done, accepted(2, 1.0, verification="open")) == []


def champions(*scores: float) -> list[NodeView]:
    """One verified node per round."""
    return [accepted(i, score, round=i, verification="passed") for i, score in enumerate(scores, start=1)]


def test_rounds_go_on_past_the_plan_only_while_the_best_improves() -> None:
    assert steps_of(root(ideated=1), *champions(1, 2, 3, 4, 5))[0].kind == "ideate"
    (step,) = steps_of(root(ideated=1), *champions(1, 2, 3, 4, 4.05))
    assert step.reason == "5 rounds were played, the last improved by 2% or less"
    (step,) = steps_of(root(ideated=1), *champions(1, 2, 3, 4, 5, 6, 7, 8))
    assert step.reason == "8 rounds were played"


def test_an_improvement_within_the_noise_is_none() -> None:
    noisy = {"ci_low": 3.0, "ci_high": 6.0}
    nodes = [
        *champions(1, 2, 3),
        accepted(4, 4.0, round=4, **noisy),
        accepted(5, 4.5, round=5, verification="passed", **noisy),
    ]
    (step,) = steps_of(root(ideated=1), *nodes)
    assert step.kind == "stop"


def test_two_flat_rounds_restart_once_in_unused_techniques() -> None:
    flat = champions(2, 1, 1)
    (step,) = steps_of(root(ideated=1), *flat)
    assert (step.kind, step.node_id, step.ordinal) == ("ideate", "n0", 4)
    assert step.params["technique_not_in"] == "fusion"
    played = accepted(4, 1.0, round=4, technique="algorithm")
    assert {s.kind for s in steps_of(root(ideated=4), *flat, played)} == {"ideate"}
    (step,) = steps_of(root(ideated=4), *flat, played, accepted(5, 1.0, round=5))
    assert step.reason == "no improvement of more than 2% in 2 rounds"


def test_without_restart_flat_rounds_end_the_search() -> None:
    (step,) = steps_of(root(ideated=1), *champions(2, 1, 1), policy=IdeaBeam(restart=False))
    assert step.reason == "no improvement of more than 2% in 2 rounds"


def test_rounds_without_any_reply_count_and_end() -> None:
    assert steps_of(root(ideation="done", ideated=2))[0].params["round"] == 3
    assert steps_of(root(ideation="done", ideated=8))[0].kind == "stop"


def test_the_physical_limit_ends_the_search_once_verified() -> None:
    fast = accepted(1, 3.0, limit_fraction=0.96)
    assert steps_of(root(ideated=1), fast) == [Step("verify", "n1")]
    (step,) = steps_of(root(ideated=1), fast._replace(verification="passed"))
    assert step.reason == "the champion reaches 96% of the physical limit"


def test_a_limit_that_is_surpassed_by_far_is_no_limit() -> None:
    impossible = accepted(1, 3.0, limit_fraction=4.57, verification="passed")
    assert [step.kind for step in steps_of(root(ideated=1), impossible)] == ["ideate"]


def test_open_steps_count_against_the_budget() -> None:
    coding = accepted(1, 1.0, state="coding", verdict=None)
    planned = [accepted(i, 1.0, state="planned", verdict=None) for i in (2, 3, 4)]
    steps = steps_of(root(ideated=1), coding, *planned, budget=Budget(candidates=3))
    assert [step.node_id for step in steps] == ["n2", "n3"]
    steps = steps_of(root(ideated=1), coding, *planned, budget=Budget(model_calls=7))
    assert [step.params["calls"] for step in steps] == [3, 1]


def test_an_exhausted_budget_finishes_what_is_written_and_verifies_the_champion() -> None:
    budget, spend = Budget(cost_usd=1.0), Spend(cost_usd=1.5)
    coded = accepted(1, 1.0, state="coded", verdict=None, score=None)
    planned = accepted(2, 1.0, state="planned", verdict=None, score=None)
    assert steps_of(root(ideated=1), coded, planned, budget=budget, spend=spend) == [Step("judge", "n1")]
    assert steps_of(root(ideated=1), accepted(1, 2.0), planned, budget=budget, spend=spend) == [Step("verify", "n1")]
    (step,) = steps_of(root(ideated=1), accepted(1, 2.0, verification="passed"), planned, budget=budget, spend=spend)
    assert step == Step("stop", reason="the budget is used up: cost_usd 1.5 of 1")


def test_out_of_time_only_the_champion_is_still_verified() -> None:
    coded = accepted(2, 1.0, state="coded", verdict=None, score=None)
    late = {"budget": Budget(wall_clock_s=60.0), "spend": Spend(wall_clock_s=61.0)}
    assert steps_of(root(ideated=1), accepted(1, 2.0), coded, **late) == [Step("verify", "n1")]
    assert steps_of(root(ideated=1), accepted(1, 2.0, verification="passed"), coded, **late)[0].kind == "stop"


def test_the_document_of_a_policy_reads_back() -> None:
    policy = IdeaBeam(beam=2, diverse=0, improvement=0.05, restart=False)
    assert parse_policy(policy_document(policy)) == policy
    assert parse_policy({"name": "idea_beam"}) == IdeaBeam()


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("idea_beam", "policy: found 'idea_beam', expected an object such as {'name': 'idea_beam'}"),
        ({}, "policy.name: found nothing, expected one of idea_beam"),
        ({"name": "beam"}, "policy.name: found 'beam', expected one of idea_beam"),
        ({"name": ["idea_beam"]}, "policy.name: found '[\"idea_beam\"]', expected one of idea_beam"),
        ({"name": "idea_beam", "width": 3}, "policy.width: found 3, expected one of beam, diverse, ideas, codes"),
        ({"name": "idea_beam", "beam": 0}, "policy.beam: found 0, expected a whole number from 1 to 64"),
        ({"name": "idea_beam", "beam": 2.5}, "policy.beam: found 2.5, expected a whole number"),
        ({"name": "idea_beam", "beam": True}, "policy.beam: found True, expected a whole number"),
        (
            {"name": "idea_beam", "stop_fraction": 0},
            "policy.stop_fraction: found 0, expected a number above 0 and at most 1",
        ),
        (
            {"name": "idea_beam", "improvement": float("nan")},
            "policy.improvement: found 'nan', expected a number from 0 to 1",
        ),
        ({"name": "idea_beam", "restart": 1}, "policy.restart: found 1, expected true or false"),
        (
            {"name": "idea_beam", "beam": 2, "diverse": 2},
            "policy.diverse: found 2, expected less than beam, which is 2",
        ),
        ({"name": "idea_beam", "max_rounds": 3}, "policy.max_rounds: found 3, expected at least rounds, which is 5"),
    ],
)
def test_a_bad_policy_names_field_found_and_expected(document: object, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_policy(document)
    assert str(caught.value).startswith(message)


def test_attempt_keys_stay_unique_over_a_long_search() -> None:
    play = Simulation(IdeaBeam(rounds=8), Budget(), random.Random(7))
    play.run(limit=20_000)
    assert Counter(play.asked).most_common(1)[0][1] == 1
    assert len(play.nodes) > 50

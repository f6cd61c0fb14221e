"""Searches whose stories are kept as golden files: one of a hundred nodes, and the ways in which there is little to
tell."""

from __future__ import annotations

import random
from typing import Any

from warpsmith.service.documents.searches import BadField, Best, SearchDocument, Spend, WaitingFor
from warpsmith.service.documents.workloads import WorkloadTimes
from warpsmith.service.story import Answers, Steer, StoryFacts, StoryNode

TECHNIQUES = ("memory_access", "fusion", "parallelism", "compute", "control_flow", "algorithm")
IDEAS = {
    1: (
        "memory_access",
        "One pass over the row",
        "Sum and sum of squares are gathered in one sweep, so that each row is read once from memory instead of twice.",
    ),
    21: (
        "parallelism",
        "A thread for each block of rows",
        "Rows are independent: a static schedule gives each core a contiguous block, and no two share a cache line.",
    ),
    57: (
        "compute",
        "Eight lanes, two accumulators",
        "The row is walked in vectors of eight floats with two independent accumulators, which hides the latency of "
        "the additions; the tail is handled once, outside the loop.",
    ),
}
WRONG = ("wrong_value", "wrong_value", "not_written", "crash")


def search(**changes: Any) -> SearchDocument:
    """A finished search with a winner."""
    values: dict[str, Any] = {
        "id": "sr_01m7",
        "op_id": "op_1",
        "op_name": "layer_norm",
        "target": "cpu:x86_64",
        "language": "cpp",
        "state": "finished",
        "reason": "5 rounds were played, the last improved by 2% or less",
        "best_score": 3.42,
        "spend": Spend(candidates=88, model_calls=143, tokens=812_400, cost_usd=1.92, wall_clock_s=1930.0),
        "created_at": 0.0,
        "updated_at": 1930.0,
        "problem": None,
        "policy": {"name": "idea_beam"},
        "budget": {"candidates": 120, "cost_usd": 2.5},
        "model": {"provider": "openai"},
        "round": 5,
        "nodes": 101,
        "nodes_by_state": {},
        "nodes_by_verdict": {},
        "baselines": [
            WorkloadTimes(id="images", role="bench", time_us={"eager": 153.2, "compile": 120.4}),
            WorkloadTimes(id="tokens", role="bench", time_us={"eager": 40.2, "compile": 41.0}),
            WorkloadTimes(id="ragged", role="test", time_us={}),
        ],
        "best": best(),
        "kernels": ["kn_7"],
        "waiting_for": [],
    }
    return SearchDocument(**(values | changes))


def best(**changes: Any) -> Best:
    """The winner as the search's document has it."""
    values: dict[str, Any] = {
        "node_id": "nd_57",
        "seq": 57,
        "title": IDEAS[57][1],
        "technique": "compute",
        "language": "cpp",
        "verified": True,
        "score": 3.42,
        "ci95": [3.38, 3.46],
        "limit_fraction": 0.71,
        "speedup": {"eager": 3.9, "compile": 3.45},
        "workloads": [
            timed("images", 35.1, {"eager": 153.2, "compile": 120.4}, 0.78),
            timed("tokens", 11.8, {"eager": 40.2, "compile": 41.0}, 0.65),
        ],
    }
    return Best(**(values | changes))


def timed(name: str, time: float, baselines: dict[str, float], limit: float) -> WorkloadTimes:
    """A bench workload of the winner."""
    speedup = {key: value / time for key, value in baselines.items()}
    ci95 = {key: [value * 0.99, value * 1.01] for key, value in speedup.items()}
    times = {"candidate": time, **baselines}
    return WorkloadTimes(id=name, role="bench", time_us=times, speedup=speedup, ci95=ci95, limit_fraction=limit)


def node(seq: int, parent: int | None = 0, **changes: Any) -> StoryNode:
    """An accepted node, 1.5 times as fast as PyTorch."""
    values: dict[str, Any] = {
        "seq": seq,
        "parent": parent,
        "round": 1,
        "technique": "fusion",
        "title": f"idea {seq}",
        "mechanism": f"mechanism {seq}",
        "state": "judged",
        "reason": None,
        "verdict": "accepted",
        "gate": "time",
        "failure": None,
        "score": 1.5,
        "ci95": (1.45, 1.55),
    }
    return StoryNode(**(values | changes))


ROOT = node(0, None, round=0, technique=None, title=None, mechanism=None, score=None, ci95=None, coded=False)


def hundred() -> list[StoryNode]:
    """A tree of five rounds with every kind of failure."""
    luck = random.Random(7)
    nodes = [ROOT]
    for seq in range(1, 101):
        round_ = 1 + (seq - 1) // 20
        technique = TECHNIQUES[seq % len(TECHNIQUES)]
        common: dict[str, Any] = {
            "round": round_,
            "technique": technique,
            "title": f"idea {seq - seq % 2}",
            "mechanism": f"m {seq - seq % 2}",
        }
        if seq in IDEAS:
            technique, title, mechanism = IDEAS[seq]
            score = {1: 1.85, 21: 2.9, 57: 3.42}[seq]
            nodes.append(
                node(
                    seq,
                    {1: 0, 21: 1, 57: 21}[seq],
                    round=round_,
                    technique=technique,
                    title=title,
                    mechanism=mechanism,
                    score=score,
                    ci95=(score - 0.04, score + 0.04),
                    repairs=seq % 3,
                )
            )
            continue
        fate = luck.random()
        if fate < 0.3:
            kind = luck.choice(WRONG)
            reason = f"workload images: {kind.replace('_', ' ')} at y[3, 5]"
            gone: dict[str, Any] = {"verdict": "rejected", "gate": "screen", "failure": kind, "reason": reason}
        elif fate < 0.4:
            gone = {
                "verdict": "rejected",
                "gate": "compile",
                "failure": "compile",
                "reason": "use of undeclared 'lane'",
            }
        elif fate < 0.5:
            gone = {"state": "closed", "verdict": None, "reason": f"duplicate of node #{seq - 1}"}
        elif fate < 0.53:
            gone = {
                "state": "closed",
                "verdict": None,
                "coded": False,
                "reason": "no readable reply in 3 calls: no code",
            }
        elif fate < 0.56:
            gone = {"verdict": "quarantined", "gate": "physics", "reason": "faster than the limit"}
        elif fate < 0.75:
            gone = {"score": round(luck.uniform(0.4, 0.99), 2), "ci95": (0.3, 1.0)}
        else:
            score = round(luck.uniform(1.1, 2.4), 2)
            gone = {"score": score, "ci95": (score - 0.03, score + 0.03)}
        plain = {"score": None, "ci95": None} if "verdict" in gone else {}
        nodes.append(node(seq, 0 if round_ == 1 else luck.choice([1, 21]), **(common | plain | gone)))
    return nodes


def scenarios() -> dict[str, StoryFacts]:
    """Every story that is kept."""
    failed = BadField(
        field="op.reference", found="NameError: name 'torhc' is not defined", expected="a reference that runs"
    )
    nothing = Spend(candidates=0, model_calls=0, tokens=0, cost_usd=0.0, wall_clock_s=4.2)
    return {
        "story_finished": StoryFacts(
            search(),
            hundred(),
            (Answers("openai", "gpt-5", 90, 0, 1.9), Answers("openai", "local-7b", 53, 12, 0.02)),
            judge_s=842.0,
            device_s=512.4,
            steers=(
                Steer("idea.added", 723.0, 57, "ada", "Eight lanes, two accumulators"),
                Steer("node.banned", 800.0, 30),
                Steer("budget.changed", 900.0, by="ada", text="120 candidates, $2.50"),
            ),
            branches=("sr_01m9",),
        ),
        "story_running": StoryFacts(
            search(
                state="running",
                reason=None,
                kernels=[],
                round=1,
                best=best(seq=1, verified=False, score=1.5, ci95=[1.45, 1.55], limit_fraction=None, workloads=[]),
                spend=Spend(candidates=1, model_calls=3, tokens=1200, cost_usd=0.0, wall_clock_s=65.0),
                waiting_for=[WaitingFor(what="answer", count=2, detail="2 asks to be answered")],
            ),
            [
                ROOT,
                node(1),
                node(2, state="planned", verdict=None, score=None, ci95=None, coded=False, origin="person"),
            ],
            (Answers("agent", None, 3, 3),),
            judge_s=3.4,
            branched_from=("sr_01m5", 12),
        ),
        "story_without_winner": StoryFacts(
            search(
                best=None,
                kernels=[],
                reason="the budget is used up: candidates 2 of 2; no candidate beat the baselines",
                budget={"candidates": 2},
            ),
            [
                ROOT,
                node(1, verdict="rejected", gate="verify", failure="wrong_value", reason="wrong on a hold-out shape"),
                node(2, state="closed", verdict="rejected", reason="pool pl_1 has no reply", repairs=1),
            ],
            (Answers("replay", None, 4, 4),),
        ),
        "story_not_admitted": StoryFacts(
            search(
                state="failed",
                reason="the op was not admitted: the reference raises NameError",
                problem=failed,
                best=None,
                kernels=[],
                baselines=[],
                budget={},
                spend=nothing,
                round=0,
            ),
            [node(0, None, round=0, verdict="rejected", title=None, technique=None, mechanism=None)],
            judge_s=3.9,
        ),
    }

"""An expert whose timed calls were wrong is no baseline, although it was right when it was asked."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from tests import judging
from warpsmith.workers.judge.clock import timing
from warpsmith.workers.judge.gates import measurement
from warpsmith.workers.judge.gates.reading import Reading
from warpsmith.workers.judge.gates.wrong import Wrong
from warpsmith.workers.judge.reference.baselines import WorkloadFacts, untimed_reason

PLACE = judging.layer_norm_workload("bench", "bench", 4, 8)


class Timed:
    """A timing whose checked calls of some baselines missed."""

    def __init__(self, misses: dict[str, int], looks: float = 0.0) -> None:
        self.baseline_misses = misses
        self.looks = looks

    def time(self, baselines: list[str], plan: timing.Plan) -> Reading:
        assert plan.check_baseline >= self.looks
        return Reading({name: [1.0] for name in baselines})


def make_run(facts: WorkloadFacts, dropped: list[str]) -> Any:
    runners = SimpleNamespace(experts=frozenset({"liger"}), facts=lambda _: facts, drop=dropped.append)
    return SimpleNamespace(
        runners=runners,
        job=judging.job(judging.LAYER_NORM, [PLACE]),
        source=lambda _: None,
        rng=random.Random(0),
        note_error=lambda *_: None,
        bind_for_timing=lambda *_: None,
    )


@pytest.mark.parametrize(
    ("misses", "left_out"),
    [({}, False), ({"compile": 2}, False), ({"liger": 1}, True), ({"liger": 3, "eager": 1}, True)],
)
def test_misses_of_an_expert_end_its_timing_and_those_of_pytorch_do_not(
    monkeypatch: pytest.MonkeyPatch, misses: dict[str, int], left_out: bool
) -> None:
    facts, dropped = WorkloadFacts(), []
    job_run = make_run(facts, dropped)
    monkeypatch.setattr(measurement, "WorkloadRun", lambda *_: Timed(misses))
    plan = timing.plan_for(False, "cpu", 1.0)
    found = measurement._time(job_run, PLACE, None, ["eager", "compile", "liger"], plan, set())
    assert (found is None) == left_out
    assert dropped == (["liger"] if left_out else [])
    assert facts.unavailable.keys() == set(dropped)
    if left_out:
        why = untimed_reason(facts.unavailable["liger"])
        assert why == f"is wrong: {misses['liger']} of its timed calls that were checked"


CANDIDATE: Any = object()


@pytest.mark.parametrize(("alone", "left_out"), [(0, False), (2, True)])
def test_an_expert_that_is_wrong_beside_a_candidate_is_timed_without_it_before_it_is_left_out(
    monkeypatch: pytest.MonkeyPatch, alone: int, left_out: bool
) -> None:
    """A candidate whose stray writes meet an expert's results would else be rid of a baseline."""
    facts, dropped = WorkloadFacts(), []
    job_run = make_run(facts, dropped)

    def timed(_workload: Any, _runners: Any, candidate: Any, *_: Any) -> Timed:
        return Timed({"liger": 1}) if candidate is CANDIDATE else Timed({"liger": alone}, looks=1.0)

    monkeypatch.setattr(measurement, "WorkloadRun", timed)
    plan, doubted = timing.plan_for(False, "cpu", 1.0), set[str]()
    assert measurement._time(job_run, PLACE, CANDIDATE, ["eager", "liger"], plan, doubted) is None
    assert dropped == (["liger"] if left_out else [])
    assert doubted == (set() if left_out else {"liger"})
    if not left_out:
        with pytest.raises(Wrong, match="the expert liger was wrong in timed calls beside this candidate, twice"):
            measurement._time(job_run, PLACE, CANDIDATE, ["eager", "liger"], plan, doubted)
        assert not facts.unavailable


def test_an_expert_that_the_store_knows_to_be_wrong_is_in_the_reason_of_a_later_screening() -> None:
    """A screen tries the fastest baseline alone: the others are not asked again."""
    facts, notes, entry = WorkloadFacts(), list[str](), dict[str, Any]()
    facts.unavailable["liger"] = "wrong: y[0, 1] is 2"
    facts.unavailable["quack"] = "not_installed: No module named 'quack'"
    job: Any = judging.job(judging.LAYER_NORM, [PLACE], baselines=("eager", "compile", "liger", "quack"))
    runners = SimpleNamespace(facts=lambda _: facts)
    job_run: Any = SimpleNamespace(runners=runners, job=job, entry=lambda _: entry, note=notes.append)
    measurement._note_untimed(job_run, PLACE, ["eager"])
    assert entry["not_timed"] == {
        "compile": measurement.RANKED,
        "liger": "is wrong: y[0, 1] is 2",
        "quack": "does not run: not_installed: No module named 'quack'",
    }
    assert notes == [
        "baseline liger is wrong on bench (y[0, 1] is 2)",
        "baseline quack does not run on bench (not_installed: No module named 'quack')",
    ]

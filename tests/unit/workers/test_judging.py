"""Whose turn it is at a judge, and what a judgement says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import scenario
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.spec.op import Target, load_op
from warpsmith.kernels_db.spec.resolve import build_job, limits_with
from warpsmith.workers.judging.candidates import read_candidate_file
from warpsmith.workers.judging.judgement import judgement, no_verdict
from warpsmith.workers.judging.submission import candidate_job, record_job
from warpsmith.workers.judging.targets import Place
from warpsmith.workers.judging.turns import Line

OP = load_op(scenario.OP)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_first_in_the_line_is_overdue_from_when_it_became_so() -> None:
    clock = Clock()
    line = Line(clock)
    first, second = line.enter(), line.enter()
    clock.now = 10
    assert line.overdue(first, 10)
    assert not line.overdue(second, 10)
    line.leave(first, moved=True)
    assert not line.overdue(second, 10)
    clock.now = 20
    assert line.overdue(second, 10)


def test_one_that_the_judge_was_not_at_work_on_gives_way() -> None:
    clock = Clock()
    line = Line(clock)
    first, second = line.enter(), line.enter()
    clock.now = 10
    line.leave(first, moved=False)
    assert line.overdue(second, 10)
    again = line.enter()
    line.leave(second, moved=True)
    clock.now = 15
    assert not line.overdue(again, 10)
    assert not line.wait_until_empty(0)
    line.leave(again, moved=True)
    assert line.wait_until_empty(0)


@given(st.lists(st.tuples(st.sampled_from(["enter", "leave", "drop"]), st.integers(0, 5)), max_size=30))
def test_none_waits_longer_for_a_turn_than_those_before_it_may_take(moves: list[tuple[str, int]]) -> None:
    clock = Clock()
    line = Line(clock)
    present: list[object] = []
    for move, seconds in moves:
        clock.now += seconds
        if move == "enter":
            present.append(line.enter())
        elif present:
            line.leave(present.pop(0), moved=move == "leave")
        late = [ticket for ticket in present if line.overdue(ticket, 5)]
        assert late in ([], present[:1])
    for ticket in present:
        clock.now += 5
        assert line.overdue(ticket, 5)
        line.leave(ticket, moved=True)


def verdict(**changes: Any) -> Verdict:
    told: dict[str, Any] = {"verdict": "accepted", "gate": "time", "reason": "r", "failure": None}
    return {**told, "score": 2.0, "score_ci95": [1.5, 2.5], **changes}  # type: ignore[typeddict-item] # what is read


@pytest.mark.parametrize("word", ["accepted", "rejected", "quarantined", "ambiguous"])
@pytest.mark.parametrize("level", ["screen", "verify", "profile"])
def test_only_what_was_checked_and_stood_has_a_speedup(word: str, level: str) -> None:
    candidate = read_candidate_file(OP, scenario.candidate(scenario.LOOP))
    place = Place(Target.parse("cpu"))
    job = candidate_job(OP, candidate, place, level=level, workloads=None, limits=limits_with(None))
    one = judgement(job, verdict(verdict=word))
    stood = word == "accepted" and level != "profile"
    assert one.accepted is stood
    assert one.speedup == (2.0 if stood else None)
    assert one.speedup_ci95 == ((1.5, 2.5) if stood else None)
    assert (one.op, one.language, one.tier, one.level) == ("scale_shift", "cpp", "gated", level)
    assert not one.admitted


def test_without_a_verdict_nothing_is_said_of_the_candidate() -> None:
    job = build_job(OP, Target.parse("cpu"), level="baseline")
    one = no_verdict(job, "timeout", "late")
    assert (one.verdict, one.gate, one.failure, one.speedup, one.tier, one.language) == (None,) * 6
    assert not one.admitted
    assert one.to_dict()["unjudged"] == "timeout"


@pytest.mark.parametrize(("passes", "ids"), [(True, ["even", "odd"]), (False, ["even"])])
def test_an_interpreted_screening_gets_the_tests_too(passes: bool, ids: list[str]) -> None:
    place = Place(Target.parse("cuda:sm_90"), "no CUDA GPU here" if passes else None)
    source = "import triton\n"
    job = candidate_job(
        OP,
        read_candidate_file(OP, source, "triton"),
        place,
        level="screen",
        workloads=None,
        limits=limits_with(None),
    )
    assert [item["id"] for item in job["workloads"]] == ids


def test_stored_rows_make_the_job_that_the_op_makes() -> None:
    target = str(Target.parse("cpu"))
    for level, candidate in (("screen", ("cpp", "text")), ("baseline", None)):
        job = record_job(OP.document(), target, level, candidate, limits_with("isolated"))  # type: ignore[arg-type] # literals
        assert job["candidate"] == (None if candidate is None else {"language": "cpp", "source": "text"})
        assert (job["level"], job["target"], job["limits"]["sandbox"]) == (level, target, "isolated")
        assert job["op"]["digest"] == OP.digest

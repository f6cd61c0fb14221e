"""A node of a candidate with tunables is, from its screening on, the configuration that the verdict is on."""

from __future__ import annotations

import ast
import re
import time
from typing import Any

import pytest
from sqlalchemy import select

from tests.services import on_both_databases
from tests.support.steps_support import SETTINGS, Driver, call, create, small_policy, verdict
from warpsmith.kernels_db.job.documents import Job, Verdict
from warpsmith.kernels_db.job.sweep_documents import SWEEP_S, Sweep, describe_sweep
from warpsmith.kernels_db.spec.resolve import limits_with
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import KernelRow, SearchRow, VerdictRow
from warpsmith.service.api.kernel_export import check_exportable, collect_kernel
from warpsmith.workers import steps
from warpsmith.workers.gate import tunables
from warpsmith.workers.gate.normalise import normalised_digest
from warpsmith.workers.gate.tunables import Tunables, read_tunables, specialise
from warpsmith.workers.judge.protocol.configurations import verify_configurations
from warpsmith.workers.llm.prompt.requests import build
from warpsmith.workers.queue.jobs import job_of
from warpsmith.workers.queue.model_step import request_context
from warpsmith.workers.steps.values import ExpectedSweep
from warpsmith.workers.steps.winners import keep_winner

SOURCE = """
TUNE = {"ROWS": [1, 4], "WIDTH": [8, 16]}
ROWS = 4
FLAGS = ("-DWIDTH=8",)


def run(x, y, out):
    return ROWS
"""
SWEEP: Sweep = {
    "chosen": {"ROWS": 1, "WIDTH": 16},
    "configurations": [
        {"values": {"ROWS": 1, "WIDTH": 16}, "time_us": {"large": 100.0}, "rounds": 2},
        {"values": {"ROWS": 4, "WIDTH": 16}, "time_us": {"large": 102.0}, "rounds": 2},
        {"values": {"ROWS": 4, "WIDTH": 8}, "time_us": {"large": 130.0}, "rounds": 1},
        {"values": {"ROWS": 1, "WIDTH": 8}, "time_us": {}, "rounds": 0, "failure": "wrong"},
    ],
    "seconds": 3.0,
}


@pytest.fixture
def driver(db: Database) -> Driver:
    return Driver(db, create(db))


def screened(driver: Driver, sweep: Sweep) -> str:
    """The id of a node whose candidate was swept in its screening."""
    work = driver.until("code")
    assert steps.complete_code(driver.db, work.attempt_id, "me", SOURCE, "cpp", [call()], driver.now)
    driver.advance()
    judge = next(one for one in driver.attempts() if (one.kind, one.node_id) == ("judge", work.node.id))
    claimed = driver.claim(judge.id)
    document = verdict("screen", score=1.5, sweep=sweep)
    assert steps.complete_judge(driver.db, claimed.attempt_id, "me", document, driver.now)
    return work.node.id


def test_the_node_becomes_its_best_configuration(driver: Driver) -> None:
    node_id = screened(driver, SWEEP)
    (node,) = (node for node in driver.nodes() if node.id == node_id)
    assert node.source is not None
    assert "\nROWS = 1\n" in node.source
    assert '("-DWIDTH=16",)' in node.source
    assert node.source_digest == normalised_digest(SOURCE), "requests are told apart by what was written"
    with driver.db.reading() as session:
        row = session.scalars(select(VerdictRow).where(VerdictRow.node_id == node_id)).one()
    assert row.source == node.source, "the verdict is on the chosen configuration"
    assert row.document["sweep"]["chosen"] == SWEEP["chosen"]


def test_later_requests_have_the_choice_and_the_ledger_its_line(db: Database) -> None:
    driver = Driver(db, create(db), decide=small_policy(codes=1, ideas=1, rounds=2))
    screened(driver, SWEEP)
    work = driver.until("ideate")
    (tried,) = (one for one in work.ledger if one.sweep is not None)
    assert tried.sweep == SWEEP
    text = build(request_context(work)).messages[1]["content"]
    line = (
        "ROWS=1, WIDTH=16 best of 3 timed, 1 failed; others +2 % time (ROWS=4, WIDTH=16), +30 % time (ROWS=4, WIDTH=8)"
    )
    assert describe_sweep(SWEEP) == line
    assert line in text


@on_both_databases("db")
def test_requests_say_what_the_sweep_of_their_candidate_may_time(db: Database) -> None:
    """As much of the limit as the others leave it, and as many configurations as the search's sweeps had in it."""

    def told(work: steps.Work) -> str:
        text = build(request_context(work)).messages[1]["content"]
        (found,) = re.findall(r"which (?:the judge )?times (as many as .*?):", text)
        return str(found)

    policy = small_policy(codes=1, ideas=2, rounds=2)
    driver = Driver(db, create(db, budget={"sweep_seconds": 20}), decide=policy)
    ideate = driver.until("ideate")
    assert told(ideate) == "as many as 10 device seconds suffice for", "none was timed yet"
    assert driver.complete(ideate)
    for screening in waiting_screenings(driver, [SOURCE, SOURCE.replace("return ROWS", "return ROWS + 1")]):
        work = driver.claim(screening)
        held = verdict("screen", score=1.5, sweep=SWEEP, sweep_seconds=2.0)
        assert steps.complete_judge(db, work.attempt_id, "me", held, driver.now)
    timed = sum(entry["rounds"] > 0 for entry in SWEEP["configurations"])
    later = driver.until("ideate")
    assert later.expected_sweep == ExpectedSweep(8.0, round(8.0 * timed / 2.0))
    assert told(later) == f"as many as 8 device seconds suffice for, about {4 * timed} by what this search has timed"


def test_sweeps_are_counted_and_get_what_the_budget_leaves(db: Database) -> None:
    driver = Driver(db, create(db, budget={"sweep_seconds": 5}))
    first = driver.until("code")
    waiting = [one for one in driver.attempts() if one.kind == "code" and one.state == "pending"]
    second = driver.claim(waiting[0].id)
    for work, written in ((first, SOURCE), (second, SOURCE.replace("return ROWS", "return ROWS + 1"))):
        assert steps.complete_code(db, work.attempt_id, "me", written, "cpp", [call()], driver.now)
    driver.advance()
    waiting = [one for one in driver.attempts() if one.kind == "judge" and one.state == "pending"]
    screening = driver.claim(waiting[0].id)
    assert job_of(screening, limits_with(None))["limits"]["sweep_s"] == 2.5, "the other that waits has its share"
    document = verdict("screen", score=1.5, sweep=SWEEP, sweep_seconds=3.5)
    assert steps.complete_judge(db, screening.attempt_id, "me", document, driver.now)
    assert driver.search().sweep_seconds == 3.5
    later = driver.claim(waiting[1].id)
    assert job_of(later, limits_with(None))["limits"]["sweep_s"] == 1.5
    # One in which nothing was right held the device as well.
    lost = verdict("screen", "rejected", sweep_seconds=4.0)
    assert steps.complete_judge(db, later.attempt_id, "me", lost, driver.now)
    assert driver.search().sweep_seconds == 7.5
    assert driver.search().state == "running"


def waiting_screenings(driver: Driver, sources: list[str]) -> list[str]:
    """The attempts of as many candidates that wait for their screening."""
    first = driver.until("code")
    ids = [one.id for one in driver.attempts() if one.kind == "code" and one.state == "pending"]
    works = [first, *(driver.claim(attempt_id) for attempt_id in ids)]
    for work, text in zip(works, sources, strict=True):
        assert steps.complete_code(driver.db, work.attempt_id, "me", text, "cpp", [call()], driver.now)
    driver.advance()
    return [one.id for one in driver.attempts() if one.kind == "judge" and one.state == "pending"]


@on_both_databases("db")
def test_sweeps_that_run_at_once_share_what_is_left(db: Database) -> None:
    policy = small_policy(codes=1, ideas=8)
    driver = Driver(db, create(db, budget={"sweep_seconds": 40}), decide=policy)
    plain = ["def run(x, y, out):\n    return 0\n", "TUNE = [1]\n\n\ndef run(x, y, out):\n    return 1\n"]
    tuned = [SOURCE.replace("return ROWS", f"return ROWS + {number}") for number in range(6)]
    screenings = waiting_screenings(driver, [*tuned, *plain])
    works = [driver.claim(attempt_id, f"worker {number}") for number, attempt_id in enumerate(screenings)]
    shares = [work.sweep_s for work in works if work.node.source in tuned]
    assert sum(share or 0.0 for share in shares) == pytest.approx(40.0)
    assert shares == pytest.approx([40.0 / 6] * 6), "none takes another's"
    assert [work.sweep_s for work in works if work.node.source not in tuned] == [None, None], "they sweep nothing"
    # What one did not hold is there for the next, also of one whose worker died.
    first, second, *_ = (work for work in works if work.node.source in tuned)
    number = works.index(first)
    document = verdict("screen", score=1.5, sweep_seconds=1.0)
    assert steps.complete_judge(db, first.attempt_id, f"worker {number}", document, driver.now)
    steps.reconcile(db, driver.now + 60.0, SETTINGS)
    again = driver.claim(second.attempt_id, "another")
    assert again.sweep_s == pytest.approx(39.0 / 5)


def test_of_many_that_wait_each_candidate_is_read_once(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(driver.db, create(driver.db, budget={"sweep_seconds": 40}), decide=small_policy(codes=1, ideas=6))
    tuned = [SOURCE.replace("return ROWS", f"return ROWS + {100 + number}") for number in range(6)]
    screenings = waiting_screenings(driver, tuned)
    read: list[ast.Module] = []

    def read_and_count(tree: ast.Module) -> Tunables | None:
        read.append(tree)
        return read_tunables(tree)

    monkeypatch.setattr(tunables, "read_tunables", read_and_count)
    tunables.has_configurations.cache_clear()  # on the other database the same sources were read in this process
    shares = [driver.claim(attempt_id, f"worker {number}").sweep_s for number, attempt_id in enumerate(screenings)]
    assert shares == pytest.approx([40.0 / 6] * 6)
    assert len(read) == len(tuned)


def test_a_sweep_reserves_no_more_than_it_may_hold_at_all(db: Database) -> None:
    driver = Driver(db, create(db, budget={"sweep_seconds": 1000}), decide=small_policy(codes=1, ideas=2))
    works = [driver.claim(each) for each in waiting_screenings(driver, [SOURCE, SOURCE.replace("ROWS\n", "-ROWS\n")])]
    assert [work.sweep_s for work in works] == [SWEEP_S, SWEEP_S]


def test_requests_recommend_no_tunables_when_no_sweep_seconds_are_left(db: Database) -> None:
    driver = Driver(db, create(db, budget={"sweep_seconds": 2}), decide=small_policy(codes=1, ideas=1, rounds=2))
    advice = "may be left to the judge"
    assert advice in build(request_context(driver.until("ideate"))).messages[1]["content"]
    driver = Driver(db, create(db, budget={"sweep_seconds": 2}), decide=small_policy(codes=1, ideas=1, rounds=2))
    work = driver.until("code")
    assert advice in build(request_context(work)).messages[1]["content"]
    assert steps.complete_code(db, work.attempt_id, "me", SOURCE, "cpp", [call()], driver.now)
    driver.advance()
    judge = next(one for one in driver.attempts() if (one.kind, one.node_id) == ("judge", work.node.id))
    document = verdict("screen", "rejected", sweep_seconds=2.5)
    assert steps.complete_judge(db, driver.claim(judge.id).attempt_id, "me", document, driver.now)
    later = driver.until("code")
    assert advice not in build(request_context(later)).messages[1]["content"]


def test_requests_recommend_no_tunables_while_screenings_hold_all_sweep_seconds(db: Database) -> None:
    """The search has its seconds yet; none of them is for another candidate."""
    driver = Driver(db, create(db, budget={"sweep_seconds": 40}), decide=small_policy(codes=1, ideas=7))
    later = driver.until("code")
    others = [one.id for one in driver.attempts() if one.kind == "code" and one.state == "pending"]
    for number, attempt_id in enumerate(others):
        written = SOURCE.replace("return ROWS", f"return ROWS + {number}")
        assert steps.complete_code(db, driver.claim(attempt_id).attempt_id, "me", written, "cpp", [call()], driver.now)
    driver.advance()
    steps.reconcile(db, driver.now + 60.0, SETTINGS)  # the first one's worker died
    held = [driver.claim(one.id) for one in driver.attempts() if (one.kind, one.state) == ("judge", "pending")]
    assert sum(work.sweep_s or 0.0 for work in held) == pytest.approx(40.0)
    again = driver.claim(later.attempt_id, "another")
    assert "may be left to the judge" not in build(request_context(again)).messages[1]["content"]


@pytest.mark.parametrize(
    ("expected", "worthwhile"),
    [
        (ExpectedSweep(), True),
        (ExpectedSweep(0.0), False),
        (ExpectedSweep(7e-15), False),
        (ExpectedSweep(8.0, 2), True),
        (ExpectedSweep(8.0, 1), False),
        (ExpectedSweep(8.0, 0), False),
    ],
)
def test_a_sweep_is_worthwhile_where_it_should_time_more_than_the_default(
    expected: ExpectedSweep, worthwhile: bool
) -> None:
    assert expected.is_worthwhile == worthwhile


def test_the_pace_of_slow_sweeps_rounds_to_no_configuration(db: Database) -> None:
    driver = Driver(db, create(db, budget={"sweep_seconds": 40}), decide=small_policy(codes=1, ideas=1, rounds=2))
    work = driver.until("code")
    assert steps.complete_code(db, work.attempt_id, "me", SOURCE, "cpp", [call()], driver.now)
    driver.advance()
    judge = next(one for one in driver.attempts() if (one.kind, one.node_id) == ("judge", work.node.id))
    document = verdict("screen", score=1.5, sweep=SWEEP, sweep_seconds=38.0)
    assert steps.complete_judge(db, driver.claim(judge.id).attempt_id, "me", document, driver.now)
    later = driver.until("ideate")
    assert later.expected_sweep == ExpectedSweep(2.0, 0)
    assert "may be left to the judge" not in build(request_context(later)).messages[1]["content"]


def test_a_search_without_a_limit_asks_for_none(driver: Driver) -> None:
    assert "sweep_s" not in job_of(driver.until("judge"), limits_with(None))["limits"]


def test_a_configuration_that_the_candidate_has_not_is_refused(driver: Driver) -> None:
    with pytest.raises(ValueError, match="configuration: found ROWS=2"):
        screened(driver, {**SWEEP, "chosen": {"ROWS": 2, "WIDTH": 16}})
    assert not [node for node in driver.nodes() if node.verdict == "accepted" and node.seq > 0]


def test_a_workload_that_another_configuration_would_serve_better_is_named() -> None:
    found: Sweep = {
        "chosen": {"A": 1},
        "configurations": [
            {"values": {"A": 1}, "time_us": {"long": 100.0, "short": 10.0}, "rounds": 2},
            {"values": {"A": 2}, "time_us": {"long": 120.0, "short": 9.0}, "rounds": 2},
        ],
        "seconds": 1.0,
    }
    assert describe_sweep(found) == "A=1 best of 2 timed; others +3.92 % time (A=2); on short A=2 -10 % time"
    # What occurs more often weighs more.
    assert "+14.4 % time (A=2)" in describe_sweep(found, {"long": 5.0, "short": 1.0})


LED: Sweep = {
    **SWEEP,
    "configurations": [
        *SWEEP["configurations"][:1],
        {"values": {"ROWS": 4, "WIDTH": 16}, "time_us": {"large": 50.0}, "rounds": 2},
    ],
}


def test_a_verification_has_the_leaders_of_its_sweep_and_the_kernel_is_what_was_verified(db: Database) -> None:
    driver = Driver(db, create(db, budget={"sweep_seconds": 9}), decide=small_policy(codes=1, ideas=1))
    node_id = screened(driver, LED)
    work = driver.until("verify")
    assert (work.node.id, work.configurations, work.sweep_s) == (node_id, ({"ROWS": 4, "WIDTH": 16},), 9.0)
    assert "sweep_s" not in job_of(work, limits_with(None))["limits"], "a verification sweeps nothing"
    document = verdict("verify", score=1.5, sweep_seconds=2.0)
    assert steps.complete_judge(db, work.attempt_id, "me", document, driver.now)
    assert driver.search().sweep_seconds == 2.0
    with db.writing() as session:
        assert keep_winner(session, session.get_one(SearchRow, driver.search_id), driver.now) is not None
        kernel = session.scalars(select(KernelRow)).one()
        assert "\nROWS = 1\n" in kernel.source
        check_exportable({"path.kernel_id": kernel.id}, [collect_kernel(session, kernel)])


def verify_further(work: steps.Work, found: Verdict, judged: Verdict | None = None, **changes: Any) -> Verdict:
    """Put the further configurations of `work` on its verdict; `judged`: what the judge says of each, None: nothing."""

    def judge(_job: Job, _left_s: float) -> Verdict:
        assert judged is not None, "a further configuration was begun"
        return judged

    options: dict[str, Any] = {"device_s": work.sweep_s, "timeout_s": 600.0, "began": time.monotonic(), **changes}
    verify_configurations(job_of(work, limits_with(None)), found, work.configurations, judge=judge, **options)
    return found


def test_without_device_seconds_or_acceptance_no_configuration_is_verified(db: Database) -> None:
    driver = Driver(db, create(db), decide=small_policy(codes=1, ideas=1))
    screened(driver, LED)
    work = driver.until("verify")
    assert "configurations" not in verify_further(work, verdict("verify", "rejected"))
    (unjudged,) = verify_further(work, verdict("verify", score=1.5), device_s=0.0)["configurations"]
    assert "verdict" not in unjudged
    assert unjudged["reason"] == "not verified: no device seconds are left for sweeps"
    assert unjudged["source"] == specialise(SOURCE, unjudged["values"])
    (late,) = verify_further(work, verdict("verify", score=1.5), began=-1e9)["configurations"]
    assert late["reason"] == "not verified: the step has no time left for it"


def test_what_configurations_took_is_in_the_gates_too(db: Database) -> None:
    driver = Driver(db, create(db), decide=small_policy(codes=1, ideas=1))
    screened(driver, LED)
    work = driver.until("verify")
    judged, found = verdict("verify", score=1.5), verdict("verify", score=1.5)
    judged["seconds"] = {"verify": 3.0, "time": 2.0, "exclusive": 4.0}
    found["seconds"] = {"gate": 0.5, "verify": 1.0, "exclusive": 1.0}
    verify_further(work, found, judged)
    assert found["seconds"] == {"gate": 0.5, "verify": 4.0, "time": 2.0, "exclusive": 5.0}
    assert found["sweep_seconds"] == 4.0
    gates = sum(seconds for gate, seconds in found["seconds"].items() if gate != "exclusive")
    assert gates >= found["seconds"]["exclusive"], "a device is held within the gates"

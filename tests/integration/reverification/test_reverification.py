"""Re-verifications on both databases: asked for once, taken once, ended once; what is due, and what the schedule asks
for. The judge of these tests says what it is told to; test_reverification_judge.py has a real one."""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select, text

from tests import REPOSITORY
from tests.services import on_both_databases
from tests.support import scenario
from tests.support.reverifying import ToldWorker, evidence, history, keep, kernel, report_judge
from tests.support.steps_support import OP, Driver, create, verdict
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.job.protocol_number import BEFORE_PROTOCOLS, PROTOCOL
from warpsmith.kernels_db.runtime import CompileError, HostError, cpp, cuda_build
from warpsmith.kernels_db.spec.op import Target
from warpsmith.kernels_db.spec.resolve import build_job
from warpsmith.kernels_db.store import listing, records
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.ids import new_id
from warpsmith.kernels_db.store.reverification_due import DAY_S, Present, due, present, presents
from warpsmith.kernels_db.store.tables import BundleJobRow, KernelRow, OpRow, ReverificationRow, VerdictRow
from warpsmith.service.views.kernels import make_kernel_summaries
from warpsmith.workers.gate.sources import kernel_sources
from warpsmith.workers.judge import languages
from warpsmith.workers.judge.gates import candidates, referee
from warpsmith.workers.judge.gates.verdict import Report, Stopped
from warpsmith.workers.judge.languages import CompileLimits, child, compile_service, cuda_child
from warpsmith.workers.judge.protocol.client import JobRefused, JudgeDied
from warpsmith.workers.judge.runner.faults import RunnerFault, ended
from warpsmith.workers.queue.reverification_task import perform_reverification
from warpsmith.workers.reverification import Finding, ask, claim, finding, finish, reconcile, renew, sweep
from warpsmith.workers.settings import Settings

HOLDS = Finding("holds", "right, and fast")
NOTHING = Finding("unknown", "nobody knows")
SETTINGS = Settings(lease_s=30.0, resend_after_s=10.0, max_tries=2, reverify_period_days=10.0)


def asked(db: Database, kernel_id: str, now: float = 1000.0) -> str:
    with db.writing() as session:
        return ask(session, kernel_id, now, cause="asked")[0].id


def row_of(db: Database, row_id: str) -> ReverificationRow:
    with db.reading() as session:
        return session.get_one(ReverificationRow, row_id)


def judged(db: Database, kernel_id: str, found: Finding, now: float, fingerprint: str = "f") -> None:
    row_id = asked(db, kernel_id, now)
    assert claim(db, row_id, "me", 30.0, now) is not None
    assert finish(db, row_id, "me", found, verdict("verify", score=1.5, fingerprint=fingerprint), now)


def due_now(db: Database, now: float, period_days: float = 10.0) -> set[str]:
    with db.reading() as session:
        return set(session.scalars(select(KernelRow.id).where(due(presents(session), now, period_days * DAY_S))))


def at_once(work: Callable[[int], Any], threads: int = 6) -> list[Any]:
    """What `work` returned in so many threads that started together."""
    start, found = threading.Barrier(threads), []

    def run(number: int) -> None:
        start.wait(30)
        found.append(work(number))

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    assert len(found) == threads
    return found


def test_however_many_ask_and_take_it_is_judged_once(db: Database) -> None:
    kernel_id = keep(db, OP)
    ids = at_once(lambda _: asked(db, kernel_id))
    assert len(set(ids)) == 1
    assert [row.ordinal for row in history(db, kernel_id)] == [1]
    taken = at_once(lambda number: claim(db, ids[0], f"worker-{number}", 30.0, 1001.0))
    [work] = [each for each in taken if each is not None]
    assert (work.kernel_id, work.language, work.source) == (kernel_id, "cpp", kernel(db, kernel_id).source)
    owner = row_of(db, ids[0]).owner
    ended = at_once(lambda number: finish(db, ids[0], f"worker-{number}", HOLDS, verdict("verify", score=1.5), 1002.0))
    assert ended.count(True) == 1
    assert row_of(db, ids[0]).owner == owner
    assert asked(db, kernel_id, 1003.0) != ids[0]
    assert [row.ordinal for row in history(db, kernel_id)] == [1, 2]


def test_what_was_found_is_kept_with_what_it_was_held_against(db: Database) -> None:
    kernel_id = keep(db, OP, evidence=evidence("then", 2.0))
    now: dict[str, Any] = {"fingerprint": "now", "versions": {"torch": "3"}, "device": {"name": "a CPU"}}
    row_id = asked(db, kernel_id)
    assert claim(db, row_id, "me", 30.0, 1001.0) is not None
    assert finish(db, row_id, "me", Finding("slower", "slow\0er"), verdict("verify", score=0.5, **now), 1002.0)
    assert (kernel(db, kernel_id).standing, kernel(db, kernel_id).reverified_at) == ("slower", 1002.0)
    row = row_of(db, row_id)
    assert (row.state, row.outcome, row.fingerprint, row.finished_at) == ("done", "slower", "now", 1002.0)
    assert row.reason is not None
    assert row.reason.startswith("slow")
    assert row.verdict is not None
    assert row.before is not None
    assert (row.verdict["score"], row.before["score"]) == (0.5, 2.0)
    assert (row.before["fingerprint"], row.before["versions"]) == ("then", {"torch": "2"})
    assert [workload["speedup"]["eager"] for workload in row.before["workloads"]] == [2.0, 2.0]


def test_a_kernel_of_an_older_protocol_says_so_until_it_is_judged_under_the_present_one(db: Database) -> None:
    kernel_id = keep(db, OP)

    def protocol() -> tuple[int, bool]:
        with db.reading() as session:
            [found] = make_kernel_summaries(session, [session.get_one(KernelRow, kernel_id)], {}, 0.0)
            assert found.verification is not None
            return found.verification.protocol, found.verification.outdated_protocol

    assert protocol() == (BEFORE_PROTOCOLS, True)
    judged(db, kernel_id, HOLDS, 1000.0)
    assert protocol() == (BEFORE_PROTOCOLS, True)
    row_id = asked(db, kernel_id, 2000.0)
    assert claim(db, row_id, "me", 30.0, 2000.0) is not None
    assert finish(db, row_id, "me", HOLDS, verdict("verify", score=1.5, protocol=PROTOCOL), 2000.0)
    assert protocol() == (PROTOCOL, False)


def test_what_could_not_be_told_leaves_the_kernel_as_it_was(db: Database) -> None:
    kernel_id = keep(db, OP)
    judged(db, kernel_id, Finding("wrong", "element 3"), 1000.0)
    judged(db, kernel_id, NOTHING, 2000.0)
    assert (kernel(db, kernel_id).standing, kernel(db, kernel_id).reverified_at) == ("wrong", 1000.0)
    judged(db, kernel_id, HOLDS, 3000.0)
    assert (kernel(db, kernel_id).standing, kernel(db, kernel_id).reverified_at) == ("holds", 3000.0)
    assert [row.outcome for row in history(db, kernel_id)] == ["wrong", "unknown", "holds"]


def test_whoever_lost_the_lease_writes_nothing(db: Database) -> None:
    kernel_id = keep(db, OP)
    row_id = asked(db, kernel_id)
    assert claim(db, row_id, "first", 30.0, 1000.0) is not None
    report_judge(db, 0.0, 1030.0)
    assert reconcile(db, 1029.0, SETTINGS) == []
    [message] = reconcile(db, 1031.0, SETTINGS)
    assert message.attempt_id == row_id
    assert claim(db, row_id, "second", 30.0, 1032.0) is not None
    assert not renew(db, row_id, "first", 30.0, 1033.0)
    assert not finish(db, row_id, "first", Finding("wrong", "late"), verdict("verify"), 1034.0)
    assert kernel(db, kernel_id).standing == "verified"
    assert renew(db, row_id, "second", 30.0, 1033.0)
    assert finish(db, row_id, "second", HOLDS, verdict("verify"), 1034.0)
    assert claim(db, row_id, "third", 30.0, 1035.0) is None
    assert row_of(db, row_id).tries == 2


def test_a_lost_message_is_sent_again_ever_more_rarely(db: Database) -> None:
    asked(db, keep(db, OP), 1000.0)
    report_judge(db, 0.0, 1031.0)
    assert reconcile(db, 1009.0, SETTINGS) == []
    assert len(reconcile(db, 1010.0, SETTINGS)) == 1
    assert reconcile(db, 1011.0, SETTINGS) == []
    assert len(reconcile(db, 1020.0, SETTINGS)) == 1
    assert reconcile(db, 1031.0, SETTINGS) == []


def test_without_a_judge_nothing_is_sent_again_and_waiting_ends(db: Database) -> None:
    kernel_id = keep(db, OP)
    row_id = asked(db, kernel_id, 1000.0)
    report_judge(db, 0.0, 1000.0, target="cuda:sm_90")
    assert reconcile(db, 2000.0, SETTINGS) == []
    assert claim(db, row_id, "me", 30.0, 2000.0) is not None
    assert reconcile(db, 3000.0, SETTINGS) == []  # its worker died, and there is no other
    assert (row_of(db, row_id).state, row_of(db, row_id).sent_at) == ("pending", None)
    report_judge(db, 3000.0, 3001.0)
    assert len(reconcile(db, 3001.0, SETTINGS)) == 1
    assert reconcile(db, 6.9 * DAY_S, SETTINGS) == []
    assert row_of(db, row_id).state == "pending"
    assert reconcile(db, 7.1 * DAY_S, SETTINGS) == []
    row = row_of(db, row_id)
    assert (row.state, row.outcome, row.reason) == (
        "done",
        "unknown",
        f"gave up: no judge of {row.target} came within 7 days",
    )
    assert kernel(db, kernel_id).standing == "verified"


def test_a_busy_judge_is_waited_for_as_long_as_it_takes(db: Database) -> None:
    row_id = asked(db, keep(db, OP), 1000.0)
    report_judge(db, 0.0, 30 * DAY_S)
    assert [message.attempt_id for message in reconcile(db, 30 * DAY_S, SETTINGS)] == [row_id]


def test_a_kernel_that_kills_its_judge_each_time_is_given_up(db: Database) -> None:
    kernel_id = keep(db, OP)
    row_id = asked(db, kernel_id)
    for number in range(2):
        assert claim(db, row_id, f"worker-{number}", 30.0, 1000.0 + 100 * number) is not None
        report_judge(db, 0.0, 1050.0 + 100 * number)
        messages = reconcile(db, 1050.0 + 100 * number, SETTINGS)
        assert len(messages) == 1 - number
    row = row_of(db, row_id)
    assert (row.state, row.outcome, row.verdict) == ("done", "unknown", None)
    assert row.reason == "gave up after 2 tries: the judge or its worker died each time"
    assert kernel(db, kernel_id).standing == "verified"


def test_a_kernel_that_a_search_keeps_again_stands_as_kept(db: Database) -> None:
    driver = Driver(db, create(db))
    driver.run()
    with db.reading() as session:
        first = session.scalars(select(KernelRow)).one()
    judged(db, first.id, Finding("slower", "slow"), 5000.0)
    again = Driver(db, create(db, 9000.0), now=9000.0)
    again.run()  # the same luck finds the same candidate
    found = kernel(db, first.id)
    assert (found.id, found.standing, found.reverified_at) == (first.id, "verified", None)
    assert found.verified_at > 9000.0 > found.created_at


def test_a_kernel_that_is_kept_again_meanwhile_stands_as_kept(db: Database) -> None:
    kernel_id = keep(db, OP, at=500.0, evidence=evidence("then", 2.0))
    row_id = asked(db, kernel_id)
    work = claim(db, row_id, "me", 30.0, 1001.0)
    assert work is not None
    with db.writing() as session:
        row = session.get_one(KernelRow, kernel_id)
        row.verified_at, row.evidence = 1002.0, evidence("again", 3.0)
    assert finish(db, row_id, "me", Finding("slower", "slow"), verdict("verify", score=0.5), 1003.0)
    assert (kernel(db, kernel_id).standing, kernel(db, kernel_id).reverified_at) == ("verified", None)
    ended = row_of(db, row_id)
    assert ended.before is not None
    assert (ended.outcome, ended.before["fingerprint"], ended.before["score"]) == ("slower", "then", 2.0)
    assert work.evidence["score"] == 2.0


def test_kernels_that_drifted_are_not_offered_to_searches(db: Database) -> None:
    source = "kernels = 1\n\ndef run(x, y, out):\n    kernels.f(x)\n"
    kernels = {standing: keep(db, OP, source, standing=standing) for standing in ("verified", "wrong", "slower")}
    kernels["uncompilable"] = keep(db, OP, source, standing="uncompilable")
    with db.reading() as session:
        offers = records.similar_kernels(session, OP, Target("cpu", kernel(db, kernels["wrong"]).target[4:]), "cpp", 9)
        assert {offer.kernel.id for offer in offers} == {kernels["verified"], kernels["slower"]}
        listed = listing.list_kernels(session, limit=9, standing=("wrong", "uncompilable")).items
        assert {row.id for row in listed} == {kernels["wrong"], kernels["uncompilable"]}


def present_at(db: Database, target: str) -> Present | None:
    with db.reading() as session:
        return present(session, target)


def merge(db: Database, *rows: VerdictRow) -> None:
    """These verdicts came in a bundle."""
    with db.writing() as session:
        for row in rows:
            held = {"search_id": row.search_id, "attempt_id": row.attempt_id, "job_digest": "d"}
            session.add(BundleJobRow(id=new_id("bj"), bundle_id="bd_1", created_at=1.0, merged_at=2.0, **held))


def test_a_verdict_of_another_device_tells_nothing_of_the_target(db: Database) -> None:
    driver = Driver(db, create(db))
    driver.run()
    target = driver.search().target
    with db.writing() as session:
        *older, newest = session.scalars(select(VerdictRow).order_by(VerdictRow.id)).all()
        newest.document = {**newest.document, "fingerprint": "elsewhere", "device": {"type": "cuda", "arch": "sm_90"}}
        before = older[-1].created_at
    assert present_at(db, target) == Present("f", before, own=True)
    row_id = asked(db, keep(db, OP, target=target), 9000.0)
    assert claim(db, row_id, "me", 30.0, 9000.0) is not None
    device = {"type": "cpu", "arch": "s390x"}
    assert finish(db, row_id, "me", NOTHING, verdict("verify", fingerprint="elsewhere", device=device), 9001.0)
    assert present_at(db, target) == Present("f", before, own=True)


def test_no_verdict_is_read_for_a_target_that_no_search_is_for(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    Driver(db, create(db)).run()
    read: list[str] = []
    with db.reading() as session:
        execute = session.execute

        def watched(statement: Any, *more: Any, **options: Any) -> Any:
            read.append(str(statement))
            return execute(statement, *more, **options)

        monkeypatch.setattr(session, "execute", watched)
        assert present(session, "cuda:sm_75") is None
        assert all("searches.target = " in statement for statement in read if "FROM verdicts" in statement)
        assert present(session, "cpu:x86_64") is not None
        assert [statement for statement in read if "FROM verdicts" in statement]


def test_present_is_what_the_newest_verdict_of_an_own_judge_says(db: Database) -> None:
    driver = Driver(db, create(db))
    driver.run()
    target = driver.search().target
    with db.writing() as session:
        *older, newest = session.scalars(select(VerdictRow).order_by(VerdictRow.id)).all()
        newest.document = {**newest.document, "fingerprint": "newest"}
        before = older[-1].created_at
    assert present_at(db, target) == Present("newest", newest.created_at, own=True)
    assert present_at(db, "cuda:sm_90") is None
    merge(db, newest)
    assert present_at(db, target) == Present("f", before, own=True)
    merge(db, *older)
    assert present_at(db, target) == Present("newest", newest.created_at, own=False)
    judged(db, keep(db, OP, target=target), HOLDS, 9000.0, "again")
    assert present_at(db, target) == Present("again", 9000.0, own=True)


def test_due_is_what_nobody_judged_under_the_present_or_for_long(db: Database) -> None:
    first, second = (keep(db, OP, at=0.0, evidence=evidence("old")) for _ in range(2))
    new = keep(db, OP, at=5 * DAY_S, evidence=evidence("new"))
    elsewhere = keep(db, OP, at=5 * DAY_S, target="cuda:sm_90")
    assert due_now(db, 5 * DAY_S) == set()  # nothing was judged since
    judged(db, first, NOTHING, 6 * DAY_S, "new")  # tells what is present, and nothing of the kernel
    assert due_now(db, 6 * DAY_S) == {first, second}
    judged(db, first, Finding("slower", "slow"), 6 * DAY_S, "new")
    assert due_now(db, 6 * DAY_S) == {second}
    judged(db, second, HOLDS, 7 * DAY_S, "new")
    assert due_now(db, 7 * DAY_S) == set()
    assert due_now(db, 15.5 * DAY_S) == {new, elsewhere}
    assert due_now(db, 17 * DAY_S) == {first, second, new, elsewhere}
    assert due_now(db, 17 * DAY_S, period_days=0.0) == set()
    judged(db, new, HOLDS, 17 * DAY_S, "newer")
    assert due_now(db, 17 * DAY_S, period_days=0.0) == {first, second}
    judged(db, new, HOLDS, 18 * DAY_S, "new")  # the old driver is back: what was judged under it has been
    assert due_now(db, 18 * DAY_S, period_days=0.0) == set()


def test_drift_under_an_upgrade_is_due_once_the_upgrade_is_taken_back(db: Database) -> None:
    first = keep(db, OP, at=0.0, evidence=evidence("old"))
    second = keep(db, OP, at=0.0, evidence=evidence("old"))
    judged(db, first, Finding("wrong", "element 3"), DAY_S, "new")
    judged(db, second, HOLDS, DAY_S, "new")
    assert due_now(db, DAY_S) == set()
    other = keep(db, OP, at=0.0, evidence=evidence("old"))
    judged(db, other, HOLDS, 2 * DAY_S, "old")  # the old driver is back
    assert due_now(db, 2 * DAY_S) == {first}
    judged(db, first, HOLDS, 3 * DAY_S, "old")
    assert due_now(db, 3 * DAY_S) == set()


def swept(db: Database, now: float) -> list[str]:
    """The kernels that a look at `now` asks for."""
    rows = [row_of(db, message.attempt_id) for message in sweep(db, now, SETTINGS)]
    assert all((row.cause, row.state) == ("schedule", "pending") for row in rows)
    return [row.kernel_id for row in rows]


def settle(db: Database, now: float, found: Finding = HOLDS, fingerprint: str = "new") -> None:
    """Bring a result to everything that is open."""
    with db.reading() as session:
        rows = session.scalars(select(ReverificationRow.id).where(ReverificationRow.state == "pending")).all()
    for row_id in rows:
        assert claim(db, row_id, "me", 30.0, now) is not None
        assert finish(db, row_id, "me", found, verdict("verify", fingerprint=fingerprint), now)


def test_the_schedule_asks_for_few_at_a_time_the_longest_unjudged_first(db: Database) -> None:
    kernels = [keep(db, OP, at=float(number), evidence=evidence("old")) for number in range(6)]
    now = 20 * DAY_S
    assert swept(db, now) == []  # no judge lives
    report_judge(db, 0.0, now - 60.0)
    assert swept(db, now) == []
    report_judge(db, 0.0, now)
    assert swept(db, now) == kernels[:4]
    assert swept(db, now) == []
    settle(db, now)
    report_judge(db, 0.0, now + 600.0)
    assert swept(db, now + 600.0) == kernels[4:]
    settle(db, now + 600.0)
    report_judge(db, 0.0, now + 1200.0)
    assert swept(db, now + 1200.0) == []


@on_both_databases("db")
def test_two_looks_at_once_ask_for_nothing_twice(db: Database) -> None:
    kernels = {keep(db, OP, at=0.0) for _ in range(4)}
    report_judge(db, 0.0, 20 * DAY_S)
    looks = at_once(lambda _: swept(db, 20 * DAY_S), threads=3)
    assert sorted(each for look in looks for each in look) == sorted(kernels)


def test_a_judge_that_started_anew_is_asked_what_it_has_by_one_kernel(db: Database) -> None:
    first, second = (keep(db, OP, at=float(number), evidence=evidence("old")) for number in range(2))
    report_judge(db, 100.0, 200.0)
    assert swept(db, 200.0) == [first]
    assert swept(db, 200.0) == []  # it is under way
    settle(db, 300.0, fingerprint="old")
    report_judge(db, 100.0, 300.0)
    assert swept(db, 300.0) == []  # nothing has changed
    report_judge(db, 400.0, 500.0)
    assert swept(db, 500.0) == [second]
    settle(db, 600.0, fingerprint="new")
    report_judge(db, 400.0, 600.0)
    assert swept(db, 600.0) == [first]  # everything has


def test_a_judge_that_can_tell_nothing_is_asked_by_one_kernel_a_day(db: Database) -> None:
    kernels = [keep(db, OP, at=float(number), evidence=evidence("old")) for number in range(3)]
    device = {"type": "cuda", "arch": "sm_90"}
    for started_at, now, expected in (
        (100.0, 200.0, kernels[:1]),
        (100.0, 900.0, []),  # another kernel would tell no more
        (1000.0, 1100.0, kernels[1:2]),  # another judge may
        (1000.0, 1200.0, []),
        (1000.0, 1200.0 + DAY_S, kernels[:1]),
    ):
        report_judge(db, started_at, now)
        assert swept(db, now) == expected
        for row in (row for each in kernels for row in history(db, each) if row.state == "pending"):
            assert claim(db, row.id, "me", 30.0, now) is not None
            assert finish(db, row.id, "me", NOTHING, verdict("verify", device=device), now)


def test_a_kernel_of_which_nothing_could_be_told_rests_for_a_day(db: Database) -> None:
    kernel_id = keep(db, OP, at=0.0)
    now = 20 * DAY_S
    report_judge(db, 0.0, now)
    assert swept(db, now) == [kernel_id]
    settle(db, now, NOTHING, "f")
    for later, expected in ((600.0, []), (DAY_S - 1.0, []), (DAY_S + 1.0, [kernel_id])):
        report_judge(db, 0.0, now + later)
        assert swept(db, now + later) == expected
    assert kernel_id in due_now(db, now + 600.0)  # whoever asks by hand is not kept from it


def wrong() -> Verdict:
    return verdict("verify", "rejected", reason="out[3] is 0")


@pytest.mark.parametrize(
    ("answer", "standing", "outcome", "reason"),
    [
        (verdict("verify", score=1.5), "holds", "holds", "right, and"),
        (wrong(), "wrong", "wrong", "out[3] is 0"),
        (verdict("verify", "quarantined", gate="physics"), "verified", "unknown", "quarantined at physics"),
        (JobRefused("job.target", "cpu", "another"), "verified", "unknown", "the judge refuses the job"),
        (RuntimeError("a fault of ours"), "verified", "unknown", "RuntimeError: a fault of ours"),
    ],
)
def test_a_worker_judges_and_stores(
    db: Database, tmp_path: Path, answer: Verdict | Exception, standing: str, outcome: str, reason: str
) -> None:
    kernel_id = keep(db, OP)
    row_id = asked(db, kernel_id)
    here = ToldWorker(db, tmp_path, answer)
    perform_reverification(here, row_id)
    perform_reverification(here, row_id)  # its message came twice
    [job] = here.double.jobs
    assert (job["level"], job["candidate"]) == ("verify", {"language": "cpp", "source": kernel(db, kernel_id).source})
    row = row_of(db, row_id)
    assert (kernel(db, kernel_id).standing, row.outcome, row.owner is None) == (standing, outcome, False)
    assert row.reason is not None
    assert row.reason.startswith(reason)


def test_a_judge_that_dies_leaves_it_to_the_next_try(db: Database, tmp_path: Path) -> None:
    kernel_id = keep(db, OP)
    row_id = asked(db, kernel_id)
    here = ToldWorker(db, tmp_path, JudgeDied("killed"), verdict("verify", score=1.5))
    perform_reverification(here, row_id)
    row = row_of(db, row_id)
    assert (row.state, row.tries) == ("running", 1)
    assert row.lease_expires_at is not None
    report_judge(db, 0.0, row.lease_expires_at)
    [message] = reconcile(db, row.lease_expires_at + 0.01, SETTINGS)
    perform_reverification(here, message.attempt_id)
    assert (row_of(db, row_id).outcome, row_of(db, row_id).tries) == ("holds", 2)


def test_a_worker_that_lost_its_device_says_nothing_of_a_kernel(db: Database, tmp_path: Path) -> None:
    kernel_id = keep(db, OP)
    row_id = asked(db, kernel_id)
    here = ToldWorker(db, tmp_path, wrong())
    here.ill = "another job lost the GPU"
    perform_reverification(here, row_id)
    assert (row_of(db, row_id).state, row_of(db, row_id).outcome) == ("running", None), "the reconciler returns it"
    assert kernel(db, kernel_id).standing == "verified"


def test_an_op_that_this_version_refuses_says_nothing_of_its_kernel(db: Database, tmp_path: Path) -> None:
    kernel_id = keep(db, OP)
    with db.writing() as session:
        session.get_one(OpRow, session.get_one(KernelRow, kernel_id).op_id).spec = {"schema_version": 99}
    row_id = asked(db, kernel_id)
    perform_reverification(ToldWorker(db, tmp_path), row_id)
    row = row_of(db, row_id)
    assert (row.outcome, kernel(db, kernel_id).standing) == ("unknown", "verified")
    assert row.reason is not None
    assert "schema_version" in row.reason


def test_a_kernel_that_is_not_there(db: Database) -> None:
    with db.writing() as session, pytest.raises(LookupError, match="expected the id of a stored kernel"):
        ask(session, "kn_0", 1.0, cause="asked")
    assert claim(db, "rv_0", "me", 30.0, 1.0) is None
    assert not finish(db, "rv_0", "me", HOLDS, None, 1.0)


def test_kernels_of_an_older_database_stand_as_kept(tmp_path: Path) -> None:
    old = Database(f"sqlite:///{tmp_path / 'old.db'}")
    old.upgrade("0003")
    with old.writing() as session:
        session.execute(text("INSERT INTO ops VALUES ('op_1', 'add_relu', 'd', '{}', 5.0)"))
        session.execute(
            text(
                "INSERT INTO kernels (id, op_id, target, language, source, source_digest, score, ci_low, ci_high,"
                " envelope, evidence, lineage, created_at)"
                " VALUES ('kn_1', 'op_1', 'cpu:x86_64', 'cpp', '', 'd', 2.0, 1.9, 2.1, '{}', '{}', '[]', 7.0)"
            )
        )
    old.upgrade()
    found = kernel(old, "kn_1")
    assert (found.verified_at, found.standing, found.reverified_at) == (7.0, "verified", None)
    assert due_now(old, 20 * DAY_S) == {"kn_1"}
    old.dispose()


def test_a_judge_without_a_compiler_marks_nothing_as_drifted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = scenario.candidate(scenario.LOOP)
    job = build_job(scenario.op(), Target.parse("cpu"), level="verify", candidate={"language": "cpp", "source": source})
    monkeypatch.setenv("CXX", "no-such-compiler")
    with forgotten(), pytest.raises(Stopped, match="no C\\+\\+ compiler") as stopped:
        candidates.prepare(job, Report(job), tmp_path)
    assert (stopped.value.verdict, stopped.value.gate) == ("ambiguous", "compile")
    told = verdict("verify", stopped.value.verdict, gate=stopped.value.gate)
    assert finding(evidence(), told).outcome == "unknown"


@contextmanager
def forgotten() -> Iterator[None]:
    """What the runtime knows of the compiler is asked again, inside and afterwards."""
    for known in (cpp.compiler, cpp.toolchain):
        known.cache_clear()
    try:
        yield
    finally:
        for known in (cpp.compiler, cpp.toolchain):
            known.cache_clear()


def test_a_judge_without_nvrtc_marks_nothing_as_drifted(monkeypatch: pytest.MonkeyPatch) -> None:
    source = (REPOSITORY / "tests" / "candidates" / "add_relu_cuda.py").read_text()
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    cuda_build.toolchain.cache_clear()
    try:
        with pytest.raises(HostError, match="NVRTC is not installed"):
            languages.prepare(source, "cuda", target_arch="sm_90", cache_dir=Path("unused"), limits=CompileLimits())
        request = {"sources": [dataclasses.asdict(each) for each in kernel_sources(source)], "arch": "sm_90"}
        answer = cuda_child.compile_candidate(request)
    finally:
        cuda_build.toolchain.cache_clear()
    assert answer["host"] is True


@pytest.mark.parametrize(
    ("code", "timed_out", "printed", "answer", "raised", "cause"),
    [
        (0, False, "", {"error": "line 3: no such name", "log": ""}, CompileError, None),
        (0, False, "", {"error": "NVRTC is not installed", "log": "", "host": True}, HostError, None),
        (-signal.SIGKILL, True, "", None, CompileError, "timeout"),
        (-signal.SIGXCPU, False, "", None, CompileError, "timeout"),
        (1, False, "MemoryError", None, CompileError, "memory"),
        (1, False, "ImportError: libtorch.so", None, CompileError, "died"),
        (-signal.SIGKILL, False, "", None, CompileError, "died"),
        (-signal.SIGSEGV, False, "", None, CompileError, None),  # the compiler, over this source
    ],
)
def test_how_a_compiling_process_ended_stands_on_its_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    timed_out: bool,
    printed: str,
    answer: dict[str, Any] | None,
    raised: type[CompileError],
    cause: str | None,
) -> None:
    def run(module: str, place: Path, variables: object, limits: object) -> tuple[int, bool]:
        """As the compile server's child leaves it: its death cannot be ordered at will."""
        (place / "output").write_text(printed)
        if answer is not None:
            (place / "answer.json").write_text(json.dumps(answer))
        return code, timed_out

    monkeypatch.setattr(compile_service, "run", run)
    with pytest.raises(CompileError) as found:
        child.ask("any", {}, cache_dir=tmp_path, limits=CompileLimits(), variables={})
    assert (type(found.value), found.value.cause) == (raised, cause)


def test_a_runner_that_was_killed_from_outside_is_told_from_one_that_crashed() -> None:
    killed, crashed = (ended("candidate", -number, "") for number in (signal.SIGKILL, signal.SIGSEGV))
    for fault, cause in ((killed, "died"), (crashed, None), (RunnerFault("candidate", "raises", "said"), None)):
        word, gate, _, failure = referee._ended(fault)
        assert failure is not None
        assert (word, gate, failure.get("cause")) == ("rejected", "screen", cause)


def test_a_device_that_fell_over_stands_on_the_failure() -> None:
    """No GPU falls over when it is told to."""
    device = SimpleNamespace(kind="cuda", fault=lambda: "unspecified launch failure")
    bench: Any = SimpleNamespace(device=device, warm=SimpleNamespace(drop_broken=lambda: None))
    judge: Any = SimpleNamespace(must_restart=False, _check_device=lambda _: None)
    crashed: Any = ("rejected", "verify", "broke its CUDA context", {"kind": "crash", "message": "said"})
    word, gate, reason, failure = referee.Referee._proven(judge, crashed, bench)
    assert (word, gate, failure) == ("rejected", "verify", {"kind": "crash", "message": "said", "cause": "device"})
    assert "the judge starts anew" in reason
    assert judge.must_restart

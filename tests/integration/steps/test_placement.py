"""Placement by memory: a step is given to no host whose GPU is too small for its op."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from sqlalchemy import event, select

from tests.services import migrate
from tests.support.statements import counting
from tests.support.steps_support import LEASE_S, OP, SETTINGS, verdict
from tests.support.waiting import wait_until
from warpsmith.kernels_db.job.documents import Verdict
from warpsmith.kernels_db.spec.op import Target, parse_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.records import add_op
from warpsmith.kernels_db.store.tables import (
    AttemptRow,
    KernelRow,
    NodeRow,
    ProfileRow,
    ReverificationRow,
    SearchRow,
    TeamRow,
    TryRow,
    TurnRow,
    WorkerRow,
)
from warpsmith.service.views.waiting import list_waiting
from warpsmith.workers import steps
from warpsmith.workers.queue import heartbeat, process, tasks
from warpsmith.workers.queue.heartbeat import Heartbeat, Worker, beat
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.settings import ALIVE_AFTER_S, Settings
from warpsmith.workers.steps import placement

NOW = 1000.0
TARGET = Target("cuda", "sm_90")
SMALL, MIDDLE, LARGE = 24 << 30, 48 << 30, 80 << 30
STATEMENTS_OF_A_CLAIM = 6
"""Of a step on a GPU whose ops are known: the room, the step, its claim and what it needs."""


def op_of(elements: int) -> Any:
    """An op whose largest workload has so many elements in each of three tensors."""
    document = OP.model_dump(mode="json", exclude_none=True)
    document["name"] = f"add_relu_{elements}"
    document["workloads"] = [
        {"id": "wide", "role": "bench", "axes": {"n": elements}},
        {"id": "ragged", "role": "test", "axes": {"n": 1021}},
    ]
    return parse_op(document)


SMALL_OP, LARGE_OP, HUGE_OP = op_of(1 << 20), op_of(1 << 27), op_of(3 << 26)
"""For any of the three GPUs; for the two larger ones; for the largest alone."""


def begin(db: Database, op: Any, now: float = NOW, team: str = "default", target: Target = TARGET) -> steps.Message:
    """The message of the first step of a new search, which a judge does."""
    with db.writing() as session:
        session.merge(TeamRow(name=team, visibility="private", created_at=0.0))
    search_id = steps.create_search(
        db,
        op,
        target,
        language="triton",
        policy={"name": "idea_beam"},
        budget={},
        model={"provider": "agent"},
        now=now,
        team=team,
    )
    (message,) = steps.advance(db, search_id, now)
    return message


def join(db: Database, name: str, memory_bytes: int | None, now: float = NOW) -> None:
    """A host reports in."""
    facts = {"device": {"name": "a GPU", "memory_bytes": memory_bytes}}
    beat(db, Worker(f"judge@{name}", "judge", str(TARGET), 1, 1.0), facts, now)


def attempt(db: Database, message: steps.Message) -> AttemptRow:
    with db.reading() as session:
        return session.get_one(AttemptRow, message.attempt_id)


def take(db: Database, message: steps.Message, device: int | None, now: float = NOW) -> str | None:
    """The op of the step that a host with this GPU takes for the message."""
    work = steps.take(db, message.attempt_id, f"w-{device}-{now}", LEASE_S, now, device)
    return None if work is None else work.op["name"]


def waiting(db: Database, message: steps.Message, now: float) -> list[str]:
    with db.reading() as session:
        search = session.get_one(SearchRow, session.get_one(AttemptRow, message.attempt_id).search_id)
        return [one.detail for one in list_waiting(session, search, now, ALIVE_AFTER_S)]


def resent(db: Database, now: float) -> list[str]:
    return [message.attempt_id for message in steps.reconcile(db, now, SETTINGS)]


def test_a_step_waits_for_a_host_that_is_large_enough_and_says_so(db: Database) -> None:
    message = begin(db, LARGE_OP)
    join(db, "small", SMALL)
    assert take(db, message, SMALL) is None
    row = attempt(db, message)
    assert (row.state, row.tries, row.owner) == ("pending", 0, None)
    (told,) = waiting(db, message, NOW + 1)
    assert told == f"no judge is large enough for 1 step: {row.error}"
    assert "the largest GPU of this target has 24.0 GiB, of which a job may take 17.3 GiB" in told
    need = placement.measure_need(LARGE_OP.model_dump(mode="json", exclude_none=True), str(TARGET))
    assert need is not None
    assert f"workload wide needs {need.needed / 2**30:.1f} GiB of device memory" in told
    # Nothing is sent in the meantime, and then its message goes out once for each look.
    assert resent(db, NOW + placement.LOOK_AGAIN_S - 1) == []
    later = NOW + placement.LOOK_AGAIN_S
    join(db, "small", SMALL, later)
    join(db, "large", LARGE, later)
    assert resent(db, later) == [message.attempt_id]
    assert waiting(db, message, later) == ["1 step queued for a judge worker"]
    assert take(db, message, LARGE, later) == LARGE_OP.name
    assert attempt(db, message).error is None


def test_steps_without_a_host_that_is_large_enough_are_counted(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    def count(now: float = NOW) -> dict[str, int]:
        with db.reading() as session:
            return placement.count_oversized(session, now)

    assert count() == {}
    for op in (SMALL_OP, LARGE_OP, HUGE_OP):
        begin(db, op)
    assert count() == {str(TARGET): 0}, "none is alive"
    monkeypatch.setattr(placement, "_needs", {})
    monkeypatch.setattr(placement, "MOST_MEASURED", 2)
    join(db, "small", SMALL)
    assert count()[str(TARGET)] in (1, 2), "two of the three are measured"
    assert count() == {str(TARGET): 2}, "what one count left out the next measures"
    join(db, "middle", MIDDLE)
    assert count() == {str(TARGET): 1}
    join(db, "unknown", None)
    assert count() == {str(TARGET): 0}
    assert count(NOW + ALIVE_AFTER_S + 1) == {str(TARGET): 0}


def test_a_step_that_a_small_host_met_goes_to_the_larger_one_soon(db: Database) -> None:
    message = begin(db, LARGE_OP)
    join(db, "small", SMALL)
    join(db, "large", LARGE)
    assert take(db, message, SMALL) is None
    soon = NOW + placement.SOON_S
    assert resent(db, soon) == [message.attempt_id]
    assert take(db, message, LARGE, soon) == LARGE_OP.name


def test_a_small_host_does_another_step_in_its_place(db: Database) -> None:
    large, small = begin(db, LARGE_OP), begin(db, SMALL_OP, team="other")
    join(db, "small", SMALL)
    join(db, "large", LARGE)
    assert take(db, large, SMALL) == SMALL_OP.name
    assert attempt(db, large).sent_at is None, "the message is used up: the reconciler sends another"
    # The small step's own message brings the large one to the host that can do it.
    assert take(db, small, LARGE, NOW + placement.SOON_S) == LARGE_OP.name


def test_a_large_host_does_first_what_others_cannot(db: Database) -> None:
    small, large = begin(db, SMALL_OP), begin(db, LARGE_OP)
    join(db, "small", SMALL)
    join(db, "large", LARGE)
    assert take(db, small, LARGE) == LARGE_OP.name
    assert resent(db, NOW) == [small.attempt_id], "its message brought another forward"
    assert take(db, small, SMALL) == SMALL_OP.name
    assert take(db, large, LARGE) is None


def test_hosts_alike_take_steps_in_their_order(db: Database) -> None:
    small, large = begin(db, SMALL_OP), begin(db, LARGE_OP)
    join(db, "one", LARGE)
    join(db, "two", LARGE)
    assert take(db, small, LARGE) == SMALL_OP.name
    assert take(db, large, LARGE) == LARGE_OP.name


def test_a_host_that_went_or_drains_counts_no_more(db: Database) -> None:
    message = begin(db, LARGE_OP)
    join(db, "gone", LARGE, NOW - ALIVE_AFTER_S - 1)
    join(db, "small", SMALL)
    assert take(db, message, SMALL) is None
    assert "no judge is large enough" in waiting(db, message, NOW)[0]
    join(db, "large", LARGE)
    assert "no judge is large enough" not in waiting(db, message, NOW)[0]
    with db.writing() as session:
        session.get_one(WorkerRow, "judge@large").draining_since = NOW
    assert "no judge is large enough" in waiting(db, message, NOW)[0]


def test_what_is_unknown_hinders_nothing(db: Database) -> None:
    """A driver that does not say how much memory there is; and a CPU, whose judge says so itself."""
    message, on_cpu = begin(db, LARGE_OP), begin(db, LARGE_OP, target=Target("cpu", "x86_64"))
    join(db, "unknown", None)
    assert "no judge is large enough" not in " ".join(waiting(db, message, NOW))
    assert take(db, message, None) == LARGE_OP.name
    assert take(db, on_cpu, None) == LARGE_OP.name


def test_the_oldest_needs_are_forgotten_before_they_are_many(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "MOST_NEEDS", 2)
    monkeypatch.setattr(placement, "_needs", {})
    with db.writing() as session:
        ids = [add_op(session, op_of(1024 + extra), NOW)[0].id for extra in range(5)]
        session.flush()
        found = [placement.find_need(session, op_id, str(TARGET)) for op_id in ids]
    assert None not in found
    assert [op_id for op_id, _ in placement._needs] == ids[-2:]


def test_what_only_one_host_can_do_waits_for_no_other_team(db: Database) -> None:
    """The other team's turn comes first, but its step any host can do."""
    large = begin(db, LARGE_OP, team="a")
    begin(db, SMALL_OP, team="b")
    join(db, "small", SMALL)
    join(db, "large", LARGE)
    give_turns(db, large.queue, a=NOW - 1, b=NOW - 50)
    assert take(db, large, LARGE) == LARGE_OP.name


def test_a_step_that_another_team_displaced_is_sent_again_at_once(db: Database) -> None:
    """The message of the step that went first may reach a host that is too small for this one."""
    middle, small = begin(db, LARGE_OP, team="a"), begin(db, SMALL_OP, team="b")
    for name, size in (("small", SMALL), ("middle", MIDDLE), ("large", LARGE)):
        join(db, name, size)
    # Nothing waits that is for the large host alone, though a search of such an op runs.
    at_work = begin(db, HUGE_OP, team="a")
    assert take(db, at_work, LARGE, NOW - 2) == HUGE_OP.name
    assert take(db, middle, LARGE) == SMALL_OP.name
    assert take(db, small, SMALL, NOW + 0.1) is None
    assert resent(db, NOW + 0.2) == [middle.attempt_id]
    assert take(db, middle, MIDDLE, NOW + 0.3) == LARGE_OP.name


def test_the_largest_of_three_does_what_the_middle_one_cannot(db: Database) -> None:
    for name, size in (("small", SMALL), ("middle", MIDDLE), ("large", LARGE)):
        join(db, name, size)
    several = [begin(db, LARGE_OP) for _ in range(5)]
    begin(db, HUGE_OP)
    assert take(db, several[0], LARGE) == HUGE_OP.name
    assert take(db, several[1], MIDDLE) == LARGE_OP.name


def test_a_host_alike_hides_no_smaller_one(db: Database) -> None:
    """Two GPUs of one kind may differ by what their judges found."""
    small = begin(db, SMALL_OP)
    begin(db, LARGE_OP)
    for name, size in (("small", SMALL), ("one", LARGE - (64 << 20)), ("two", LARGE)):
        join(db, name, size)
    assert take(db, small, LARGE) == LARGE_OP.name


def test_a_claim_takes_as_many_statements_for_many_ops_as_for_few(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what they need is measured in no transaction: a claim holds a search's lock, or SQLite's."""
    monkeypatch.setattr(placement, "_needs", {})
    join(db, "small", SMALL)
    join(db, "large", LARGE)
    taken = []
    open_now = 0
    measure = placement.measure_need

    def measure_outside(*arguments: Any) -> Any:
        assert open_now == 0
        taken.append(1)
        return measure(*arguments)

    def note(change: int) -> Callable[[Any], None]:
        def do(_connection: Any) -> None:
            nonlocal open_now
            open_now += change

        return do

    monkeypatch.setattr(placement, "measure_need", measure_outside)
    begins, ends = note(1), note(-1)
    event.listen(db.engine, "begin", begins)
    for name in ("commit", "rollback"):
        event.listen(db.engine, name, ends)
    counts = []
    for many in (3, 30):
        messages = [begin(db, op_of(1024 * many + extra)) for extra in range(many)]
        for message in messages[:2]:
            with counting(db) as found:
                assert take(db, message, SMALL) is not None
            counts.append(found.total() - found["transactions"] - found["BEGIN"])
    assert len(taken) == 33, "each op once"
    cold, warm, cold_of_many, warm_of_many = counts
    assert (cold_of_many, warm_of_many) == (cold, warm)
    assert cold == warm + 1
    assert warm <= STATEMENTS_OF_A_CLAIM, counts


def give_turns(db: Database, queue: str, **taken_at: float) -> None:
    """Teams had their last steps of the queue at these times."""
    with db.writing() as session:
        for team, at in taken_at.items():
            session.add(TurnRow(queue=queue, team=team, taken_at=at))


def reported(db: Database) -> list[int | None]:
    with db.reading() as session:
        return placement.list_devices(session, str(TARGET), db.now())


class Gpu(WorkerProcess):
    """A worker with a GPU of so much memory, whose judge answers as the test says."""

    def __init__(self, settings: Settings, answer: Verdict) -> None:
        super().__init__(settings)
        self.answer = answer
        self.asked = 0

    def judge_job(self, *_: Any, **__: Any) -> Verdict:
        self.asked += 1
        return self.answer


def stand_for_this_process(here: Gpu, monkeypatch: pytest.MonkeyPatch, device: dict[str, Any] | None) -> None:
    """Have tasks find a judge's worker here, over a database of its own, whose driver says this of its device."""
    migrate(here.db)
    monkeypatch.setattr(process, "_current", here)
    monkeypatch.setattr(process, "worker", Worker("judge@here", "judge", str(TARGET)))
    monkeypatch.setattr(process, "describe_device", lambda _: device)


def test_a_worker_goes_by_the_memory_that_its_judge_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver, or a slice's name, promised more: the step goes back instead of ending its search."""
    answer = verdict("baseline", "rejected", gate="memory", device={"name": "a GPU", "memory_bytes": SMALL})
    here = Gpu(Settings(home=tmp_path), answer)
    promised = {"name": "a slice", "memory_bytes": LARGE}
    stand_for_this_process(here, monkeypatch, promised)
    monkeypatch.setattr(heartbeat, "describe_device", lambda _: promised)
    here._heartbeat = Heartbeat(here.db, process.worker, interval_s=0.05)
    here._heartbeat.start()
    message = begin(here.db, LARGE_OP, here.db.now())
    assert here.device_bytes() == LARGE
    tasks.perform(Celery("nowhere"), message.attempt_id, tasks.judge)
    row = attempt(here.db, message)
    assert (row.state, row.tries, here.device_bytes()) == ("pending", 0, SMALL)
    assert "this host's GPU has 24.0 GiB" in (row.error or "")
    wait_until(lambda: reported(here.db) == [SMALL], what="the worker to report what its judge found")
    with here.db.writing() as session:
        session.get_one(AttemptRow, message.attempt_id).not_before = 0.0
    tasks.perform(Celery("nowhere"), message.attempt_id, tasks.judge)
    assert here.asked == 1, "it knows now"
    here.close()


def test_two_hosts_share_a_queue_and_each_does_what_fits(db: Database) -> None:
    """Ten searches of each size, any message to any host: all are judged, the large ones on the large host alone."""
    messages = [begin(db, op, team=f"t{number % 3}") for number in range(10) for op in (SMALL_OP, LARGE_OP)]
    hosts, done, now = {"small": SMALL, "large": LARGE}, [], NOW
    queue = list(messages)
    for turn in range(200):
        for name, size in hosts.items():
            join(db, name, size, now)
        if not queue:
            now += placement.SOON_S
            queue = list(steps.reconcile(db, now, SETTINGS))
        if not queue:
            continue
        message, name = queue.pop(0), ("small", "large")[turn % 2]
        owner = f"{name}-{turn}"
        work = steps.take(db, message.attempt_id, owner, 10_000.0, now, hosts[name])
        if work is not None:
            done.append((name, work.op["name"]))
            assert steps.give_up(db, work.attempt_id, owner, "the test has seen it", now)
        if len(done) == len(messages):
            break
    assert len(done) == len(messages)
    assert {name for name, op in done if op == LARGE_OP.name} == {"large"}


class Together(Gpu):
    """A worker that has two steps at its judge before the first verdict comes."""

    def __init__(self, settings: Settings, answer: Verdict) -> None:
        super().__init__(settings, answer)
        self.both = threading.Barrier(2)

    def judge_job(self, *_: Any, **__: Any) -> Verdict:
        self.both.wait(20.0)
        return super().judge_job()


def test_both_of_two_steps_in_hand_go_back_when_the_judge_finds_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first verdict corrects the worker; the second finds no less than that, and is no verdict either."""
    answer = verdict("baseline", "rejected", gate="memory", device={"name": "a GPU", "memory_bytes": SMALL})
    here = Together(Settings(home=tmp_path), answer)
    stand_for_this_process(here, monkeypatch, {"name": "a slice", "memory_bytes": LARGE})
    messages = [begin(here.db, LARGE_OP, here.db.now()) for _ in range(2)]
    threads = [
        threading.Thread(target=tasks.perform, args=(Celery("nowhere"), message.attempt_id, tasks.judge))
        for message in messages
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (here.asked, here.device_bytes()) == (2, SMALL)
    for message in messages:
        row = attempt(here.db, message)
        assert (row.state, row.tries) == ("pending", 0)
        with here.db.reading() as session:
            assert session.get_one(SearchRow, row.search_id).state == "running"
    here.close()


def test_a_worker_without_a_drivers_word_goes_by_what_its_judge_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = verdict("baseline", "rejected", gate="memory", device={"name": "a GPU", "memory_bytes": SMALL})
    here = Gpu(Settings(home=tmp_path), answer)
    stand_for_this_process(here, monkeypatch, None)
    message = begin(here.db, LARGE_OP, here.db.now())
    assert here.device_bytes() is None
    tasks.perform(Celery("nowhere"), message.attempt_id, tasks.judge)
    assert (attempt(here.db, message).state, here.device_bytes()) == ("pending", SMALL)
    here.close()


@pytest.mark.parametrize(
    ("task", "does", "row_id"),
    [
        ("profile", "perform_profile", "pf_1"),
        ("reverify", "perform_reverification", "rv_1"),
        ("try_candidate", "perform_try", "ty_1"),
    ],
)
def test_jobs_that_are_no_steps_are_done_where_their_message_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, does: str, row_id: str
) -> None:
    """A profile that its host set aside would be sent by nobody."""
    here = Gpu(Settings(home=tmp_path), verdict("baseline"))
    stand_for_this_process(here, monkeypatch, {"name": "a GPU", "memory_bytes": SMALL})
    message = begin(here.db, LARGE_OP, here.db.now())
    with here.db.writing() as session:
        search = session.get_one(SearchRow, session.get_one(AttemptRow, message.attempt_id).search_id)
        node_id = session.scalar(select(NodeRow.id).where(NodeRow.search_id == search.id).limit(1))
        of_node = {"search_id": search.id, "node_id": node_id, "state": "pending", "created_at": 0.0}
        session.add(ProfileRow(id="pf_1", document={}, **of_node))
        session.add(TryRow(id="ty_1", level="screen", language="triton", source="", document={}, **of_node))
        kernel = KernelRow(id="kn_1", op_id=search.op_id, target=str(TARGET), language="triton", source="")
        kernel.source_digest, kernel.score, kernel.ci_low, kernel.ci_high = "", 1.0, 1.0, 1.0
        kernel.envelope, kernel.evidence, kernel.lineage, kernel.created_at = {}, {}, [], 0.0
        session.add(kernel)
        session.flush()
        asked = {"target": str(TARGET), "cause": "asked", "state": "pending", "created_at": 0.0}
        session.add(ReverificationRow(id="rv_1", kernel_id="kn_1", ordinal=0, **asked))
    done: list[str] = []
    monkeypatch.setattr(tasks, does, lambda _, row_id: done.append(row_id))
    getattr(tasks, task)(row_id)
    assert done == [row_id]
    here.close()

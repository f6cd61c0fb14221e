"""Workers that may take no step: a clock that is off, another schema, a full disk, a lost device."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.exceptions import Reject
from sqlalchemy import select, text

from tests.services import migrate
from tests.support.steps_support import create, verdict
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, WorkerRow
from warpsmith.workers import steps
from warpsmith.workers.judge.protocol.client import JudgeUnfit
from warpsmith.workers.queue import process, reconciler, schema, tasks
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.queue.heartbeat import Worker
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps import Work

DAY_S = 86_400.0
NOWHERE = Celery("nowhere")


class Judge:
    """A judge that answers as the test says."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def judge(self, *_: Any, **__: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self) -> None:
        """Nothing is open."""


def worker(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> WorkerProcess:
    here = WorkerProcess(settings)
    migrate(here.db)
    monkeypatch.setattr(process, "_current", here)
    return here


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcess]:
    """A worker, played by this process."""
    played = worker(Settings(home=tmp_path), monkeypatch)
    yield played
    played.close()


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often a worker ended itself."""
    found: list[str] = []
    monkeypatch.setattr(process, "end_worker", lambda: found.append("ended"))
    return found


def waiting(here: WorkerProcess) -> str:
    """The attempt of a search's first step, which a judge does."""
    search_id = create(here.db, here.db.now())
    (message,) = steps.advance(here.db, search_id, here.db.now())
    return message.attempt_id


def attempt(here: WorkerProcess, attempt_id: str) -> AttemptRow:
    with here.db.reading() as session:
        return session.get_one(AttemptRow, attempt_id)


def stamp(db: Database, revision: str) -> None:
    """Have the database say that its schema is of this revision."""
    with db.writing() as session:
        session.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def jump(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Set this process's clock off."""
    true_time = time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + seconds)


@pytest.mark.parametrize("seconds", [-DAY_S, DAY_S])
def test_leases_go_by_the_clock_of_the_database(
    tmp_path: Path, migrated_postgres_url: str, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    settings = Settings(home=tmp_path, database_url=migrated_postgres_url)
    here = worker(settings, monkeypatch)
    attempt_id = waiting(here)
    elsewhere = Database(migrated_postgres_url)
    seen: list[str] = []

    def do(here: WorkerProcess, work: Work, owner: str, following: steps.Following) -> bool:
        # A reconciler on a host whose clock is a day off finds that the lease holds.
        jump(monkeypatch, seconds)
        assert reconciler.Reconciler(settings, elsewhere, make_app(settings)).round() == 0
        seen.append(attempt(here, work.attempt_id).state)
        return steps.complete_judge(here.db, work.attempt_id, owner, verdict("baseline"), here.db.now(), following)

    tasks.perform(NOWHERE, attempt_id, do)
    done = attempt(here, attempt_id)
    assert (seen, done.state, done.tries) == (["running"], "succeeded", 1)
    assert done.finished_at is not None
    assert done.started_at is not None
    assert 0 <= done.finished_at - done.started_at < DAY_S / 2
    elsewhere.dispose()
    here.close()


def test_the_clock_of_the_database_is_asked_again_after_a_while(
    migrated_postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = Database(migrated_postgres_url)
    first = db.now()
    true_monotonic = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: true_monotonic() + 5.0)
    assert db.now() - first >= 5.0, "in between the monotonic clock goes on"
    monkeypatch.setattr(time, "monotonic", lambda: true_monotonic() + DAY_S)
    assert db.now() - first < DAY_S / 2, "a host that slept asks again"
    db.dispose()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ("9999", "found revision 9999, expected .*: upgrade this program"),
        ("0001", "found revision 0001, expected .*: run `warpsmith db upgrade`"),
    ],
)
def test_a_worker_takes_no_step_on_a_schema_of_another_version(
    here: WorkerProcess, ended: list[str], found: str, said: str
) -> None:
    attempt_id = waiting(here)
    _, own = here.db.revision()
    stamp(here.db, found)
    with pytest.raises(Reject, match=said) as refusal:
        tasks.perform(NOWHERE, attempt_id, lambda *_: pytest.fail("the step was done"))
    assert refusal.value.requeue, "another worker gets the message"
    assert ended == ["ended"]
    assert (attempt(here, attempt_id).state, attempt(here, attempt_id).tries) == ("pending", 0)
    stamp(here.db, own)
    here._judge = Judge(verdict("baseline"))  # type: ignore[assignment]
    tasks.perform(NOWHERE, attempt_id, tasks.judge)
    assert attempt(here, attempt_id).state == "succeeded"


def test_a_reconciler_leaves_a_schema_of_another_version_alone(here: WorkerProcess) -> None:
    create(here.db, here.db.now())
    _, own = here.db.revision()
    stamp(here.db, "9999")
    sent = []
    rounds = reconciler.Reconciler(here.settings, here.db, NOWHERE)
    assert rounds.round() == 0
    with here.db.reading() as session:
        sent = list(session.scalars(select(AttemptRow)))
    assert sent == []
    stamp(here.db, own)
    rounds.round()
    with here.db.reading() as session:
        assert len(list(session.scalars(select(AttemptRow)))) == 1


def test_a_worker_that_starts_waits_for_its_schema(here: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    _, own = here.db.revision()
    stamp(here.db, "0001")
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            stamp(here.db, own)

    monkeypatch.setattr(time, "sleep", sleep)
    schema.await_schema(here.db)
    assert len(slept) == 2


@pytest.mark.parametrize(
    "error", [JudgeUnfit("disk", "No space left on device"), OSError(errno.ENOSPC, "No space left on device")]
)
def test_a_full_disk_puts_the_step_off_and_counts_for_nothing(here: WorkerProcess, error: Exception) -> None:
    attempt_id = waiting(here)
    here._judge = Judge(error)  # type: ignore[assignment]
    tasks.perform(NOWHERE, attempt_id, tasks.judge)
    put_off = attempt(here, attempt_id)
    assert (put_off.state, put_off.tries, put_off.deferrals) == ("pending", 0, 0)
    assert put_off.not_before > here.db.now()
    assert "No space left on device" in (put_off.error or "")


def test_a_full_disk_that_the_judge_names_is_named_once(here: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt_id = waiting(here)
    here._judge = Judge(JudgeUnfit("disk", "/cache has no room left"))  # type: ignore[assignment]
    monkeypatch.setattr(here, "find_full_disk", lambda: Path("/cache"))
    tasks.perform(NOWHERE, attempt_id, tasks.judge)
    assert attempt(here, attempt_id).error == "the judge's host cannot judge, disk: /cache has no room left"


def test_a_judge_whose_cache_cannot_be_made_puts_the_step_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a judge of its own: it answered nothing, and the search was given up after so many tries."""
    occupied = tmp_path / "file"
    occupied.write_text("")
    here = worker(Settings(home=tmp_path, judge_cache=occupied / "cache"), monkeypatch)
    try:
        attempt_id = waiting(here)
        tasks.perform(NOWHERE, attempt_id, tasks.judge)
        put_off = attempt(here, attempt_id)
    finally:
        here.close()
    assert (put_off.state, put_off.tries, put_off.deferrals) == ("pending", 0, 0)
    reason = f"WARPSMITH_JUDGE_CACHE: cannot make the directory {occupied / 'cache'}: Not a directory"
    assert put_off.error is not None
    assert reason in put_off.error


def test_a_lost_device_gives_the_step_back_and_the_worker_takes_no_more(
    here: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[str] = []
    consumer = SimpleNamespace(
        app=SimpleNamespace(amqp=SimpleNamespace(queues=SimpleNamespace(consume_from={"judge.cuda-sm_90": None}))),
        call_soon=lambda call, queue: call(queue),
        cancel_task_queue=cancelled.append,
    )
    monkeypatch.setattr(process, "consumer", consumer)
    monkeypatch.setattr(process, "worker", Worker("judge-gpu0@host", "judge", "cuda:sm_90"))
    here.start_heartbeat()
    attempt_id = waiting(here)
    here._judge = Judge(JudgeUnfit("device", "NVIDIA H100 is lost: no CUDA-capable device"))  # type: ignore[assignment]
    tasks.perform(NOWHERE, attempt_id, tasks.judge)
    assert cancelled == ["judge.cuda-sm_90"]
    steps.reconcile(here.db, here.db.now() + 1.0, here.settings)
    given_back = attempt(here, attempt_id)
    assert (given_back.state, given_back.tries) == ("pending", 1)
    with pytest.raises(Reject, match="is lost") as refusal:
        tasks.perform(NOWHERE, attempt_id, tasks.judge)
    assert refusal.value.requeue
    here.close()
    with here.db.reading() as session:
        row = session.get_one(WorkerRow, "judge-gpu0@host")
    assert "NVIDIA H100 is lost" in row.facts["ill"]


def test_a_verdict_that_was_made_after_the_device_was_lost_is_dropped(
    here: WorkerProcess, monkeypatch: pytest.MonkeyPatch, ended: list[str]
) -> None:
    attempt_id = waiting(here)

    class Meanwhile(Judge):
        def judge(self, *_: Any, **__: Any) -> Any:
            here.mark_ill("the device is lost")
            return verdict("baseline")

    here._judge = Meanwhile(None)  # type: ignore[assignment]
    tasks.perform(NOWHERE, attempt_id, tasks.judge)
    assert ended == ["ended"], "a child of a pool cannot stop its worker's messages alone"
    assert attempt(here, attempt_id).state == "running"
    steps.reconcile(here.db, here.db.now() + 1.0, here.settings)
    assert attempt(here, attempt_id).state == "pending"

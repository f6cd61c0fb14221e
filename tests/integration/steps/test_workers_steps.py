"""Model and judge steps of a worker process against a real database: what is committed, whatever the model answers."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from celery import Celery
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.services import migrate
from tests.support.steps_support import create, source, verdict
from warpsmith.kernels_db.store.tables import AskRow, AttemptRow, ModelCallRow, NodeRow, SearchRow
from warpsmith.workers import steps
from warpsmith.workers.llm.reply.techniques import TECHNIQUES
from warpsmith.workers.queue import dispatch, process, tasks
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.queue.jobs import job_of
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.settings import Settings
from warpsmith.workers.steps import Message, Work

IDEAS = [
    {"technique": "fusion", "title": "fuse", "mechanism": "one pass"},
    {"technique": "compute", "title": "widen", "mechanism": "more lanes"},
]


@pytest.fixture
def refusing() -> Iterator[int]:
    """A port where nobody listens: it is taken, so that nobody comes to."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])


@pytest.fixture
def here(tmp_path: Path, refusing: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerProcess]:
    """A worker's child process, played by this one; its broker is not there, as after a crash."""
    settings = Settings(
        home=tmp_path,
        openai_api_key="sk-secret-1",
        openai_base_url=f"http://127.0.0.1:{refusing}/v1",
        model_retries=0,
        model_backoff_s=60.0,
        model_max_deferrals=1,
    )
    played = WorkerProcess(settings)
    migrate(played.db)
    monkeypatch.setattr(process, "_current", played)
    yield played
    played.close()


@pytest.fixture
def app(here: WorkerProcess) -> Celery:
    """Where messages go: nowhere; the tests look at the attempts instead."""
    return make_app(here.settings)


def begun(here: WorkerProcess, **changes: object) -> tuple[str, Message]:
    """A search whose baselines are measured, and the message of its first ideate step."""
    search_id = create(here.db, time.time(), **changes)
    (first,) = steps.advance(here.db, search_id, time.time())
    assert steps.claim(here.db, first.attempt_id, "baseline", 30.0, time.time()) is not None
    assert steps.complete_judge(here.db, first.attempt_id, "baseline", verdict("baseline"), time.time())
    (message,) = steps.advance(here.db, search_id, time.time())
    return search_id, message


def row(here: WorkerProcess, attempt_id: str) -> AttemptRow:
    with here.db.reading() as session:
        return session.get_one(AttemptRow, attempt_id)


def nodes(here: WorkerProcess, search_id: str) -> list[NodeRow]:
    with here.db.reading() as session:
        return list(session.scalars(select(NodeRow).where(NodeRow.search_id == search_id).order_by(NodeRow.seq)))


def calls(here: WorkerProcess, search_id: str) -> list[ModelCallRow]:
    with here.db.reading() as session:
        query = select(ModelCallRow).where(ModelCallRow.search_id == search_id).order_by(ModelCallRow.id)
        return list(session.scalars(query))


def tell(here: WorkerProcess, reply: str) -> Message:
    """Answer the open ask; the message of the attempt that it wakes."""
    with here.db.reading() as session:
        (ask_id,) = session.scalars(select(AskRow.id).where(AskRow.state == "open"))
    (message,) = steps.tell(here.db, ask_id, reply, "a test", time.time())
    return message


def test_an_asked_step_waits_and_commits_with_the_answer(here: WorkerProcess, app: Celery) -> None:
    search_id, message = begun(here)
    tasks.perform(app, message.attempt_id, tasks.ask)
    assert row(here, message.attempt_id).state == "waiting"
    assert tell(here, json.dumps(IDEAS)) == message
    tasks.perform(app, message.attempt_id, tasks.ask)
    assert row(here, message.attempt_id).state == "succeeded"
    planned = nodes(here, search_id)[1:]
    assert [(node.idea["title"], node.variant) for node in planned if node.idea] == [("fuse", 0), ("widen", 0)]
    assert {node.state for node in planned} == {"coding"}, "the step advances its search"
    assert [call.ordinal for call in calls(here, search_id)] == [0]


def test_an_unreadable_reply_is_asked_again_with_its_problem(here: WorkerProcess, app: Celery) -> None:
    search_id, message = begun(here)
    tasks.perform(app, message.attempt_id, tasks.ask)
    tell(here, "I would rather not.")
    tasks.perform(app, message.attempt_id, tasks.ask)
    assert row(here, message.attempt_id).state == "waiting"
    with here.db.reading() as session:
        again = session.scalars(select(AskRow).where(AskRow.state == "open")).one()
    assert again.ordinal == 1
    assert "no JSON list of ideas" in again.messages[-1]["content"]
    tell(here, json.dumps(IDEAS))
    tasks.perform(app, message.attempt_id, tasks.ask)
    assert [(call.ordinal, call.error is None) for call in calls(here, search_id)] == [(0, False), (1, True)]
    assert len(nodes(here, search_id)) == 3


def test_the_budget_of_calls_ends_the_asking(here: WorkerProcess, app: Celery) -> None:
    search_id, message = begun(here, budget={"model_calls": 1})
    tasks.perform(app, message.attempt_id, tasks.ask)
    tell(here, "I would rather not.")
    tasks.perform(app, message.attempt_id, tasks.ask)
    with here.db.reading() as session:
        search = session.get_one(SearchRow, search_id)
    assert (search.state, search.model_calls) == ("finished", 1)
    assert search.reason is not None
    assert "model_calls 1 of 1" in search.reason


def test_a_restart_refuses_ideas_of_used_techniques(here: WorkerProcess) -> None:
    search_id, message = begun(here)
    work = steps.claim(here.db, message.attempt_id, "me", 30.0, time.time())
    assert work is not None
    with here.db.writing() as session:
        session.get_one(AttemptRow, message.attempt_id).params = {**work.params, "technique_not_in": "fusion,precision"}
    assert steps.defer(here.db, message.attempt_id, "me", "as it were", 0.0, [], time.time())
    tasks.perform(make_app(here.settings), message.attempt_id, tasks.ask)
    tell(here, json.dumps(IDEAS))
    tasks.perform(make_app(here.settings), message.attempt_id, tasks.ask)
    assert {node.technique for node in nodes(here, search_id)[1:]} == {"compute"}


def test_a_restart_with_every_technique_used_refuses_none(here: WorkerProcess) -> None:
    search_id, message = begun(here)
    with here.db.writing() as session:
        attempt = session.get_one(AttemptRow, message.attempt_id)
        attempt.params = {**attempt.params, "technique_not_in": ",".join(sorted(TECHNIQUES))}
    tasks.perform(make_app(here.settings), message.attempt_id, tasks.ask)
    with here.db.reading() as session:
        prompt = session.scalars(select(AskRow).where(AskRow.state == "open")).one().messages[-1]["content"]
    assert "Only these may be used now" not in prompt
    tell(here, json.dumps(IDEAS))
    tasks.perform(make_app(here.settings), message.attempt_id, tasks.ask)
    assert len(nodes(here, search_id)) == 3


def test_an_unreachable_model_puts_the_step_off_and_then_pauses_the_search(here: WorkerProcess, app: Celery) -> None:
    search_id, message = begun(here, model={"provider": "openai", "model": "any"})
    began = time.time()
    tasks.perform(app, message.attempt_id, tasks.ask)
    put_off = row(here, message.attempt_id)
    assert (put_off.state, put_off.deferrals) == ("pending", 1)
    assert put_off.not_before >= began + 60.0
    tasks.perform(app, message.attempt_id, tasks.ask)
    assert row(here, message.attempt_id).deferrals == 1, "a step that was put off is not to be had"
    with here.db.writing() as session:
        session.get_one(AttemptRow, message.attempt_id).not_before = 0.0
    tasks.perform(app, message.attempt_id, tasks.ask)
    with here.db.reading() as session:
        search = session.get_one(SearchRow, search_id)
    assert search.state == "paused"
    assert search.reason
    assert [call.error is not None for call in calls(here, search_id)] == [True, True]
    assert "sk-secret-1" not in "".join(f"{call.error}{call.messages}" for call in calls(here, search_id))


def test_a_result_that_comes_after_the_lease_is_dropped(here: WorkerProcess, app: Celery) -> None:
    search_id, message = begun(here)

    def slow(_here: WorkerProcess, work: Work, owner: str, following: steps.Following) -> bool:
        with here.db.writing() as session:
            session.get_one(AttemptRow, work.attempt_id).owner = "somebody else"
        return steps.complete_ideate(here.db, work.attempt_id, owner, IDEAS, [], time.time(), following)

    tasks.perform(app, message.attempt_id, slow)
    assert len(nodes(here, search_id)) == 1
    assert row(here, message.attempt_id).owner == "somebody else"


def test_what_a_failed_transaction_would_have_opened_is_not_sent(
    here: WorkerProcess, app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_id, message = begun(here)
    sent: list[str] = []
    monkeypatch.setattr(dispatch, "send", lambda _app, found: sent.extend(one.attempt_id for one in found))

    def late(_here: WorkerProcess, work: Work, owner: str, following: steps.Following) -> bool:
        def fail(session: Session, search: SearchRow, now: float) -> None:
            following(session, search, now)
            raise KeyError("gate")

        return steps.complete_ideate(here.db, work.attempt_id, owner, IDEAS, [], time.time(), fail)

    tasks.perform(app, message.attempt_id, late)
    assert row(here, message.attempt_id).state == "failed"
    assert len(nodes(here, search_id)) == 1
    with here.db.reading() as session:
        assert set(sent) <= set(session.scalars(select(AttemptRow.id)))


def test_a_fault_of_ours_ends_the_branch_and_not_the_search(here: WorkerProcess, app: Celery) -> None:
    search_id, message = begun(here)

    def broken(*_: object) -> bool:
        raise KeyError("gate")

    tasks.perform(app, message.attempt_id, broken)
    attempt = row(here, message.attempt_id)
    assert (attempt.state, attempt.error) == ("failed", "KeyError: 'gate'")
    with here.db.reading() as session:
        assert session.get_one(SearchRow, search_id).state == "running"


def test_a_job_that_the_judge_cannot_read_ends_its_branch(
    here: WorkerProcess, app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    search_id, message = begun(here)
    tasks.perform(app, message.attempt_id, tasks.ask)
    tell(here, json.dumps(IDEAS[:1]))
    tasks.perform(app, message.attempt_id, tasks.ask)
    with here.db.reading() as session:
        coding = session.scalars(select(AttemptRow.id).where(AttemptRow.kind == "code")).first()
    assert coding is not None
    assert steps.claim(here.db, coding, "me", 30.0, time.time()) is not None
    assert steps.complete_code(here.db, coding, "me", source(1), "cpp", [], time.time())
    (judging,) = [m for m in steps.advance(here.db, search_id, time.time()) if m.queue.startswith("judge.")]
    monkeypatch.setattr(tasks, "job_of", lambda work, limits: {**job_of(work, limits), "level": "glance"})
    tasks.perform(app, judging.attempt_id, tasks.judge)
    attempt = row(here, judging.attempt_id)
    assert attempt.state == "failed"
    assert attempt.error is not None
    assert "the judge refuses the job: level: found 'glance'" in attempt.error


def test_a_judge_that_is_too_slow_gives_the_step_back_and_the_tries_are_counted(
    here: WorkerProcess, app: Celery
) -> None:
    search_id = create(here.db, time.time())
    (message,) = steps.advance(here.db, search_id, time.time())
    here.settings = here.settings.model_copy(update={"judge_job_timeout_s": 0.01, "max_tries": 2})
    for _ in range(2):
        tasks.perform(app, message.attempt_id, tasks.judge)
        steps.reconcile(here.db, time.time() + 0.1, here.settings)
    with here.db.reading() as session:
        search = session.get_one(SearchRow, search_id)
    assert search.state == "failed"
    assert search.reason is not None
    assert "gave up after 2 tries" in search.reason


def test_claims_differ(here: WorkerProcess) -> None:
    assert here.claim_token() != here.claim_token()
    process.worker = replace(process.worker, name="n" * 300)
    try:
        assert len(here.claim_token()) <= 128
    finally:
        process.worker = replace(process.worker, name="worker")

"""Quotas of teams: submissions that are refused, steps that wait for the next day, what is counted and where."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from celery import Celery
from sqlalchemy import func, select

from tests.support.api_support import ENDPOINT, SEARCH, application, problem, settings_for
from tests.support.reverifying import keep
from tests.support.steps_support import OP, SETTINGS, Driver, create, verdict
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.profiles import claim_profile, finish_profile
from warpsmith.kernels_db.store.quotas import DAY_S, add_spending, measure_usage
from warpsmith.kernels_db.store.tables import AttemptRow, OpRow, ProfileRow, ReverificationRow, SearchRow, TeamRow
from warpsmith.service.api import auth
from warpsmith.workers import reverification, steps
from warpsmith.workers.queue import process, tasks
from warpsmith.workers.queue.process import WorkerProcess
from warpsmith.workers.search.policy import next_steps

NOON = 100.5 * DAY_S
MIDNIGHT = 101.0 * DAY_S
OPENAI = {"provider": "openai", "model": "gpt-5"}


def add_team(db: Database, name: str = "limited", **quotas: float) -> None:
    with db.writing() as session:
        session.add(TeamRow(name=name, visibility="private", created_at=0.0, **quotas))


def used(db: Database, now: float, name: str = "limited") -> dict[str, float]:
    with db.reading() as session:
        return {usage.quota: usage.used for usage in measure_usage(session, session.get_one(TeamRow, name), now)}


def test_spending_is_written_at_the_end_of_its_transaction(db: Database) -> None:
    """All steps of a team write to one row: no other waits for it while this one works."""
    add_team(db)
    with db.writing() as session:
        add_spending(session, "limited", NOON, candidates=1, device_seconds=2.0)
        add_spending(session, "limited", NOON, device_seconds=0.5)
        if not db.is_sqlite:  # which has one writer at a time
            with db.writing() as other:
                add_spending(other, "limited", NOON, device_seconds=1.0)
    found = used(db, NOON)
    assert (found["candidates_a_day"], found["device_seconds_a_day"]) == (1, 2.5 if db.is_sqlite else 3.5)
    with db.writing() as session:
        add_spending(session, "limited", NOON, candidates=1)
        now_used = measure_usage(session, session.get_one(TeamRow, "limited"), NOON, ["candidates_a_day"])
        assert [usage.used for usage in now_used] == [2], "what is not written yet counts"
        add_spending(session, "limited", NOON, candidates=1)
        session.rollback()
    assert used(db, NOON) == found


def test_a_team_has_so_many_open_searches_and_no_more(db: Database) -> None:
    add_team(db, open_searches=2)
    first = create(db, NOON, team="limited")
    refused: list[steps.QuotaReached] = []
    barrier = threading.Barrier(4)

    def submit() -> None:
        barrier.wait(10)
        try:
            create(db, NOON, team="limited")
        except steps.QuotaReached as error:
            refused.append(error)

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert [str(error) for error in refused] == ["team limited: 2 of 2 open searches"] * 3
    with db.reading() as session:
        assert session.scalar(select(func.count()).select_from(SearchRow)) == 2
    create(db, NOON)  # other teams have their own
    steps.cancel(db, first, NOON)
    create(db, NOON, team="limited")


def test_a_refused_submission_stores_nothing(db: Database) -> None:
    add_team(db, candidates_a_day=0)
    with pytest.raises(steps.QuotaReached, match="0 of 0 candidates today; anew at 1970-04-12 00:00 UTC"):
        create(db, NOON, team="limited")
    with db.reading() as session:
        assert session.scalar(select(func.count()).select_from(OpRow)) == 0


def test_what_a_day_spends_is_counted_with_the_step_that_spends(db: Database) -> None:
    add_team(db, cost_usd_a_day=100.0)
    driver = Driver(db, create(db, NOON, team="limited"), now=NOON)
    driver.run()
    search = driver.search()
    assert search.candidates > 1
    assert search.cost_usd > 0
    spent = {"open_searches": 0, "candidates_a_day": search.candidates, "cost_usd_a_day": search.cost_usd}
    assert used(db, NOON) == {**spent, "device_seconds_a_day": 0.0}
    assert used(db, MIDNIGHT)["candidates_a_day"] == 0


def test_a_step_waits_for_the_next_day_and_nothing_is_lost(db: Database) -> None:
    add_team(db, device_seconds_a_day=10.0)
    driver = Driver(db, create(db, NOON, team="limited"), now=NOON)
    (first,) = driver.advance()
    work = driver.claim(first.attempt_id)
    assert work.reached is None
    slow = verdict("baseline", seconds={"exclusive": 12.5})
    assert steps.complete_judge(db, work.attempt_id, "me", slow, driver.now)
    judged = driver.until("judge")
    reached = judged.reached
    assert reached is not None
    assert (reached.quota, reached.used, reached.limit, reached.resets_at) == (
        "device_seconds_a_day",
        12.5,
        10.0,
        MIDNIGHT,
    )
    assert steps.wait_for_quota(db, judged.attempt_id, "me", reached, driver.now)
    assert not steps.wait_for_quota(db, judged.attempt_id, "me", reached, driver.now), "the lease is gone"
    search, attempt = driver.search(), driver.attempt(judged.attempt_id)
    assert (search.state, search.reason) == ("paused", reached.describe())
    assert (attempt.state, attempt.tries, attempt.error) == ("pending", 0, reached.describe())
    assert steps.reconcile(db, MIDNIGHT - 1, SETTINGS, driver.decide) == []
    messages = steps.reconcile(db, MIDNIGHT, SETTINGS, driver.decide)
    assert judged.attempt_id in [message.attempt_id for message in messages]
    assert driver.search().state == "running"
    assert "search.resumed" in driver.events()
    driver.now = MIDNIGHT + 1
    assert driver.claim(judged.attempt_id).reached is None


@pytest.mark.parametrize(
    ("quota", "model", "kinds"),
    [
        ("candidates_a_day", OPENAI, {"code", "screen"}),
        ("cost_usd_a_day", OPENAI, {"ideate", "code"}),
        ("cost_usd_a_day", {"provider": "agent"}, set()),
        ("device_seconds_a_day", OPENAI, {"baseline", "screen", "verify"}),
    ],
)
def test_each_quota_stops_the_steps_that_spend_from_it(
    db: Database, quota: str, model: dict[str, Any], kinds: set[str]
) -> None:
    add_team(db)
    driver = Driver(db, create(db, NOON, team="limited", model=model), now=NOON)
    found: dict[str, bool] = {}
    waiting = driver.advance()
    while waiting:
        with db.writing() as session:
            setattr(session.get_one(TeamRow, "limited"), quota, 0)
        work = driver.claim(waiting.pop(0).attempt_id)
        found[work.level or work.kind] = work.reached is not None
        with db.writing() as session:
            setattr(session.get_one(TeamRow, "limited"), quota, None)
        assert driver.complete(work)
        waiting += driver.advance()
    assert found.keys() == {"baseline", "ideate", "code", "screen", "verify"}
    assert {name for name, stopped in found.items() if stopped} == kinds


def test_a_worker_gives_the_step_back(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    app = application(settings_for(tmp_path))
    here = WorkerProcess(app.state.service.settings)
    monkeypatch.setattr(process, "_current", here)
    add_team(here.db)
    search_id = create(here.db, time.time(), team="limited")
    (message,) = steps.advance(here.db, search_id, time.time(), next_steps)
    with here.db.writing() as session:
        session.get_one(TeamRow, "limited").device_seconds_a_day = 0.0
    tasks.perform(Celery("nowhere"), message.attempt_id, lambda *_: pytest.fail("it spends"))
    with here.db.reading() as session:
        assert session.get_one(SearchRow, search_id).state == "paused"
        assert session.get_one(AttemptRow, message.attempt_id).state == "pending"
    here.close()


def test_the_api_says_what_is_used_and_when_it_begins_anew(tmp_path: Any) -> None:
    from fastapi.testclient import TestClient  # noqa: PLC0415 - the other tests need no API

    app = application(settings_for(tmp_path, auth="always"))
    db: Database = app.state.service.db
    add_team(db, candidates_a_day=0, open_searches=7)
    key = {"Authorization": f"Bearer {auth.create_key(db, 'k', 'limited')}"}
    with TestClient(app, base_url="http://127.0.0.1:8420") as client:
        answer = client.post("/v1/searches", json=SEARCH, headers=key)
        quota = problem(answer, 429, "quota-reached")["quota"]
        day_ends = (time.time() // DAY_S + 1) * DAY_S
        assert quota == {
            "team": "limited",
            "quota": "candidates_a_day",
            "used": 0.0,
            "limit": 0.0,
            "resets_at": pytest.approx(day_ends, abs=DAY_S),
        }
        assert 0 < int(answer.headers["Retry-After"]) <= DAY_S
        shown = client.get("/v1/system", headers=key).json()["quotas"]
        assert [(row["team"], row["quota"], row["limit"]) for row in shown][:2] == [
            ("limited", "open_searches", 7.0),
            ("limited", "candidates_a_day", 0.0),
        ]
        admin = {"Authorization": f"Bearer {auth.create_key(db, 'k', scopes=['admin'])}"}
        assert {row["team"] for row in client.get("/v1/system", headers=admin).json()["quotas"]} == {
            "default",
            "limited",
        }
        log = client.get("/v1/audit", headers=admin).json()["items"]
        assert [(row["action"], row["result"]) for row in log] == [("create_search", "429")]
        with db.writing() as session:
            team = session.get_one(TeamRow, "limited")
            team.candidates_a_day, team.cost_usd_a_day = None, 5.0
        unpriced = {**SEARCH, "model": {"provider": "openai", "model": "mine", "base_url": ENDPOINT}}
        refused = problem(client.post("/v1/searches", json=unpriced, headers=key), 422, "invalid-input")
        assert refused["errors"][0]["field"] == "model"


def device_verdict(seconds: float) -> Any:
    """A verdict whose judge held the device for so long."""
    return verdict("verify", score=2.0, seconds={"verify": 9.0, "exclusive": seconds})


def test_a_reverification_spends_device_seconds_of_the_team_that_asks(db: Database) -> None:
    add_team(db, device_seconds_a_day=5.0)
    kernel_id = keep(db, OP)

    def ask(now: float, **who: Any) -> str:
        with db.writing() as session:
            return reverification.ask(session, kernel_id, now, **{"cause": "asked", **who})[0].id

    def judge(row_id: str, now: float) -> None:
        assert reverification.claim(db, row_id, "me", 30.0, now) is not None
        found = reverification.Finding("holds", "as before")
        assert reverification.finish(db, row_id, "me", found, device_verdict(4.0), now)

    judge(ask(NOON, team="limited"), NOON)
    assert used(db, NOON)["device_seconds_a_day"] == 4.0
    judge(ask(NOON, cause="schedule"), NOON)  # the operator's own
    assert used(db, NOON)["device_seconds_a_day"] == 4.0
    waiting = ask(NOON, team="limited")
    assert ask(NOON, team="limited") == waiting
    judge(waiting, NOON)
    with pytest.raises(steps.QuotaReached, match="8 of 5 device seconds today; anew at 1970-04-12 00:00 UTC"):
        ask(NOON, team="limited")
    with db.reading() as session:
        assert session.scalar(select(func.count()).select_from(ReverificationRow)) == 3
    ask(MIDNIGHT, team="limited")


def test_a_profile_spends_device_seconds_of_its_searchs_team(tmp_path: Any) -> None:
    from fastapi.testclient import TestClient  # noqa: PLC0415 - the other tests need no API

    app = application(settings_for(tmp_path))
    db: Database = app.state.service.db
    now = db.now()
    add_team(db, device_seconds_a_day=5.0)
    driver = Driver(db, create(db, now, team="limited"), now=now)
    driver.run()
    node = next(node for node in driver.nodes() if node.source is not None)
    before = used(db, now)["device_seconds_a_day"]
    with TestClient(app, base_url="http://127.0.0.1:8420") as client:
        first = client.post(f"/v1/nodes/{node.id}/profile")
        assert first.status_code == 202
        with db.writing() as session:
            assert claim_profile(session, first.json()["id"], "me", 900.0, now) is not None
        assert client.post(f"/v1/nodes/{node.id}/profile").status_code == 202  # the one that is under way
        with db.writing() as session:
            assert finish_profile(session, first.json()["id"], "me", "done", {}, now, {}, 6.0)
        assert used(db, now)["device_seconds_a_day"] == before + 6.0
        refused = client.post(f"/v1/nodes/{node.id}/profile")
        assert problem(refused, 429, "quota-reached")["quota"]["quota"] == "device_seconds_a_day"
    with db.reading() as session:
        assert session.scalar(select(func.count()).select_from(ProfileRow)) == 1

"""A model that is away: the search pauses, tries again by itself ever more rarely, and goes on when it is back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.steps_support import SETTINGS, Driver, call, create
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import EventRow
from warpsmith.workers import steps
from warpsmith.workers.llm.base import ModelReply, ModelRequest
from warpsmith.workers.queue.model_step import ModelStep
from warpsmith.workers.steps.outages import resting


@pytest.fixture
def driver(db: Database) -> Driver:
    return Driver(db, create(db))


def fail(driver: Driver, attempt_id: str, *, max_deferrals: int = 0, final: bool = False) -> None:
    """The model fails the claimed attempt."""
    failed = [replace(call(reply=None, error="503", tokens=0), cost_usd=None)]
    limits: dict[str, Any] = {"max_deferrals": max_deferrals, "probe_s": 30.0, "longest_probe_s": 100.0}
    assert steps.defer(driver.db, attempt_id, "me", "503: away", 5.0, failed, driver.now, final=final, **limits)


def reconcile_at(driver: Driver, later: float) -> list[str]:
    """A round of the reconciler `later` seconds from now; the attempts that it sent."""
    driver.now += later
    return [sent.attempt_id for sent in steps.reconcile(driver.db, driver.now, SETTINGS, driver.decide)]


def payloads(driver: Driver, kind: str) -> list[dict[str, object]]:
    with driver.db.reading() as session:
        rows = session.query(EventRow).where(EventRow.search_id == driver.search_id, EventRow.type == kind)
        return [row.payload for row in rows.order_by(EventRow.id)]


def test_a_paused_search_tries_again_ever_more_rarely_and_goes_on(driver: Driver) -> None:
    work = driver.until("code")
    fail(driver, work.attempt_id)
    active = driver.search().active_s
    for delay in (30.0, 60.0, 100.0, 100.0):
        search = driver.search()
        assert (search.state, search.reason) == ("paused", f"503: away; it tries again by itself in {delay:g} s")
        assert payloads(driver, "search.paused")[-1]["again_at"] == driver.now + delay
        assert work.attempt_id not in reconcile_at(driver, delay - 1.0)
        assert driver.search().state == "paused"
        assert work.attempt_id in reconcile_at(driver, 1.0)
        assert driver.search().state == "running"
        assert payloads(driver, "search.resumed")[-1]["automatic"] is True
        driver.claim(work.attempt_id)
        fail(driver, work.attempt_id)
    assert driver.search().active_s == active, "the clock stands still while the model is away"
    reconcile_at(driver, 100.0)
    for _ in range(50):  # the messages that went nowhere are sent again, ever more rarely
        driver.now += 60.0
        if driver.run(steps.reconcile(driver.db, driver.now, SETTINGS, driver.decide)).state == "finished":
            break
    assert driver.search().state == "finished"
    driver.check()


def test_whoever_pauses_it_keeps_it_paused(driver: Driver) -> None:
    work = driver.until("code")
    fail(driver, work.attempt_id)
    steps.pause(driver.db, driver.search_id, "on request", driver.now)
    assert driver.search().reason == "on request"
    assert reconcile_at(driver, 10_000.0) == []
    assert driver.search().state == "paused"


def test_a_refusal_during_an_outage_waits_for_a_person(driver: Driver) -> None:
    work = driver.until("code")
    fail(driver, work.attempt_id)
    reconcile_at(driver, 30.0)
    driver.claim(work.attempt_id)
    fail(driver, work.attempt_id, final=True)
    assert driver.search().reason == "503: away"
    assert reconcile_at(driver, 10_000.0) == []
    assert driver.search().state == "paused"


def test_an_outage_spends_no_budget(driver: Driver) -> None:
    work = driver.until("code")
    before = driver.search()
    for _ in range(3):
        fail(driver, work.attempt_id, max_deferrals=10)
        reconcile_at(driver, 10.0)
        driver.claim(work.attempt_id)
    after = driver.search()
    assert (after.model_calls, after.tokens, after.cost_usd) == (before.model_calls, before.tokens, before.cost_usd)


def test_a_step_without_a_slot_is_put_back_and_nothing_is_counted(driver: Driver) -> None:
    work = driver.until("code")
    assert steps.put_off(driver.db, work.attempt_id, "me", "no slot", 1.0, [], driver.now)
    assert not steps.put_off(driver.db, work.attempt_id, "me", "no slot", 1.0, [], driver.now), "the lease is gone"
    attempt = driver.attempt(work.attempt_id)
    assert (attempt.state, attempt.deferrals, attempt.tries) == ("pending", 0, 0)
    assert work.attempt_id not in reconcile_at(driver, 0.5)
    assert work.attempt_id in reconcile_at(driver, 0.5)


def test_searches_that_wait_for_a_person_keep_no_other_from_trying_again(db: Database) -> None:
    driver, stopped = Driver(db, create(db)), Driver(db, create(db))
    fail(driver, driver.until("code").attempt_id)
    stopped.now = driver.now + 1.0
    fail(stopped, stopped.until("code").attempt_id, final=True)
    with db.reading() as session:
        assert resting(session, driver.now + 29.0, 1) == []
        assert resting(session, driver.now + 60.0, 1) == [driver.search_id]


def test_the_clock_stands_still_while_all_that_is_open_is_put_off(driver: Driver) -> None:
    work = driver.until("ideate")
    driver.now += 7.0
    fail(driver, work.attempt_id, max_deferrals=10)  # for 5 seconds; the search goes on running
    search = driver.search()
    assert (search.state, search.running_since) == ("running", None)
    spent = search.active_s
    driver.check()
    driver.now += 1_000.0
    driver.claim(work.attempt_id)
    assert driver.search().active_s == spent
    driver.now += 3.0
    fail(driver, work.attempt_id, max_deferrals=10)
    assert driver.search().active_s == spent + 3.0
    driver.now += 1_000.0
    assert driver.complete(driver.claim(work.attempt_id))
    driver.advance()
    assert driver.search().running_since is not None


def test_the_clock_runs_while_anything_else_is_under_way(driver: Driver) -> None:
    work = driver.until("code")
    others = [attempt for attempt in driver.attempts() if attempt.kind == "code" and attempt.id != work.attempt_id]
    assert others
    since = driver.search().running_since
    fail(driver, work.attempt_id, max_deferrals=10)
    assert driver.search().running_since == since, "another code step waits for a worker"
    for other in others:
        driver.claim(other.id)
        fail(driver, other.id, max_deferrals=10)
    assert driver.search().running_since is None
    driver.check()


def test_a_step_that_was_put_off_has_the_rest_of_its_calls(driver: Driver) -> None:
    work = driver.until("code")
    calls = [call(1, error="unreadable"), call(2, error="unreadable")]
    assert work.replies == 0
    assert steps.defer(driver.db, work.attempt_id, "me", "503: away", 5.0, calls, driver.now)
    driver.now += 10.0
    again = driver.claim(work.attempt_id)
    assert again.replies == 2
    model = Nonsense()
    assert ModelStep(driver.db, SETTINGS, again, "me", lambda: driver.now).run(model)
    assert model.asked == 1, "three calls in all, as its step was granted"
    assert driver.search().candidates == 1, "its replies were paid for"
    driver.check()


class Nonsense:
    """Never answers with code."""

    provider = "openai"

    def __init__(self) -> None:
        self.asked = 0

    def complete(self, request: ModelRequest) -> ModelReply:
        self.asked += 1
        return ModelReply("no", "m", "stop", 1, 1, 0.0, 0.1)

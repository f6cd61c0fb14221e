"""Asks by hand: opened, answered once, expired, issued again, withdrawn; on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import select

from tests.services import DATABASES, MIGRATED, on_both_databases
from tests.support.model_rows import migrated
from tests.support.steps_support import LEASE_S, SETTINGS, Driver, call, create, request
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AskRow, EventRow
from warpsmith.workers import steps
from warpsmith.workers.llm.providers.agent_model import AgentModel
from warpsmith.workers.settings import Settings

LIFE_S = 100.0
EXPIRING = SETTINGS.model_copy(update={"ask_expires_s": LIFE_S})


@pytest.fixture(params=DATABASES)
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    url: str = request.getfixturevalue(MIGRATED[request.param])
    with migrated(url) as db:
        yield Driver(db, create(db))


def asks(db: Database) -> list[AskRow]:
    """Every ask, oldest first."""
    with db.reading() as session:
        return list(session.scalars(select(AskRow).order_by(AskRow.created_at, AskRow.id)))


def waiting(driver: Driver, life_s: float = LIFE_S) -> steps.Work:
    """A code step that waits for the answer to its ask."""
    work = driver.until("code")
    assert steps.wait_for_answer(driver.db, work.attempt_id, "me", request(1), driver.now, life_s)
    return work


def reconcile(driver: Driver, settings: Settings = EXPIRING) -> list[steps.Message]:
    return steps.reconcile(driver.db, driver.now, settings, driver.decide)


def test_an_unanswered_ask_expires_and_is_issued_again(driver: Driver) -> None:
    work = waiting(driver)
    driver.now += LIFE_S - 1
    reconcile(driver)
    assert [ask.state for ask in asks(driver.db)] == ["open"]
    driver.now += 1
    reconcile(driver)
    old, new = asks(driver.db)
    assert (old.state, old.issue, new.state, new.issue) == ("expired", 0, "open", 1)
    assert new.id != old.id
    same = ("search_id", "node_id", "attempt_id", "kind", "request", "ordinal", "messages")
    assert [getattr(new, name) for name in same] == [getattr(old, name) for name in same]
    assert new.expires_at == driver.now + 2 * LIFE_S, "each issue lives twice as long"
    assert driver.attempt(work.attempt_id).state == "waiting"
    reconcile(driver)
    assert len(asks(driver.db)) == 2
    with driver.db.reading() as session:
        events = list(session.scalars(select(EventRow).where(EventRow.type.startswith("ask.")).order_by(EventRow.id)))
    assert [event.type for event in events] == ["ask.opened", "ask.opened", "ask.expired"]
    assert (events[1].payload["replaces"], events[2].payload["replaced_by"]) == (old.id, new.id)


def test_an_answer_to_an_expired_ask_is_told_which_one_to_answer(driver: Driver) -> None:
    work = waiting(driver)
    driver.now += LIFE_S
    reconcile(driver)
    old, new = asks(driver.db)
    with pytest.raises(
        steps.AskClosed, match=f"found expired, expected {new.id}, which is open .* answer that one"
    ) as e:
        steps.tell(driver.db, old.id, "the answer", "ada", driver.now)
    assert (e.value.replaced_by, e.value.answered_by) == (new.id, None)
    [message] = steps.tell(driver.db, new.id, "the answer", "ada", driver.now)
    assert message.attempt_id == work.attempt_id
    with pytest.raises(steps.AskClosed, match=f"ask {old.id}: found expired.*the first answer stands, by ada") as e:
        steps.tell(driver.db, old.id, "the answer", "bob", driver.now)
    assert (e.value.replaced_by, e.value.answered_by, e.value.answered_at) == (None, "ada", driver.now)
    reply = AgentModel(driver.db).complete(request(1, attempt_id=work.attempt_id))
    assert (reply.text, reply.model) == ("the answer", "ada")


@on_both_databases("driver")
def test_the_first_answer_stands_and_the_same_again_is_no_error(driver: Driver) -> None:
    waiting(driver)
    [ask] = asks(driver.db)
    told_at = driver.now
    assert len(steps.tell(driver.db, ask.id, "the answer", "ada", told_at)) == 1
    driver.now += 5
    assert steps.tell(driver.db, ask.id, "the answer", "bob", driver.now) == []
    with pytest.raises(
        steps.AskClosed, match=r"found answered, expected open; the first answer stands, by ada at 19"
    ) as e:
        steps.tell(driver.db, ask.id, "another", "bob", driver.now)
    assert (e.value.answered_by, e.value.answered_at, e.value.replaced_by) == ("ada", told_at, None)
    [kept] = asks(driver.db)
    assert (kept.reply, kept.answered_by, kept.answered_at) == ("the answer", "ada", told_at)


def test_an_answered_ask_does_not_expire(driver: Driver) -> None:
    work = waiting(driver)
    [ask] = asks(driver.db)
    steps.tell(driver.db, ask.id, "the answer", None, driver.now)
    driver.now += 10 * LIFE_S
    reconcile(driver)
    assert [item.state for item in asks(driver.db)] == ["answered"]
    assert driver.complete(driver.claim(work.attempt_id))


def test_without_a_life_an_ask_waits_for_ever(driver: Driver) -> None:
    waiting(driver, life_s=0.0)
    driver.now += 1e9
    reconcile(driver)
    [ask] = asks(driver.db)
    assert (ask.state, ask.expires_at) == ("open", None)


def test_the_life_of_an_issue_is_bounded(driver: Driver) -> None:
    waiting(driver, life_s=3600.0)
    hourly = SETTINGS.model_copy(update={"ask_expires_s": 3600.0})
    days = 4
    for _ in range(days * 24):
        driver.now += 3600.0
        reconcile(driver, hourly)
    lives = [(ask.expires_at or 0.0) - ask.created_at for ask in asks(driver.db)]
    assert lives[:6] == [3600.0 * life for life in (1, 2, 4, 8, 16, 24)]
    assert set(lives[6:]) == {24 * 3600.0}
    assert len(lives) <= days + 6


def test_asks_of_a_paused_search_stay_open_until_it_goes_on(driver: Driver) -> None:
    work = waiting(driver)
    steps.pause(driver.db, driver.search_id, "on request", driver.now)
    driver.now += 2 * LIFE_S
    reconcile(driver)
    assert [ask.state for ask in asks(driver.db)] == ["open"]
    steps.resume(driver.db, driver.search_id, driver.now, driver.decide)
    reconcile(driver)
    assert [ask.state for ask in asks(driver.db)] == ["expired", "open"]
    assert driver.attempt(work.attempt_id).state == "waiting"


def test_an_end_withdraws_what_is_open_and_says_so(driver: Driver) -> None:
    waiting(driver)
    driver.now += LIFE_S
    reconcile(driver)
    steps.cancel(driver.db, driver.search_id, driver.now)
    old, new = asks(driver.db)
    assert (old.state, new.state) == ("expired", "withdrawn")
    for ask in (old, new):
        with pytest.raises(steps.AskClosed, match=f"found {ask.state}.*nothing waits for its answer any more") as e:
            steps.tell(driver.db, ask.id, "late", None, driver.now)
        assert e.value.replaced_by is None


def test_answers_that_could_not_be_read_make_way_for_the_next_issue(driver: Driver) -> None:
    work = waiting(driver)
    [ask] = asks(driver.db)
    unreadable = [call(1, error="nonsense") for _ in range(3)]
    other = next(attempt.id for attempt in driver.attempts() if attempt.state == "pending")
    driver.claim(other)
    assert steps.close_branch(driver.db, other, "me", "nonsense", unreadable, driver.now)
    steps.tell(driver.db, ask.id, "nonsense", "ada", driver.now)
    driver.claim(work.attempt_id)
    assert steps.close_branch(driver.db, work.attempt_id, "me", "nonsense", unreadable, driver.now)
    assert driver.search().state == "paused"
    steps.resume(driver.db, driver.search_id, driver.now, driver.decide)
    driver.claim(work.attempt_id)
    assert steps.wait_for_answer(driver.db, work.attempt_id, "me", request(1), driver.now, LIFE_S)
    old, new = asks(driver.db)
    assert (old.state, old.reply, new.state, new.reply, new.issue) == ("withdrawn", "nonsense", "open", None, 1)
    with pytest.raises(steps.AskClosed, match="found withdrawn") as e:
        steps.tell(driver.db, ask.id, "better", None, driver.now)
    assert e.value.replaced_by == new.id


def test_waiting_twice_opens_one_ask(driver: Driver) -> None:
    """A worker dies between claim and ask, over and over: one request, one ask."""
    work = driver.until("code")
    for owner in ("me", "second"):
        if owner != "me":
            assert steps.claim(driver.db, work.attempt_id, owner, LEASE_S, driver.now) is None
        assert steps.wait_for_answer(driver.db, work.attempt_id, owner, request(1), driver.now) == (owner == "me")
    assert len(asks(driver.db)) == 1


def test_an_unknown_ask_is_named(driver: Driver) -> None:
    with pytest.raises(LookupError, match="'ak_none'"):
        steps.tell(driver.db, "ak_none", "reply", None, driver.now)


def test_the_clock_stands_still_while_an_agent_that_let_an_ask_expire_is_away(driver: Driver) -> None:
    work = waiting(driver)
    for other in [attempt for attempt in driver.attempts() if attempt.state == "pending"]:
        driver.claim(other.id)
        assert steps.wait_for_answer(driver.db, other.id, "me", request(2), driver.now, LIFE_S)
    began = driver.search().running_since
    assert began is not None, "an agent that thinks takes the search's time, as a model does"
    driver.now += LIFE_S
    reconcile(driver)
    assert driver.search().running_since is None
    spent = driver.search().active_s
    assert spent == driver.now - began
    driver.check()
    driver.now += 50.0
    [ask] = [ask for ask in asks(driver.db) if ask.attempt_id == work.attempt_id and ask.state == "open"]
    assert steps.tell(driver.db, ask.id, "the answer", "ada", driver.now)
    assert (driver.search().running_since, driver.search().active_s) == (driver.now, spent)

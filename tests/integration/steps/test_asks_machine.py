"""Asks under any order of events: claimed, waited for, told, told again, expired, issued again, unreadable, cancelled.

Whatever happens, a request has at most one ask that is open or answered, the first answer stands word for word, who
comes too late is told where to go, nothing that waits is lost, and a search that is answered ends.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import select

from tests.services import migrate
from tests.support.steps_support import LEASE_S, SETTINGS, Driver, call, create, request, small_policy
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AskRow
from warpsmith.workers import steps
from warpsmith.workers.llm.base import AskPending
from warpsmith.workers.llm.providers.agent_model import AgentModel
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.text import storable

LIFE_S = 50.0
EXPIRING = SETTINGS.model_copy(update={"ask_expires_s": LIFE_S})
PICK = st.integers(0, 1_000_000)
REPLIES = st.sampled_from(["one", "two", "a lone \ud800 surrogate", "a NUL \0"])


class AskMachine(RuleBasedStateMachine):
    """Messages lie in `queue`; `held` are claimed steps whose worker has not asked yet; `answers` is what was taken."""

    @initialize(luck=st.randoms())
    def begin(self, luck: object) -> None:
        """A search on a database of its own."""
        self.directory = Path(tempfile.mkdtemp(prefix="ws-asks-"))
        self.db = Database(f"sqlite:///{self.directory / 'machine.db'}")
        migrate(self.db)
        self.driver = Driver(self.db, create(self.db), small_policy(), luck=luck)  # type: ignore[arg-type] # a Random
        self.model = AgentModel(self.db)
        self.queue: list[steps.Message] = []
        self.held: list[tuple[steps.Work, str]] = []
        self.answers: dict[str, tuple[str, str | None]] = {}
        self.queue += self.driver.advance()
        self.work_until_asks()

    def teardown(self) -> None:
        """Answered, the search ends: nothing that waited was lost."""
        try:
            driver = self.driver
            self.held.clear()
            if driver.search().state == "paused":
                self.queue += steps.resume(self.db, driver.search_id, driver.now, driver.decide)
            for _ in range(400):
                if driver.search().state in ENDED:
                    break
                driver.now += LEASE_S + 1
                self.reconcile(0.0)
                for ask in self.asks("open"):
                    self.queue += steps.tell(self.db, ask.id, "reply", None, driver.now)
                    self.answers[ask.id] = ("reply", None)
                self.work_until_asks()
            assert driver.search().state in ENDED
            self.always()
        finally:
            self.db.dispose()
            shutil.rmtree(self.directory)

    def work_until_asks(self) -> None:
        """Deliver every message and do its step, until all that is left waits."""
        while self.queue:
            self.deliver(0)
            while self.held:
                self.go_on(0)

    @precondition(lambda self: self.queue)
    @rule(pick=PICK)
    def deliver(self, pick: int) -> None:
        """A worker claims a step."""
        message = self.queue.pop(pick % len(self.queue))
        owner = self.driver.owner()
        work = steps.claim(self.db, message.attempt_id, owner, LEASE_S, self.driver.now)
        if work is not None:
            self.held.append((work, owner))

    @precondition(lambda self: self.held)
    @rule(pick=PICK)
    def go_on(self, pick: int) -> None:
        """The worker does its step: with the answer, or it opens an ask."""
        work, owner = self.held.pop(pick % len(self.held))
        if work.kind in ("ideate", "code"):
            asked = request(attempt_id=work.attempt_id)
            try:
                self.model.complete(asked)
            except AskPending:
                steps.wait_for_answer(self.db, work.attempt_id, owner, asked, self.driver.now, LIFE_S)
                return
        self.driver.complete(work, owner)
        self.queue += self.driver.advance()

    @precondition(lambda self: self.held)
    @rule(pick=PICK)
    def die(self, pick: int) -> None:
        """A worker is killed: nobody hears of it."""
        self.held.pop(pick % len(self.held))

    @precondition(lambda self: self.held)
    @rule(pick=PICK)
    def unreadable(self, pick: int) -> None:
        """Three answers in a row make no sense: the search pauses and their asks are withdrawn."""
        work, owner = self.held.pop(pick % len(self.held))
        if work.kind in ("ideate", "code"):
            calls = [call(error="unreadable")] * 3
            steps.close_branch(self.db, work.attempt_id, owner, "unreadable", calls, self.driver.now)

    @precondition(lambda self: self.asks())
    @rule(pick=PICK, reply=REPLIES, by=st.sampled_from([None, "ada", "bob"]))
    def tell(self, pick: int, reply: str, by: str | None) -> None:
        """Somebody answers an ask, be it open or not."""
        asks = self.asks()
        ask = asks[pick % len(asks)]
        try:
            self.queue += steps.tell(self.db, ask.id, reply, by, self.driver.now)
        except steps.AskClosed as closed:
            self.refused(closed, ask, reply)
            return
        if ask.state == "open":
            self.answers[ask.id] = (self.kept(reply), by)
        else:
            assert ask.state == "answered"
            assert self.kept(reply) == self.answers[ask.id][0], "only the same reply is taken again"

    def refused(self, closed: steps.AskClosed, ask: AskRow, reply: str) -> None:
        """Rightly, and told who was first or where to go."""
        assert ask.state != "open"
        issues = [item for item in self.asks() if self.same(item, ask)]
        opened = [item.id for item in issues if item.state == "open"]
        answered = [(item.answered_by, item.answered_at) for item in issues if item.state == "answered"]
        assert closed.replaced_by == (opened[0] if opened else None)
        assert (closed.answered_by, closed.answered_at) == (answered[0] if answered else (None, None))
        if ask.state == "answered":
            assert self.kept(reply) != self.answers[ask.id][0]

    @rule(seconds=st.sampled_from([0.0, 1.0, LEASE_S + 1, LIFE_S, 5 * LIFE_S]))
    def reconcile(self, seconds: float) -> None:
        """Time goes by and the reconciler comes: no ask of a running search is overdue afterwards."""
        self.driver.now += seconds
        self.queue += steps.reconcile(self.db, self.driver.now, EXPIRING, self.driver.decide)
        if self.driver.search().state == "running":
            assert all((ask.expires_at or 0.0) > self.driver.now for ask in self.asks("open"))

    @rule()
    def pause(self) -> None:
        """Somebody pauses."""
        with suppress(steps.WrongState):
            steps.pause(self.db, self.driver.search_id, "on request", self.driver.now)

    @rule()
    def resume(self) -> None:
        """Somebody resumes."""
        with suppress(steps.WrongState):
            self.queue += steps.resume(self.db, self.driver.search_id, self.driver.now, self.driver.decide)

    @rule(sure=st.integers(0, 14))
    def cancel(self, sure: int) -> None:
        """Somebody cancels, seldom."""
        if sure == 0:
            with suppress(steps.WrongState):
                steps.cancel(self.db, self.driver.search_id, self.driver.now)

    @invariant()
    def always(self) -> None:
        """What must hold after every event."""
        self.driver.check()
        asks = sorted(self.asks(), key=lambda ask: (ask.attempt_id, ask.request, ask.ordinal, ask.issue))
        waiting = {item.id for item in self.driver.attempts() if item.state == "waiting"}
        for _, group in groupby(asks, key=lambda ask: (ask.attempt_id, ask.request, ask.ordinal)):
            issues = list(group)
            assert [ask.issue for ask in issues] == list(range(len(issues)))
            assert all(ask.state in ("expired", "withdrawn") for ask in issues[:-1])
            assert issues[-1].state != "expired", "an ask that expired is issued again"
            assert len({str(ask.messages) for ask in issues}) == 1
        assert waiting == {ask.attempt_id for ask in asks if ask.state == "open"}
        for ask in asks:
            if ask.state in ("answered", "open"):
                assert (ask.state == "answered") == (ask.id in self.answers)
            if ask.id in self.answers:
                assert (ask.reply, ask.answered_by) == self.answers[ask.id], "the first answer stands"
            else:
                assert ask.reply is None
        if self.driver.search().state in ENDED:
            assert not [ask for ask in asks if ask.state == "open"]

    def asks(self, state: str | None = None) -> list[AskRow]:
        """Every ask, or those in a state."""
        with self.db.reading() as session:
            found = session.scalars(select(AskRow).order_by(AskRow.id)).all()
            return [ask for ask in found if state in (None, ask.state)]

    @staticmethod
    def same(one: AskRow, other: AskRow) -> bool:
        """Whether both ask the same."""
        return (one.attempt_id, one.request, one.ordinal) == (other.attempt_id, other.request, other.ordinal)

    @staticmethod
    def kept(reply: str) -> str:
        """The reply as it is stored."""
        return storable(reply)


PATIENT = settings(stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))


class TestAskMachine(AskMachine.TestCase):  # type: ignore[valid-type,misc] # a class made at run time
    """A few plays."""

    settings = settings(PATIENT, max_examples=6)


@pytest.mark.nightly
class TestAskMachineAtLength(AskMachine.TestCase):  # type: ignore[valid-type,misc]
    """Many."""

    settings = settings(PATIENT, max_examples=30)

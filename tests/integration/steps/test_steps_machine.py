"""The state machine under any order of events: messages lost and doubled, workers dying, people steering.

Whatever happens, no node is lost or doubled, the counters equal what was recorded, nothing runs without an owner,
terminal states stay, and a search that is left alone ends.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import select

from tests.services import migrate
from tests.support.steps_support import LEASE_S, SETTINGS, Driver, call, create, idea, request, small_policy
from warpsmith.kernels_db.spec.op import SpecError
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AskRow
from warpsmith.workers import steps
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.steps import steering

PICK = st.integers(0, 1_000_000)


class Machine(RuleBasedStateMachine):
    """Messages lie in `queue` as a broker may deliver them: late, never, or twice. `held` are steps under way."""

    @initialize(codes=st.integers(1, 2), ideas=st.integers(1, 2), rounds=st.integers(1, 2), luck=st.randoms())
    def begin(self, codes: int, ideas: int, rounds: int, luck: object) -> None:
        """A search on a database of its own."""
        self.directory = Path(tempfile.mkdtemp(prefix="ws-steps-"))
        self.db = Database(f"sqlite:///{self.directory / 'machine.db'}")
        migrate(self.db)
        decide = small_policy(codes, ideas, rounds=rounds)
        self.driver = Driver(self.db, create(self.db), decide, luck=luck)  # type: ignore[arg-type] # a Random
        self.queue: list[steps.Message] = []
        self.held: list[tuple[steps.Work, str]] = []
        self.branches: list[str] = []
        self.ended: tuple[str, str | None] | None = None

    def teardown(self) -> None:
        """Left alone, with live workers, the search ends."""
        try:
            self.finish()
        finally:
            self.db.dispose()
            shutil.rmtree(self.directory)

    def finish(self) -> None:
        driver = self.driver
        if driver.search().state == "paused":
            self.queue += steps.resume(self.db, driver.search_id, driver.now, driver.decide)
        for _ in range(400):
            if driver.search().state in ENDED:
                break
            driver.now += LEASE_S + 1
            for ask_id in self.open_asks():
                self.queue += steps.tell(self.db, ask_id, "reply", None, driver.now)
            self.queue += steps.reconcile(self.db, driver.now, SETTINGS, driver.decide)
            while self.queue:
                driver.step(self.queue.pop())
        assert driver.search().state in ENDED
        self.always()

    @rule()
    def advance(self) -> None:
        """Somebody asks the policy, called for or not."""
        self.queue += self.driver.advance()

    @precondition(lambda self: self.queue)
    @rule(pick=PICK, again=st.booleans())
    def deliver(self, pick: int, again: bool) -> None:
        """A message arrives, in any order, and perhaps once more later."""
        message = self.queue[pick % len(self.queue)]
        if not again:
            self.queue.remove(message)
        owner = self.driver.owner()
        work = steps.claim(self.db, message.attempt_id, owner, LEASE_S, self.driver.now)
        if work is not None:
            self.held.append((work, owner))

    @precondition(lambda self: self.queue)
    @rule(pick=PICK)
    def lose(self, pick: int) -> None:
        """The broker loses a message."""
        self.queue.pop(pick % len(self.queue))

    @precondition(lambda self: self.held)
    @rule(pick=PICK, twice=st.booleans(), go_on=st.booleans())
    def complete(self, pick: int, twice: bool, go_on: bool) -> None:
        """A worker commits, perhaps too late, perhaps twice, and dies or goes on to advance."""
        work, owner = self.held.pop(pick % len(self.held))
        self.driver.complete(work, owner)
        if twice:
            assert not self.driver.complete(work, owner)
        if go_on:
            self.queue += self.driver.advance()

    @precondition(lambda self: self.held)
    @rule(pick=PICK)
    def die(self, pick: int) -> None:
        """A worker is killed: nobody hears of it."""
        self.held.pop(pick % len(self.held))

    @precondition(lambda self: self.held)
    @rule(pick=PICK, how=st.sampled_from(["defer", "defer for good", "close", "unreadable", "give up", "ask", "renew"]))
    def go_wrong(self, pick: int, how: str) -> None:
        """A step ends in another way."""
        work, owner = self.held[pick % len(self.held)]
        db, attempt_id, now = self.db, work.attempt_id, self.driver.now
        match how:
            case "defer" | "defer for good":
                failed = [call(reply=None, error="503", tokens=0)]
                steps.defer(
                    db, attempt_id, owner, "503", 5.0, failed, now, max_deferrals=2, final=how == "defer for good"
                )
            case "close" | "unreadable":
                calls = [call(error="unreadable")] * (3 if how == "unreadable" else 0)
                steps.close_branch(db, attempt_id, owner, how, calls, now)
            case "give up":
                steps.give_up(db, attempt_id, owner, "cannot be done", now)
            case "ask":
                steps.wait_for_answer(db, attempt_id, owner, request(), now)
            case _:
                steps.renew(db, attempt_id, owner, LEASE_S, now)

    @precondition(lambda self: self.open_asks())
    @rule(pick=PICK)
    def tell(self, pick: int) -> None:
        """Somebody answers."""
        asks = self.open_asks()
        self.queue += steps.tell(self.db, asks[pick % len(asks)], "reply", "a person", self.driver.now)

    @rule(seconds=st.sampled_from([0.0, 1.0, 11.0, LEASE_S + 1]))
    def reconcile(self, seconds: float) -> None:
        """Time goes by and the reconciler comes."""
        self.driver.now += seconds
        self.queue += steps.reconcile(self.db, self.driver.now, SETTINGS, self.driver.decide)
        if self.driver.search().state == "running":
            banned = {node.id for node in self.driver.nodes() if node.mark == "banned"}
            due = [step for step in self.driver.attempts() if step.not_before <= self.driver.now]
            assert not [step for step in due if step.state == "pending" and step.node_id in banned and not step.sent_at]

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

    @precondition(lambda self: len(self.driver.nodes()) > 3)
    @rule(sure=st.integers(0, 9))
    def cancel(self, sure: int) -> None:
        """Somebody cancels, seldom."""
        if sure == 0:
            with suppress(steps.WrongState):
                steps.cancel(self.db, self.driver.search_id, self.driver.now)

    @rule(number=st.integers(0, 6), codes=st.integers(1, 2), pick=PICK, default=st.booleans())
    def add_idea(self, number: int, codes: int, pick: int, default: bool) -> None:
        """Somebody has an idea, perhaps one that the search has had, perhaps on a node that cannot be built on."""
        driver, nodes = self.driver, self.driver.nodes()
        parent_id = None if default else nodes[pick % len(nodes)].id
        with suppress(steps.WrongState):
            steering.add_idea(
                self.db, driver.search_id, idea(99 + number), driver.now, parent_id=parent_id, codes=codes
            )
            assert len(driver.nodes()) == len(nodes) + codes

    @rule(pick=PICK, mark=st.sampled_from(["pinned", "banned"]), wanted=st.booleans())
    def mark(self, pick: int, mark: steering.Mark, wanted: bool) -> None:
        """Somebody pins or bans, or takes it back."""
        nodes = self.driver.nodes()
        node = nodes[pick % len(nodes)]
        with suppress(steps.WrongState):
            steering.mark_node(self.db, node.id, mark, wanted, self.driver.now)
            assert (self.driver.nodes()[node.seq].mark == mark) == wanted
            if mark == "banned" and wanted:
                left = {step.state for step in self.driver.attempts() if step.node_id == node.id}
                assert not left & {"pending", "waiting"}, "a ban takes back what nobody works on"

    @rule(calls=st.sampled_from([1, 5, 50, None]))
    def change_budget(self, calls: int | None) -> None:
        """Somebody changes a limit."""
        spent = self.driver.search().model_calls
        try:
            steering.change_budget(self.db, self.driver.search_id, {"model_calls": calls}, self.driver.now)
        except SpecError:
            assert calls is not None
            assert calls < spent
        except steps.WrongState:
            assert self.driver.search().state in ENDED
        else:
            assert self.driver.search().budget.get("model_calls") == calls

    @precondition(lambda self: len(self.branches) < 2)
    @rule(pick=PICK)
    def branch(self, pick: int) -> None:
        """Somebody branches off a search of its own; the old one is as it was."""
        nodes = self.driver.nodes()
        before = (self.driver.search().updated_at, len(nodes))
        fields = {"policy": {"name": "idea_beam"}, "budget": {}, "model": {"provider": "agent"}}
        with suppress(steps.WrongState):
            node_id = nodes[pick % len(nodes)].id
            self.branches.append(steering.branch(self.db, node_id, now=self.driver.now, **fields))
            Driver(self.db, self.branches[-1]).check()
        assert before == (self.driver.search().updated_at, len(self.driver.nodes()))

    @invariant()
    def always(self) -> None:
        """What must hold after every event."""
        self.driver.check()
        search = self.driver.search()
        banned = {node.id for node in self.driver.nodes() if node.mark == "banned"}
        assert search.best_node_id not in banned
        assert not (search.reason or "").startswith("the policy failed"), search.reason
        if self.ended is not None:
            assert (search.state, search.reason) == self.ended
        if search.state in ENDED:
            self.ended = (search.state, search.reason)

    def open_asks(self) -> list[str]:
        """Asks that wait."""
        with self.db.reading() as session:
            return list(session.scalars(select(AskRow.id).where(AskRow.state == "open").order_by(AskRow.id)))


PATIENT = settings(stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))


class TestMachine(Machine.TestCase):  # type: ignore[valid-type,misc] # a class made at run time
    """A few plays."""

    settings = settings(PATIENT, max_examples=6)


@pytest.mark.nightly
class TestMachineAtLength(Machine.TestCase):  # type: ignore[valid-type,misc]
    """Many."""

    settings = settings(PATIENT, max_examples=25)

"""Re-verifications under any order of events: messages lost and doubled, workers dying, people asking, the schedule
looking, searches keeping a kernel again.

Whatever happens, of a kernel at most one is open, the history only grows and what is done stays as it is, and a
kernel's standing is the latest result since it was kept. Left alone, everything that was asked for comes to a result.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import select

from tests.services import migrate
from tests.support.reverifying import keep, report_judge
from tests.support.steps_support import OP, verdict
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import KernelRow, ReverificationRow
from warpsmith.workers.reverification import Finding, ask, claim, finish, reconcile, renew, sweep
from warpsmith.workers.settings import Settings

LEASE_S = 30.0
SETTINGS = Settings(lease_s=LEASE_S, resend_after_s=10.0, max_tries=3)
KERNELS = 3
PICK = st.integers(0, 1_000_000)
OUTCOMES = st.sampled_from(["holds", "wrong", "slower", "uncompilable", "unknown"])
DONE = ("state", "outcome", "reason", "fingerprint", "finished_at", "ordinal", "kernel_id")


class Machine(RuleBasedStateMachine):
    """`sent` are messages as a broker may deliver them: late, never, or twice. `held` are claims under way."""

    @initialize()
    def begin(self) -> None:
        """A library on a database of its own."""
        self.directory = Path(tempfile.mkdtemp(prefix="ws-again-"))
        self.db = Database(f"sqlite:///{self.directory / 'machine.db'}")
        migrate(self.db)
        self.now = 1000.0
        self.kernels = [keep(self.db, OP, at=self.now) for _ in range(KERNELS)]
        self.sent: list[str] = []
        self.held: list[tuple[str, str]] = []
        self.owners = 0
        self.done: dict[str, tuple[object, ...]] = {}

    def teardown(self) -> None:
        """Left alone, with live workers, everything ends."""
        try:
            self.settle()
        finally:
            self.db.dispose()
            shutil.rmtree(self.directory)

    def settle(self) -> None:
        """Workers take what comes until nothing is open."""
        for _ in range(100):
            if not any(row.state != "done" for row in self.rows()):
                self.what_must_hold()
                return
            self.now += LEASE_S + 1.0
            report_judge(self.db, self.now - 1.0, self.now)
            for message in reconcile(self.db, self.now, SETTINGS):
                if claim(self.db, message.attempt_id, "last", LEASE_S, self.now) is not None:
                    assert self.end(message.attempt_id, "last", "holds")
        raise AssertionError("something stays open")

    def rows(self) -> list[ReverificationRow]:
        """Every re-verification."""
        with self.db.reading() as session:
            return list(session.scalars(select(ReverificationRow).order_by(ReverificationRow.id)))

    def end(self, row_id: str, owner: str, outcome: str) -> bool:
        """Bring a result."""
        given = None if outcome == "unknown" else verdict("verify", score=1.5, fingerprint=outcome)
        return finish(self.db, row_id, owner, Finding(outcome, "said"), given, self.now)  # type: ignore[arg-type] # drawn

    @rule(pick=PICK)
    def person_asks(self, pick: int) -> None:
        """One of a kernel is open at a time."""
        with self.db.writing() as session:
            row, new = ask(session, self.kernels[pick % KERNELS], self.now, cause="asked")
            assert row.state != "done"
            if new:
                self.sent.append(row.id)

    @rule()
    def schedule_looks(self) -> None:
        """Celery beat."""
        report_judge(self.db, self.now - 1.0, self.now)
        self.sent += [message.attempt_id for message in sweep(self.db, self.now, SETTINGS)]

    @rule(pick=PICK)
    def message_comes(self, pick: int) -> None:
        """A worker takes what it is told of, if it is to be had; the message may come again."""
        if not self.sent:
            return
        row_id = self.sent[pick % len(self.sent)]
        self.owners += 1
        owner = f"worker-{self.owners}"
        if claim(self.db, row_id, owner, LEASE_S, self.now) is not None:
            self.held.append((row_id, owner))

    @rule(pick=PICK, outcome=OUTCOMES)
    def result_comes(self, pick: int, outcome: str) -> None:
        """From a worker that may have lost its lease meanwhile: then nothing is written."""
        if not self.held:
            return
        row_id, owner = self.held.pop(pick % len(self.held))
        before = next(row for row in self.rows() if row.id == row_id)
        mine = before.state == "running" and before.owner == owner
        assert self.end(row_id, owner, outcome) == mine

    @rule(pick=PICK)
    def worker_renews(self, pick: int) -> None:
        """The lease goes on for whoever holds it."""
        if self.held:
            row_id, owner = self.held[pick % len(self.held)]
            row = next(row for row in self.rows() if row.id == row_id)
            assert renew(self.db, row_id, owner, LEASE_S, self.now) == (row.state == "running" and row.owner == owner)

    @rule(pick=PICK)
    def worker_dies(self, pick: int) -> None:
        """Nobody will bring its result."""
        if self.held:
            self.held.pop(pick % len(self.held))

    @rule(seconds=st.sampled_from([1.0, 11.0, LEASE_S + 1.0, 40 * 86400.0]))
    def time_passes(self, seconds: float) -> None:
        """Leases run out, kernels become due."""
        self.now += seconds

    @rule()
    def reconciler_comes(self) -> None:
        """Brings back what was lost."""
        self.sent += [message.attempt_id for message in reconcile(self.db, self.now, SETTINGS)]

    @rule(pick=PICK)
    def search_keeps_again(self, pick: int) -> None:
        """As `warpsmith.workers.steps.winners` does."""
        self.now += 1.0
        with self.db.writing() as session:
            kernel = session.get_one(KernelRow, self.kernels[pick % KERNELS], with_for_update=True)
            kernel.verified_at, kernel.standing, kernel.reverified_at = self.now, "verified", None
        self.now += 1.0

    @invariant()
    def what_must_hold(self) -> None:
        """At every moment."""
        rows = self.rows()
        for row in rows:
            assert (row.state == "running") == (row.lease_expires_at is not None)
            assert (row.state == "done") == (row.outcome is not None) == (row.finished_at is not None)
            if row.state == "done":
                facts = tuple(getattr(row, name) for name in DONE)
                assert self.done.setdefault(row.id, facts) == facts
        assert set(self.done) <= {row.id for row in rows}
        for kernel_id in self.kernels:
            own = [row for row in rows if row.kernel_id == kernel_id]
            assert sum(row.state != "done" for row in own) <= 1
            assert [row.ordinal for row in own] == list(range(1, len(own) + 1))
            with self.db.reading() as session:
                kernel = session.get_one(KernelRow, kernel_id)
            results = [
                (row.finished_at, row.outcome)
                for row in own
                if row.outcome not in (None, "unknown") and (row.started_at or 0.0) >= kernel.verified_at
            ]
            at, standing = results[-1] if results else (None, "verified")
            assert (kernel.reverified_at, kernel.standing) == (at, standing)


Machine.TestCase.settings = settings(
    max_examples=15, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestReverifications = Machine.TestCase

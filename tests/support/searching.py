"""One search of the scenario on a database of its own, and what became of it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.services import migrate
from tests.support import scenario
from tests.support.fleet import TARGET, Fleet
from warpsmith.kernels_db.spec.op import Target
from warpsmith.kernels_db.store import records
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.pool_file import Pool
from warpsmith.kernels_db.store.tables import EventRow, ModelCallRow, NodeRow, SearchRow
from warpsmith.workers import steps
from warpsmith.workers.queue import dispatch
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.search.policy import Policy, policy_document
from warpsmith.workers.search.tree import ENDED
from warpsmith.workers.settings import Settings


@dataclass
class Searching:
    """A search: `create` stores it, `begin` sends its first step."""

    db: Database
    url: str
    id: str

    @classmethod
    def create(cls, database: Path | str, policy: Policy = scenario.POLICY, pool: Pool | None = None) -> Searching:
        """Store a pool (the scenario's) and a search that replays it, in a new database."""
        url = database if isinstance(database, str) else f"sqlite:///{database}"
        db = Database(url)
        migrate(db)
        return cls.add(db, url, policy, pool or scenario.pool())

    @classmethod
    def add(cls, db: Database, url: str, policy: Policy, pool: Pool) -> Searching:
        """The same in a database that there is."""
        with db.writing() as session:
            row, _ = records.add_pool(session, pool)
            pool_id = row.id
        search_id = steps.create_search(
            db,
            scenario.op(),
            Target.parse(TARGET),
            language="cpp",
            policy=policy_document(policy),
            budget={},
            model={"provider": "replay", "pool": pool_id},
            now=time.time(),
        )
        return cls(db, url, search_id)

    def begin(self, broker_url: str) -> int:
        """Advance the search and send its messages; returns how many went out."""
        app = make_app(Settings(broker_url=broker_url))
        return dispatch.send(app, steps.advance(self.db, self.id, time.time()))

    def search(self) -> SearchRow:
        """The search's row."""
        with self.db.reading() as session:
            row = session.get(SearchRow, self.id)
        assert row is not None
        return row

    def ended(self) -> bool:
        """Whether the search is over."""
        return self.search().state in ENDED

    def wait(self, timeout_s: float, fleet: Fleet) -> None:
        """Wait for the search to finish; fails the test with the logs where nothing of it changes for `timeout_s`.

        How long it takes as a whole is the machine's business, and the test's own limit.
        """
        deadline, changed = time.monotonic() + timeout_s, self.search().updated_at
        while not self.ended():
            if (now := self.search().updated_at) != changed:
                deadline, changed = time.monotonic() + timeout_s, now
            if time.monotonic() > deadline:
                pytest.fail(f"the search stood still for {timeout_s:g} s: {self.describe()}\n{fleet.logs()}")
            time.sleep(0.1)
        if self.search().state != "finished":
            pytest.fail(f"{self.describe()}\n{fleet.logs()}")

    def nodes(self) -> list[NodeRow]:
        """Every node by rising `seq`."""
        with self.db.reading() as session:
            return list(session.scalars(select(NodeRow).where(NodeRow.search_id == self.id).order_by(NodeRow.seq)))

    def outcome(self) -> list[tuple[str, str, int, str, str]]:
        """The nodes as `scenario.outcome` has them."""
        return sorted(
            (
                node.idea["title"] if node.idea else "",
                node.source_digest or "",
                node.repairs,
                node.state,
                node.verdict or "",
            )
            for node in self.nodes()
        )

    def answered(self) -> Counter[tuple[str, int]]:
        """How often each request of the model was answered."""
        return Counter((call.request, call.ordinal) for call in self.model_calls() if call.error is None)

    def model_calls(self) -> list[ModelCallRow]:
        """Every recorded model call."""
        with self.db.reading() as session:
            return list(session.scalars(select(ModelCallRow).where(ModelCallRow.search_id == self.id)))

    def events(self) -> list[str]:
        """The types of the search's events, in order."""
        with self.db.reading() as session:
            query = select(EventRow.type).where(EventRow.search_id == self.id).order_by(EventRow.id)
            return list(session.scalars(query))

    def describe(self) -> str:
        """The tree in a few lines, for the message of a failing test."""
        search = self.search()
        lines = [f"{search.state}: {search.reason}"]
        lines += [
            f"  {node.seq} {node.idea['title'] if node.idea else 'root'} r{node.round} {node.state} {node.verdict} "
            f"{node.gate} {node.score} ({node.reason})"
            for node in self.nodes()
        ]
        return "\n".join(lines)

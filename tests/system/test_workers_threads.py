"""A worker whose threads share one judge, as a GPU's does; the CPU stands in for the GPU."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import func, select

from tests.services import RedisServer
from tests.support import scenario
from tests.support.fleet import TARGET, Fleet
from tests.support.searching import Searching
from tests.support.waiting import wait_until
from tests.system.test_faults import judges
from tests.system.test_workers import workers_of
from warpsmith.kernels_db.store.tables import AttemptRow
from warpsmith.workers import steps
from warpsmith.workers.search.policy import policy_document

SEARCHES = 3
THREADS = 4


class ThreadedFleet(Fleet):
    """A fleet whose judge worker has threads."""

    def command(self, name: str) -> list[str]:
        """See `Fleet`."""
        command = super().command(name)
        if name != "judge":
            return command
        command[command.index("-c") + 1] = str(THREADS)
        return [*command, "--pool", "threads"]


@dataclass
class Several:
    """Searches of the scenario, on one database."""

    searches: list[Searching]
    most_running: int = 0

    @classmethod
    def begin(cls, place: Path, broker_url: str) -> Several:
        first = Searching.create(place / "warpsmith.db")
        row = first.search()
        others = [
            Searching(
                first.db,
                first.url,
                steps.create_search(
                    first.db,
                    scenario.op(),
                    target=scenario.Target.parse(TARGET),
                    language="cpp",
                    policy=policy_document(scenario.POLICY),
                    budget={},
                    model=row.model,
                    now=time.time(),
                ),
            )
            for _ in range(SEARCHES - 1)
        ]
        several = cls([first, *others])
        for searching in several.searches:
            searching.begin(broker_url)
        return several

    def running(self) -> int:
        """Judge steps that are claimed now."""
        query = select(func.count()).where(AttemptRow.state == "running", AttemptRow.kind.in_(["judge", "verify"]))
        with self.searches[0].db.reading() as session:
            count = int(session.scalar(query) or 0)
        self.most_running = max(self.most_running, count)
        return count

    def wait(self, fleet: Fleet, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Until all searches have ended, as the scenario does."""

        def ended() -> bool:
            self.running()
            meanwhile()
            fleet.revive()
            return all(searching.ended() for searching in self.searches)

        wait_until(ended, 240, f"the searches to end\n{fleet.logs()}")
        for searching in self.searches:
            nodes = {
                node.idea["title"] if node.idea else None: (node.state, node.verdict) for node in searching.nodes()
            }
            assert nodes == scenario.EXPECTED, searching.describe()


@pytest.mark.nightly
def test_steps_in_flight_share_one_judge(tmp_path: Path, redis_server: RedisServer) -> None:
    with ThreadedFleet(tmp_path / "home", redis_server.url, f"sqlite:///{tmp_path / 'warpsmith.db'}") as fleet:
        several = Several.begin(tmp_path, redis_server.url)
        fleet.start("model", "judge", "reconciler")
        most_judges = 0

        def count() -> None:
            nonlocal most_judges
            most_judges = max(most_judges, len(judges(fleet)))

        several.wait(fleet, count)
        assert several.most_running >= SEARCHES
        assert most_judges == 1
        assert workers_of(several.searches[0])["judge"].target == TARGET
        family = fleet.descendants("judge")
        fleet.processes["judge"].send_signal(signal.SIGTERM)
        assert fleet.processes["judge"].wait(timeout=30) == 0, fleet.log("judge")
        wait_until(lambda: not any(process.is_running() for process in family), 10, "the judge to end with its worker")
        assert "Traceback" not in fleet.log("judge")


@pytest.mark.nightly
def test_kills_of_the_shared_judge_and_of_its_worker_lose_nothing(tmp_path: Path, redis_server: RedisServer) -> None:
    with ThreadedFleet(tmp_path / "home", redis_server.url, f"sqlite:///{tmp_path / 'warpsmith.db'}") as fleet:
        several = Several.begin(tmp_path, redis_server.url)
        fleet.start("model", "judge", "reconciler")
        victims = ["judge", "worker", "judge"]
        last = time.monotonic()

        def kill() -> None:
            nonlocal last
            if not victims or time.monotonic() - last < 3.0 or several.running() < 2 or not judges(fleet):
                return
            family = fleet.descendants("judge")
            if victims.pop(0) == "judge":
                os.kill(judges(fleet)[0], signal.SIGKILL)
            else:
                fleet.kill("judge")
                wait_until(lambda: not any(one.is_running() for one in family), 10, "all to end with their worker")
            last = time.monotonic()

        several.wait(fleet, kill)
        assert not victims, f"left to kill: {victims}"

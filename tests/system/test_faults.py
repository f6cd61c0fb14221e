"""SIGKILL of every process at every kind of step, under every policy: the search ends with the same nodes as without
(`test_workers.py` has that one), none lost, none doubled.

A kill is aimed: where a step of the wanted kind is running, the test takes SQLite's write lock, looks again, and kills
while it holds the lock, so that the step has been claimed and cannot have been committed. The lease of a worker that
was killed is ended with it: nobody is left to renew it, and to wait until it runs out would prove nothing more.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.services import RedisServer, migrate
from tests.support import scenario
from tests.support.fleet import Fleet
from tests.support.searching import Searching
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.pool_file import Pool
from warpsmith.workers.search.best_of_n import BestOfN
from warpsmith.workers.search.greedy import Greedy
from warpsmith.workers.search.policy import POLICIES, Policy
from warpsmith.workers.search.prose_first import ProseFirst
from warpsmith.workers.search.puct import Puct
from warpsmith.workers.search.random_parent import RandomParent
from warpsmith.workers.search.survey import Survey

RUNNING = """
SELECT a.search_id, a.owner, CASE
    WHEN n.seq = 0 AND a.kind = 'judge' THEN 'baseline'
    WHEN a.kind = 'code' AND a.ordinal > 0 THEN 'repair'
    ELSE a.kind END AS kind
FROM attempts a JOIN nodes n ON n.id = a.node_id WHERE a.state = 'running'
"""

MODEL_KINDS = ("ideate", "code", "repair")
JUDGE_KINDS = ("baseline", "judge", "verify")
# A model step is over in milliseconds: what makes it run again comes first, so one step meets several kills. A judge
# step lasts: what leaves it running comes first.
PLAN = {
    **{kind: ["child", "parent", "redis", "reconciler"] for kind in MODEL_KINDS},
    **{kind: ["redis", "reconciler", "runner", "judge", "child", "parent"] for kind in JUDGE_KINDS},
}
FATAL = ("child", "parent", "judge")
"""Victims whose death ends the step: its attempt has to be claimed again."""

OWNERS = ("child", "parent")
"""Victims who hold the step's lease, by themselves or by their child."""

LOOKS = 20
LOOK_S = 0.002
"""A model step is over in some ten milliseconds."""

DEADLINE_S = 480.0

STOPLESS = 1.0
"""A share of the physical limit, one byte far away, that no candidate reaches: what is fast ends nothing."""


class Case(NamedTuple):
    """A policy whose tree does not depend on timing, the pool that it replays, and how every node but the root ends:
    title, state, verdict, repairs."""

    policy: Policy
    pool: Pool
    nodes: list[tuple[str, str, str, int]]


WIDE = [
    ("loop", "judged", "accepted", 0),
    ("unheard", "closed", "", 0),
    ("unrolled", "judged", "accepted", 1),
]
CHAIN = [("restrict", "judged", "accepted", 0), ("unrolled", "judged", "accepted", 1)]
BARE = [("", "judged", "accepted", 0), ("", "judged", "accepted", 1)]

SEED = 1
"""Draws, for the second round, the one candidate there is, and not the reference."""

CASES = {
    "best_of_n": Case(BestOfN(n=3, batch=3), scenario.pool(), WIDE),
    "greedy": Case(Greedy(rounds=2, stop_fraction=STOPLESS), scenario.chain(), CHAIN),
    "random": Case(RandomParent(rounds=2, seed=SEED, stop_fraction=STOPLESS), scenario.chain(), CHAIN),
    "puct": Case(Puct(rounds=2, parallel=1, stop_fraction=STOPLESS), scenario.chain(), CHAIN),
    "prose_first": Case(
        ProseFirst(bank=8, ideas=1, codes=1, rounds=2, stop_fraction=STOPLESS), scenario.chain(), CHAIN
    ),
    "prose_first without prose": Case(
        ProseFirst(bank=8, ideas=1, codes=1, rounds=2, stop_fraction=STOPLESS, prose=False), scenario.bare(), BARE
    ),
    "survey": Case(Survey(root_ideas=1, root_codes=1, ideas=1, rounds=2), scenario.chain(), CHAIN),
}

AT_MODEL = (("ideate", "child"), ("code", "parent"), ("code", "child"), ("ideate", "parent"))
AT_JUDGE = ("judge", "child", "parent")
HARMLESS = ("runner", "redis", "reconciler")


def short_plan(place: int, prose: bool) -> dict[str, list[str]]:
    """Kills for one of several searches that run together: each has one at a model's step and one at a judge's that
    end it, and every victim has its turn over all of them."""
    kind, victim = AT_MODEL[place % len(AT_MODEL)]
    plan = {kind if prose else "code": [victim]}
    return {**plan, "judge": [AT_JUDGE[place % len(AT_JUDGE)]], "verify": [HARMLESS[place % len(HARMLESS)]]}


@dataclass
class Faults:
    """Kills processes of a fleet by plan until every entry was carried out."""

    fleet: Fleet
    redis: RedisServer
    database: Path
    left: dict[tuple[str, str], list[str]]
    """What is still to be killed, by the search and the kind of its step."""
    done: list[tuple[str, str]] = field(default_factory=list)
    struck: set[str] = field(default_factory=set)
    """Claims whose step was killed: until the lease has run out, the database still calls them running."""

    def carry_out(self, ended: Callable[[], bool]) -> None:
        """Kill by plan while the search runs; returns when it has ended."""
        deadline = time.monotonic() + DEADLINE_S
        connection = sqlite3.connect(self.database, isolation_level=None, timeout=30)
        try:
            while not ended():
                assert time.monotonic() < deadline, (
                    f"the search did not end; left to kill: {self.left}\n{self.fleet.logs()}"
                )
                for _ in range(LOOKS):
                    if self._one(connection):
                        break
                    time.sleep(LOOK_S)
                self.fleet.revive()
        finally:
            connection.close()

    def _one(self, connection: sqlite3.Connection) -> bool:
        # Looking takes no lock: workers that wait for it could renew no lease.
        if not any(self._target(*row) for row in connection.execute(RUNNING).fetchall()):
            return False
        killed = None
        connection.execute("BEGIN IMMEDIATE")  # while it is held, no running step can commit
        try:
            for search, owner, kind in connection.execute(RUNNING).fetchall():
                killed = self._strike(connection, search, owner, kind)
                if killed is not None:
                    # Whoever is next may find no other running step of this kind: the reconciler falls with Redis.
                    if killed == "redis" and self.left[search, kind][:1] == ["reconciler"]:
                        self._strike(connection, search, owner, kind)
                    break
        finally:
            connection.execute("COMMIT")
        if killed == "redis":
            self.redis.start()
        return killed is not None

    def _target(self, search: str, owner: str, kind: str) -> Callable[[], None] | None:
        """How to kill the next victim that `kind` has on the plan, if it is there to be killed."""
        planned = self.left.get((search, kind))
        if not planned or owner in self.struck:
            return None
        role = "model" if kind in MODEL_KINDS else "judge"
        match planned[0]:
            case "redis":
                return self.redis.kill
            case "parent" | "reconciler" as victim:
                name = role if victim == "parent" else victim
                return partial(self.fleet.kill, name) if self.fleet.processes[name].poll() is None else None
            case "child":
                return partial(os.kill, int(owner.split(":")[1]), signal.SIGKILL)
            case victim:
                found = judges(self.fleet) if victim == "judge" else runners(self.fleet)
                return partial(os.kill, found[0], signal.SIGKILL) if found else None

    def _strike(self, connection: sqlite3.Connection, search: str, owner: str, kind: str) -> str | None:
        """Kill the next victim; what it was, or None where there was none."""
        kill = self._target(search, owner, kind)
        if kill is None:
            return None
        try:
            kill()
        except ProcessLookupError:
            return None  # a runner that ended by itself: the next will do
        victim = self.left[search, kind].pop(0)
        if victim in FATAL:
            self.struck.add(owner)
        if victim in OWNERS:
            connection.execute("UPDATE attempts SET lease_expires_at = 0 WHERE owner = ?", (owner,))
        self.done.append((kind, victim))
        return victim


def judges(fleet: Fleet) -> list[int]:
    """The judge processes (`python -m warpsmith.workers.judge`) under the judge worker, nearest first."""
    pending, found = [fleet.processes["judge"].pid], []
    while pending:
        for child in _children(pending.pop(0)):
            (found if "warpsmith.workers.judge" in _command(child) else pending).append(child)
    return found


def runners(fleet: Fleet) -> list[int]:
    """The runners: children of the judge's fork server."""
    return [runner for judge in judges(fleet) for server in _children(judge) for runner in _children(server)]


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []  # it has ended


def _children(pid: int) -> list[int]:
    """Of all its threads. Read from where the kernel keeps them: psutil reads every process of the machine."""
    found: list[int] = []
    with suppress(OSError):  # the process has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # this thread has
                found += map(int, (thread / "children").read_text().split())
    return found


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_kills_at_every_step_change_nothing(tmp_path: Path, redis_server: RedisServer) -> None:
    killed = Searching.create(tmp_path / "killed.db")
    with Fleet(tmp_path / "fleet", redis_server.url, killed.url, WARPSMITH_MAX_TRIES="100") as fleet:
        fleet.start("model", "judge", "reconciler")
        killed.begin(redis_server.url)
        plan = {(killed.id, kind): list(victims) for kind, victims in PLAN.items()}
        faults = Faults(fleet, redis_server, tmp_path / "killed.db", plan)
        faults.carry_out(killed.ended)
        assert killed.search().state == "finished", f"{killed.search().reason}\n{fleet.logs()}"
        assert not any(faults.left.values()), f"not carried out: {faults.left}\n{fleet.logs()}"
    assert len(faults.done) == sum(len(victims) for victims in PLAN.values())
    assert killed.events().count("attempt.expired") >= sum(victim in FATAL for _, victim in faults.done)
    assert killed.outcome() == scenario.outcome()
    assert killed.answered() == scenario.answered()
    assert killed.search().candidates == scenario.candidates()
    assert killed.search().model_calls == len(scenario.pool().replies)


def endings(search: Searching) -> list[tuple[str, str, str, int]]:
    """How every node but the root ended, as a case tells it."""
    return sorted(
        (node.idea["title"] if node.idea else "", node.state, node.verdict or "", node.repairs)
        for node in search.nodes()[1:]
    )


def test_every_policy_is_killed() -> None:
    assert {case.policy.name for case in CASES.values()} | {scenario.POLICY.name} == set(POLICIES)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_kills_change_nothing_under_any_policy(tmp_path: Path, redis_server: RedisServer) -> None:
    """A search of every policy at once, on the same workers."""
    url = f"sqlite:///{tmp_path / 'killed.db'}"
    db = Database(url)
    migrate(db)
    searches = {name: Searching.add(db, url, case.policy, case.pool) for name, case in CASES.items()}
    plan = {
        (search.id, kind): victims
        for place, (name, search) in enumerate(searches.items())
        for kind, victims in short_plan(place, prose="without" not in name).items()
    }
    with Fleet(tmp_path / "fleet", redis_server.url, url, WARPSMITH_MAX_TRIES="100") as fleet:
        fleet.start("model", "judge", "reconciler")
        for search in searches.values():
            search.begin(redis_server.url)
        faults = Faults(fleet, redis_server, tmp_path / "killed.db", plan)
        faults.carry_out(lambda: all(search.ended() for search in searches.values()))
        logs = fleet.logs()
    assert not any(faults.left.values()), f"not carried out: {faults.left}\n{logs}"
    for name, search in searches.items():
        assert search.search().state == "finished", f"{name}: {search.describe()}\n{logs}"
        assert endings(search) == CASES[name].nodes, f"{name}: {search.describe()}"
        best = search.search().best_node_id
        assert [node.id for node in search.nodes() if node.verification == "passed" and node.id == best], name
        assert max(search.answered().values()) == 1, f"{name}: a reply was paid for twice"

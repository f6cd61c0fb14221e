"""SIGKILL of every process at every kind of step, under every policy: the search ends with the same nodes as without,
none lost, none doubled.

A kill is aimed: the test takes SQLite's write lock, looks whether a step of the wanted kind is running, and kills while
it holds the lock, so that the step has been claimed and cannot have been committed.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from kernels_db.db import Database
from kernels_db.formats.pool import Pool
from tests.integration import scenario
from tests.integration.fleet import Fleet
from tests.integration.searching import Searching
from tests.services import RedisServer
from workers.search.best_of_n import BestOfN
from workers.search.greedy import Greedy
from workers.search.policy import POLICIES, Policy
from workers.search.prose_first import ProseFirst
from workers.search.puct import Puct
from workers.search.random_parent import RandomParent
from workers.search.survey import Survey

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

LOOKS = 20
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
                # A model step is over in some ten milliseconds, so most of the time goes to looking for one.
                for _ in range(LOOKS):
                    if self._one(connection):
                        break
                    time.sleep(0.001)
                self.fleet.revive()
        finally:
            connection.close()

    def _one(self, connection: sqlite3.Connection) -> bool:
        connection.execute("BEGIN IMMEDIATE")  # while it is held, no running step can commit
        try:
            for row in connection.execute(RUNNING).fetchall():
                killed = self._strike(*row)
                if killed is not None:
                    # Whoever is next may find no other running step of this kind: the reconciler falls with Redis.
                    if killed == "redis" and self.left[row[0], row[2]][:1] == ["reconciler"]:
                        self._strike(*row)
                    break
            else:
                return False
        finally:
            connection.execute("ROLLBACK")
        if killed == "redis":
            self.redis.start()
        return True

    def _strike(self, search: str, owner: str, kind: str) -> str | None:
        """Kill the next victim that `kind` has on the plan, if it is there to be killed."""
        planned = self.left.get((search, kind))
        if not planned or owner in self.struck:
            return None
        victim = planned[0]
        role = "model" if kind in MODEL_KINDS else "judge"
        match victim:
            case "redis":
                self.redis.kill()
            case "parent" | "reconciler":
                name = role if victim == "parent" else victim
                if self.fleet.processes[name].poll() is not None:
                    return None
                self.fleet.kill(name)
            case "child":
                os.kill(int(owner.split(":")[1]), signal.SIGKILL)
            case "judge" | "runner":
                found = judges(self.fleet) if victim == "judge" else runners(self.fleet)
                if not found:
                    return None
                found[0].send_signal(signal.SIGKILL)
        if victim in FATAL:
            self.struck.add(owner)
        planned.pop(0)
        self.done.append((kind, victim))
        return victim


def judges(fleet: Fleet) -> list[psutil.Process]:
    """The judge processes (`python -m workers.judge`) under the judge worker, without what they started."""
    found = [process for process in fleet.descendants("judge") if "workers.judge" in _command(process)]
    pids = {process.pid for process in found}
    return [process for process in found if _parent(process) not in pids]


def runners(fleet: Fleet) -> list[psutil.Process]:
    """The runners: children of the judge's fork server."""
    return [runner for judge in judges(fleet) for server in _children(judge) for runner in _children(server)]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _parent(process: psutil.Process) -> int | None:
    try:
        return process.ppid()
    except psutil.Error:
        return None


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.Error:
        return []


def nodes_of(search: Searching) -> list[tuple[Any, ...]]:
    """What must not depend on any kill: each node's idea, code, repairs and end."""
    return sorted(
        (
            node.idea["title"] if node.idea else "",
            node.source_digest or "",
            node.repairs,
            node.state,
            node.verdict or "",
        )
        for node in search.nodes()
    )


@pytest.mark.timeout(600)
def test_kills_at_every_step_change_nothing(tmp_path: Path, redis_server: RedisServer) -> None:
    undisturbed = Searching.create(tmp_path / "undisturbed.db")
    killed = Searching.create(tmp_path / "killed.db")
    with Fleet(tmp_path / "one", redis_server.url, undisturbed.url) as fleet:
        fleet.start("model", "judge", "reconciler")
        undisturbed.begin(redis_server.url)
        undisturbed.wait(120, fleet)
    with Fleet(tmp_path / "two", redis_server.url, killed.url, WARPSMITH_MAX_TRIES="100") as fleet:
        fleet.start("model", "judge", "reconciler")
        killed.begin(redis_server.url)
        plan = {(killed.id, kind): list(victims) for kind, victims in PLAN.items()}
        faults = Faults(fleet, redis_server, tmp_path / "killed.db", plan)
        faults.carry_out(killed.ended)
        assert killed.search().state == "finished", f"{killed.search().reason}\n{fleet.logs()}"
        assert not any(faults.left.values()), f"not carried out: {faults.left}\n{fleet.logs()}"
    assert len(faults.done) == sum(len(victims) for victims in PLAN.values())
    assert killed.events().count("attempt.expired") >= sum(victim in FATAL for _, victim in faults.done)
    assert nodes_of(killed) == nodes_of(undisturbed)
    assert {node.idea["title"] if node.idea else None for node in killed.nodes()} == set(scenario.EXPECTED)
    assert killed.search().candidates == undisturbed.search().candidates
    assert killed.search().model_calls == undisturbed.search().model_calls
    calls = Counter((call.request, call.ordinal) for call in killed.model_calls() if call.error is None)
    assert calls == Counter((call.request, call.ordinal) for call in undisturbed.model_calls() if call.error is None)


def endings(search: Searching) -> list[tuple[str, str, str, int]]:
    """How every node but the root ended, as a case tells it."""
    return sorted(
        (node.idea["title"] if node.idea else "", node.state, node.verdict or "", node.repairs)
        for node in search.nodes()[1:]
    )


def test_every_policy_is_killed() -> None:
    assert {case.policy.name for case in CASES.values()} | {scenario.POLICY.name} == set(POLICIES)


@pytest.mark.timeout(600)
def test_kills_change_nothing_under_any_policy(tmp_path: Path, redis_server: RedisServer) -> None:
    """A search of every policy at once, on the same workers."""
    url = f"sqlite:///{tmp_path / 'killed.db'}"
    db = Database(url)
    db.upgrade()
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
        answered = Counter((call.request, call.ordinal) for call in search.model_calls() if call.error is None)
        assert max(answered.values()) == 1, f"{name}: a reply was paid for twice"

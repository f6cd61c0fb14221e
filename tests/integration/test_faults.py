"""SIGKILL of every process at every kind of step: the search ends with the same nodes as without, none lost, none
doubled.

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
from typing import Any

import psutil
import pytest

from tests.integration import scenario
from tests.integration.fleet import Fleet
from tests.integration.searching import Searching
from tests.services import RedisServer

RUNNING = """
SELECT a.id, a.owner, CASE
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
DEADLINE_S = 240.0


@dataclass
class Faults:
    """Kills processes of a fleet by plan until every entry was carried out."""

    fleet: Fleet
    redis: RedisServer
    database: Path
    done: list[tuple[str, str]]
    left: dict[str, list[str]]
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
                    if killed == "redis" and self.left[row[2]][:1] == ["reconciler"]:
                        self._strike(*row)
                    break
            else:
                return False
        finally:
            connection.execute("ROLLBACK")
        if killed == "redis":
            self.redis.start()
        return True

    def _strike(self, _attempt: str, owner: str, kind: str) -> str | None:
        """Kill the next victim that `kind` has on the plan, if it is there to be killed."""
        if not self.left.get(kind) or owner in self.struck:
            return None
        victim = self.left[kind][0]
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
        self.left[kind].pop(0)
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


@pytest.mark.timeout(400)
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
        faults = Faults(fleet, redis_server, tmp_path / "killed.db", [], {kind: list(v) for kind, v in PLAN.items()})
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

"""`python -m benchmarks.chaos.failover broker|database`: a node dies for good while searches run on what it served.

broker: three nodes of RabbitMQ with quorum queues; the leader of the judge's queue is killed and does not come back.
Lost messages would be missed: the reconciler sends none again that merely waits, in this run.
database: a PostgreSQL with a synchronous replica; the primary is killed and the replica promoted.

As in `benchmarks.chaos`, every search is first done in quiet, and afterwards each is held against the quiet one, node
for node, the pools against what was sent, and the counts that the database keeps against its tables. Exits with 1 where
anything was lost, doubled or different.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from benchmarks.chaos import searches
from benchmarks.chaos.__main__ import LOOK_S, Run
from benchmarks.chaos.faults import World
from benchmarks.chaos.fleet import TARGET, Fleet
from benchmarks.chaos.services import Missing, PostgreSQL, RabbitCluster, Redis, Replicated, Service
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import NodeRow
from warpsmith.service.cli.output import say, tell
from warpsmith.workers.queue_names import judge_queue

UNNOTICED_S = 2.0
"""How long the primary is dead before its replica is promoted: an operator's tool has to notice first."""
MIDWAY = 0.25
"""Part of the nodes that are judged when the node dies."""
WAIT_S = 180.0
ON_QUORUM_QUEUES = {"WARPSMITH_QUEUE_TYPE": "quorum", "WARPSMITH_RESEND_AFTER_S": "86400"}


@dataclass(frozen=True)
class Servers:
    """The servers of a run, and how one of them dies."""

    broker: Service
    """Redis, or one of RabbitMQ's nodes."""
    database: PostgreSQL
    broker_url: str
    database_url: str
    settings: dict[str, str]
    strike: Callable[[], str]
    """Kills, and returns what was done."""
    check: Callable[[], list[str]]
    """Returns what is wrong with the servers at the end."""


def _lose_broker_node(home: Path, stack: ExitStack) -> Servers:
    cluster, database = RabbitCluster(home / "broker"), PostgreSQL(home / "postgresql")
    stack.callback(cluster.stop)
    stack.callback(database.stop)
    database.create()
    cluster.start()

    def strike() -> str:
        _, leader = cluster.list_queues()[judge_queue(TARGET)]
        if leader is None:
            return "no leader"
        leader.kill()
        return f"killed node {cluster.nodes.index(leader)} of {len(cluster.nodes)}, leader of {judge_queue(TARGET)}"

    def check() -> list[str]:
        wrong = []
        for name, (kind, leader) in cluster.list_queues().items():
            if kind != "quorum" or leader is None or not leader.running:
                wrong.append(f"queue {name}: found {kind} of {leader}, expected a quorum queue of a living leader")
        return wrong

    return Servers(cluster.nodes[0], database, cluster.url, database.url, ON_QUORUM_QUEUES, strike, check)


def _promote_replica(home: Path, stack: ExitStack) -> Servers:
    (home / "broker").mkdir()
    broker, database = Redis(home / "broker"), Replicated(home / "postgresql")
    stack.callback(broker.stop)
    stack.callback(database.stop)
    broker.start()
    database.create()

    def strike() -> str:
        database.primary.kill()
        time.sleep(UNNOTICED_S)
        database.promote()
        return f"killed the primary, promoted the replica {UNNOTICED_S:g} s later"

    def check() -> list[str]:
        alone = not database.primary.running and database.replica.execute("SELECT pg_is_in_recovery()") is False
        return [] if alone else ["the promoted replica is not the only primary"]

    return Servers(broker, database.primary, broker.url, database.url, {}, strike, check)


FAILOVERS: dict[str, Callable[[Path, ExitStack], Servers]] = {"broker": _lose_broker_node, "database": _promote_replica}


def count_judged(db: Database) -> int:
    """Count the nodes with a verdict; -1 while the database is away."""
    try:
        with db.reading() as session:
            return session.scalar(select(func.count()).where(NodeRow.verdict.is_not(None))) or 0
    except SQLAlchemyError:
        return -1


def await_judged(run: Run, wanted: int, within_s: float) -> float:
    """Wait until so many nodes are judged; returns the seconds that it took. Raises TimeoutError."""
    began = time.monotonic()
    while (found := count_judged(run.db)) < wanted:
        if time.monotonic() - began > within_s:
            raise TimeoutError(f"after {within_s:g} s: found {found} judged nodes, expected {wanted}")
        run.world.fleet.supervise()
        time.sleep(LOOK_S)
    return time.monotonic() - began


def measure(which: str, home: Path) -> bool:
    """Do a run in `home` and print its report; returns whether nothing was lost, doubled or different."""
    with ExitStack() as stack:
        servers = FAILOVERS[which](home, stack)
        db = Database(servers.database_url)
        stack.callback(db.dispose)
        db.upgrade()
        fleet = Fleet(home, servers.broker_url, servers.database_url, settings=servers.settings)
        stack.callback(fleet.stop)
        (home / "disk").mkdir()
        fleet.start(fleet.names)
        world = World(fleet, servers.broker, servers.database, random.Random(0))  # noqa: S311 - not secrets
        run = Run(world, db, {kind.name: kind for kind in searches.kinds()})
        say(f"{which}: {len(run.kinds)} searches in quiet")
        run.do_quietly()
        before = count_judged(db)
        for name in run.kinds:
            run.submit(name)
        await_judged(run, before + round(MIDWAY * before), WAIT_S)
        run.collect()
        judged, under_way = count_judged(db) - before, len(run.open)
        began = time.monotonic()
        what = servers.strike()
        run.struck[what] += 1
        again_s = time.monotonic() - began + await_judged(run, max(count_judged(db), before + judged) + 1, WAIT_S)
        run.calm()
        seconds = time.monotonic() - began
        run.check_counts()
        run.problems += servers.check()
        if not under_way:
            run.problems.append("no search was under way when the node died")
        tell(run.report(seconds))
        tell(
            f"{under_way} searches were under way, with {judged} of {before} nodes judged; "
            f"the next verdict came {again_s:.1f} s after the node's death"
        )
        return not run.problems


def main() -> int:
    """Run; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos.failover", description="A node dies for good.")
    parser.add_argument("which", choices=sorted(FAILOVERS))
    parser.add_argument("--home", type=Path, help="an empty directory to keep the logs in; by default they are dropped")
    arguments = parser.parse_args()
    try:
        if arguments.home is not None:
            arguments.home.mkdir(parents=True, exist_ok=True)
            return 0 if measure(arguments.which, arguments.home.resolve()) else 1
        with tempfile.TemporaryDirectory(prefix="ws-failover-") as directory:
            Path(directory).chmod(0o755)  # PostgreSQL runs as another user
            return 0 if measure(arguments.which, Path(directory)) else 1
    except (Missing, TimeoutError) as error:
        say(f"error: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())

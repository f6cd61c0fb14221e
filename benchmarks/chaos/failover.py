"""`python -m benchmarks.chaos.failover WHICH`: a node is lost while searches run on what it serves.

broker-killed, broker-frozen, broker-cut: three nodes of RabbitMQ with quorum queues; the leader of the judge's queue,
which every process is connected to, is killed, or stopped where it is, or cut off from everything (each node is then a
network namespace, which needs root). It comes back once every search has ended without it.
Lost messages would be missed: the reconciler sends none again that merely waits, in this run.
database-killed, database-cut: a PostgreSQL with a synchronous replica; the primary is killed or cut off for good, and
the replica promoted.

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
from functools import partial
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from benchmarks.chaos import searches
from benchmarks.chaos.__main__ import LOOK_S, Run
from benchmarks.chaos.faults import World
from benchmarks.chaos.fleet import TARGET, Fleet
from benchmarks.chaos.hosts import Missing, Network
from benchmarks.chaos.postgresql import PostgreSQL, Replicated
from benchmarks.chaos.rabbitmq import NODES, RabbitCluster, RabbitNode
from benchmarks.chaos.services import Broker, Redis
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


Strike = Callable[[], str]
"""Makes the fault, and returns what was done."""


@dataclass(frozen=True)
class Servers:
    """The servers of a run, and how one of them dies."""

    broker: Broker
    """Redis, or one of RabbitMQ's nodes."""
    database: PostgreSQL
    broker_url: str
    database_url: str
    settings: dict[str, str]
    aim: Callable[[], Strike]
    """Chooses what is to be lost, while all is well."""
    check: Callable[[], list[str]]
    """Mends what can be mended, and returns what is wrong with the servers then."""


@dataclass(frozen=True)
class Loss:
    """A way to lose a node of the broker, and how it comes back."""

    word: str
    lose: Callable[[RabbitNode], None]
    bring_back: Callable[[RabbitNode], None]
    needs_network: bool = False


LOSSES = {
    "broker-killed": Loss("killed", RabbitNode.kill, RabbitNode.start),
    "broker-frozen": Loss("froze", RabbitNode.freeze, RabbitNode.thaw),
    "broker-cut": Loss(
        "cut off", lambda node: node.host.cut_off(), lambda node: node.host.plug_in(), needs_network=True
    ),
}


def _lose_broker_node(loss: Loss, home: Path, stack: ExitStack) -> Servers:
    network = _make_network(NODES, stack) if loss.needs_network else None
    cluster, database = RabbitCluster(home / "broker", network), PostgreSQL(home / "postgresql")
    stack.callback(cluster.stop)
    stack.callback(database.stop)
    database.create()
    cluster.start()
    lost: list[RabbitNode] = []

    def aim() -> Strike:
        _, leader = cluster.list_queues()[judge_queue(TARGET)]
        assert leader is not None, "a quorum queue has a leader while all nodes are there"
        lost.append(leader)

        def strike() -> str:
            loss.lose(leader)
            return f"{loss.word} node {cluster.nodes.index(leader)} of {NODES}, leader of {judge_queue(TARGET)}"

        return strike

    def check() -> list[str]:
        loss.bring_back(lost[0])
        try:
            cluster.await_whole()
        except TimeoutError as error:
            return [f"the node did not come back: {error}"]
        return [
            f"queue {name}: found {kind} of {leader}, expected a quorum queue with a leader"
            for name, (kind, leader) in cluster.list_queues().items()
            if kind != "quorum" or leader is None
        ]

    return Servers(cluster.nodes[0], database, cluster.url, database.url, ON_QUORUM_QUEUES, aim, check)


def _promote_replica(cut: bool, home: Path, stack: ExitStack) -> Servers:
    (home / "broker").mkdir()
    network = _make_network(2, stack) if cut else None
    broker, database = Redis(home / "broker"), Replicated(home / "postgresql", network)
    stack.callback(broker.stop)
    stack.callback(database.stop)
    broker.start()
    database.create()

    def strike() -> str:
        if cut:
            database.primary.host.cut_off()
        else:
            database.primary.kill()
        time.sleep(UNNOTICED_S)
        database.promote()
        return f"{'cut off' if cut else 'killed'} the primary, promoted the replica {UNNOTICED_S:g} s later"

    def check() -> list[str]:
        alone = database.replica.execute("SELECT pg_is_in_recovery()") is False
        return [] if alone else ["the promoted replica takes no writes"]

    return Servers(broker, database.primary, broker.url, database.url, {}, lambda: strike, check)


def _make_network(size: int, stack: ExitStack) -> Network:
    network = Network(size)
    stack.callback(network.remove)
    network.create()
    return network


FAILOVERS: dict[str, Callable[[Path, ExitStack], Servers]] = {
    **{name: partial(_lose_broker_node, loss) for name, loss in LOSSES.items()},
    "database-killed": partial(_promote_replica, False),
    "database-cut": partial(_promote_replica, True),
}


def count_judged(db: Database) -> int:
    """Count the nodes with a verdict; -1 while the database is away."""
    try:
        with db.reading() as session:
            return session.scalar(select(func.count()).where(NodeRow.verdict.is_not(None))) or 0
    except SQLAlchemyError:
        return -1


def await_judged(run: Run, wanted: int, within_s: float) -> None:
    """Wait until so many nodes are judged. Raises TimeoutError."""
    began = time.monotonic()
    while (found := count_judged(run.db)) < wanted:
        if time.monotonic() - began > within_s:
            raise TimeoutError(f"after {within_s:g} s: found {found} judged nodes, expected {wanted}")
        run.world.fleet.supervise()
        time.sleep(LOOK_S)


def time_pauses(run: Run, within_s: float) -> list[float]:
    """Wait until every search has ended, or so long; returns the seconds between verdicts, the first since now.

    Where searches are still open then, the last is the time since the last verdict: a pause that nothing ended.
    """
    began = last = time.monotonic()
    judged, pauses = count_judged(run.db), []
    while run.open and time.monotonic() - began < within_s:
        run.world.fleet.supervise()
        run.collect()
        now, found = time.monotonic(), count_judged(run.db)
        if found > judged:
            pauses.append(now - last)
            judged, last = found, now
        time.sleep(LOOK_S)
    if run.open:
        pauses.append(time.monotonic() - last)
    return pauses


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
        began = time.monotonic()
        run.do_quietly()
        quiet_s = time.monotonic() - began
        before = count_judged(db)
        strike = servers.aim()
        began = time.monotonic()
        for name in run.kinds:
            run.submit(name)
        await_judged(run, before + round(MIDWAY * before), WAIT_S)
        run.collect()
        judged, under_way = count_judged(db) - before, len(run.open)
        struck = time.monotonic()
        what = strike()
        run.struck[what] += 1
        say(f"{what}, {time.strftime('%H:%M:%S')}")
        pauses = time_pauses(run, WAIT_S)
        searches_s = time.monotonic() - began
        run.calm()
        seconds = time.monotonic() - struck
        run.check_counts()
        run.problems += servers.check()
        if not under_way:
            run.problems.append("no search was under way when the node was lost")
        tell(run.report(seconds))
        tell(
            f"{under_way} searches were under way, with {judged} of {before} nodes judged; after the loss the longest "
            f"time without a verdict was {max(pauses, default=0.0):.1f} s; all searches took {searches_s:.0f} s, in "
            f"quiet {quiet_s:.0f} s"
        )
        return not run.problems


def main() -> int:
    """Run; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos.failover", description="A node is lost.")
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

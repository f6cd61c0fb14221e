"""`python -m benchmarks.chaos --minutes N --seed S`: a random mix of faults against the real service.

First every search is done once in quiet. Then searches are submitted, three at a time, and a pool is sent with each,
while faults strike at random, some of them while others last; at the end everything is mended, the searches end, and
each is held against the quiet one, node for node, the pools against what was sent, and the counts that the database
keeps against its tables. Prints faults by kind, searches, and what
was lost or doubled; exits with 1 where anything was, or where a search ended otherwise. The same seed draws the same
faults, at moments that the machine decides.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from benchmarks.chaos import faults, searches
from benchmarks.chaos.faults import Undo, World
from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.hosts import Missing
from benchmarks.chaos.postgresql import PostgreSQL
from benchmarks.chaos.rabbitmq import RabbitMQ
from benchmarks.chaos.searches import Found
from benchmarks.chaos.services import Broker, Redis
from warpsmith.kernels_db.store import tallies
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import SearchRow
from warpsmith.service.cli.output import say, tell
from warpsmith.workers.search.tree import ENDED

BROKERS: dict[str, type[Broker]] = {"redis": Redis, "rabbitmq": RabbitMQ}
AT_ONCE = 3
LOOK_S = 0.2
PAUSE_S = (0.5, 3.0)
"""Between two faults; one that lasts longer meets the next."""
QUIET_S, CALM_S = 300.0, 240.0
"""Longest time of a search in quiet, and of all that are left when the faults have ended."""
DATABASE_MB = 400
NOT_NOW = (SQLAlchemyError, OSError, subprocess.TimeoutExpired)
"""What a database or broker answers that is away or comes up again: later."""


@dataclass
class Run:
    """One run: what is under way, and what was found."""

    world: World
    db: Database
    kinds: dict[str, searches.Kind]
    quiet: dict[str, Found] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)
    pools: dict[str, str] = field(default_factory=dict)
    imports: list[str] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    lasting: list[tuple[float, str, Undo]] = field(default_factory=list)
    keys: int = 0
    submitted: int = 0
    done: int = 0
    problems: list[str] = field(default_factory=list)

    def submit(self, name: str) -> None:
        """Submit a search of this name."""
        self.keys += 1
        urls, luck = self.world.fleet.urls, self.world.luck
        key = f"chaos-{self.keys}"
        self.open[searches.submit(urls, self.kinds[name], self.pools[name], key, luck)] = name
        self.submitted += 1
        if self.quiet:
            self.imports.append(searches.send_pool(urls, self.kinds[name], key, self.keys, luck))

    def do_quietly(self) -> None:
        """Do every search once without faults. Raises TimeoutError."""
        for name, kind in self.kinds.items():
            self.pools[name] = searches.store_pool(self.world.fleet.urls, kind, self.world.luck)
            self.submit(name)
        deadline = time.monotonic() + QUIET_S
        while self.open:
            self.world.fleet.supervise()
            for search_id, name in self.ended():
                self.quiet[name] = searches.read(self.db, search_id)
            if time.monotonic() > deadline:
                raise TimeoutError(f"in quiet, after {QUIET_S:g} s: {sorted(self.open.values())} did not end")
            time.sleep(LOOK_S)
        self.submitted = 0

    def ended(self) -> list[tuple[str, str]]:
        """Return the searches that have ended since, and forget them. Nothing while the database is away."""
        try:
            with self.db.reading() as session:
                rows = [session.get_one(SearchRow, search_id) for search_id in self.open]
        except SQLAlchemyError:
            return []
        return [(row.id, self.open.pop(row.id)) for row in rows if row.state in ENDED]

    def collect(self) -> None:
        """Hold the searches that have ended against the quiet ones."""
        for search_id, name in self.ended():
            try:
                found = searches.read(self.db, search_id)
            except SQLAlchemyError:
                self.open[search_id] = name
                continue
            self.done += 1
            lines = [*searches.differences(self.quiet[name], found), *(f"doubled: {one}" for one in found.doubled)]
            self.problems += [f"{name} ({search_id}): {line}" for line in lines]

    def strike(self) -> None:
        """Let one fault strike; a service that is down already is left alone."""
        world = self.world
        kind = world.luck.choice([kind for kind in faults.KINDS if world.mounted or not kind.needs_disk])
        if kind.service is not None and self.is_away(kind.service):
            return
        try:
            undo = kind.strike(world)
        except NOT_NOW:
            return
        self.struck[kind.name] += 1
        if undo is not None:
            self.lasting.append((time.monotonic() + world.luck.uniform(*kind.lasts_s), kind.name, undo))

    def mend(self, *, everything: bool = False) -> None:
        """Undo the faults whose time is over."""
        now = time.monotonic()
        for entry in list(self.lasting):
            if everything or entry[0] <= now:
                self.lasting.remove(entry)
                try:
                    entry[2]()
                except NOT_NOW:
                    self.lasting.append((now + 1.0, *entry[1:]))

    def is_away(self, *services: str) -> bool:
        """Check whether a fault of one of these services lasts: who asks it then may wait for ever."""
        return any(name.startswith(services) for _, name, _ in self.lasting)

    def rage(self, seconds: float) -> None:
        """Submit and strike for so long."""
        end = time.monotonic() + seconds
        strike_at = time.monotonic()
        while (now := time.monotonic()) < end:
            self.mend()
            self.world.fleet.supervise()
            if len(self.open) < AT_ONCE and not self.is_away("database", "broker"):
                self.submit(self.world.luck.choice(sorted(self.kinds)))
            if now >= strike_at:
                self.strike()
                strike_at = now + self.world.luck.uniform(*PAUSE_S)
            if not self.is_away("database"):
                self.collect()
            time.sleep(LOOK_S)

    def calm(self) -> None:
        """Mend everything and wait for what is under way."""
        deadline = time.monotonic() + CALM_S
        while (self.open or self.lasting or self.wrong_imports()) and time.monotonic() < deadline:
            self.mend(everything=True)
            self.world.fleet.supervise()
            self.collect()
            time.sleep(LOOK_S)
        self.problems += self.wrong_imports()
        self.problems += [
            f"{name} ({search_id}): lost: it did not end within {CALM_S:g} s of quiet"
            for search_id, name in self.open.items()
        ]

    def wrong_imports(self) -> list[str]:
        """Say which of the pools that were sent among the faults are not stored, or not once."""
        try:
            return list(searches.find_wrong_imports(self.db, self.imports))
        except SQLAlchemyError as error:
            return [f"imports: {error}"]

    def check_counts(self) -> None:
        """Hold the counts that triggers kept through all of it against the tables."""
        with self.db.writing() as session:
            wrong = tallies.recount(session)
        if wrong:
            self.problems.append(f"tables: {wrong} counts are wrong")

    def report(self, seconds: float) -> str:
        """Return what happened, as Markdown."""
        lines = [
            "| fault | times |",
            "|---|---|",
            *(f"| {name} | {times} |" for name, times in self.struck.most_common()),
        ]
        lost = sum("lost: " in problem for problem in self.problems)
        doubled = sum("doubled: " in problem for problem in self.problems)
        nodes = sum(self.quiet[name].nodes.total() for name in self.kinds)
        lines += [
            "",
            f"{self.struck.total()} faults in {seconds:.0f} s; processes started again {self.world.fleet.restarts}; "
            f"{len(self.kinds)} kinds of search, of {nodes} nodes in all",
            f"pools sent {len(self.imports)}; searches submitted {self.submitted}, done {self.done}, lost {lost}, "
            f"doubled {doubled}, differences from the quiet run {len(self.problems)}",
            *self.problems,
        ]
        return "\n".join(lines)


def measure(minutes: float, seed: int, broker_name: str, home: Path) -> bool:
    """Do a run in `home` and print its report; returns whether nothing was lost, doubled or different."""
    with ExitStack() as stack:
        disk, cluster = home / "disk", home / "postgresql"
        mounted = faults.mount(disk, faults.DISK_MB) and faults.mount(cluster, DATABASE_MB)
        for directory in (disk, cluster):
            stack.callback(faults.unmount, directory)
        (home / "broker").mkdir()
        broker, database = BROKERS[broker_name](home / "broker"), PostgreSQL(cluster)
        for service in (broker, database):
            stack.callback(service.stop)
        broker.start()
        database.create()
        db = Database(database.url)
        stack.callback(db.dispose)
        db.upgrade()
        fleet = Fleet(home, broker.url, database.url)
        stack.callback(fleet.stop)
        fleet.start(fleet.names)
        world = World(fleet, broker, database, random.Random(seed), mounted)  # noqa: S311 - faults, not secrets
        run = Run(world, db, {kind.name: kind for kind in searches.kinds()})
        say(f"{broker_name}, seed {seed}: {len(run.kinds)} searches in quiet")
        run.do_quietly()
        for name, found in sorted(run.quiet.items()):
            say(f"  {name}: {found.nodes.total()} nodes, {found.state}")
        say(f"faults for {minutes:g} minutes" + ("" if mounted else "; no disk is filled: that needs root"))
        began = time.monotonic()
        run.rage(60 * minutes)
        seconds = time.monotonic() - began
        run.calm()
        run.check_counts()
        tell(run.report(seconds))
        return not run.problems


def main() -> int:
    """Run; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description="Faults against the real service.")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults strike")
    parser.add_argument("--seed", type=int, default=0, help="draws the faults")
    parser.add_argument("--broker", choices=sorted(BROKERS), default="redis")
    parser.add_argument("--home", type=Path, help="an empty directory to keep the logs in; by default they are dropped")
    arguments = parser.parse_args()
    try:
        if arguments.home is not None:
            arguments.home.mkdir(parents=True, exist_ok=True)
            return 0 if measure(arguments.minutes, arguments.seed, arguments.broker, arguments.home.resolve()) else 1
        with tempfile.TemporaryDirectory(prefix="ws-chaos-") as directory:
            Path(directory).chmod(0o755)  # PostgreSQL runs as another user
            return 0 if measure(arguments.minutes, arguments.seed, arguments.broker, Path(directory)) else 1
    except (Missing, TimeoutError) as error:
        say(f"error: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())

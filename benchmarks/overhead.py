"""The cost of Warpsmith itself: `python -m benchmarks.overhead [--json]`.

Everything is measured on this machine, on SQLite and a private Redis.

latency   with the processes that `warpsmith up` starts: from the POST that submits a search (one workload of 4,096
          elements, eager baseline alone) to the verdict on the baselines, and to that on the first candidate. The model
          is this script, which answers asks over REST. Cold: the judge starts with the job; warm: the search after it.
          Read from the database's own times: created_at of the search and of the verdict.
advance   `steps.advance` on a tree of N nodes, one of which has become ready to be judged: 20 calls each.
steps     a search of 514 steps through Celery and Redis by one worker of two processes, whose model and judge answer at
          once (`benchmarks.instant`); claims, commits, advances and messages are the real ones. From the first claim to
          the last commit.
memory    the processes of `warpsmith up`, each with its children, ten seconds after the searches of `latency` ended:
          resident set size, and proportional set size (pages shared by several processes are divided among them).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from rich.console import Console
from rich.table import Table
from sqlalchemy import func, select

from benchmarks import throughput, trees
from benchmarks.op import CANDIDATE, SPEC, TARGET
from benchmarks.throughput import Throughput
from benchmarks.trees import AdvanceTimes
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import NodeRow, SearchRow, VerdictRow
from warpsmith.service.client.http import Client
from warpsmith.service.local.launcher import Launcher
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.search.idea_beam import IdeaBeam
from warpsmith.workers.search.policy import policy_document

SIZES = (100, 1_000, 5_000)
IDLE_S = 10.0
TIMEOUT_S = 180.0
MIB = 2**20

IDEA = {"technique": "compute", "title": "One plain loop", "mechanism": "The compiler vectorises it.", "sketch": "for"}


@dataclass(frozen=True)
class Latency:
    """Seconds from submission to the verdict on the baselines and on the first candidate."""

    judge: str
    baselines_s: float
    candidate_s: float


@dataclass(frozen=True)
class Memory:
    """A process and its children at rest, in bytes."""

    name: str
    processes: int
    rss: int
    pss: int


@dataclass(frozen=True)
class Overhead:
    """All that is measured."""

    latency: list[Latency]
    memory: list[Memory]
    advance: list[AdvanceTimes]
    steps: Throughput


def measure(console: Console) -> Overhead:
    """Measure everything; takes about two minutes."""
    with tempfile.TemporaryDirectory(prefix="ws-overhead-") as directory:
        settings = ServiceSettings(home=Path(directory), port=0, database_url=None, broker_url=None)
        launcher = Launcher(settings, console.log)
        launcher.start()
        try:
            console.log(f"service at {launcher.url}")
            with Client(launcher.url) as client:
                latency = [_latency(launcher, client, judge) for judge in ("cold", "warm")]
            console.log("searches done; waiting until the service rests")
            _watch(launcher, IDLE_S)
            memory = _memory(launcher)
        finally:
            launcher.stop()
    console.log("advance on large trees")
    advance = [trees.measure(size) for size in SIZES]
    console.log("instant steps through Celery")
    return Overhead(latency, memory, advance, throughput.measure())


def _latency(launcher: Launcher, client: Client, judge: str) -> Latency:
    policy = IdeaBeam(beam=1, diverse=0, ideas=1, codes=1, repairs=0, rounds=1, max_rounds=1)
    search = client.create_search(
        {
            "op": yaml.safe_load(SPEC),
            "target": str(TARGET),
            "language": "cpp",
            "policy": policy_document(policy),
            "model": {"provider": "agent"},
        }
    )
    deadline = time.monotonic() + TIMEOUT_S
    while client.search(search.id).state not in ("finished", "failed"):
        launcher.poll()
        for ask in client.asks("open", search.id):
            reply = f"```python\n{CANDIDATE}```" if ask.kind == "code" else json.dumps([IDEA])
            client.answer(ask.id, reply, "benchmarks.overhead")
        if time.monotonic() > deadline:
            raise RuntimeError(f"the search did not end within {TIMEOUT_S:g} s: {client.search(search.id)}")
        time.sleep(0.01)
    db = Database(f"sqlite:///{launcher.home / 'warpsmith.db'}")
    try:
        with db.reading() as session:
            submitted = session.scalars(select(SearchRow.created_at).where(SearchRow.id == search.id)).one()
            first = select(NodeRow.seq, func.min(VerdictRow.created_at)).join(NodeRow, NodeRow.id == VerdictRow.node_id)
            of_search = first.where(VerdictRow.search_id == search.id).group_by(NodeRow.seq)
            verdicts: dict[int, float] = dict(iter(session.execute(of_search).tuples()))
    finally:
        db.dispose()
    if len(verdicts) < 2:
        raise RuntimeError(f"the search brought {len(verdicts)} verdicts, expected two: {client.search(search.id)}")
    return Latency(judge, verdicts[0] - submitted, verdicts[1] - submitted)


def _watch(launcher: Launcher, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        launcher.poll()
        time.sleep(0.2)


def _memory(launcher: Launcher) -> list[Memory]:
    found = []
    for name, pid in launcher.pids().items():
        parent = psutil.Process(pid)
        family = [parent, *parent.children(recursive=True)]
        judges = {
            under.pid
            for process in family
            if "warpsmith.workers.judge" in process.cmdline()
            for under in (process, *process.children(recursive=True))
        }
        found.append(_sum(name, [process for process in family if process.pid not in judges]))
        if judges:
            found.append(
                _sum(f"{name}: judge and its fork server", [process for process in family if process.pid in judges])
            )
    return found


def _sum(name: str, processes: list[psutil.Process]) -> Memory:
    sizes = [process.memory_full_info() for process in processes]
    return Memory(name, len(sizes), sum(size.rss for size in sizes), sum(size.pss for size in sizes))


def tables(overhead: Overhead) -> list[Table]:
    """Return the result for people."""
    latency = _table("Submit to first verdict, s", "judge", "baselines", "first candidate")
    for row in overhead.latency:
        latency.add_row(row.judge, f"{row.baselines_s:.2f}", f"{row.candidate_s:.2f}")
    advance = _table("advance on SQLite, ms", "nodes", "median", "worst")
    for times in overhead.advance:
        advance.add_row(f"{times.nodes:,}", f"{times.median_ms:.1f}", f"{times.worst_ms:.1f}")
    steps = _table("Instant steps through Celery on Redis", "steps", "processes", "seconds", "steps per second")
    done = overhead.steps
    steps.add_row(f"{done.steps:,}", str(done.processes), f"{done.seconds:.1f}", f"{done.per_second:.0f}")
    memory = _table("Memory at rest, MiB", "process", "count", "RSS", "PSS")
    for process in overhead.memory:
        memory.add_row(process.name, str(process.processes), f"{process.rss / MIB:.0f}", f"{process.pss / MIB:.0f}")
    return [latency, advance, steps, memory]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    arguments = parser.parse_args()
    overhead = measure(Console(stderr=True))
    if arguments.json:
        document: dict[str, Any] = asdict(overhead) | {"steps_per_second": overhead.steps.per_second}
        print(json.dumps(document, indent=2))
        return
    console = Console()
    for table in tables(overhead):
        console.print(table)


if __name__ == "__main__":
    main()

"""Measure and print; see the package's docstring."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

import benchmarks.scale
from benchmarks import throughput, trees
from benchmarks.scale import requests
from benchmarks.scale.filling import Filled, fill
from benchmarks.scale.queries import find_slowest
from benchmarks.scale.requests import Latency
from benchmarks.scale.servers import STREAMS, Api, own_database, serving
from warpsmith.kernels_db.store.db import Database
from warpsmith.workers.settings import Settings

POSTGRES = "postgresql+psycopg://root@127.0.0.1:5432/test"
RABBITMQ = "amqp://guest:guest@127.0.0.1:5672//"
PROCESSES = (1, 2, 4)
SEARCHES, IDEAS, CODES = 8, 8, 4
SUBMISSIONS = 200
LARGE_TREE = 10_150  # of whose last round so many are open that it does not close yet
REPEATS = 30
SLOWEST = 10
PARTS = ("steps", "submit", "trees", "lists", "queries", "memory")
MIB = 2**20


def main() -> None:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        description=benchmarks.scale.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="of %(default)s")
    parser.add_argument("--nodes", type=int, default=20_000, help="nodes of the filled database")
    parser.add_argument("--minutes", type=float, default=0.5, help="how long memory is watched")
    parser.add_argument("--processes", type=int, nargs="+", default=PROCESSES, help="worker processes of `steps`")
    parser.add_argument("--api-processes", type=int, nargs="+", default=(1, 2), help="API processes of `submit`")
    parser.add_argument("--postgres", default=os.environ.get("WARPSMITH_TEST_POSTGRES", POSTGRES))
    parser.add_argument("--rabbitmq", default=os.environ.get("WARPSMITH_TEST_RABBITMQ", RABBITMQ))
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--parts: found {', '.join(sorted(unknown))}, expected some of {', '.join(PARTS)}")
    console = Console(width=160)
    console.print(f"{psutil.cpu_count()} processors, load average {psutil.getloadavg()[0]:.1f}")
    if "steps" in parts:
        console.print(_measure_steps(arguments.postgres, {"redis": None, "rabbitmq": arguments.rabbitmq}, arguments))
    if "submit" in parts:
        for processes in arguments.api_processes:
            with own_database(arguments.postgres) as url, _serving(url, processes) as (_, api):
                found = requests.measure_submissions(api, SUBMISSIONS)
            console.print(_tabulate(f"Submissions on PostgreSQL, {processes} API processes", [found]))
    if "trees" in parts:
        with own_database(arguments.postgres) as url:
            times = trees.measure(LARGE_TREE, url)
        spent = f"median {times.median_ms:.1f} ms, worst {times.worst_ms:.1f} ms"
        console.print(f"advance on PostgreSQL, {times.nodes:,} nodes: {spent}")
    if {"lists", "queries", "memory"} & set(parts):
        with own_database(arguments.postgres) as url:
            _measure_filled(console, url, parts, arguments)


def _measure_steps(server: str, brokers: dict[str, str | None], arguments: argparse.Namespace) -> Table:
    table = _table("Instant steps on PostgreSQL", "broker", "processes", "steps", "steps/s", "worker ms", "database ms")
    for name, broker in brokers.items():
        for processes in arguments.processes:
            with own_database(server) as url:
                found = throughput.measure(
                    processes, database_url=url, broker_url=broker, searches=SEARCHES, ideas=IDEAS, codes=CODES
                )
            spent = (found.worker_s, found.database_s)
            a_step = [f"{1e3 * seconds / found.steps:.1f}" for seconds in spent]
            table.add_row(name, str(processes), f"{found.steps:,}", f"{found.per_second:.0f}", *a_step)
    return table


def _measure_filled(console: Console, url: str, parts: Sequence[str], arguments: argparse.Namespace) -> None:
    db = Database(url)
    filled = fill(db, arguments.nodes)
    db.dispose()
    console.print(_tabulate_sizes(filled))
    paths = requests.reads(filled)
    with _serving(url) as (settings, api):
        if "lists" in parts:
            found = requests.measure_reads(api, paths, filled.running_search, STREAMS, REPEATS)
            console.print(_tabulate(f"Reads at {filled.nodes:,} nodes beside {STREAMS} event streams", found))
        if "memory" in parts:
            console.print(_watch_memory(api, paths, filled, arguments.minutes))
        if "queries" in parts:
            for query, plan in find_slowest(settings, paths.values(), SLOWEST):
                console.print(f"\n{1e3 * query.seconds[-1]:.1f} ms, {len(query.seconds)} times", style="bold")
                console.print(query.statement, plan, sep="\n", markup=False, highlight=False)


@contextmanager
def _serving(url: str, processes: int = 1) -> Iterator[tuple[Settings, Api]]:
    with tempfile.TemporaryDirectory(prefix="ws-scale-") as directory:
        settings = Settings(home=Path(directory), database_url=url, broker_url=None)
        with serving(settings, processes) as api:
            yield settings, api


def _watch_memory(api: Api, paths: dict[str, str], filled: Filled, minutes: float) -> Table:
    """Read without a pause for so many minutes; tell the memory before, between and after."""
    table = _table("Memory of the API under reads, MiB", "minutes", "RSS")
    began = time.monotonic()
    while True:
        passed = (time.monotonic() - began) / 60
        table.add_row(f"{passed:.1f}", f"{api.process.memory_info().rss / MIB:.0f}")
        if passed >= minutes:
            return table
        requests.measure_reads(api, paths, filled.running_search, STREAMS, 5)


def _tabulate_sizes(filled: Filled) -> Table:
    title = f"Database of {filled.nodes:,} nodes in {filled.searches:,} searches, filled in {filled.seconds:.0f} s"
    table = _table(title, "table", "bytes a node")
    for name, size in filled.bytes_a_node.items():
        table.add_row(name, f"{size:,.0f}")
    table.add_row("all", f"{sum(filled.bytes_a_node.values()):,.0f}")
    return table


def _tabulate(title: str, found: Sequence[Latency]) -> Table:
    table = _table(title, "ms", "requests", "p50", "p95", "p99", "worst", "processor")
    for one in found:
        times = [f"{1e3 * one.quantile(share):,.0f}" for share in (0.5, 0.95, 0.99, 1.0)]
        table.add_row(one.name, str(len(one.seconds)), *times, f"{1e3 * one.processor_s:,.1f}")
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


if __name__ == "__main__":
    main()

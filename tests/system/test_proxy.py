"""The API behind nginx, with the file that ships: TLS, cookies, event streams, slow clients."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from benchmarks.chaos.services import free_port
from tests import REPOSITORY
from tests.services import absent, die_with_parent
from tests.support.api_support import SEARCH
from warpsmith.kernels_db.store.db import Database
from warpsmith.service.api import auth

NAME = "kernels.example"


@dataclass(frozen=True)
class Site:
    """The proxy's ports and a key of the API behind it."""

    plain: int
    tls: int
    key: str
    certificate: Path

    def client(self, **headers: str) -> httpx.Client:
        context = ssl.create_default_context(cafile=str(self.certificate))
        return httpx.Client(base_url=f"https://{NAME}:{self.tls}", verify=context, headers=headers, timeout=30)


@pytest.fixture(autouse=True)
def named_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the name of the file's host mean this machine."""
    resolve = socket.getaddrinfo

    def here(host: str | bytes | None, *rest: object, **more: object) -> object:
        asked = host.decode() if isinstance(host, bytes) else host
        return resolve("127.0.0.1" if asked in (NAME, "other.example") else asked, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", here)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if shutil.which("nginx") is None or shutil.which("openssl") is None:
        absent("no nginx or no openssl")
    home = tmp_path_factory.mktemp("proxy")
    database = Database(f"sqlite:///{home / 'warpsmith.db'}")
    database.upgrade()
    key = auth.create_key(database, "proxy")
    database.dispose()
    plain, tls, api = (free_port() for _ in range(3))
    certificate = home / "fullchain.pem"
    make = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
    ]
    subject = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    files = ["-keyout", str(home / "privkey.pem"), "-out", str(certificate)]
    subprocess.run([*make, *subject, *files], check=True, capture_output=True)
    (home / "nginx.conf").write_text(_adapt(home, plain, tls, api))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WARPSMITH_")}
    settings = {
        "WARPSMITH_HOME": str(home),
        "WARPSMITH_AUTH": "always",
        "WARPSMITH_PORT": str(api),
        "WARPSMITH_SECURE_COOKIES": "true",
        "WARPSMITH_ALLOWED_HOSTS": json.dumps([NAME]),
    }
    commands = (
        [sys.executable, "-m", "warpsmith.service.server.serve"],
        [
            "nginx",
            "-p",
            str(home),
            "-c",
            "nginx.conf",
            "-e",
            str(home / "error.log"),
            "-g",
            "daemon off; pid nginx.pid;",
        ],
    )
    with ExitStack() as stack:
        for command in commands:
            log = stack.enter_context((home / "log").open("ab"))
            process = subprocess.Popen(
                command,
                env=kept | settings,
                stdout=log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        found = Site(plain, tls, key, certificate)
        _await(lambda: _answers(api) and _answers(tls), home)
        yield found


def _adapt(home: Path, plain: int, tls: int, api: int) -> str:
    """The file that ships, with this test's ports, certificate and shorter times."""
    text = (REPOSITORY / "docker/nginx.conf").read_text(encoding="utf-8")
    changes = {
        "listen 80 ": f"listen 127.0.0.1:{plain} ",
        "listen 443 ": f"listen 127.0.0.1:{tls} ",
        "127.0.0.1:8420": f"127.0.0.1:{api}",
        "/etc/nginx/tls": str(home),
        "client_header_timeout 10s": "client_header_timeout 2s",
        "limit_conn peers 64": "limit_conn peers 8",
    }
    for before, after in changes.items():
        assert before in text, before
        text = text.replace(before, after)
    places = "".join(
        f"{name}_temp_path {home}/{name}; " for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return re.sub(r"^http \{", f"http {{ {places}", text, flags=re.MULTILINE)


def _answers(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex(("127.0.0.1", port)) == 0


def _await(ready: Callable[[], bool], home: Path) -> None:
    deadline = time.monotonic() + 90
    while not ready():
        if time.monotonic() > deadline:
            logs = [path.read_text() for path in (home / "log", home / "error.log") if path.exists()]
            pytest.fail("\n".join(["the proxy or the API did not start", *logs]))
        time.sleep(0.1)


def test_sign_in_over_tls_sets_a_secure_cookie(site: Site) -> None:
    with site.client() as client:
        assert client.get("/healthz").headers["strict-transport-security"]
        assert client.get("/v1/searches").status_code == 401
        signed_in = client.post("/v1/session", json={"key": site.key}, headers={"Origin": f"https://{NAME}"})
        assert signed_in.status_code == 201
        cookie = signed_in.headers["set-cookie"].lower()
        assert all(word in cookie for word in ("secure", "httponly", "samesite=strict"))
        assert client.get("/v1/searches").status_code == 200
        assert client.get("/metrics").status_code == 404
    plain = httpx.get(f"http://{NAME}:{site.plain}/v1/searches?a=1")
    assert (plain.status_code, plain.headers["location"]) == (308, f"https://{NAME}/v1/searches?a=1")


def test_events_pass_as_they_come(site: Site) -> None:
    with site.client(Authorization=f"Bearer {site.key}") as client:
        search = client.post("/v1/searches", json=SEARCH).json()["id"]
        with client.stream("GET", f"/v1/searches/{search}/events", headers={"Accept": "text/event-stream"}) as stream:
            lines = stream.iter_lines()
            assert any(line == "event: search.created" for line in lines)  # the stream is open: no end brings it
            assert client.post(f"/v1/searches/{search}/cancel").status_code == 200
            assert any(line == "event: search.cancelled" for line in lines)


def test_a_foreign_name_has_no_handshake_and_a_slow_client_no_place(site: Site) -> None:
    context = ssl.create_default_context(cafile=str(site.certificate))
    with socket.create_connection(("127.0.0.1", site.tls)) as connection, pytest.raises(ssl.SSLError):
        context.wrap_socket(connection, server_hostname="other.example")
    with (
        socket.create_connection(("127.0.0.1", site.tls), timeout=10) as connection,
        context.wrap_socket(connection, server_hostname=NAME) as half,
    ):
        half.sendall(b"GET / HTTP/1.1\r\nHost: ")
        assert half.recv(10) == b""
    with (
        socket.create_connection(("127.0.0.1", site.tls), timeout=10) as connection,
        context.wrap_socket(connection, server_hostname=NAME) as keyless,
    ):
        head = f"POST /v1/pools HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 1000000\r\n\r\n"
        keyless.sendall(head.encode())
        assert keyless.recv(100).startswith(b"HTTP/1.1 401")  # before any of the body was sent

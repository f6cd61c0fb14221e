"""A host that joins: which versions work together, which URLs are safe, and what it keeps."""

from __future__ import annotations

import stat
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx
import pytest

from warpsmith.kernels_db.store.db import expected_revision
from warpsmith.service.client.errors import CommandError
from warpsmith.service.client.http import Client
from warpsmith.service.documents.joining import ConnectionDocument, find_mismatch
from warpsmith.service.documents.system import Health
from warpsmith.service.local import joining
from warpsmith.service.local.joining import KEPT, Joined, check_database, check_url, join
from warpsmith.workers.queue.celery_app import make_app
from warpsmith.workers.settings import Settings

URL = "https://kernels.example"
TOKEN = "wsj_first_" + "0f" * 32


@pytest.mark.parametrize(
    ("service", "worker", "revision", "says"),
    [
        ("1.4.0", "1.4.0", "0011", None),
        ("1.4.0", "1.4.7", "0011", None),
        ("1.4.0", "1.5.0", "0011", "found 1.5.0 on this host, expected the service's 1.4.0; install warpsmith 1.4.0"),
        ("2.4.0", "1.4.0", "0011", "found 1.4.0 on this host"),
        ("1.4.0", "1.4.1", "0010", "revision 0010, expected one for 0011"),
    ],
)
def test_versions_work_together_that_differ_in_the_last_number(
    service: str, worker: str, revision: str, says: str | None
) -> None:
    found = find_mismatch(service, worker, "0011", revision)
    assert found is None if says is None else says in (found or "")


@pytest.mark.parametrize("url", ["http://kernels.example", "http://10.0.0.1:8420"])
def test_a_token_does_not_travel_in_the_clear_unless_it_is_said(url: str) -> None:
    with pytest.raises(CommandError, match="expected https://"):
        check_url(url, allow_http=False)
    check_url(url, allow_http=True)


@pytest.mark.parametrize("url", [URL, "http://localhost:8420", "http://127.0.0.1:8420", "http://[::1]:8420"])
def test_https_and_this_machine_are_safe(url: str) -> None:
    check_url(url, allow_http=False)


@pytest.mark.parametrize("url", ["kernels.example", "ftp://kernels.example", "https://"])
def test_what_is_no_url_of_a_service_is_refused(url: str) -> None:
    with pytest.raises(CommandError, match="expected the URL of a service"):
        check_url(url, allow_http=True)


class Exchanges(list[dict[str, str]]):
    """What was sent to join; the service that answers has `version`, and a clock that is `ahead_s`."""

    version = "0.1.0"
    ahead_s = 0.0


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> Exchanges:
    sent = Exchanges()

    def answer(_: Client, body: dict[str, str]) -> ConnectionDocument:
        sent.append(body)
        return ConnectionDocument(
            broker_url="rediss://:secret@kernels.example/0",
            database_url="postgresql://w:secret@kernels.example/w",
            settings={"WARPSMITH_LEASE_S": "30.0"},
            version="0.1.0",
            revision="1",
        )

    monkeypatch.setattr(joining, "version", lambda _: "0.1.0")
    monkeypatch.setattr(Client, "join", answer)
    monkeypatch.setattr(
        Client, "health", lambda _: (Health(status="alive", version=sent.version), time.time() + sent.ahead_s)
    )
    return sent


def test_a_token_is_exchanged_once_and_what_it_brought_is_kept_for_its_owner_alone(
    tmp_path: Path, exchanges: Exchanges
) -> None:
    first = join(URL, TOKEN, "gpu7", tmp_path / "home", None)
    assert exchanges == [{"token": TOKEN, "host": "gpu7", "version": "0.1.0", "revision": expected_revision()}]
    assert first.environment == {
        "WARPSMITH_BROKER_URL": "rediss://:secret@kernels.example/0",
        "WARPSMITH_DATABASE_URL": "postgresql://w:secret@kernels.example/w",
        "WARPSMITH_LEASE_S": "30.0",
    }
    kept = tmp_path / "home" / KEPT
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert "0f0f" not in kept.read_text()
    assert join(URL, TOKEN, "gpu7", tmp_path / "home", None) == first
    assert join(URL, None, "gpu7", tmp_path / "home", None) == first
    assert len(exchanges) == 1
    join(URL, TOKEN.replace("first", "second"), "gpu7", tmp_path / "home", None)
    assert len(exchanges) == 2


def test_without_a_token_there_must_be_something_kept_of_that_service(tmp_path: Path, exchanges: Exchanges) -> None:
    with pytest.raises(CommandError, match=r"expected that of an invitation .*, by --token-file"):
        join(URL, None, "gpu7", tmp_path, None)
    join(URL, TOKEN, "gpu7", tmp_path, None)
    with pytest.raises(CommandError, match="token: found None"):
        join("https://another.example", None, "gpu7", tmp_path, None)


def test_a_service_that_was_upgraded_meanwhile_is_not_joined_again(tmp_path: Path, exchanges: Exchanges) -> None:
    join(URL, TOKEN, "gpu7", tmp_path, None)
    exchanges.version = "0.2.0"
    with pytest.raises(CommandError, match=r"expected the service's 0\.2\.0; install warpsmith 0\.2\.0 here"):
        join(URL, None, "gpu7", tmp_path, None)


@pytest.mark.parametrize(("ahead_s", "says"), [(60, "60 s behind the service's"), (-90, "90 s ahead of the service's")])
def test_clocks_apart_are_refused_before_the_token_is_used(
    tmp_path: Path, exchanges: Exchanges, ahead_s: float, says: str
) -> None:
    exchanges.ahead_s = ahead_s
    with pytest.raises(CommandError, match=says):
        join(URL, TOKEN, "gpu7", tmp_path, None)
    assert exchanges == []


def test_a_database_that_does_not_answer_is_named_without_its_password() -> None:
    with pytest.raises(CommandError, match="is its port open to this host") as refused:
        check_database(Settings(database_url="postgresql://w:secret@127.0.0.1:9/w"))
    assert "secret" not in str(refused.value)


def test_the_representation_of_what_is_kept_shows_no_password() -> None:
    joined = Joined(URL, "first", "redis://:secret@h/0", "postgresql://w:secret@h/w", {})
    assert "secret" not in repr(joined)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://w@h/w?sslmode=verify-full", "postgresql://w@h/w?sslmode=verify-full&sslrootcert=%2Fca.pem"),
        ("postgresql://w@h/w?sslmode=require&sslrootcert=/own.pem", None),
        ("postgresql://w@h/w?sslmode=disable", None),
        ("postgresql://w@h/w", None),
        ("sqlite:////w.db", None),
    ],
)
def test_the_databases_certificate_is_checked_against_the_authorities_that_are_named(
    url: str, expected: str | None
) -> None:
    assert Settings(database_url=url, tls_ca=Path("/ca.pem")).database == (expected or url)
    assert Settings(database_url=url).database == url


@pytest.mark.parametrize(
    ("url", "name", "checks"),
    [("rediss://h:6379/0", "ssl_ca_certs", "ssl_cert_reqs"), ("amqps://h//", "ca_certs", "cert_reqs")],
)
def test_the_brokers_certificate_is_checked_where_its_address_asks_for_tls(url: str, name: str, checks: str) -> None:
    options: dict[str, Any] = make_app(Settings(broker_url=url, tls_ca=Path("/ca.pem"))).conf.broker_use_ssl
    assert (options[name], int(options[checks])) == ("/ca.pem", 2)
    assert make_app(Settings(broker_url=url)).conf.broker_use_ssl[name] is None
    assert make_app(Settings(broker_url="redis://h/0", tls_ca=Path("/ca.pem"))).conf.broker_use_ssl is None


def test_the_clock_is_read_from_the_answers_header() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"status": "alive", "version": "1"}, headers={"Date": formatdate(1000.0)})

    client = Client(URL)
    client._http = httpx.Client(base_url=URL, transport=httpx.MockTransport(answer))
    with client:
        assert client.health() == (Health(status="alive", version="1"), 1000.0)

"""The edges of the API: bad requests, foreign pages, keys, readiness, and what must not leak."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from logging import LogRecord
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event, text

from tests.support.api_support import (
    BASE_URL,
    SEARCH,
    application,
    client_of,
    database,
    fields,
    problem,
    seed,
    settings_for,
)
from warpsmith.service.api import auth
from warpsmith.service.server.app import create_app

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def client(local: TestClient) -> TestClient:
    return local


def test_malformed_json_names_line_and_column(client: TestClient) -> None:
    document = problem(client.post("/v1/searches", content=b'{"op": 1,\n x}', headers=JSON), 400, "malformed-body")
    assert "line 2, column 2" in document["detail"]


def test_yaml_mistakes_name_line_and_column(client: TestClient) -> None:
    response = client.post("/v1/ops", content=b"name: x\naxes: [", headers={"Content-Type": "application/yaml"})
    assert "line 2" in problem(response, 422, "invalid-spec")["errors"][0]["found"]


@pytest.mark.parametrize("path", ["/v1/searches", "/v1/ops", "/v1/pools", "/v1/asks/ak_0/answer"])
def test_other_content_types_are_refused(client: TestClient, path: str) -> None:
    problem(client.post(path, content=b"{}", headers={"Content-Type": "text/plain"}), 415, "unsupported-media-type")
    problem(client.post(path, content=b"{}"), 415, "unsupported-media-type")


def test_a_long_body_is_refused_by_its_length_and_by_counting(client: TestClient) -> None:
    limit = 2 * 2**20
    sent = 0

    def chunks() -> Iterator[bytes]:
        nonlocal sent
        for _ in range(64):
            sent += 2**17
            yield b" " * 2**17

    document = problem(client.post("/v1/searches", content=b" " * (limit + 1), headers=JSON), 413, "body-too-large")
    assert str(limit) in document["detail"]
    problem(client.post("/v1/searches", content=chunks(), headers=JSON), 413, "body-too-large")
    assert client.post("/v1/searches", content=b" " * limit, headers=JSON).status_code == 400
    pool = {"Content-Type": "application/x-ndjson"}
    assert client.post("/v1/pools", content=b" " * (limit + 1), headers=pool).status_code == 202


def test_paths_and_methods_that_are_not_there(client: TestClient) -> None:
    problem(client.get("/v1/nothing"), 404, "not-found")
    response = client.delete("/v1/searches")
    problem(response, 405, "method-not-allowed")
    assert response.headers["allow"]
    for path in ("/v1/searches/sr_0", "/v1/ops/x", "/v1/nodes/%00", "/v1/kernels/kn_0/export", "/v1/searches/'/events"):
        problem(client.get(path), 404, "not-found")


def test_a_foreign_host_is_refused_on_loopback(client: TestClient) -> None:
    problem(client.get("/v1/searches", headers={"Host": "evil.example:8420"}), 403, "host-refused")
    for probe in ("/healthz", "/readyz"):  # asked by a container's own address
        assert client.get(probe, headers={"Host": "10.1.2.3:8420"}).status_code in (200, 503)
    for host in ("localhost:8420", "127.0.0.1", "[::1]:8420", "LOCALHOST"):
        assert client.get("/healthz", headers={"Host": host}).status_code == 200


def test_a_page_of_another_site_changes_nothing(client: TestClient) -> None:
    search_id = seed(database(client))
    for site in ("cross-site", "same-site"):
        response = client.post(f"/v1/searches/{search_id}/cancel", headers={"Sec-Fetch-Site": site})
        problem(response, 403, "cross-site")
    assert client.get(f"/v1/searches/{search_id}").json()["state"] == "running"


def test_an_internal_error_leaves_an_id_and_nothing_else(client: TestClient, logged: list[LogRecord]) -> None:
    seed(database(client))
    with database(client).writing() as session:
        session.execute(text("UPDATE nodes SET idea = '[\"not an idea\"]' WHERE id = 'nd_bad'"))
    document = problem(client.get("/v1/nodes/nd_bad"), 500, "internal-error")
    assert document["error_id"] in document["detail"]
    assert set(document) == {"type", "title", "status", "detail", "error_id"}
    assert any(document["error_id"] in record.getMessage() for record in logged)


def test_readiness_names_what_fails(tmp_path: Path, redis_url: str) -> None:
    with TestClient(create_app(settings_for(tmp_path)), base_url=BASE_URL) as client:
        assert client.get("/healthz").status_code == 200
        document = problem(client.get("/readyz"), 503, "not-ready")
        assert fields(document) == ["database", "broker"]
        assert document["errors"][0]["found"] == "no schema"
        database(client).upgrade()
        assert fields(problem(client.get("/readyz"), 503, "not-ready")) == ["broker"]
        with database(client).writing() as session:
            session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        document = problem(client.get("/readyz"), 503, "not-ready")
        assert document["errors"][0]["found"] == "revision 9999"
        assert document["errors"][0]["expected"].endswith(" (upgrade this program)")
        assert document["errors"][0]["expected"].startswith("revision ")
    with client_of(settings_for(tmp_path / "whole", broker_url=redis_url)) as client:
        ready = client.get("/readyz").json()
        assert ready["status"] == "ready"
        assert ready["broker"].startswith("redis+socket://")


def test_a_database_without_schema_is_unavailable_not_broken(tmp_path: Path) -> None:
    with TestClient(create_app(settings_for(tmp_path)), base_url=BASE_URL, raise_server_exceptions=False) as client:
        response = client.get("/v1/searches")
        problem(response, 503, "database-unavailable")
        assert response.headers["retry-after"]
        problem(client.get("/metrics"), 503, "database-unavailable")


def test_a_full_disk_stores_nothing_and_says_so(client: TestClient) -> None:
    db = database(client)
    with db.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    db.dispose()

    @event.listens_for(db.engine, "connect")
    def bounded(connection: Any, _record: Any) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")

    stored = 0
    for number in range(200):
        spec = {**SEARCH["op"], "name": f"op_{number}", "description": "x" * 4000}
        response = client.post("/v1/ops", json=spec)
        if response.status_code != 201:
            break
        stored += 1
    problem(response, 507, "storage-full")
    assert len(client.get("/v1/ops", params={"limit": 200}).json()["items"]) == stored


def test_keys_open_what_needs_them(tmp_path: Path) -> None:
    app = application(settings_for(tmp_path, host="0.0.0.0"))
    with TestClient(app, base_url="http://kernels.example") as client:
        db = database(client)
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 503
        for path in ("/v1/searches", "/metrics", "/openapi.json", "/v1/nothing", "/v1/searches/sr_0/events"):
            response = client.get(path)
            problem(response, 401, "key-required")
            assert response.headers["www-authenticate"].startswith("Bearer")
        key = auth.create_key(db, "laptop")
        held = {"Authorization": f"Bearer {key}"}
        assert client.get("/v1/searches", headers=held).status_code == 200
        for wrong in (key[:-1], key + "0", "wsk_", "wsk_00_00", key.replace("wsk", "xxx"), "\u00e9"):
            response = client.get("/v1/searches", headers={b"Authorization": f"Bearer {wrong}".encode()})
            problem(response, 401, "key-required")
        assert [row.name for row in auth.list_keys(db)] == ["laptop"]
        assert all(key.split("_")[2] not in row.digest for row in auth.list_keys(db))
        assert auth.revoke_key(db, key.split("_")[1])
        assert not auth.revoke_key(db, key.split("_")[1])
        problem(client.get("/v1/searches", headers=held), 401, "key-required")


@pytest.mark.parametrize(
    ("host", "required"),
    [("127.0.0.1", False), ("::1", False), ("localhost", False), ("0.0.0.0", True), ("10.1.2.3", True)],
)
def test_keys_are_required_beyond_loopback(tmp_path: Path, host: str, required: bool) -> None:
    assert settings_for(tmp_path, host=host).keys_required is required


@pytest.mark.parametrize(
    ("names", "required"),
    [(["localhost"], False), (["127.0.0.1", "[::1]"], False), (["localhost", "kernels.example"], True)],
)
def test_keys_are_required_behind_a_proxy(tmp_path: Path, names: list[str], required: bool) -> None:
    """A proxy on this machine brings requests of others to the loopback address."""
    assert settings_for(tmp_path, allowed_hosts=names).keys_required is required


def test_every_answer_forbids_scripts_and_framing(client: TestClient) -> None:
    for path in ("/", "/v1/searches", "/nothing"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_metrics_count_requests_by_route(client: TestClient) -> None:
    seed(database(client))
    client.get("/v1/searches/sr_seed")
    client.get("/v1/nothing")
    lines = client.get("/metrics").text.splitlines()
    assert 'warpsmith_searches{state="running"} 1.0' in lines
    assert 'warpsmith_nodes{state="judged",verdict="accepted"} 2.0' in lines
    assert 'warpsmith_attempts{kind="judge",state="pending"} 1.0' in lines
    assert 'warpsmith_workers_alive{role="model",target="none"} 1.0' in lines
    assert not any(line.startswith('warpsmith_workers_alive{role="judge"') for line in lines)
    route = 'warpsmith_http_request_seconds_count{method="GET",route="/v1/searches/{search_id}",status="200"} 1.0'
    assert route in lines
    assert any('route="unmatched",status="404"' in line for line in lines)


def test_the_api_runs_without_torch() -> None:
    program = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "triton", "numpy", "cuda"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from warpsmith.service.server.app import create_app
from warpsmith.service.settings import ServiceSettings
create_app(ServiceSettings())
print(len(create_app(ServiceSettings()).openapi()["paths"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 15

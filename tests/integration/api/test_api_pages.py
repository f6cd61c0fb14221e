"""The dashboard's files: what is served under which address, and what keeps a page from doing harm."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.services import migrate
from tests.support.api_support import BASE_URL, problem, served, settings_for
from warpsmith.service.server.app import create_app

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
INDEX = "<!doctype html><title>Warpsmith</title>"
DOCS = "<!doctype html><title>REST API</title>"
SECRET = "nobody may read this"


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    dist = tmp_path / "dist"
    (dist / "assets").mkdir(parents=True)
    (dist / "index.html").write_text(INDEX)
    (dist / "docs.html").write_text(DOCS)
    (dist / "assets" / "index-B1d9.js").write_text("export {};")
    (dist / "favicon.svg").write_text("<svg/>")
    (tmp_path / "secret.txt").write_text(SECRET)
    (tmp_path / "dist-of-another").mkdir()
    (tmp_path / "dist-of-another" / "secret.txt").write_text(SECRET)
    return dist


@pytest.fixture
def client(tmp_path: Path, dist: Path) -> Iterator[TestClient]:
    app = create_app(settings_for(tmp_path / "home"), dashboard=dist)
    migrate(app.state.service.db)
    with TestClient(app, base_url=BASE_URL) as client:
        yield client


@pytest.mark.parametrize(
    "path", ["/", "/searches/new", "/searches/sr_1?tab=tree&node=nd_2", "/kernels/compare", "/x/y.z"]
)
def test_every_address_of_a_page_is_the_one_page(client: TestClient, path: str) -> None:
    response = client.get(path, headers=HTML)
    assert (response.status_code, response.text) == (200, INDEX)
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache"
    assert client.head(path, headers=HTML).status_code == 200


@pytest.mark.parametrize("path", ["/docs", "/docs/", "/redoc"])
@pytest.mark.parametrize("headers", [HTML, {}, {"Accept": "application/json"}])
def test_the_reference_of_the_api_is_where_people_look_for_it(
    client: TestClient, path: str, headers: dict[str, str]
) -> None:
    response = client.get(path, headers=headers)
    assert (response.status_code, response.text) == (200, DOCS)
    assert (
        response.headers["content-security-policy"] == client.get("/", headers=HTML).headers["content-security-policy"]
    )
    assert response.headers["cache-control"] == "no-cache"


def test_the_reference_of_the_api_needs_no_key_and_its_document_does(tmp_path: Path, dist: Path) -> None:
    with TestClient(create_app(settings_for(tmp_path, auth="always"), dashboard=dist), base_url=BASE_URL) as client:
        migrate(client.app.state.service.db)  # type: ignore[attr-defined] # it is this application
        assert client.get("/docs").status_code == 200
        problem(client.get("/openapi.json"), 401, "key-required")


def test_a_page_may_load_its_own_files_alone(client: TestClient) -> None:
    headers = client.get("/", headers=HTML).headers
    policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"


def test_assets_are_kept_for_good_and_nothing_else_is(client: TestClient) -> None:
    script = client.get("/assets/index-B1d9.js")
    assert script.text == "export {};"
    assert script.headers["content-type"].startswith("text/javascript")
    assert script.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert client.get("/favicon.svg").headers["cache-control"] == "no-cache"
    etag = client.get("/", headers=HTML).headers["etag"]
    assert client.get("/", headers=HTML | {"If-None-Match": etag}).status_code == 304


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1", "/v1/searches/sr_0", "/assets/gone-1.js", "/assets/"])
def test_what_is_no_page_is_a_problem_for_browsers_too(client: TestClient, path: str) -> None:
    problem(client.get(path, headers=HTML), 404, "not-found")


def test_what_is_not_asked_for_as_a_page_is_none(client: TestClient) -> None:
    problem(client.get("/searches/sr_1", headers={"Accept": "application/json"}), 404, "not-found")
    problem(client.post("/searches/sr_1", headers=HTML), 404, "not-found")
    assert client.get("/healthz", headers=HTML).json()["status"] == "alive"


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/assets/../../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/%2e%2e%2fdist-of-another%2fsecret.txt",
        "//etc/passwd",
        "/%2fetc%2fpasswd",
        "/assets/..%5c..%5csecret.txt",
        "/assets/%00",
        "/" + "a" * 5000,
        "/link",
    ],
)
def test_nothing_outside_of_the_files_is_served(client: TestClient, dist: Path, path: str) -> None:
    (dist / "link").symlink_to(dist.parent / "secret.txt")
    with served(client.app) as url:  # type: ignore[arg-type] # the paths go out as they stand here
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            request = f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\nAccept: */*\r\n\r\n"
            connection.sendall(request.encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    assert answer.startswith("HTTP/1.1 404"), answer[:200]
    assert SECRET not in answer
    assert "root:" not in answer


def test_without_the_files_a_page_says_how_to_build_them(tmp_path: Path) -> None:
    with TestClient(create_app(settings_for(tmp_path), dashboard=tmp_path / "dist"), base_url=BASE_URL) as client:
        response = client.get("/", headers=HTML)
        assert response.status_code == 503
        assert "npm run build" in response.text
        assert response.headers["cache-control"] == "no-store"
        problem(client.get("/assets/index.js"), 404, "not-found")
        assert client.get("/healthz").status_code == 200


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_files_of_an_older_build_are_told_where_the_reference_is_asked_for(
    client: TestClient, dist: Path, path: str
) -> None:
    (dist / "docs.html").unlink()
    response = client.get(path, headers=HTML)
    assert response.status_code == 503
    assert "npm run build" in response.text
    problem(client.get(path), 404, "not-found")
    assert client.get("/searches", headers=HTML).status_code == 200


def test_metrics_tell_pages_from_paths_that_are_not_there(client: TestClient) -> None:
    client.get("/searches/sr_1", headers=HTML)
    client.get("/v1/nothing", headers=HTML)
    lines = client.get("/metrics").text.splitlines()
    name = "warpsmith_http_request_seconds_count"
    assert f'{name}{{method="GET",route="/{{page}}",status="200"}} 1.0' in lines
    assert f'{name}{{method="GET",route="unmatched",status="404"}} 1.0' in lines


def test_the_openapi_document_is_of_this_application(client: TestClient) -> None:
    assert "/{page}" not in json.dumps(client.get("/openapi.json").json()["paths"])

"""Browsers that sign in with an API key: the cookie, the token that changes need, and every way a session ends."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select, update

from tests.support.api_support import (
    BASE_URL,
    add_events,
    application,
    client_of,
    database,
    problem,
    seed,
    served,
    settings_for,
)
from warpsmith.kernels_db.store.tables import SessionRow
from warpsmith.service.api import auth, sessions
from warpsmith.service.server.middleware import CSRF_HEADER, OPEN_PATHS, SIGNING_IN
from warpsmith.service.server.pages import is_page

SESSION = "/v1/session"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with client_of(settings_for(tmp_path, auth="always")) as client:
        yield client


def signed_in(client: TestClient, name: str = "laptop") -> tuple[str, dict[str, Any]]:
    """Sign in with a new key: the key, and the session."""
    key = auth.create_key(database(client), name)
    response = client.post(SESSION, json={"key": key})
    assert response.status_code == 201
    document: dict[str, Any] = response.json()
    return key, document


def test_a_session_reads_and_changes_as_its_key_does(client: TestClient) -> None:
    search_id = seed(database(client))
    before = client.get(SESSION).json()
    nobody = {"name": None, "team": None, "scopes": [], "csrf_token": None, "expires_at": None}
    assert before == {"keys_required": True, **nobody}
    _, session = signed_in(client)
    assert client.get(SESSION).json() == session
    assert session["name"] == "laptop"
    assert session["expires_at"] == pytest.approx(time.time() + 12 * 3600, abs=60)
    assert client.get("/v1/searches").status_code == 200
    response = client.post(f"/v1/searches/{search_id}/pause", headers={CSRF_HEADER: session["csrf_token"]})
    assert response.status_code == 200
    events = client.get(f"/v1/searches/{search_id}/events?format=json").json()["items"]
    assert events[-1]["payload"]["by"] == "laptop"


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(tmp_path: Path) -> None:
    app = application(settings_for(tmp_path, auth="always", session_life_s=90))
    key = auth.create_key(app.state.service.db, "laptop")
    for scheme in ("http", "https"):
        with TestClient(app, base_url=BASE_URL.replace("http", scheme)) as client:
            given = client.post(SESSION, json={"key": key}).headers["set-cookie"]
        token, *attributes = given.split("; ")
        assert token.startswith(f"{sessions.COOKIE}=")
        expected = {"HttpOnly", "Max-Age=90", "Path=/", "SameSite=strict"} | (
            {"Secure"} if scheme == "https" else set()
        )
        assert set(attributes) == expected


def test_the_database_holds_no_cookie(client: TestClient) -> None:
    signed_in(client)
    token = client.cookies[sessions.COOKIE]
    with database(client).reading() as session:
        rows = session.scalars(select(SessionRow)).all()
    assert [row.digest for row in rows] == [hashlib.sha256(token.encode()).hexdigest()]


def test_a_change_without_the_token_is_refused(client: TestClient) -> None:
    search_id = seed(database(client))
    _, first = signed_in(client)
    _, second = signed_in(client, "another browser")
    for headers in ({}, {CSRF_HEADER: ""}, {CSRF_HEADER: "0" * 64}, {CSRF_HEADER: first["csrf_token"]}):
        for method, path in (("POST", f"/v1/searches/{search_id}/cancel"), ("DELETE", SESSION)):
            problem(client.request(method, path, headers=headers), 403, "csrf-token")
    assert client.get(f"/v1/searches/{search_id}").json()["state"] == "running"
    response = client.post(f"/v1/searches/{search_id}/cancel", headers={CSRF_HEADER: second["csrf_token"]})
    assert response.json()["state"] == "cancelled"


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "http://127.0.0.1:9999", "null", "http://127.0.0.1:8420.evil.example", "file://", ""],
)
def test_another_sites_page_changes_nothing_even_with_the_token(client: TestClient, origin: str) -> None:
    search_id = seed(database(client))
    key, session = signed_in(client)
    headers = {CSRF_HEADER: session["csrf_token"], "Origin": origin}
    problem(client.post(f"/v1/searches/{search_id}/cancel", headers=headers), 403, "cross-site")
    problem(client.post(SESSION, json={"key": key}, headers={"Origin": origin}), 403, "cross-site")
    headers["Origin"] = BASE_URL
    assert client.post(f"/v1/searches/{search_id}/cancel", headers=headers).status_code == 200


def test_the_name_of_a_proxy_is_an_origin_where_it_is_allowed(tmp_path: Path) -> None:
    with client_of(settings_for(tmp_path, auth="always", allowed_hosts=["kernels.example"])) as client:
        search_id = seed(database(client))
        _, session = signed_in(client)
        headers = {CSRF_HEADER: session["csrf_token"], "Origin": "https://kernels.example"}
        assert client.post(f"/v1/searches/{search_id}/cancel", headers=headers).status_code == 200


def test_an_expired_session_has_ended(client: TestClient) -> None:
    signed_in(client)
    with database(client).writing() as session:
        session.execute(update(SessionRow).values(expires_at=time.time() - 1))
    assert "has ended" in problem(client.get("/v1/searches"), 401, "key-required")["detail"]
    assert client.get(SESSION).json()["name"] is None
    signed_in(client)
    with database(client).reading() as session:
        assert len(session.scalars(select(SessionRow)).all()) == 1


def test_revoking_a_key_ends_its_sessions_and_no_other(client: TestClient) -> None:
    key, _ = signed_in(client)
    kept = client.cookies[sessions.COOKIE]
    auth.revoke_key(database(client), key)
    problem(client.get("/v1/searches"), 401, "key-required")
    signed_in(client, "another")
    assert client.get("/v1/searches").status_code == 200
    problem(client.get("/v1/searches", headers={"Cookie": f"{sessions.COOKIE}={kept}"}), 401, "key-required")


def test_signing_out_ends_the_session_for_good(client: TestClient) -> None:
    _, session = signed_in(client)
    token = client.cookies[sessions.COOKIE]
    response = client.delete(SESSION, headers={CSRF_HEADER: session["csrf_token"]})
    assert response.status_code == 204
    assert sessions.COOKIE not in client.cookies
    problem(client.get("/v1/searches", headers={"Cookie": f"{sessions.COOKIE}={token}"}), 401, "key-required")


@pytest.mark.parametrize("cookie", ["", "x", "é", "a" * 300, "a; warpsmith_session=b", '"quoted"'])
def test_a_cookie_that_was_never_given_opens_nothing(client: TestClient, cookie: str) -> None:
    headers = {b"Cookie": f"{sessions.COOKIE}={cookie}".encode()}
    problem(client.get("/v1/searches", headers=headers), 401, "key-required")


def test_a_bad_key_begins_no_session(client: TestClient) -> None:
    key, _ = signed_in(client)
    client.cookies.clear()
    for wrong in (key[:-1], key.replace("wsk", "xxx"), "x"):
        response = client.post(SESSION, json={"key": wrong})
        problem(response, 401, "key-required")
        assert "set-cookie" not in response.headers
    problem(client.post(SESSION, json={}), 422, "invalid-input")


def test_a_key_that_is_sent_is_not_passed_over_for_a_cookie(client: TestClient) -> None:
    key, _ = signed_in(client)
    search_id = seed(database(client))
    problem(client.get("/v1/searches", headers={"Authorization": "Bearer wsk_00_00"}), 401, "key-required")
    held = {"Authorization": f"Bearer {key}"}
    assert client.get(SESSION, headers=held).json()["csrf_token"] is None
    assert client.post(f"/v1/searches/{search_id}/cancel", headers=held).status_code == 200


def test_where_no_keys_are_in_force_nobody_signs_in(tmp_path: Path) -> None:
    with client_of(settings_for(tmp_path)) as client:
        assert client.get(SESSION).json()["keys_required"] is False
        problem(client.post(SESSION, json={"key": "wsk_00_00"}), 409, "wrong-state")
        assert client.delete(SESSION).status_code == 204


def test_events_stream_to_a_session(tmp_path: Path) -> None:
    app = application(settings_for(tmp_path, auth="always", stream_poll_s=0.05))
    db = app.state.service.db
    search_id = seed(db)
    add_events(db, search_id, "search.finished")
    key = auth.create_key(db, "laptop")
    with served(app) as url, httpx.Client(base_url=url) as browser:
        path = f"/v1/searches/{search_id}/events"
        assert browser.get(path).status_code == 401
        assert browser.post(SESSION, json={"key": key}).status_code == 201
        stream = browser.get(path, headers={"Accept": "text/event-stream"})
        assert stream.status_code == 200
        assert "event: search.finished" in stream.text


def test_every_route_but_a_few_asks_for_a_key(tmp_path: Path) -> None:
    app = application(settings_for(tmp_path, auth="always"))
    unlocked = set()
    with TestClient(app, base_url=BASE_URL) as client:
        for path, item in app.openapi()["paths"].items():
            assert not is_page(path), f"{path} is the dashboard's by its prefix, and open to everybody"
            for method in item:
                if client.request(method, path.replace("{", "").replace("}", "")).status_code != 401:
                    unlocked.add((method.upper(), path))
    assert unlocked == {("GET", path) for path in OPEN_PATHS} | {pair for pair in SIGNING_IN if pair[0] != "HEAD"}

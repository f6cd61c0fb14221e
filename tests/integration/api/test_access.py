"""What each scope and each team may do, for every route of the OpenAPI document."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from celery import Celery
from fastapi import APIRouter, Depends
from fastapi.testclient import TestClient

from tests.support.api_support import ADD_RELU, BASE_URL, SEARCH, application, problem, seed, served, settings_for
from warpsmith.kernels_db.spec.op import load_op
from warpsmith.kernels_db.store import audit
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import (
    AttemptRow,
    AuditRow,
    BundleJobRow,
    CampaignRow,
    HoldingRow,
    ImportRow,
    InviteRow,
    KernelRow,
    PoolRow,
    ProfileRow,
    ReverificationRow,
    SearchRow,
    TeamRow,
    TryRow,
)
from warpsmith.service.api import access, auth, sessions
from warpsmith.service.api.routes import searches
from warpsmith.service.api.submission import check_submission
from warpsmith.service.client.errors import ProblemError
from warpsmith.service.client.http import Client
from warpsmith.service.mcp.context import Desk
from warpsmith.service.mcp.search_tools import Answering
from warpsmith.service.server.app import create_app
from warpsmith.service.server.middleware import CSRF_HEADER
from warpsmith.workers.queue.reconciler import Reconciler

IDS = {
    "search_id": "sr_seed",
    "campaign_id": "cm_" + 26 * "0",
    "import_id": "im_" + 26 * "0",
    "node_id": "nd_good",
    "ask_id": "ak_0",
    "try_id": "ty_0",
    "bundle_id": "bn_" + 26 * "0",
    "kernel_id": "kn_0",
    "reverification_id": "rv_0",
    "op_id": "op_seed",
    "pool_id": "pl_0",
    "invite_id": "iv_" + 26 * "0",
}
"""One row of team `ours` for each parameter of a path; an invitation is no team's."""

NONCE = "bj_" + 26 * "0"
POOL_HEADER: dict[str, Any] = {
    "op": "add_relu",
    "op_digest": "0f" * 32,
    "target": "cpu:x86_64",
    "language": "cpp",
    "policy": {"name": "idea_beam"},
    "budget": {},
    "answered_by": "a person",
    "recorded_at": 0.0,
    "warpsmith_version": "0",
}


class Operation(NamedTuple):
    id: str
    method: str
    path: str

    @property
    def names_a_row(self) -> bool:
        """Whether a team's row is in the path; rows for administrators alone are of no team."""
        return "{" in self.path and access.RULES[self.id] != "admin"

    def send(self, client: TestClient, key: str, ids: dict[str, str] = IDS) -> Any:
        body = {} if self.method in ("get", "delete") else {"json": {}}
        path = self.path.format(**ids) + ("?format=json" if self.id == "get_events" else "")
        return client.request(self.method, path, headers={"Authorization": f"Bearer {key}"}, **body)


def operations() -> list[Operation]:
    paths = create_app(settings_for(Path("/nowhere"), auth="always", database_url="sqlite:///never.db")).openapi()[
        "paths"
    ]
    return [
        Operation(operation["operationId"], method, path)
        for path, item in paths.items()
        for method, operation in item.items()
    ]


OPERATIONS = operations()
GUARDED = [one for one in OPERATIONS if access.RULES.get(one.id, "read") is not None]


def _ending(one: Operation) -> tuple[bool, bool]:
    """Sort what ends a row last, and last of all what ends the row of most others."""
    return one.method == "delete", one.id == "delete_search"


class World(NamedTuple):
    client: TestClient
    db: Database

    def key(self, team: str, *scopes: auth.Scope) -> str:
        return auth.create_key(self.db, f"{team} {' '.join(scopes)}", team, scopes or auth.DEFAULT_SCOPES)

    def show(self, visibility: str) -> None:
        with self.db.writing() as session:
            session.get_one(TeamRow, "ours").visibility = visibility


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Everything that hangs off a search of the private team `ours`, and a team `theirs`."""
    app = application(settings_for(tmp_path, auth="always"))
    db: Database = app.state.service.db
    with db.writing() as session:
        session.add_all(TeamRow(name=name, visibility="private", created_at=0.0) for name in ("ours", "theirs"))
    seed(db)
    with db.writing() as session:
        session.get_one(SearchRow, "sr_seed").team = "ours"
        session.get_one(KernelRow, "kn_0").team = "ours"
        session.add(
            CampaignRow(
                id=IDS["campaign_id"],
                model_name="model.py",
                model_digest="0f" * 32,
                state="profiling",
                settings={"device": "cpu", "target": "cpu:x86_64", "budget": {}, "model": {}},
                progress={"state": "profiling", "regions": []},
                revision=1,
                created_at=0.0,
                updated_at=0.0,
                team="ours",
            )
        )
        sent = {"kind": "pool", "size": 0, "body": b"", "state": "pending", "created_at": 0.0}
        session.add(ImportRow(id=IDS["import_id"], team="ours", **sent))
        invited = {"name": "a host", "uses": 1, "used": 0, "created_at": 0.0, "expires_at": 0.0, "revoked_at": None}
        session.add(InviteRow(id=IDS["invite_id"], digest="d", **invited))
        session.add(PoolRow(id="pl_0", digest="p", header=POOL_HEADER, replies=0, created_at=0.0))
        session.add_all(HoldingRow(object_id=IDS[name], team="ours") for name in ("op_id", "pool_id"))
        session.add(
            ReverificationRow(
                id="rv_0",
                kernel_id="kn_0",
                ordinal=1,
                target="cpu:x86_64",
                cause="asked",
                state="pending",
                created_at=0.0,
            )
        )
        session.add(
            ProfileRow(id="pf_0", search_id="sr_seed", node_id="nd_good", document={}, state="failed", created_at=0.0)
        )
        session.add(
            TryRow(
                id="ty_0",
                search_id="sr_seed",
                node_id="nd_good",
                level="compile",
                language="cpp",
                source="text",
                device_s=0.0,
                document={},
                state="failed",
                created_at=0.0,
            )
        )
        attempt = session.get_one(AttemptRow, "at_3")
        attempt.state, attempt.owner = "running", f"bundle:{IDS['bundle_id']}"
        session.add(
            BundleJobRow(
                id=NONCE,
                bundle_id=IDS["bundle_id"],
                search_id="sr_seed",
                attempt_id="at_3",
                job_digest="d",
                created_at=0.0,
            )
        )
    with TestClient(app, base_url=BASE_URL, raise_server_exceptions=False) as client:
        yield World(client, db)


def test_every_route_has_a_rule_and_every_rule_a_route() -> None:
    assert {one.id for one in OPERATIONS} == set(access.RULES)
    parameters = {one: {name for name in one.path.split("/") if name.startswith("{")} for one in OPERATIONS}
    owned = {name for one, named in parameters.items() if one.names_a_row for name in named}
    assert owned == {"{" + name + "}" for name in access.OWNERS}
    assert set().union(*parameters.values()) == {"{" + name + "}" for name in IDS}
    assert access.OWNERS.keys() == access.UNKNOWN.keys()


def test_a_route_without_a_rule_is_refused_to_everyone(tmp_path: Path) -> None:
    app = application(settings_for(tmp_path))
    router = APIRouter()
    router.add_api_route("/v1/new", lambda: None, methods=["GET"], name="a_new_route")
    app.include_router(router, dependencies=[Depends(access.enforce)])
    with TestClient(app, base_url=BASE_URL) as client:
        assert "no rule" in problem(client.get("/v1/new"), 403, "forbidden")["detail"]


def test_a_key_does_what_its_scopes_say_and_nothing_else(world: World) -> None:
    others: dict[Any, str] = {
        scope: world.key("ours", *(each for each in auth.SCOPES if each not in (scope, "admin")))
        for scope in auth.SCOPES
    }
    for one in GUARDED:
        scope = access.RULES[one.id]
        found = problem(one.send(world.client, others[scope]), 403, "forbidden")
        assert found["detail"].startswith("scope: found"), one
        assert world.client.request(one.method, one.path.format(**IDS)).status_code == 401, one
    exact: dict[Any, str] = {scope: world.key("ours", scope) for scope in auth.SCOPES}
    for one in sorted(GUARDED, key=_ending):
        assert one.send(world.client, exact[access.RULES[one.id]]).status_code not in (401, 403, 404), one


def test_a_private_teams_rows_are_not_there_for_another_team(world: World) -> None:
    theirs = world.key("theirs")
    for one in (each for each in GUARDED if each.names_a_row):
        answer = problem(one.send(world.client, theirs), 404, "not-found")
        absent = {name: f"{row_id[:3]}absent" for name, row_id in IDS.items()}
        unknown = one.send(world.client, theirs, absent).json()
        row_id = next(row_id for name, row_id in IDS.items() if "{" + name + "}" in one.path)
        assert answer["detail"].replace(row_id, f"{row_id[:3]}absent") == unknown["detail"], one
    for one in GUARDED:
        if one.method == "get" and not one.names_a_row and access.RULES[one.id] == "read":
            text = one.send(world.client, theirs).text
            assert not [row_id for row_id in IDS.values() if row_id in text], one
            ours = one.send(world.client, world.key("ours")).text
            if one.id.startswith("list_") and one.id.removeprefix("list_") in (
                "ops",
                "searches",
                "pools",
                "imports",
                "bundles",
                "asks",
                "kernels",
            ):
                assert [row_id for row_id in IDS.values() if row_id in ours], one


def test_a_shared_teams_rows_are_read_and_not_changed(world: World) -> None:
    world.show("shared")
    theirs = world.key("theirs")
    for one in (each for each in GUARDED if each.names_a_row):
        answer = one.send(world.client, theirs)
        if access.RULES[one.id] == "steer":
            assert (
                "of team ours, expected one of this key's team, theirs" in problem(answer, 403, "forbidden")["detail"]
            )
        elif access.RULES[one.id] == "read":
            assert answer.status_code == 200, one
        else:
            assert answer.status_code in (202, 422), one
    assert world.client.get("/v1/searches/sr_seed", headers=bearer(world.key("ours"))).json()["state"] == "running"


def test_an_administrator_of_any_team_does_everything(world: World) -> None:
    admin = world.key("theirs", "admin")
    assert world.client.get("/v1/searches", headers=bearer(admin)).json()["items"][-1]["team"] == "ours"
    for one in sorted(GUARDED, key=_ending):
        assert one.send(world.client, admin).status_code not in (401, 403, 404), one


def test_rows_that_a_body_or_a_query_names_are_not_there_either(world: World) -> None:
    theirs, ours = world.key("theirs"), world.key("ours")
    bodies = ({"op_id": "op_seed"}, {"op": SEARCH["op"], "model": {"provider": "replay", "pool": "pl_0"}})
    for body, path in itertools.product(bodies, ("/v1/searches", "/v1/searches/estimate")):
        document = {"target": "cpu", "model": {"provider": "agent"}, **body}
        refused = problem(world.client.post(path, json=document, headers=bearer(theirs)), 422, "invalid-input")
        assert refused["errors"][0]["expected"].startswith("the id of a stored")
    assert world.client.get("/v1/ops/names", headers=bearer(theirs)).json() == []
    stored = world.client.post("/v1/ops/validate", content=ADD_RELU, headers=bearer(theirs) | YAML).json()
    assert (stored["valid"], stored["op_id"]) == (True, None)
    assert world.client.post("/v1/ops/validate", content=ADD_RELU, headers=bearer(ours) | YAML).json()["op_id"]
    # Their own search on the same op makes the op theirs as well, and no kernel of the other team is a seed.
    created = world.client.post("/v1/searches", json=SEARCH, headers=bearer(theirs))
    assert (created.status_code, created.json()["team"], created.json()["nodes"]) == (202, "theirs", 1)
    assert [op["id"] for op in world.client.get("/v1/ops", headers=bearer(theirs)).json()["items"]] == ["op_seed"]
    names = {
        (who, having): world.client.get(f"/v1/ops/names?having={having}", headers=bearer(key)).json()
        for who, key in (("theirs", theirs), ("ours", ours))
        for having in ("searches", "kernels")
    }
    op = world.client.get("/v1/ops/op_seed", headers=bearer(theirs)).json()["name"]
    assert names == {
        ("theirs", "searches"): [op],
        ("theirs", "kernels"): [],
        ("ours", "searches"): [op],
        ("ours", "kernels"): [op],
    }
    with world.db.writing() as session:
        shipped = session.get_one(KernelRow, "kn_0")
        values = {column.key: getattr(shipped, column.key) for column in KernelRow.__table__.columns}
        session.add(KernelRow(**values | {"id": "kn_theirs", "team": "theirs", "search_id": None, "node_id": None}))
    query = "/v1/kernels/kn_theirs/export?with=kn_0"
    problem(world.client.get(query, headers=bearer(theirs)), 404, "not-found")
    asked = world.client.post("/v1/kernels/reverify", json={}, headers=bearer(theirs)).json()
    assert [item["kernel_id"] for item in asked["items"]] == ["kn_theirs"]


def test_a_verdict_on_another_teams_job_is_one_on_no_job(world: World) -> None:
    world.show("shared")
    line = {
        "nonce": NONCE,
        "bundle_id": IDS["bundle_id"],
        "search_id": "sr_seed",
        "attempt_id": "at_3",
        "job_digest": "d" * 64,
    }
    said = {"unjudged": {"kind": "died", "reason": "none"}, "host": {"name": "here"}, "signature": "a" * 64}
    fields = {}
    for team in ("ours", "theirs"):
        headers = bearer(world.key(team)) | {"Content-Type": "application/x-ndjson"}
        report = world.client.post("/v1/bundles/merge", content=json.dumps(line | said) + "\n", headers=headers).json()
        fields[team] = report["lines"][0]["error"]["field"]
    assert fields == {"ours": "job_digest", "theirs": "nonce"}


def test_an_idempotency_key_is_of_its_team(world: World) -> None:
    first, second = (
        world.client.post("/v1/searches", json=SEARCH, headers=bearer(world.key(team)) | {"Idempotency-Key": "once"})
        for team in ("ours", "theirs")
    )
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["id"] != second.json()["id"]
    assert "Idempotent-Replayed" not in second.headers


def test_a_browsers_session_has_its_keys_team_and_scopes(world: World) -> None:
    signed_in = world.client.post(sessions.PATH, json={"key": world.key("theirs", "read")}).json()
    assert (signed_in["team"], signed_in["scopes"]) == ("theirs", ["read"])
    token = {CSRF_HEADER: signed_in["csrf_token"]}
    assert world.client.get("/v1/searches/sr_seed").status_code == 404
    assert problem(world.client.post("/v1/searches", json=SEARCH, headers=token), 403, "forbidden")
    world.show("shared")
    assert world.client.get("/v1/searches/sr_seed").status_code == 200
    assert problem(world.client.post("/v1/searches/sr_seed/cancel", headers=token), 403, "forbidden")


def test_without_keys_every_caller_does_everything(tmp_path: Path) -> None:
    app = application(settings_for(tmp_path))
    seed(app.state.service.db)
    with TestClient(app, base_url=BASE_URL) as client:
        session = client.get(sessions.PATH).json()
        assert (session["team"], session["scopes"]) == ("default", list(auth.SCOPES))
        assert client.post("/v1/searches/sr_seed/cancel").status_code == 200
        assert client.post("/v1/searches", json=SEARCH).json()["team"] == "default"


def test_the_command_line_and_the_tools_of_agents_are_refused_alike(world: World) -> None:
    world.show("shared")
    app: Any = world.client.app
    with served(app) as url, Client(url, world.key("theirs")) as client:
        assert client.search("sr_seed").team == "ours"
        with pytest.raises(ProblemError, match="of team ours"):
            client.change_search("sr_seed", "cancel")
        with pytest.raises(ProblemError, match="of team ours"):
            Answering(Desk(lambda: url, world.key("theirs"))).answer_ask("ak_0", "code")


YAML = {"Content-Type": "application/yaml"}


def test_what_changes_or_is_refused_is_in_the_audit_log_once(world: World) -> None:
    ours, theirs = world.key("ours"), world.key("theirs")
    client, headers = world.client, bearer(ours) | {"Idempotency-Key": "once"}
    created = [client.post("/v1/searches", json=SEARCH, headers=headers).json()["id"] for _ in range(2)]
    client.post("/v1/searches/sr_seed/pause", headers=bearer(ours))
    client.post("/v1/searches/sr_seed/resume", headers=bearer(theirs))
    world.show("shared")
    client.post("/v1/searches/sr_seed/resume", headers=bearer(theirs))
    client.post("/v1/searches/sr_seed/cancel", headers=bearer(world.key("ours", "read")))
    client.post("/v1/searches", json={}, headers=bearer(ours))  # a wrong body is no action
    client.get("/v1/searches/sr_seed", headers=bearer(theirs))
    problem(client.get("/v1/audit", headers=bearer(ours)), 403, "forbidden")
    admin = world.key("theirs", "admin")
    page = client.get("/v1/audit?limit=4", headers=bearer(admin)).json()
    rest = client.get("/v1/audit", params={"after": page["next"]}, headers=bearer(admin)).json()
    found = [(row["team"], row["action"], row["object_id"], row["result"]) for row in page["items"] + rest["items"]]
    assert found == [
        ("ours", "list_audit", None, "403"),
        ("ours", "cancel_search", "sr_seed", "403"),
        ("theirs", "resume_search", "sr_seed", "403"),
        ("theirs", "resume_search", "sr_seed", "404"),
        ("ours", "pause_search", "sr_seed", "done"),
        ("ours", "create_search", created[0], "unchanged"),
        ("ours", "create_search", created[0], "done"),
    ]
    assert {row["source"] for row in page["items"]} == {"testclient"}
    assert page["items"][0]["key_prefix"] == ours.split("_")[1]
    done = client.get("/v1/audit?object=sr_seed&result=done", headers=bearer(admin)).json()["items"]
    assert [row["action"] for row in done] == ["pause_search"]


def test_a_request_that_another_with_its_key_overtook_is_logged_with_the_search_that_exists(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = bearer(world.key("ours")) | {"Idempotency-Key": "once"}
    overtaking: list[str] = []

    def send() -> str:
        return str(world.client.post("/v1/searches", json=SEARCH, headers=headers).json()["id"])

    def check_late(*asked: Any) -> Any:
        monkeypatch.setattr(searches, "check_submission", check_submission)
        overtaking.append(send())
        return check_submission(*asked)

    monkeypatch.setattr(searches, "check_submission", check_late)
    assert send() == overtaking[0]
    log = world.client.get("/v1/audit", headers=bearer(world.key("ours", "admin"))).json()["items"]
    assert [(row["object_id"], row["result"]) for row in log] == [
        (overtaking[0], "unchanged"),
        (overtaking[0], "done"),
    ]


@pytest.mark.parametrize("path", ["/v1/searches", "/v1/ops"])
def test_a_request_that_is_sent_again_is_logged_as_unchanged_with_its_row(world: World, path: str) -> None:
    headers = bearer(world.key("ours")) | {"Idempotency-Key": "once"}
    body = SEARCH if path == "/v1/searches" else load_op(ADD_RELU).document()
    first, again = (world.client.post(path, json=body, headers=headers).json()["id"] for _ in range(2))
    assert first == again
    log = world.client.get("/v1/audit", headers=bearer(world.key("ours", "admin"))).json()["items"]
    assert [(row["object_id"], row["result"]) for row in log] == [(first, "unchanged"), (first, "done")]


def test_a_result_that_no_entry_has_is_refused(world: World) -> None:
    answer = world.client.get("/v1/audit?result=200", headers=bearer(world.key("ours", "admin")))
    (error,) = problem(answer, 422, "invalid-input")["errors"]
    assert (error["field"], error["found"]) == ("query.result", "200")
    assert all(result in error["expected"] for result in ("done", "unchanged", "403", "404", "409", "429"))


def test_a_change_that_fails_leaves_no_entry_that_says_it_was_done(world: World) -> None:
    with pytest.raises(RuntimeError), audit.acting(audit.Entry("here", "a change")), world.db.writing():
        raise RuntimeError
    entry = audit.Entry("here", "another")
    with audit.acting(entry), world.db.writing() as session:
        session.get_one(TeamRow, "ours").visibility = "shared"
    with audit.acting(entry), world.db.writing():
        pass
    with world.db.writing() as session:
        assert [row.action for row in audit.list_entries(session, limit=9)] == ["another"]
        session.add(AuditRow(created_at=time.time() - 2 * 86_400, action="old", source="here", result="done"))
    settings = settings_for(Path("/nowhere"), audit_days=1.5)
    Reconciler(settings, world.db, Celery("nowhere")).round()
    with world.db.reading() as session:
        assert [row.action for row in audit.list_entries(session, limit=9)] == ["another"]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}

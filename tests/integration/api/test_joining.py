"""Invitations of hosts, the exchange of their tokens, and workers that drain."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from tests.support.api_support import application, client_of, command_line, database, problem, seed, settings_for
from warpsmith.kernels_db.store.db import Database, expected_revision
from warpsmith.kernels_db.store.tables import AttemptRow, AuditRow, InviteRow, SearchRow, TeamRow, WorkerRow
from warpsmith.service.api import auth
from warpsmith.workers.queue.heartbeat import Heartbeat, Worker, beat

BROKER = "rediss://:broker-secret@broker.example:6380/0"
DATABASE = "postgresql://w:database-secret@db.example/warpsmith?sslmode=verify-full"
REACHABLE: dict[str, Any] = {"join_broker_url": BROKER, "join_database_url": DATABASE}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of a service that asks for keys and says how other hosts reach it; it sends an administrator's key."""
    with client_of(settings_for(tmp_path, auth="always", lease_s=45.0, **REACHABLE)) as found:
        found.headers["Authorization"] = f"Bearer {auth.create_key(database(found), 'operators', scopes=('admin',))}"
        yield found


def invite(client: TestClient, **body: Any) -> dict[str, Any]:
    answer = client.post("/v1/workers/invites", json={"name": "rack 7", **body})
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def join(client: TestClient, token: str, **changes: str) -> Any:
    """Join as a host does: without a key."""
    body = {"token": token, "host": "gpu7", "version": version("warpsmith"), "revision": expected_revision()}
    return client.post("/v1/workers/join", json=body | changes, headers={"Authorization": ""})


def entries(client: TestClient) -> list[tuple[str, str | None, str | None, str]]:
    """The audit log, oldest first: action, row, name, result."""
    found = client.get("/v1/audit").json()["items"]
    return [(row["action"], row["object_id"], row["key_name"], row["result"]) for row in reversed(found)]


def test_a_token_brings_a_host_what_its_workers_need_once(client: TestClient) -> None:
    made = invite(client)
    joined = join(client, made["token"])
    assert joined.status_code == 200, joined.text
    assert joined.headers["cache-control"] == "no-store"
    document = joined.json()
    assert (document["broker_url"], document["database_url"]) == (BROKER, DATABASE)
    assert document["settings"] == {"WARPSMITH_LEASE_S": "45.0", "WARPSMITH_JUDGE_JOB_TIMEOUT_S": "600.0"} | {
        "WARPSMITH_ATTACK_S": "0.0",
        "WARPSMITH_QUEUE_TYPE": "classic",
    }
    assert "1 of 1 hosts have used" in problem(join(client, made["token"]), 403, "invite-ended")["detail"]
    (listed,) = client.get("/v1/workers/invites").json()["items"]
    assert (listed["used"], listed["uses"], "token" in listed) == (1, 1, False)
    assert entries(client) == [
        ("create_invite", made["id"], "operators", "done"),
        ("join_host", made["id"], "gpu7", "done"),
        ("join_host", made["id"], "gpu7", "403"),
    ]


def test_the_database_holds_a_digest_of_the_token_and_nothing_else(client: TestClient) -> None:
    made = invite(client)
    secret = made["token"].split("_")[2]
    with database(client).reading() as session:
        row = session.get_one(InviteRow, made["id"])
        stored = {column.key: getattr(row, column.key) for column in InviteRow.__table__.columns}
        audited = [vars(entry) for entry in session.query(AuditRow)]
    assert secret not in str(stored) + str(audited)
    assert made["id"] == f"iv_{made['token'].split('_')[1]}"


def test_a_token_that_was_revoked_or_has_expired_brings_nothing(client: TestClient) -> None:
    revoked, expired = invite(client, uses=3), invite(client)
    assert join(client, revoked["token"]).status_code == 200
    assert client.delete(f"/v1/workers/invites/{revoked['id']}").json()["revoked_at"]
    assert "revoked" in problem(join(client, revoked["token"]), 403, "invite-ended")["detail"]
    with database(client).writing() as session:
        session.execute(update(InviteRow).where(InviteRow.id == expired["id"]).values(expires_at=time.time() - 1))
    assert "expired" in problem(join(client, expired["token"]), 403, "invite-ended")["detail"]
    problem(client.delete("/v1/workers/invites/iv_absent"), 404, "not-found")


def test_a_token_for_several_hosts_is_for_no_more(client: TestClient) -> None:
    token = invite(client, uses=2)["token"]
    assert [join(client, token).status_code for _ in range(3)] == [200, 200, 403]


@pytest.mark.parametrize(
    "changed", ["wsj_{id}_{other}", "wsk_{id}_{secret}", "wsj_absent_{secret}", "{secret}", "wsj__"]
)
def test_an_unknown_token_is_not_said_to_be_nearly_right(client: TestClient, changed: str) -> None:
    _, number, secret = invite(client)["token"].split("_")
    wrong = changed.format(id=number, secret=secret, other="0f" * 32)
    said = problem(join(client, wrong), 401, "key-required")["detail"]
    assert said == "token: found an unknown one, expected that of an invitation (warpsmith workers invite)"
    assert [action for action, *_ in entries(client)] == ["create_invite"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"version": "99.0.0"}, "found 99.0.0 on this host, expected the service's"),
        ({"revision": "0001"}, "for the database's revision 0001"),
    ],
)
def test_another_version_is_refused_and_uses_nothing(client: TestClient, changes: dict[str, str], says: str) -> None:
    made = invite(client)
    assert says in problem(join(client, made["token"], **changes), 409, "wrong-state")["detail"]
    assert entries(client)[-1] == ("join_host", made["id"], "gpu7", "409")
    assert join(client, made["token"]).status_code == 200


@pytest.mark.parametrize("host", ["", "a b", "x" * 65, "-a", "a\n", "@b"])
def test_a_hosts_name_is_one_that_lists_can_show(client: TestClient, host: str) -> None:
    problem(join(client, invite(client)["token"], host=host), 422, "invalid-input")


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, 'WARPSMITH_JOIN_BROKER_URL: found "not set"'),
        ({"join_broker_url": BROKER}, "WARPSMITH_JOIN_DATABASE_URL"),
        (REACHABLE | {"join_broker_url": "redis://:s3cret@127.0.0.1/0"}, "redis://:***@127.0.0.1/0"),
        (REACHABLE | {"join_broker_url": "redis+socket:///run/redis.sock"}, "an address that other hosts reach"),
        (REACHABLE | {"join_broker_url": "amqp://u:s3cret@localhost//"}, "amqp://u:***@localhost//"),
        (REACHABLE | {"join_database_url": "postgresql://w:s3cret@[::1]/w"}, "postgresql://w:***@[::1]/w"),
        (REACHABLE | {"join_database_url": "postgresql://w:s3cret@0.0.0.0/w"}, "0.0.0.0"),
        (REACHABLE | {"join_database_url": "sqlite:////srv/w.db"}, "sqlite:////srv/w.db"),
        (REACHABLE | {"join_database_url": "s3cret"}, "text that is no URL"),
        (REACHABLE | {"join_broker_url": "amqp://u:s3cret@h//;amqp://u:s3cret@127.0.0.1//"}, "amqp://u:***@h//;amqp"),
        (REACHABLE | {"join_database_url": "postgresql://w@/w?host=h&host=localhost:5433&password=s3cret"}, ":***@/w"),
    ],
)
def test_a_service_that_other_hosts_cannot_reach_invites_none(
    tmp_path: Path, settings: dict[str, Any], says: str
) -> None:
    with client_of(settings_for(tmp_path, **settings)) as local:
        answer = local.post("/v1/workers/invites", json={"name": "rack 7"})
        document = problem(answer, 422, "missing-setting")
        error = document["errors"][0]
        assert says in f'{error["field"]}: found "{error["found"]}", expected {error["expected"]}'
        assert "s3cret" not in answer.text


def test_several_nodes_and_hosts_are_handed_out_whole(tmp_path: Path) -> None:
    broker = "amqp://u:s3cret@h1.example//;amqp://u:s3cret@h2.example//"
    several = {
        "join_broker_url": broker,
        "join_database_url": "postgresql://w:s3cret@/w?host=h1.example:5432&host=h2.example:5433",
    }
    settings = settings_for(tmp_path, broker_url="amqp://u:s3cret@127.0.0.1:9//", queue_type="quorum", **several)
    with client_of(settings) as local:
        document = join(local, invite(local)["token"]).json()
    assert (document["broker_url"], document["database_url"]) == tuple(several.values())
    assert document["settings"]["WARPSMITH_QUEUE_TYPE"] == "quorum"


def test_only_administrators_invite_and_drain(client: TestClient) -> None:
    plain = {"Authorization": f"Bearer {auth.create_key(database(client), 'someone')}"}
    made = invite(client)
    for method, path in (
        ("POST", "/v1/workers/invites"),
        ("GET", "/v1/workers/invites"),
        ("DELETE", f"/v1/workers/invites/{made['id']}"),
        ("POST", "/v1/workers/drain"),
    ):
        problem(client.request(method, path, headers=plain, json={"name": "here"}), 403, "forbidden")
    assert join(client, made["token"]).status_code == 200


def report(db: Database, name: str, **values: Any) -> None:
    """A worker that has just reported."""
    now = time.time()
    row = {"role": "judge", "target": "cuda:sm_90", "facts": {}, "started_at": now, "seen_at": now} | values
    with db.writing() as session:
        session.merge(WorkerRow(name=name, **row))


def states(client: TestClient) -> dict[str, str]:
    return {worker["name"]: worker["state"] for worker in client.get("/v1/workers").json()["items"]}


def test_a_host_or_a_worker_drains_and_serves_nothing_from_then_on(client: TestClient) -> None:
    db = database(client)
    seed(db)
    with db.writing() as session:
        session.get_one(SearchRow, "sr_seed").target = "cuda:sm_90"
        session.execute(update(AttemptRow).values(state="succeeded"))
        session.get_one(AttemptRow, "at_3").state = "pending"
    for name in ("judge-gpu0@gpu7", "judge-gpu1@gpu7", "judge-gpu0@gpu77"):
        report(db, name)
    report(db, "reconciler@gpu7", role="reconciler", target=None)
    assert client.post("/v1/workers/drain", json={"name": "judge-gpu1@gpu7"}).json() == {"names": ["judge-gpu1@gpu7"]}
    drained = client.post("/v1/workers/drain", json={"name": "gpu7"}).json()["names"]
    assert drained == ["judge-gpu0@gpu7", "judge-gpu1@gpu7"]
    assert states(client) == {
        "judge-gpu0@gpu7": "draining",
        "judge-gpu1@gpu7": "draining",
        "judge-gpu0@gpu77": "idle",
        "reconciler@gpu7": "idle",
        "model@here": "idle",
        "judge@here": "silent",
    }
    serving = {one["target"]: one["live_workers"] for one in client.get("/v1/options").json()["targets"]}
    assert serving["cuda:sm_90"] == 1
    client.post("/v1/workers/drain", json={"name": "gpu77"})
    waits = client.get("/v1/searches/sr_seed").json()["waiting_for"]
    assert [one["what"] for one in waits if "cuda:sm_90" in one["detail"]] == ["worker"]
    queue = next(one for one in client.get("/v1/system").json()["queues"] if one["target"] == "cuda:sm_90")
    assert queue["live_workers"] == 0
    report(db, "judge-gpu0@gpu7", seen_at=time.time() - 60)
    assert states(client)["judge-gpu0@gpu7"] == "drained"
    for absent in ("gpu", "judge-gpu0@gpu7", "gpu%"):
        problem(client.post("/v1/workers/drain", json={"name": absent}), 404, "not-found")
    assert ("drain_workers", None, "operators", "404") in entries(client)


def test_a_worker_shows_what_it_has_in_hand_to_those_who_may_read_it(client: TestClient) -> None:
    db = database(client)
    seed(db)
    report(db, "judge-gpu0@gpu7", facts={"device": {"name": "NVIDIA H100", "memory_bytes": 2**36}, "versions": {}})
    with db.writing() as session:
        session.add_all(TeamRow(name=name, visibility="private", created_at=0.0) for name in ("ours", "theirs"))
        session.get_one(SearchRow, "sr_seed").team = "ours"
        attempt = session.query(AttemptRow).filter_by(node_id="nd_good").first()
        assert attempt is not None
        attempt.kind, attempt.state, attempt.owner = "verify", "running", "judge-gpu0@gpu7:17:abcdef"
    seen = {}
    for team in ("ours", "theirs"):
        key = {"Authorization": f"Bearer {auth.create_key(db, team, team)}"}
        workers = {one["name"]: one for one in client.get("/v1/workers", headers=key).json()["items"]}
        seen[team] = workers["judge-gpu0@gpu7"]
    for worker in seen.values():
        assert (worker["state"], worker["running"], worker["host"]) == ("working", 1, "gpu7")
        assert worker["device"] == {"name": "NVIDIA H100", "memory_bytes": 2**36}
    assert seen["ours"]["steps"] == [{"kind": "verify", "search_id": "sr_seed", "node_id": "nd_good"}]
    assert seen["theirs"]["steps"] == []


def test_a_worker_learns_once_that_it_is_to_drain_and_its_successor_does_not(client: TestClient) -> None:
    db = database(client)
    first = Worker("judge@gpu7", "judge", "cpu:x86_64", started_at=time.time() - 10)
    told: list[str] = []
    heartbeat = Heartbeat(db, first, interval_s=0.02, on_drain=lambda: told.append(first.name))
    assert not beat(db, first, {}, time.time())
    heartbeat.start()
    client.post("/v1/workers/drain", json={"name": "gpu7"})
    deadline = time.monotonic() + 20
    while not told and time.monotonic() < deadline:
        time.sleep(0.01)
    heartbeat.stop()
    assert told == ["judge@gpu7"]
    assert beat(db, first, {}, time.time())
    assert not beat(db, Worker("judge@gpu7", "judge", "cpu:x86_64"), {}, time.time())
    assert states(client)["judge@gpu7"] == "idle"


def test_the_commands_do_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = application(settings_for(tmp_path, **REACHABLE))
    db: Database = app.state.service.db
    compiles = {"cuda:sm_90": {"cuda": [], "triton": [], "cute": ["CuTe DSL is not installed"]}}
    device = {"name": "NVIDIA H100", "memory_bytes": 80 * 2**30}
    report(db, "judge-gpu0@gpu7", facts={"device": device, "compiles": compiles})
    with command_line(app, capsys, monkeypatch) as said:
        code, token, hint = said("workers", "invite", "gpu7", "--uses", "2", "--expires", "10m")
        assert (code, token[:4]) == (0, "wsj_")
        assert "warpsmith worker --join http://127.0.0.1" in hint
        assert token.strip() not in hint
        (listed,) = json.loads(said("workers", "invites", "--json")[1])
        assert round(listed["expires_at"] - listed["created_at"]) == 600
        assert "used 0 of 2" in said("workers", "invites")[1]
        assert said("workers", "revoke", listed["id"])[:2] == (0, "revoked\n")
        assert "revoked" in said("workers", "invites")[1]
        assert "NVIDIA H100, 80 GiB  compiles for cuda:sm_90: cuda, triton\n" in said("workers", "list")[1]
        assert said("workers", "drain", "gpu7")[:2] == (0, "judge-gpu0@gpu7 drains\n")
        assert said("workers", "drain", "gpu8")[0] == 1
        assert said("workers", "invite", "gpu7", "--expires", "soon")[0] == 2

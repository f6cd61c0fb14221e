"""Ops, pools, searches, asks and kernels over REST, on both databases."""

from __future__ import annotations

import io
import json
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select

from tests.services import on_both_databases
from tests.support.api_support import (
    ADD_RELU,
    CANDIDATE,
    SEARCH,
    SPEC,
    add_events,
    client_of,
    database,
    fields,
    imported,
    problem,
    read_imports,
    seed,
    settings_for,
)
from warpsmith.kernels_db.spec.op import Op, load_op, parse_op
from warpsmith.kernels_db.store.pool_file import Pool, PoolHeader, PoolReply, dump_pool
from warpsmith.kernels_db.store.tables import AskRow, AttemptRow, EventRow, KernelRow, NodeRow, SearchRow
from warpsmith.workers import steps
from warpsmith.workers.settings import Settings

YAML = {"Content-Type": "application/yaml"}
NDJSON = {"Content-Type": "application/x-ndjson"}


def pool(**changes: Any) -> str:
    """A pool of one reply for `ADD_RELU`."""
    header: dict[str, Any] = {
        "op": "add_relu",
        "op_digest": load_op(ADD_RELU).semantic_digest,
        "target": "cpu:x86_64",
        "language": "cpp",
        "answered_by": "a test",
        "recorded_at": 1.0,
        "warpsmith_version": "0.1.0",
        "policy": {"name": "idea_beam", "rounds": 3},
        "budget": {"candidates": 7},
    }
    reply = PoolReply(
        request="a" * 64,
        ordinal=0,
        kind="ideate",
        summary="",
        reply="...",
        finish_reason=None,
        model=None,
        prompt_tokens=None,
        completion_tokens=None,
        latency_s=None,
    )
    return dump_pool(Pool(PoolHeader(**{**header, **changes}), (reply,)))


def stored_pool(client: TestClient, **changes: Any) -> str:
    document = imported(client, client.post("/v1/pools", content=pool(**changes), headers=NDJSON))
    return str(document["result"]["pool_id"])


def test_an_op_is_stored_once_whether_json_or_yaml(client: TestClient) -> None:
    first = client.post("/v1/ops", json=SPEC)
    assert first.status_code == 201
    op = first.json()
    assert first.headers["location"] == f"/v1/ops/{op['id']}"
    again = client.post("/v1/ops", content=ADD_RELU, headers=YAML)
    assert (again.status_code, again.json()) == (200, op)
    assert client.get(f"/v1/ops/{op['id']}").json() == op
    assert load_op(json.dumps(op["spec"])) == load_op(ADD_RELU)
    assert [item["id"] for item in client.get("/v1/ops", params={"name": "add_relu"}).json()["items"]] == [op["id"]]
    assert client.get("/v1/ops", params={"name": "other"}).json()["items"] == []


def test_a_bad_spec_names_every_bad_field(local: TestClient) -> None:
    spec = {**SPEC, "inputs": [{**SPEC["inputs"][0], "dtype": "float31"}, SPEC["inputs"][1]], "math": "exact"}
    document = problem(local.post("/v1/ops", json=spec), 422, "invalid-spec")
    assert fields(document) == ["inputs[0].dtype", "math"]
    assert document["errors"][0]["found"] == "float31"
    document = problem(local.post("/v1/searches", json={**SEARCH, "op": spec}), 422, "invalid-spec")
    assert fields(document) == ["op.inputs[0].dtype", "op.math"]


def test_a_search_is_stored_and_begun(client: TestClient) -> None:
    response = client.post("/v1/searches", json=SEARCH)
    assert response.status_code == 202, response.text
    search = response.json()
    assert response.headers["location"] == f"/v1/searches/{search['id']}"
    assert search["target"].startswith("cpu:")
    assert search["language"] == "cpp"
    assert search["budget"] == {"candidates": 4}
    assert search["policy"]["name"] == "idea_beam"
    now = client.get(f"/v1/searches/{search['id']}").json()
    assert now["state"] == "running"
    assert now["nodes"] == 1
    assert now["best"] is None
    assert [wait["what"] for wait in now["waiting_for"]] == ["worker"]
    tree = client.get(f"/v1/searches/{search['id']}/tree").json()
    assert [(node["seq"], node["parent_id"], node["state"]) for node in tree["nodes"]] == [(0, None, "judging")]
    listed = client.get("/v1/searches", params={"op": "add_relu", "state": "running", "target": "cpu"}).json()["items"]
    assert [item["id"] for item in listed] == [search["id"]]
    by_id = client.post("/v1/searches", json={**SEARCH, "op": None, "op_id": search["op_id"]})
    for named in (search["op_id"], "add_relu"):
        by_name = client.post("/v1/searches/estimate", json={**SEARCH, "op": named})
        assert by_name.status_code == 200, by_name.text
    assert by_id.status_code == 202
    assert by_id.json()["op_id"] == search["op_id"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"op": None}, "op"),
        ({"op_id": "op_0"}, "op"),
        ({"op": "op_0"}, "op"),
        ({"op": "no_such_op"}, "op"),
        ({"op": "x\u007f"}, "op"),
        ({"op": None, "op_id": "op_0"}, "op_id"),
        ({"op": None, "op_id": "x\u007f"}, "op_id"),
        ({"target": "tpu:v5"}, "target"),
        ({"target": "cuda"}, "target"),
        ({"language": "cuda"}, "language"),
        ({"language": "fortran"}, "language"),
        ({"target": "cuda:sm_90", "language": "cpp"}, "language"),
        ({"budget": {"candidates": 0}}, "budget.candidates"),
        ({"budget": {"candidates": -1}}, "budget.candidates"),
        ({"budget": {"wall_clock_s": 0}}, "budget.wall_clock_s"),
        ({"budget": {"minutes": 3}}, "budget.minutes"),
        ({"policy": {"name": "luck"}}, "policy.name"),
        ({"policy": {"name": "idea_beam", "beam": 0}}, "policy.beam"),
        ({"policy": {"name": "idea_beam", "width": 3}}, "policy.width"),
        ({"model": {"provider": "oracle"}}, "model.provider"),
        ({"model": {"provider": "replay"}}, "model.pool"),
        ({"model": {"provider": "replay", "pool": "pl_0"}}, "model.pool"),
        ({"model": {"provider": "openai", "base_url": "file:///etc/passwd"}}, "model.base_url"),
        ({"model": {}}, "model.provider"),
        ({"model": "gpt"}, "model"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_search_that_cannot_run_is_refused_by_field(local: TestClient, change: dict[str, Any], field: str) -> None:
    document = problem(local.post("/v1/searches", json={**SEARCH, **change}), 422, "invalid-input")
    assert fields(document) == [field]
    assert document["errors"][0]["expected"]
    assert local.get("/v1/searches").json()["items"] == []


def test_openai_needs_a_key_unless_the_endpoint_does_not(local: TestClient, tmp_path: Path) -> None:
    asked = {**SEARCH, "model": {"provider": "openai"}}
    document = problem(local.post("/v1/searches", json=asked), 422, "missing-setting")
    assert fields(document) == ["WARPSMITH_OPENAI_API_KEY"]
    own = {**SEARCH, "model": {"provider": "openai", "base_url": "http://127.0.0.1:9/v1"}}
    assert local.post("/v1/searches", json=own).status_code == 202
    with client_of(settings_for(tmp_path / "workers", openai_key_at_workers=True)) as client:
        assert client.post("/v1/searches", json=asked).status_code == 202
    with client_of(settings_for(tmp_path / "key", openai_api_key="sk-test")) as client:
        response = client.post("/v1/searches", json=asked)
        assert response.status_code == 202
        assert "sk-test" not in response.text


def test_a_replayed_search_takes_policy_budget_and_language_from_its_pool(client: TestClient) -> None:
    replay = {"op": SPEC, "target": "cpu", "model": {"provider": "replay", "pool": stored_pool(client)}}
    search = client.post("/v1/searches", json=replay).json()
    assert (search["policy"]["rounds"], search["budget"], search["language"]) == (3, {"candidates": 7}, "cpp")
    search = client.post("/v1/searches", json={**replay, "budget": {"candidates": 2}}).json()
    assert search["budget"] == {"candidates": 2}


@pytest.mark.parametrize("change", [{"op_digest": "0" * 64}, {"target": "cuda:sm_90", "language": "triton"}])
def test_a_pool_of_something_else_is_refused(local: TestClient, change: dict[str, Any]) -> None:
    body = {**SEARCH, "model": {"provider": "replay", "pool": stored_pool(local, **change)}}
    document = problem(local.post("/v1/searches", json=body), 422, "invalid-pool")
    assert fields(document) == ["model.pool"]


def test_pools_are_stored_once_and_bad_ones_name_the_line(client: TestClient) -> None:
    first, again = (imported(client, client.post("/v1/pools", content=pool(), headers=NDJSON)) for _ in range(2))
    assert (first["state"], first["result"]["created"], first["problem"]) == ("done", True, None)
    pool_id = first["result"]["pool_id"]
    assert again["result"] == {**first["result"], "created": False}
    assert client.get(f"/v1/pools/{pool_id}").json()["replies"] == 1
    assert [item["id"] for item in client.get("/v1/pools", params={"op": "add_relu"}).json()["items"]] == [pool_id]
    broken = pool().replace('"ordinal": 0', '"ordinal": -1')
    failed = imported(client, client.post("/v1/pools", content=broken, headers=NDJSON))
    assert (failed["state"], failed["result"]) == ("failed", None)
    assert failed["problem"]["type"] == "urn:warpsmith:problem:invalid-pool"
    assert fields(failed["problem"]) == ["line 2, ordinal"]
    problem(client.post("/v1/pools", content=b"\xff", headers=NDJSON), 400, "malformed-body")


@pytest.mark.parametrize(
    ("path", "body", "other"),
    [
        ("/v1/searches", json.dumps(SEARCH), json.dumps({**SEARCH, "budget": {"candidates": 5}})),
        ("/v1/ops", json.dumps(SPEC), json.dumps({**SPEC, "name": "other"})),
        ("/v1/pools", pool(), pool(answered_by="another")),
    ],
)
def test_an_idempotency_key_does_a_thing_once(client: TestClient, path: str, body: str, other: str) -> None:
    headers = {
        "Content-Type": "application/x-ndjson" if path == "/v1/pools" else "application/json",
        "Idempotency-Key": "k1",
    }
    first = client.post(path, content=body, headers=headers)
    again = client.post(path, content=body, headers=headers)
    assert first.status_code == again.status_code
    assert first.json() == again.json()
    assert first.headers["location"] == again.headers["location"]
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    problem(client.post(path, content=other, headers=headers), 422, "idempotency-key-reused")
    read_imports(database(client))
    assert len(client.get(path).json()["items"]) == 1
    headers["Idempotency-Key"] = "k2"
    assert client.post(path, content=other, headers=headers).status_code in (201, 202)


@on_both_databases("db")
def test_of_many_sendings_at_once_one_creates(client: TestClient) -> None:
    headers = {"Idempotency-Key": "k"}

    def send(_: int) -> tuple[int, str]:
        response = client.post("/v1/searches", json=SEARCH, headers=headers)
        return response.status_code, response.json()["id"]

    with ThreadPoolExecutor(8) as threads:
        answers = set(threads.map(send, range(16)))
    assert len(answers) == 1
    with database(client).reading() as session:
        assert session.scalar(select(func.count()).select_from(SearchRow)) == 1


def test_a_refused_request_does_not_use_up_its_key(local: TestClient) -> None:
    headers = {"Idempotency-Key": "k"}
    problem(local.post("/v1/searches", json={**SEARCH, "target": "tpu"}, headers=headers), 422, "invalid-input")
    assert local.post("/v1/searches", json=SEARCH, headers=headers).status_code == 202


@pytest.mark.parametrize("key", ["", "with space", "\u00e9", "x" * 256])
def test_an_unusable_key_is_refused(local: TestClient, key: str) -> None:
    response = local.post("/v1/searches", json=SEARCH, headers={b"Idempotency-Key": key.encode()})
    assert fields(problem(response, 422, "invalid-input")) == ["header.Idempotency-Key"]


@on_both_databases("db")
def test_lists_page_by_key(client: TestClient) -> None:
    made = [client.post("/v1/searches", json=SEARCH).json()["id"] for _ in range(5)]
    seen: list[str] = []
    after: str | None = None
    while True:
        parameters = {"limit": "2", **({"after": after} if after else {})}
        listed = client.get("/v1/searches", params=parameters).json()
        seen += [item["id"] for item in listed["items"]]
        after = listed["next"]
        if after is None:
            break
    assert seen == made[::-1]
    document = problem(client.get("/v1/searches", params={"after": "nonsense"}), 422, "invalid-input")
    assert fields(document) == ["query.after"]
    for limit in ("0", "201", "x"):
        problem(client.get("/v1/searches", params={"limit": limit}), 422, "invalid-input")


def test_pause_resume_cancel_and_what_they_refuse(client: TestClient) -> None:
    search_id = client.post("/v1/searches", json=SEARCH).json()["id"]
    url = f"/v1/searches/{search_id}"
    problem(client.post(f"{url}/resume"), 409, "wrong-state")
    paused = client.post(f"{url}/pause").json()
    assert (paused["state"], paused["reason"]) == ("paused", "on request")
    assert [wait["what"] for wait in paused["waiting_for"]] == ["person"]
    assert client.post(f"{url}/resume").json()["state"] == "running"
    cancelled = client.post(f"{url}/cancel").json()
    assert (cancelled["state"], cancelled["waiting_for"]) == ("cancelled", [])
    document = problem(client.post(f"{url}/pause"), 409, "wrong-state")
    assert "found cancelled" in document["detail"]
    problem(client.post(f"{url}/resume"), 409, "wrong-state")
    for action in ("pause", "resume", "cancel"):
        problem(client.post(f"/v1/searches/sr_0/{action}"), 404, "not-found")
    types = [event["type"] for event in client.get(f"{url}/events", params={"format": "json"}).json()["items"]]
    assert types[0] == "search.created"
    assert types[-1] == "search.cancelled"


def test_a_kernel_that_a_later_search_found_again_stays_with_both(client: TestClient) -> None:
    db = database(client)
    search_id = seed(db)
    with db.writing() as session:
        kernel = session.get_one(KernelRow, "kn_0")
        kernel.search_id = kernel.node_id = None  # a later search's by now
        session.get_one(NodeRow, "nd_good").verification = "passed"
        kept = {"seq": 1, "kernel_id": "kn_0"}
        row = EventRow(search_id=search_id, node_id="nd_good", type="kernel.kept", payload=kept, created_at=time.time())
        session.add(row)
    add_events(db, search_id, "search.finished")
    assert client.get(f"/v1/searches/{search_id}").json()["kernels"] == ["kn_0"]
    assert client.get("/v1/nodes/nd_good").json()["kernel_id"] == "kn_0"
    assert client.get("/v1/nodes/nd_bad").json()["kernel_id"] is None


def test_a_search_shows_its_progress(client: TestClient) -> None:
    search = client.get(f"/v1/searches/{seed(database(client))}").json()
    assert search["round"] == 2
    assert search["nodes_by_state"] == {"judged": 3}
    assert search["nodes_by_verdict"] == {"accepted": 1, "rejected": 1}
    assert search["spend"] == {
        "candidates": 2,
        "model_calls": 3,
        "tokens": 1200,
        "cost_usd": 0.25,
        "wall_clock_s": 61.0,
        "gpu_seconds": 0.0,
        "try_seconds": 0.0,
        "sweep_seconds": 0.0,
    }
    assert search["baselines"][0]["time_us"] == {"eager": 150.0, "compile": 100.0}
    best = search["best"]
    assert (best["node_id"], best["score"], best["ci95"]) == ("nd_good", 2.0, [1.9, 2.1])
    assert best["speedup"] == pytest.approx({"eager": 3.0, "compile": 2.0})
    assert search["kernels"] == ["kn_0"]
    assert [(wait["what"], wait["count"]) for wait in search["waiting_for"]] == [
        ("answer", 1),
        ("model", 1),
        ("worker", 1),
    ]


@on_both_databases("db")
def test_the_tree_pages_by_seq(client: TestClient) -> None:
    url = f"/v1/searches/{seed(database(client))}/tree"
    page = client.get(url, params={"limit": 2}).json()
    assert [node["seq"] for node in page["nodes"]] == [0, 1]
    assert [node["best"] for node in page["nodes"]] == [False, True]
    page = client.get(url, params={"limit": 2, "after_seq": page["next_after_seq"]}).json()
    assert [(node["seq"], node["parent_id"]) for node in page["nodes"]] == [(2, "nd_good")]
    assert page["next_after_seq"] is None


@on_both_databases("db")
def test_a_node_shows_everything_that_is_known_of_it(client: TestClient) -> None:
    seed(database(client))
    node = client.get("/v1/nodes/nd_bad").json()
    assert node["idea"]["technique"] == "fuse"
    assert [attempt["kind"] for attempt in node["attempts"]] == ["code", "judge"]
    assert node["model_calls"][0]["messages"][0]["role"] == "user"
    assert node["verdicts"] == []
    assert client.get("/v1/nodes/nd_good").json()["verdicts"][0]["document"]["workloads"][0]["id"] == "large"


def test_the_pool_of_a_search_can_be_stored_again(client: TestClient) -> None:
    seed(database(client))
    response = client.get("/v1/searches/sr_seed/pool")
    assert response.headers["content-type"].startswith("application/x-ndjson")
    assert response.headers["content-disposition"].startswith("attachment")
    sent = client.post("/v1/pools", content=response.content, headers=NDJSON)
    stored = client.get(f"/v1/pools/{imported(client, sent)['result']['pool_id']}").json()
    assert (stored["replies"], stored["header"]["op"]) == (1, "add_relu")


def test_an_ask_is_answered_once(client: TestClient) -> None:
    seed(database(client))
    with database(client).writing() as session:
        node = session.get_one(NodeRow, "nd_bad")
        node.state = "coding"
        ask = session.get_one(AskRow, "ak_0")
        assert ask.state == "open"
    listed = client.get("/v1/asks", params={"state": "open", "search_id": "sr_seed"}).json()["items"]
    assert [item["id"] for item in listed] == ["ak_0"]
    assert client.get("/v1/asks/ak_0").json()["messages"] == [{"role": "user", "content": "write code"}]
    answered = client.post("/v1/asks/ak_0/answer", json={"reply": "code", "answered_by": "a test"})
    assert answered.status_code == 200, answered.text
    assert (answered.json()["state"], answered.json()["reply"]) == ("answered", "code")
    again = client.post("/v1/asks/ak_0/answer", json={"reply": "code", "answered_by": "another"})
    assert again.status_code == 200, "the same answer again is no error"
    assert again.json() == answered.json()
    document = problem(client.post("/v1/asks/ak_0/answer", json={"reply": "more"}), 409, "ask-closed")
    assert "found answered" in document["detail"]
    assert document["answered_by"] == "a test"
    assert document["answered_at"] == answered.json()["answered_at"]
    assert "replaced_by" not in document
    problem(client.post("/v1/asks/ak_1/answer", json={"reply": "x"}), 404, "not-found")
    assert fields(problem(client.post("/v1/asks/ak_0/answer", json={"reply": ""}), 422, "invalid-input")) == ["reply"]
    assert client.get("/v1/asks", params={"state": "open"}).json()["items"] == []


def test_an_expired_ask_names_the_one_that_replaced_it(client: TestClient) -> None:
    seed(database(client))
    with database(client).writing() as session:
        session.get_one(NodeRow, "nd_bad").state = "coding"
        session.get_one(AttemptRow, "at_2").state = "waiting"
        session.get_one(AskRow, "ak_0").expires_at = 1.0
    steps.reconcile(database(client), time.time(), Settings(_env_file=None))
    [opened] = client.get("/v1/asks", params={"state": "open"}).json()["items"]
    [expired] = client.get("/v1/asks", params={"state": "expired"}).json()["items"]
    assert (opened["issue"], expired["issue"], expired["id"]) == (1, 0, "ak_0")
    assert opened["expires_at"] == pytest.approx(time.time() + 7200, abs=60)
    old, new = (client.get(f"/v1/asks/{item['id']}").json() for item in (expired, opened))
    assert (old["replaced_by"], new["replaced_by"]) == (new["id"], None)
    assert old["messages"] == new["messages"]
    document = problem(client.post("/v1/asks/ak_0/answer", json={"reply": "code"}), 409, "ask-closed")
    assert document["replaced_by"] == new["id"]
    assert client.post(f"/v1/asks/{document['replaced_by']}/answer", json={"reply": "code"}).status_code == 200
    document = problem(client.post("/v1/asks/ak_0/answer", json={"reply": "code"}), 409, "ask-closed")
    assert (document["answered_by"], "replaced_by" in document) == ("unnamed", False)


def test_a_kernel_is_exported_as_a_package(client: TestClient) -> None:
    seed(database(client))
    assert [kernel["id"] for kernel in client.get("/v1/kernels", params={"op": "add_relu"}).json()["items"]] == ["kn_0"]
    assert client.get("/v1/kernels", params={"target": "cuda:sm_90"}).json()["items"] == []
    assert client.get("/v1/kernels/kn_0").json()["source"] == CANDIDATE
    response = client.get("/v1/kernels/kn_0/export")
    assert response.headers["content-type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
    root = names[0].split("/")[0]
    assert root.startswith("warpsmith_add_relu_")
    assert f'filename="{root}.zip"' in response.headers["content-disposition"]
    assert f"{root}/pyproject.toml" in names
    assert all(name.startswith(f"{root}/") and ".." not in name for name in names)
    assert client.get("/v1/kernels/kn_0/export").content == response.content


def test_what_the_engine_does_is_seen_at_once(client: TestClient) -> None:
    search_id = client.post("/v1/searches", json=SEARCH).json()["id"]
    steps.cancel(database(client), search_id, time.time())
    assert client.get(f"/v1/searches/{search_id}").json()["state"] == "cancelled"


def test_workers_are_alive_while_they_report(client: TestClient) -> None:
    seed(database(client))
    workers = client.get("/v1/workers").json()["items"]
    assert {worker["name"]: worker["alive"] for worker in workers} == {"model@here": True, "judge@here": False}


def test_an_op_goes_by_the_name_of_an_example_until_one_is_stored(client: TestClient) -> None:
    named = {**SEARCH, "op": "softmax"}
    submitted = client.post("/v1/searches", json=named)
    assert submitted.status_code == 202, submitted.text
    assert submitted.json()["op_name"] == "softmax"
    near = problem(client.post("/v1/searches", json={**SEARCH, "op": "soft-max"}), 422, "invalid-input")
    assert near["errors"][0]["expected"].endswith("; did you mean softmax?")
    spec = client.get(f"/v1/ops/{submitted.json()['op_id']}").json()["spec"]
    assert client.post("/v1/ops", json={**spec, "description": "another"}).status_code == 201
    several = problem(client.post("/v1/searches", json=named), 422, "invalid-input")
    assert several["errors"][0]["expected"].count("op_") == 2


@pytest.mark.parametrize("found", [5, "", "x" * 129, [], True])
def test_an_op_that_is_none_is_told_once_by_its_own_field(client: TestClient, found: Any) -> None:
    refused = problem(client.post("/v1/searches", json={**SEARCH, "op": found}), 422, "invalid-input")
    [error] = refused["errors"]
    assert (error["field"], error["expected"]) == ("op", "a spec, or the id or name of an op")


def test_a_spec_is_parsed_once_for_searches_of_one_op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def count(document: Any) -> Op:
        parsed.append(document["name"])
        return parse_op(document)

    monkeypatch.setattr("warpsmith.service.api.submission.parse_op", count)
    mine = SPEC | {"name": "parsed_once"}
    with client_of(settings_for(tmp_path)) as client:
        for name in ("one", "another"):
            assert client.post("/v1/searches", json=SEARCH | {"op": mine, "name": name}).status_code == 202
        assert parsed == ["parsed_once"]
        for _ in range(2):  # a wrong one is told each time, with its field
            refused = client.post("/v1/searches", json=SEARCH | {"op": mine | {"math": "half"}})
            assert fields(problem(refused, 422, "invalid-spec")) == ["op.math"]

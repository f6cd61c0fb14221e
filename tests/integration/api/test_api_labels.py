"""Names, tags, notes, archive and deletion of searches over REST, on both databases."""

from __future__ import annotations

import time
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select

from tests.support.api_support import ENDPOINT, SEARCH, database, fields, problem, seed
from warpsmith.kernels_db.store import tallies
from warpsmith.kernels_db.store.tables import (
    BundleJobRow,
    CounterexampleRow,
    EventRow,
    KernelRow,
    ModelCallRow,
    NodeRow,
    ProfileRow,
    SearchRow,
    TryRow,
)
from warpsmith.workers import steps

URL = "/v1/searches/sr_seed"
LABELS: dict[str, Any] = {"name": "Long rows", "tags": ["paper", "h100 x2"], "notes": "Before the\nupgrade."}


def listed(client: TestClient, **query: Any) -> list[str]:
    answer = client.get("/v1/searches", params=query)
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


def end(client: TestClient) -> None:
    steps.cancel(database(client), "sr_seed", time.time())


def test_a_search_is_submitted_with_labels_and_found_by_them(client: TestClient) -> None:
    model = {"provider": "openai", "model": "qwen3-coder", "base_url": ENDPOINT}
    made = client.post("/v1/searches", json={**SEARCH, **LABELS, "model": model})
    assert made.status_code == 202, made.text
    found = made.json()
    assert (found["name"], found["tags"], found["notes"]) == ("Long rows", ["h100 x2", "paper"], "Before the\nupgrade.")
    assert found["model_name"] == "qwen3-coder"
    plain = client.post("/v1/searches", json=SEARCH).json()
    assert (plain["name"], plain["tags"], plain["notes"], plain["model_name"]) == (None, [], None, None)
    for query in ({"tag": "paper"}, {"text": "LONG"}, {"text": "upgrade"}, {"text": "qwen"}, {"text": "h100"}):
        assert listed(client, **query) == [found["id"]], query
    assert listed(client, tag=["paper", "h100 x2"]) == [found["id"]]
    assert listed(client, tag=["paper", "other"]) == []
    (item,) = client.get("/v1/searches", params={"tag": "paper"}).json()["items"]
    assert {name: item[name] for name in LABELS} == {**LABELS, "tags": ["h100 x2", "paper"]}
    assert client.get("/v1/searches/tags").json() == [
        {"tag": "h100 x2", "searches": 1},
        {"tag": "paper", "searches": 1},
    ]


def test_labels_are_changed_alone_and_removed(client: TestClient) -> None:
    seed(database(client))
    before = client.get(URL).json()
    changed = client.patch(URL, json=LABELS).json()
    assert (changed["name"], changed["tags"]) == ("Long rows", ["h100 x2", "paper"])
    assert (changed["budget"], changed["updated_at"]) == (before["budget"], before["updated_at"])
    assert client.patch(URL, json={"tags": ["paper", "paper"]}).json()["tags"] == ["paper"]
    cleared = client.patch(URL, json={"name": " ", "notes": None}).json()
    assert (cleared["name"], cleared["notes"], cleared["tags"]) == (None, None, ["paper"])


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({}, "body"),
        ({"name": "x" * 121}, "name"),
        ({"name": "two\nlines"}, "name"),
        ({"tags": ["a,b"]}, "tags[0]"),
        ({"tags": [" a"]}, "tags[0]"),
        ({"tags": ["x" * 41]}, "tags[0]"),
        ({"tags": [str(number) for number in range(21)]}, "tags"),
        ({"notes": "x" * 20_001}, "notes"),
        ({"archived": True, "budget": {"candidates": 90}}, "archived"),
        ({"title": "x"}, "title"),
    ],
)
def test_labels_that_are_wrong_name_the_field(local: TestClient, change: dict[str, Any], field: str) -> None:
    seed(database(local))
    assert fields(problem(local.patch(URL, json=change), 422, "invalid-input")) == [field]


def test_an_archived_search_is_left_out_of_lists_and_nothing_else(client: TestClient) -> None:
    seed(database(client))
    client.patch(URL, json={"tags": ["old"]})
    document = problem(client.patch(URL, json={"archived": True}), 409, "wrong-state")
    assert document["errors"][0]["expected"] == "one that has ended; cancel it first"
    end(client)
    first = client.patch(URL, json={"archived": True}).json()["archived_at"]
    assert first is not None
    assert client.patch(URL, json={"archived": True}).json()["archived_at"] == first
    assert listed(client) == []
    assert client.get("/v1/searches/tags").json() == []
    assert listed(client, archived="yes") == listed(client, archived="any") == ["sr_seed"]
    assert client.get(URL).json()["tags"] == ["old"]
    assert client.patch(URL, json={"archived": False}).json()["archived_at"] is None
    assert listed(client) == ["sr_seed"]


def test_deletion_keeps_kernels_counterexamples_and_what_was_spent(client: TestClient) -> None:
    db = database(client)
    seed(db)
    found = CounterexampleRow(
        id="cx_0",
        op_id="op_seed",
        device="cpu",
        workload="large",
        digest="d",
        recipe={},
        description="",
        created_at=0.0,
    )
    with db.writing() as session:
        step = {"idea": None, "technique": None, "score": None, "round": 1}
        session.get_one(KernelRow, "kn_0").lineage = [{"node_id": node, **step} for node in ("nd_root", "nd_bad")]
        found.node_id = "nd_bad"
        session.add(found)
        common = {"search_id": "sr_seed", "created_at": 0.0}
        held = {"state": "running", "lease_expires_at": time.time() + 600}
        dead = {"state": "running", "lease_expires_at": time.time() - 600}
        session.add(ProfileRow(id="pf_0", node_id="nd_good", document={}, **held, **common))
        session.add(ProfileRow(id="pf_1", node_id="nd_good", document={}, **dead, **common))
        session.add(ProfileRow(id="pf_2", node_id="nd_good", document={}, state="pending", **common))
        tried = {"level": "compile", "language": "cpp", "source": "", "document": {}}
        session.add(TryRow(id="ty_0", node_id="nd_good", **tried, **held, **common))
        session.add(TryRow(id="ty_1", node_id="nd_good", **tried, **dead, **common))
        session.add(BundleJobRow(id="bj_0", bundle_id="bn_0", attempt_id="at_3", job_digest="d", **common))
    client.patch(URL, json=LABELS)
    with db.reading() as session:
        spent = tallies.read_tallies(session).spend
    assert spent["usd"] > 0
    document = problem(client.delete(URL), 409, "wrong-state")
    assert document["errors"][0]["found"] == "running"
    end(client)
    assert problem(client.delete(URL), 409, "wrong-state")["errors"][0]["found"] == "a profile under way"
    with db.writing() as session:
        session.get_one(ProfileRow, "pf_0").state = "done"
    assert problem(client.delete(URL), 409, "wrong-state")["errors"][0]["found"] == "a try under way"
    with db.writing() as session:
        session.get_one(TryRow, "ty_0").state = "done"
    package = client.get("/v1/kernels/kn_0/export").content
    gone = client.delete(URL)
    assert (gone.status_code, gone.json()) == (200, {"id": "sr_seed", "nodes": 3, "kernels": ["kn_0"]})
    problem(client.get(URL), 404, "not-found")
    problem(client.delete(URL), 404, "not-found")
    problem(client.get("/v1/nodes/nd_good"), 404, "not-found")
    problem(client.patch(URL, json={"name": "x"}), 404, "not-found")
    kernel = client.get("/v1/kernels/kn_0").json()
    assert (kernel["search_id"], kernel["node_id"], len(kernel["lineage"])) == (None, None, 2)
    assert client.get("/v1/kernels/kn_0/export").content == package, "byte for byte what it was"
    with db.reading() as session:
        assert session.scalars(select(CounterexampleRow.node_id)).all() == [None]
        for table in (SearchRow, NodeRow, EventRow, ModelCallRow):
            assert session.scalar(select(func.count()).select_from(table)) == 0
        assert tallies.read_tallies(session).spend == pytest.approx(spent)
    with db.writing() as session:
        tallies.fold(session)
        assert tallies.recount(session) == 0
        assert tallies.read_tallies(session).spend == pytest.approx(spent)


def test_a_step_of_a_deleted_search_is_one_of_no_search(client: TestClient) -> None:
    db = database(client)
    seed(db)
    end(client)
    client.delete(URL)
    with pytest.raises(steps.UnknownSearch):
        steps.advance(db, "sr_seed", time.time())
    with pytest.raises(LookupError):
        steps.label_search(db, "sr_seed", {"name": "x"}, time.time())

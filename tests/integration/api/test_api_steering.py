"""Steering and the story over REST."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.api_support import (
    CANDIDATE,
    HOSTILE,
    SEARCH,
    client_of,
    database,
    fields,
    problem,
    seed,
    settings_for,
)
from warpsmith.kernels_db.store.tables import AttemptRow, SearchRow
from warpsmith.service.api import auth

IDEA: dict[str, Any] = {"technique": "fusion", "title": "One pass", "mechanism": "Both loops become one."}


@pytest.fixture
def client(client: TestClient) -> TestClient:
    seed(database(client))
    return client


@pytest.fixture
def local(local: TestClient) -> TestClient:
    seed(database(local))
    return local


def events(client: TestClient, search_id: str = "sr_seed") -> list[dict[str, Any]]:
    """The events of a search."""
    items: list[dict[str, Any]] = client.get(f"/v1/searches/{search_id}/events?format=json").json()["items"]
    return items


def end(client: TestClient) -> None:
    """The seeded search has ended."""
    with database(client).writing() as session:
        session.get_one(SearchRow, "sr_seed").state = "finished"


def test_an_idea_is_added_once_and_begun(client: TestClient) -> None:
    url = "/v1/searches/sr_seed/ideas"
    headers = {"Idempotency-Key": "k"}
    first = client.post(url, json={**IDEA, "codes": 2}, headers=headers)
    assert first.status_code == 201, first.text
    nodes = first.json()["nodes"]
    assert [(node["origin"], node["parent_id"], node["round"], node["title"]) for node in nodes] == 2 * [
        ("person", "nd_good", 2, "One pass")
    ]
    assert first.headers["location"] == f"/v1/nodes/{nodes[0]['id']}"
    again = client.post(url, json={**IDEA, "codes": 2}, headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotent-replayed"] == "true"
    document = problem(client.post(url, json=IDEA), 409, "wrong-state")
    assert document["errors"] == [
        {"field": "idea", "found": "the same idea as node #3", "expected": "one that the search has not had"}
    ]
    assert client.get(f"/v1/nodes/{nodes[0]['id']}").json()["state"] == "coding", "it begins at once"
    assert "idea.added" in [event["type"] for event in events(client)]
    assert "by" not in next(event for event in events(client) if event["type"] == "idea.added")["payload"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"technique": "magic"}, "technique"),
        ({"title": " \t"}, "title"),
        ({"title": "x" * 161}, "title"),
        ({"mechanism": "\n"}, "mechanism"),
        ({"codes": 0}, "codes"),
        ({"codes": 17}, "codes"),
        ({"parent": "nd_nobody"}, "parent"),
        ({"parent": "no id at all"}, "parent"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_an_idea_that_is_wrong_names_the_field(local: TestClient, change: dict[str, Any], field: str) -> None:
    document = problem(local.post("/v1/searches/sr_seed/ideas", json={**IDEA, **change}), 422, "invalid-input")
    assert fields(document) == [field]
    assert document["errors"][0]["expected"]


def test_marks_are_set_and_taken_back(client: TestClient) -> None:
    pinned = client.post("/v1/nodes/nd_good/pin").json()
    assert (pinned["mark"], pinned["best"]) == ("pinned", True)
    banned = client.post("/v1/nodes/nd_good/ban").json()
    assert (banned["mark"], banned["best"]) == ("banned", False)
    assert client.get("/v1/searches/sr_seed").json()["best"] is None
    assert client.delete("/v1/nodes/nd_good/pin").json()["mark"] == "banned"
    restored = client.delete("/v1/nodes/nd_good/ban").json()
    assert (restored["mark"], restored["best"]) == (None, True)
    types = [event["type"] for event in events(client) if event["node_id"] == "nd_good"]
    assert types == ["node.pinned", "node.banned", "node.unbanned"]
    tree = client.get("/v1/searches/sr_seed/tree").json()["nodes"]
    assert [(node["mark"], node["origin"]) for node in tree] == 3 * [(None, "model")]
    document = problem(client.post("/v1/nodes/nd_root/ban"), 409, "wrong-state")
    assert document["errors"][0]["found"] == "the root"
    problem(client.post("/v1/nodes/nd_0/pin"), 404, "not-found")


def test_a_budget_is_changed_by_name(client: TestClient) -> None:
    url = "/v1/searches/sr_seed"
    changed = client.patch(url, json={"budget": {"candidates": 80, "tokens": None}})
    assert changed.status_code == 200, changed.text
    assert changed.json()["budget"]["candidates"] == 80
    document = problem(client.patch(url, json={"budget": {"candidates": 1}}), 422, "invalid-input")
    assert document["errors"] == [
        {"field": "budget.candidates", "found": 1, "expected": "at least what is spent, which is 2, or null"}
    ]
    assert fields(problem(client.patch(url, json={"budget": {"minutes": 1}}), 422, "invalid-input")) == [
        "budget.minutes"
    ]
    problem(client.patch("/v1/searches/sr_0", json={"budget": {}}), 404, "not-found")
    assert [event["type"] for event in events(client)][-1] == "budget.changed"


def test_an_ended_search_is_not_steered_but_branched(client: TestClient) -> None:
    end(client)
    refused = [
        client.post("/v1/searches/sr_seed/ideas", json=IDEA),
        client.patch("/v1/searches/sr_seed", json={"budget": {"candidates": 80}}),
        client.post("/v1/nodes/nd_good/pin"),
        client.delete("/v1/nodes/nd_good/ban"),
    ]
    for response in refused:
        assert "branch a new search" in problem(response, 409, "wrong-state")["errors"][0]["expected"]
    body = {"budget": {"candidates": 3}}
    headers = {"Idempotency-Key": "k"}
    branched = client.post("/v1/nodes/nd_good/branch", json=body, headers=headers)
    assert branched.status_code == 202, branched.text
    search = branched.json()
    assert (search["branched_from"], search["budget"], search["op_name"]) == ("nd_good", {"candidates": 3}, "add_relu")
    assert branched.headers["location"] == f"/v1/searches/{search['id']}"
    again = client.post("/v1/nodes/nd_good/branch", json=body, headers=headers)
    assert again.json() == search
    root, node = client.get(f"/v1/searches/{search['id']}/tree").json()["nodes"]
    assert (node["origin"], node["parent_id"], node["round"], node["state"]) == ("branch", root["id"], 0, "coded")
    assert client.get(f"/v1/nodes/{node['id']}").json()["source"] == CANDIDATE
    assert "search.branched" in [event["type"] for event in events(client, search["id"])]


def test_a_branch_that_cannot_run_is_refused_by_field(local: TestClient) -> None:
    url = "/v1/nodes/nd_good/branch"
    for body, field in (
        ({"budget": {"candidates": 0}}, "budget.candidates"),
        ({"policy": {"name": "luck"}}, "policy.name"),
        ({"model": {"provider": "oracle"}}, "model.provider"),
        ({"target": "cpu"}, "target"),
    ):
        assert fields(problem(local.post(url, json=body), 422, "invalid-input")) == [field]
    problem(local.post("/v1/nodes/nd_root/branch", json={}), 409, "wrong-state")
    problem(local.post("/v1/nodes/nd_0/branch", json={}), 404, "not-found")


def test_with_keys_in_force_events_say_who(tmp_path: Path) -> None:
    with client_of(settings_for(tmp_path, auth="always")) as client:
        client.headers["Authorization"] = f"Bearer {auth.create_key(database(client), 'ada')}"
        search_id = client.post("/v1/searches", json=SEARCH).json()["id"]
        url = f"/v1/searches/{search_id}"
        (node,) = client.post(f"{url}/ideas", json=IDEA).json()["nodes"]
        client.post(f"/v1/nodes/{node['id']}/pin")
        client.patch(url, json={"budget": {"candidates": 9}})
        for action in ("pause", "resume", "cancel"):
            client.post(f"{url}/{action}")
        by = {event["type"]: event["payload"].get("by") for event in events(client, search_id)}
        steered = (
            "idea.added",
            "node.pinned",
            "budget.changed",
            "search.paused",
            "search.resumed",
            "search.cancelled",
        )
        assert {kind: by[kind] for kind in steered} == dict.fromkeys(steered, "ada")
        assert by["search.started"] is None


def test_the_story_tells_the_search_so_far_and_shows_hostile_text_as_text(client: TestClient) -> None:
    with database(client).writing() as session:
        session.get_one(AttemptRow, "at_3").state = "succeeded"  # a ban would take it back, and the verdict with it
    client.post("/v1/nodes/nd_bad/ban")
    client.post("/v1/searches/sr_seed/ideas", json=IDEA)
    story = client.get("/v1/searches/sr_seed/story").json()
    assert story["title"] == "add_relu on cpu:x86_64: running, 2.00x [1.90, 2.10] so far"
    sections = {section["heading"]: section for section in story["sections"]}
    assert list(sections) == [
        "What was asked",
        "What was tried",
        "What worked",
        "What failed, and why",
        "The best so far",
        "What it cost",
        "Who steered",
        "Where it stands",
    ]
    assert sections["What worked"]["items"] == ["#1 “Eight lanes at once” (vectorize, round 1): 2.00x [1.90, 2.10]"]
    assert HOSTILE in sections["What failed, and why"]["items"][0]
    assert HOSTILE not in story["markdown"]
    assert sections["Who steered"]["items"][0].endswith("somebody banned #2")
    assert sections["Who steered"]["items"][1].endswith("somebody added the idea “One pass” (#3)")
    assert "1 ask to be answered" in sections["Where it stands"]["paragraph"]
    assert story["text"].startswith(story["title"])
    problem(client.get("/v1/searches/sr_0/story"), 404, "not-found")


def test_the_story_of_a_branch_names_its_origin_and_its_origin_names_it(local: TestClient) -> None:
    new_id = local.post("/v1/nodes/nd_good/branch", json={}).json()["id"]
    asked = local.get(f"/v1/searches/{new_id}/story").json()["sections"][0]["paragraph"]
    assert "It was branched from #1 of search sr_seed." in asked
    old = local.get("/v1/searches/sr_seed/story").json()
    assert f"branched into {new_id}" in old["text"]

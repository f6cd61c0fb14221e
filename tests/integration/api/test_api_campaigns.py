"""Campaigns over REST: begun once, changed by one client at a time, listed newest first, closed when finished."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.api_support import client_of, fields, problem, settings_for
from tests.support.campaigns import MODEL_DIGEST, PROGRESS, begun

PATH = "/v1/campaigns"


def begin(client: TestClient, key: str | None = None, **settings: Any) -> Any:
    return client.post(PATH, json=begun(**settings), headers={"Idempotency-Key": key} if key else {})


def put(client: TestClient, campaign_id: str, revision: int, **changes: Any) -> Any:
    return client.put(f"{PATH}/{campaign_id}", json={"revision": revision, "progress": PROGRESS | changes})


def test_a_campaign_is_begun_once_and_kept_as_it_was_stored(client: TestClient) -> None:
    first, again = begin(client, "a-key"), begin(client, "a-key")
    assert (first.status_code, again.status_code) == (201, 201)
    campaign = first.json()
    assert again.json() == campaign
    assert first.headers["location"] == f"{PATH}/{campaign['id']}"
    assert campaign["settings"]["target"] == "cpu:x86_64", "that of this machine"
    assert (campaign["state"], campaign["revision"], campaign["before_ms"]) == ("profiling", 1, None)

    stored = put(client, campaign["id"], 1, state="measuring").json()
    assert (stored["progress"], stored["revision"]) == (PROGRESS | {"state": "measuring"}, 2)
    assert client.get(f"{PATH}/{campaign['id']}").json() == stored
    assert (stored["before_ms"], stored["compiled_ms"], stored["after_ms"]) == (0.9, 0.5, None), "before it is finished"


def test_of_two_clients_one_goes_on(client: TestClient) -> None:
    campaign = begin(client).json()
    assert put(client, campaign["id"], 1, state="searching").status_code == 200
    refused = problem(put(client, campaign["id"], 1, state="measuring"), 409, "wrong-state")
    assert fields(refused) == ["revision"]
    assert client.get(f"{PATH}/{campaign['id']}").json()["state"] == "searching"
    assert put(client, campaign["id"], 2, state="finished").status_code == 200
    assert fields(problem(put(client, campaign["id"], 3), 409, "wrong-state")) == ["campaign"]


def test_a_finished_campaign_tells_what_the_model_takes_now(client: TestClient) -> None:
    campaign = begin(client).json()
    found = put(client, campaign["id"], 1).json()
    assert (found["searches"], found["kept"]) == (2, 1)
    assert (found["before_ms"], found["compiled_ms"], found["after_ms"]) == (0.9, 0.5, 0.4)
    assert (found["over_compiled"], found["over_compiled_ci95"]) == (1.25, [1.2, 1.3])
    dropped = [{**region, "kept": False} for region in PROGRESS["regions"]]
    other = begin(client).json()
    found = put(client, other["id"], 1, regions=dropped).json()
    assert (found["after_ms"], found["over_compiled"]) == (0.5, 1.0), "without a kernel: Inductor's code alone"
    assert [item["id"] for item in client.get(PATH).json()["items"]] == [other["id"], campaign["id"]]
    assert client.get(PATH, params={"model_digest": "0" * 64}).json()["items"] == []
    (only,) = client.get(PATH, params={"model_digest": MODEL_DIGEST, "limit": 1}).json()["items"]
    assert only["id"] == other["id"]
    problem(client.get(f"{PATH}/cm_none"), 404, "not-found")


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"budget": {"candidates": 0}}, "settings.budget.candidates"),
        ({"policy": {"name": "none"}}, "settings.policy.name"),
        ({"model": {"provider": "nobody"}}, "settings.model.provider"),
        ({"model": {"provider": "openai", "model": "gpt-5"}}, "WARPSMITH_OPENAI_API_KEY"),
        ({"target": "cuda:sm_90"}, "settings.target"),
        ({"target": "tpu"}, "settings.target"),
        ({"top": 0}, "settings.top"),
        ({"unknown": 1}, "settings.unknown"),
    ],
)
def test_settings_with_which_no_search_could_run_are_refused(
    local: TestClient, settings: dict[str, Any], field: str
) -> None:
    answer = begin(local, **settings)
    assert answer.status_code == 422, answer.text
    assert fields(answer.json()) == [field]


def test_a_part_that_is_no_part_of_a_campaign_is_refused(local: TestClient) -> None:
    campaign = begin(local).json()
    refused = put(local, campaign["id"], 1, regions=[{**PROGRESS["regions"][0], "kept": "yes"}])
    assert fields(problem(refused, 422, "invalid-input")) == ["progress.regions[0].kept"]


def test_a_campaign_without_a_limit_of_money_that_can_be_kept(tmp_path: Any) -> None:
    with client_of(settings_for(tmp_path, openai_api_key="sk-test")) as client:
        model = {"provider": "openai", "model": "unpriced"}
        refused = begin(client, model=model, budget={"cost_usd": 1})
        assert fields(problem(refused, 422, "invalid-input")) == ["budget.cost_usd"]
        assert begin(client, model=model, budget={"tokens": 1000}).status_code == 201

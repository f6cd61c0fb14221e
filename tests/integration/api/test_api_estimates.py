"""Estimates over REST, limits of money that cannot be held, costs that nobody knows, and who waits for an outage."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from tests.support.api_support import SEARCH, client_of, settings_for
from tests.support.steps_support import request as model_request
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, ModelCallRow, NodeRow, SearchRow
from warpsmith.workers import steps
from warpsmith.workers.llm.base import ModelReply
from warpsmith.workers.steps import ModelCall

LOCAL = {"provider": "openai", "model": "local-7b", "base_url": "http://127.0.0.1:9/v1"}


@pytest.fixture
def client(local: TestClient) -> TestClient:
    return local


def body(**changes: Any) -> dict[str, Any]:
    return {**SEARCH, "budget": {}, **changes}


def estimate(client: TestClient, **changes: Any) -> dict[str, Any]:
    answer = client.post("/v1/searches/estimate", json=body(**changes))
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_an_estimate_needs_no_key_and_stores_nothing(client: TestClient) -> None:
    found = estimate(client, model={"provider": "openai", "model": "gpt-5"})
    assert found["expected"]["model_calls"] == sum(found["expected"]["calls"].values())
    assert 0 < found["expected"]["cost_usd"] < found["worst"]["cost_usd"]
    assert found["unpriced"] == []
    assert "expected" in found["summary"]
    assert client.get("/v1/searches").json()["items"] == []
    assert client.get("/v1/ops").json()["items"] == []


def test_the_budget_and_the_policy_count(client: TestClient) -> None:
    small = estimate(client, budget={"candidates": 4})
    assert small["worst"]["candidates"] <= 4
    narrow = estimate(client, policy={"name": "idea_beam", "beam": 1, "diverse": 0, "rounds": 1, "max_rounds": 1})
    assert narrow["expected"]["model_calls"] < estimate(client)["expected"]["model_calls"]


def test_a_bad_request_is_refused_as_a_submission_would_be(client: TestClient) -> None:
    answer = client.post("/v1/searches/estimate", json=body(policy={"name": "idea_beam", "beam": 0}))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "policy.beam"


def test_a_kind_that_no_model_serves_is_refused_when_the_search_is_created(client: TestClient) -> None:
    models = [{"model": "a", "for": ["ideate", "code"], "base_url": "http://127.0.0.1:9/v1"}]
    answer = client.post("/v1/searches", json=body(model={"provider": "openai", "models": models}))
    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {"field": "model.models", "found": "models for code, ideate", "expected": "a model for repair too"}
    ]


def test_each_endpoint_of_openai_needs_a_key(client: TestClient) -> None:
    models = [LOCAL["base_url"], None]
    entries = [{"model": "gpt-5"} | ({"base_url": url} if url else {}) for url in models]
    answer = client.post("/v1/searches", json=body(model={"provider": "openai", "models": entries}))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "WARPSMITH_OPENAI_API_KEY"


def test_a_limit_of_money_on_a_model_without_a_price_is_refused(client: TestClient) -> None:
    answer = client.post("/v1/searches", json=body(model=LOCAL, budget={"cost_usd": 2.0}))
    assert answer.status_code == 422
    error = answer.json()["errors"][0]
    assert (error["field"], error["found"]) == ("budget.cost_usd", 2.0)
    assert "local-7b" in error["expected"]
    assert client.post("/v1/searches", json=body(model=LOCAL, budget={"tokens": 1000})).status_code == 202


def test_a_bad_price_file_is_the_servers_setting(tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("[")
    with client_of(settings_for(tmp_path, model_prices=prices)) as client:
        answer = client.post("/v1/searches/estimate", json=body())
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "WARPSMITH_MODEL_PRICES"


def test_a_cost_that_nobody_knows_is_null(client: TestClient, tmp_path: Path) -> None:
    search_id = client.post("/v1/searches", json=body(model=LOCAL)).json()["id"]
    assert client.get(f"/v1/searches/{search_id}").json()["spend"]["cost_usd"] == 0.0
    db: Database = client.app.state.service.db  # type: ignore[attr-defined]
    reply = ModelReply("hello", "local-7b", "stop", 10, 5, None, 0.1)
    call = ModelCall.answered(model_request(), "openai", reply)
    with db.writing() as session:
        root = session.scalars(select(NodeRow).where(NodeRow.search_id == search_id)).one()
        attempt = session.scalars(select(AttemptRow).where(AttemptRow.search_id == search_id)).one()
        search = session.get_one(SearchRow, search_id)
        steps.rows.record_calls(session, steps.rows.Held(search, root, attempt), [call], time.time())
        assert session.scalars(select(ModelCallRow.cost_usd)).all() == [None]
    spend = client.get(f"/v1/searches/{search_id}").json()["spend"]
    assert (spend["cost_usd"], spend["tokens"]) == (None, 15)
    assert client.get("/v1/searches").json()["items"][0]["spend"]["cost_usd"] is None


def test_a_search_that_an_outage_paused_says_until_when(client: TestClient) -> None:
    search_id = client.post("/v1/searches", json=body()).json()["id"]
    db: Database = client.app.state.service.db  # type: ignore[attr-defined]
    now = time.time()
    with db.reading() as session:
        attempt_id = session.scalars(select(AttemptRow.id).where(AttemptRow.search_id == search_id)).one()
    assert steps.claim(db, attempt_id, "me", 30.0, now) is not None
    assert steps.defer(db, attempt_id, "me", "503: away", 5.0, [], now, max_deferrals=0, probe_s=40.0)
    waiting = client.get(f"/v1/searches/{search_id}").json()["waiting_for"]
    assert [(item["what"], item["until"]) for item in waiting] == [("retry", now + 40.0)]
    assert "503: away" in waiting[0]["detail"]
    assert client.post(f"/v1/searches/{search_id}/pause").json()["waiting_for"][0]["what"] == "person"


def test_a_limit_of_money_that_cannot_be_held_is_not_set_later_either(client: TestClient) -> None:
    search_id = client.post("/v1/searches", json=body(model=LOCAL)).json()["id"]
    answer = client.patch(f"/v1/searches/{search_id}", json={"budget": {"cost_usd": 2.0}})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "budget.cost_usd"
    assert client.patch(f"/v1/searches/{search_id}", json={"budget": {"tokens": 5000}}).status_code == 200

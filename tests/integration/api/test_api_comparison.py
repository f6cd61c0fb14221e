"""Searches of one op beside each other over REST and on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select
from sqlalchemy.orm import Session

from tests.support.api_support import (
    ADD_RELU,
    SEARCH,
    application,
    command_line,
    database,
    fields,
    problem,
    seed,
    settings_for,
)
from warpsmith.kernels_db.spec.op import load_op
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import AttemptRow, EventRow, ModelCallRow, NodeRow, SearchRow, VerdictRow


def judged(
    search_id: str, node_id: str, seq: int, at: float, verdict: str = "accepted", score: float | None = None
) -> EventRow:
    payload = {
        "seq": seq,
        "candidates": seq,
        "cost_usd": 0.1 * seq,
        "verdict": verdict,
        "gate": "time",
        "score": score,
        "ci95": None,
        "limit_fraction": None,
        "technique": "vectorize",
    }
    return EventRow(search_id=search_id, node_id=node_id, type="node.judged", payload=payload, created_at=at)


def fill(session: Session) -> None:
    """Give the seeded search a curve, a candidate below its best, a machine, and calls."""
    search = session.get_one(SearchRow, "sr_seed")
    started = search.created_at
    session.add(judged("sr_seed", "nd_good", 1, started + 5, score=2.0))
    session.add(judged("sr_seed", "nd_bad", 2, started + 9, "rejected"))
    baseline = session.get_one(VerdictRow, "vd_0")
    baseline.document = {**baseline.document, "device": {"name": "a CPU"}, "versions": {"torch": "2.13.0"}}
    common = {"search_id": "sr_seed", "created_at": started, "updated_at": started, "round": 2, "state": "judged"}
    node = {"verdict": "accepted", "gate": "time", "technique": "fuse", "parent_id": "nd_good", **common}
    session.add(NodeRow(id="nd_next", seq=3, score=1.5, **node))
    session.flush()
    call = {"search_id": "sr_seed", "attempt_id": "at_2", "kind": "code", "request": "c" * 64, "messages": []}
    tokens = {"prompt_tokens": 700, "completion_tokens": 300, "created_at": started}
    for name, node_id, cost in (("mc_1", "nd_good", 0.25), ("mc_2", "nd_bad", None)):
        session.add(
            ModelCallRow(id=name, node_id=node_id, provider="openai", reply="r", cost_usd=cost, **call, **tokens)
        )


@pytest.fixture
def pair(client: TestClient) -> tuple[TestClient, str]:
    """A search with results, and a queued one of the same op."""
    db = database(client)
    seed(db)
    with db.writing() as session:
        fill(session)
    body = {**SEARCH, "target": "cpu:x86_64", "policy": {"name": "idea_beam", "beam": 2}, "name": "Second"}
    return client, str(client.post("/v1/searches", json=body).json()["id"])


def test_curves_facts_and_techniques(pair: tuple[TestClient, str]) -> None:
    client, second = pair
    answer = client.get("/v1/searches/compare", params={"search": ["sr_seed", second]})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["op_name"] == "add_relu"
    first, other = found["searches"]
    assert [one["search"]["id"] for one in found["searches"]] == ["sr_seed", second]
    points = [(p["candidates"], p["score"], p["verified"], p["seq"]) for p in first["curve"]]
    assert points == [(1, 2.0, False, 1), (2, 2.0, False, None)], "the best is carried on to the last verdict"
    assert first["curve"][1]["elapsed_s"] == pytest.approx(9)
    assert (other["curve"], other["techniques"]) == ([], [])
    techniques = {one["technique"]: one for one in first["techniques"]}
    vectorize, fuse = techniques["vectorize"], techniques["fuse"]
    assert (vectorize["candidates"], vectorize["accepted"], vectorize["improved"]) == (1, 1, 1)
    assert (vectorize["median_gain"], vectorize["best_score"]) == (2.0, 2.0), "the root counts as the fastest baseline"
    assert vectorize["gain_range"] == [2.0, 2.0]
    assert (vectorize["tokens"], vectorize["cost_usd"]) == (1000, 0.25)
    assert (fuse["candidates"], fuse["accepted"], fuse["improved"]) == (2, 1, 0)
    assert fuse["median_gain"] == pytest.approx(0.75), "slower than the candidate that it was built on"
    assert (fuse["tokens"], fuse["cost_usd"]) == (1000, None), "a price that is not known is not free"
    facts = {fact["name"]: fact for fact in found["facts"]}
    assert facts["policy.beam"] == {"name": "policy.beam", "values": [None, "2"], "differs": True}
    assert facts["budget.candidates"]["values"] == ["12", "4"]
    assert facts["op revision"]["values"] == 2 * [load_op(ADD_RELU).digest[:12]]
    assert facts["op revision"]["differs"] is False
    progress = client.get("/v1/searches/sr_seed/progress").json()
    assert progress["techniques"] == first["techniques"], "a search's own page tells the same"
    order = [fact["differs"] for fact in found["facts"]]
    assert order == sorted(order, reverse=True), "what differs comes first"


def judge_baselines(session: Session, search_id: str, device: str, torch: str) -> None:
    """Give a search the verdict of its baselines, which names the machine."""
    root = session.scalars(select(NodeRow).where(NodeRow.search_id == search_id, NodeRow.seq == 0)).one()
    attempt = session.scalars(select(AttemptRow).where(AttemptRow.node_id == root.id)).one()
    seeded = session.get_one(VerdictRow, "vd_0")
    document = {**seeded.document, "device": {"name": device}, "versions": {"torch": torch}}
    own = {"id": "vd_second", "search_id": search_id, "node_id": root.id, "attempt_id": attempt.id}
    common = {name: getattr(seeded, name) for name in ("level", "verdict", "gate", "source", "created_at")}
    session.add(VerdictRow(document=document, **own, **common))


def test_a_machine_that_is_not_known_differs_from_none(pair: tuple[TestClient, str]) -> None:
    client, second = pair
    compared = {"search": ["sr_seed", second]}
    found = client.get("/v1/searches/compare", params=compared).json()
    facts = {fact["name"]: fact for fact in found["facts"]}
    assert facts["device"] == {"name": "device", "values": ["a CPU", None], "differs": False}
    assert facts["torch"] == {"name": "torch", "values": ["2.13.0", None], "differs": False}
    assert found["warnings"] == []
    with database(client).writing() as session:
        judge_baselines(session, second, "another CPU", "2.12.0")
    found = client.get("/v1/searches/compare", params=compared).json()
    facts = {fact["name"]: fact for fact in found["facts"]}
    assert (facts["device"]["differs"], facts["torch"]["differs"]) == (True, True)
    devices, versions = found["warnings"]
    assert "different devices" in devices
    assert "different versions of PyTorch" in versions


def test_searches_of_different_ops_are_refused(pair: tuple[TestClient, str]) -> None:
    client, _ = pair
    body = {**SEARCH, "op": {**SEARCH["op"], "name": "other"}}
    other = client.post("/v1/searches", json=body).json()["id"]
    document = problem(client.get("/v1/searches/compare", params={"search": ["sr_seed", other]}), 422, "invalid-input")
    assert document["errors"][0] == {
        "field": "query.search",
        "found": "searches of add_relu, other",
        "expected": "searches of one op",
    }


def test_what_cannot_be_compared_names_the_field(local: TestClient) -> None:
    seed(database(local))
    for query in (["sr_seed"], ["sr_seed", "sr_seed"], [f"sr_{number}" for number in range(9)]):
        document = problem(local.get("/v1/searches/compare", params={"search": query}), 422, "invalid-input")
        assert fields(document) == ["query.search"]
    problem(local.get("/v1/searches/compare", params={"search": ["sr_seed", "sr_absent"]}), 404, "not-found")


def test_the_command_line_compares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = application(settings_for(tmp_path))
    db: Database = app.state.service.db
    seed(db)
    with db.writing() as session:
        fill(session)
        session.get_one(SearchRow, "sr_seed").name = "[bold]First"
    with TestClient(app, base_url="http://127.0.0.1:8420") as client:
        second = client.post("/v1/searches", json={**SEARCH, "name": "Second"}).json()["id"]
    with command_line(app, capsys, monkeypatch) as said:
        code, out, err = said("compare", "sr_seed", second)
        assert code == 0, err
        assert "[bold]First" in out, "a name is no markup"
        assert "2.00x" in out
        assert "budget.candidates" in out
        assert "different" not in err, "the device of a queued search is not known"
        with db.writing() as session:
            judge_baselines(session, second, "another CPU", "2.12.0")
        assert "different devices" in said("compare", "sr_seed", second)[2]
        document = json.loads(said("compare", "sr_seed", second, "--json")[1])
        assert [one["search"]["name"] for one in document["searches"]] == ["[bold]First", "Second"]
        assert said("compare", "sr_seed")[0] == 2

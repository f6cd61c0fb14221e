"""The list of an op's counterexamples: newest first, in pages, of one type of device where it is asked for."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient

from tests.support.api_support import database, problem
from tests.support.steps_support import OP
from warpsmith.kernels_db.store import records
from warpsmith.kernels_db.store.counterexamples import keep_counterexample


def get(client: TestClient, path: str, **query: Any) -> Any:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_counterexamples_of_an_op_are_listed(client: TestClient) -> None:
    recipes = [{"workload": "ragged", "seed": seed, "changes": []} for seed in range(3)]
    with database(client).writing() as session:
        op_id = records.add_op(session, OP)[0].id
        for place, recipe in enumerate(recipes):
            failure = {"kind": "counterexample", "message": "wrong", "recipe": recipe, "description": "x: b\ny: c"}
            found = {"level": "verify", "verdict": "rejected", "failure": failure}
            keep_counterexample(session, op_id, "cuda:sm_90" if place == 1 else "cpu:x86_64", found, 10.0 + place)
    path = f"/v1/ops/{op_id}/counterexamples"
    first = get(client, path, limit=2)
    rest = get(client, path, limit=2, after=first["next"])
    assert [item["recipe"] for item in first["items"] + rest["items"]] == recipes[::-1]
    assert rest["next"] is None
    (only,) = get(client, path, device="cuda")["items"]
    assert {**only, "id": None} == {
        "id": None,
        "device": "cuda",
        "workload": "ragged",
        "description": "x: b\ny: c",
        "recipe": recipes[1],
        "node_id": None,
        "kernel_id": None,
        "created_at": 11.0,
    }
    problem(client.get("/v1/ops/op_none/counterexamples"), 404, "not-found")
    problem(client.get(f"{path}?after=x"), 422, "invalid-input")
    problem(client.get(f"{path}?device=tpu"), 422, "invalid-input")

"""POST /v1/ops/import: files of other formats become stored ops."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.api_support import client_of, fields, problem, settings_for
from tests.support.formats_support import DEFINITIONS, KERNELBENCH, files_of
from warpsmith.kernels_db.formats.shared.files import raw_files
from warpsmith.kernels_db.spec.op import parse_op
from warpsmith.service.api.routes import imports

IMPORT = "/v1/ops/import"
GATHER = next(path for path in DEFINITIONS if "gather" in path.parts)


@pytest.fixture
def client(local: TestClient) -> TestClient:
    return local


def body(path: Path) -> dict[str, Any]:
    """The request with an example's files."""
    return {"files": [{"path": item.path, **content(item.data)} for item in files_of(path)]}


def content(data: bytes) -> dict[str, str]:
    """Bytes as the request carries them."""
    return {"base64": base64.b64encode(data).decode()} if b"\0" in data else {"text": data.decode("utf-8")}


def test_a_definition_with_values_of_its_own_is_stored_once(client: TestClient) -> None:
    first = client.post(IMPORT, json=body(GATHER))
    assert first.status_code == 201, first.text
    document = first.json()
    assert (document["name"], document["format"], document["sandbox"]) == ("paged_mean_d64", "flashinfer-bench", None)
    assert document["notes"] == [
        "constraint kept in origin alone, for it speaks of more than axes: num_indices == indptr[-1].item()"
    ]
    assert first.headers["location"] == f"/v1/ops/{document['id']}"
    origin = parse_op(client.get(first.headers["location"]).json()["spec"]).origin
    assert origin is not None
    assert raw_files(origin) == files_of(GATHER)
    again = client.post(IMPORT, json=body(GATHER))
    assert (again.status_code, again.json()["id"]) == (200, document["id"])


def test_a_key_brings_the_same_answer_and_no_other_body(client: TestClient) -> None:
    headers = {"Idempotency-Key": "once"}
    first = client.post(IMPORT, json=body(DEFINITIONS[0]), headers=headers)
    again = client.post(IMPORT, json=body(DEFINITIONS[0]), headers=headers)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["idempotent-replayed"] == "true"
    problem(client.post(IMPORT, json=body(DEFINITIONS[1]), headers=headers), 422, "idempotency-key-reused")


@pytest.mark.parametrize(
    ("request_body", "slug", "field"),
    [
        ({"files": []}, "invalid-input", "files"),
        ({"files": [{"path": "a.py"}]}, "invalid-input", "files[0]"),
        ({"files": [{"path": "a.py", "text": "", "base64": ""}]}, "invalid-input", "files[0]"),
        ({"files": [{"path": "a.py", "base64": "!"}]}, "invalid-input", "files[0].base64"),
        ({"files": [{"path": "../a.py", "text": "x"}]}, "invalid-spec", "files[0].path"),
        ({"files": [{"path": "a.py", "text": "x = 1"}]}, "invalid-spec", "format"),
        ({"files": [{"path": "a.py", "text": "x = 1"}], "format": "onnx"}, "invalid-input", "format"),
        ({"files": [{"path": "a.py", "text": "x" * 600_000}]}, "invalid-input", "files[0].text"),
        ({"files": [{"path": "a.py", "text": "x = 1"}], "format": "kernelbench"}, "invalid-spec", "files"),
    ],
)
def test_what_is_no_import_is_refused_by_its_field(
    client: TestClient, request_body: dict[str, Any], slug: str, field: str
) -> None:
    assert fields(problem(client.post(IMPORT, json=request_body), 422, slug)) == [field]


def test_a_body_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with client_of(settings_for(tmp_path, max_body_bytes=1024)) as client:
        problem(client.post(IMPORT, json=body(GATHER)), 413, "body-too-large")


def test_more_files_than_are_run_at_once_are_sent_away(client: TestClient) -> None:
    places = [imports._running.acquire(blocking=False) for _ in range(imports.MOST_AT_ONCE)]
    try:
        response = client.post(IMPORT, json=body(KERNELBENCH[0]))
    finally:
        for _ in places:
            imports._running.release()
    problem(response, 429, "too-many-imports")
    assert response.headers["retry-after"] == "10"


def test_a_problem_whose_code_must_run_is_run_in_the_sandbox(client: TestClient) -> None:
    pytest.importorskip("torch", reason="a KernelBench problem is run to be understood")
    response = client.post(IMPORT, json=body(KERNELBENCH[1]))
    assert response.status_code == 201, response.text
    document = response.json()
    assert document["sandbox"] in ("confined", "isolated")
    assert [state["attribute"] for state in document["spec"]["state"]] == ["gain", "linear.weight", "linear.bias"]

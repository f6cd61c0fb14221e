"""POST /v1/ops/import: files of other formats become stored ops."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.api_support import client_of, fields, imported, problem, settings_for
from tests.support.formats_support import DEFINITIONS, KERNELBENCH, files_of
from warpsmith.kernels_db.formats.shared.files import raw_files
from warpsmith.kernels_db.spec.op import parse_op

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
    first = imported(client, client.post(IMPORT, json=body(GATHER)))
    assert (first["kind"], first["state"], first["tries"]) == ("op", "done", 1)
    result = first["result"]
    assert (result["created"], result["format"], result["sandbox"]) == (True, "flashinfer-bench", None)
    assert result["notes"] == [
        "constraint kept in origin alone, for it speaks of more than axes: num_indices == indptr[-1].item()"
    ]
    stored = client.get(f"/v1/ops/{result['op_id']}").json()
    assert stored["name"] == "paged_mean_d64"
    origin = parse_op(stored["spec"]).origin
    assert origin is not None
    assert raw_files(origin) == files_of(GATHER)
    again = imported(client, client.post(IMPORT, json=body(GATHER)))
    assert again["result"] == {**result, "created": False}


def test_a_key_brings_the_same_answer_and_no_other_body(client: TestClient) -> None:
    headers = {"Idempotency-Key": "once"}
    first = client.post(IMPORT, json=body(DEFINITIONS[0]), headers=headers)
    again = client.post(IMPORT, json=body(DEFINITIONS[0]), headers=headers)
    assert (again.status_code, again.json()) == (202, first.json())
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
        ({"files": [{"path": "a.py", "text": "x = 1"}], "format": "onnx"}, "invalid-input", "format"),
        ({"files": [{"path": "a.py", "text": "x" * 600_000}]}, "invalid-input", "files[0].text"),
    ],
)
def test_what_is_no_import_is_refused_by_its_field(
    client: TestClient, request_body: dict[str, Any], slug: str, field: str
) -> None:
    assert fields(problem(client.post(IMPORT, json=request_body), 422, slug)) == [field]
    assert client.get("/v1/imports").json()["items"] == []


@pytest.mark.parametrize(
    ("request_body", "field"),
    [
        ({"files": [{"path": "a.py", "text": "x = 1"}]}, "format"),
        ({"files": [{"path": "a.py", "text": "x = 1"}], "format": "kernelbench"}, "files"),
    ],
)
def test_what_only_reading_shows_ends_the_import_with_its_errors(
    client: TestClient, request_body: dict[str, Any], field: str
) -> None:
    failed = imported(client, client.post(IMPORT, json=request_body))
    assert (failed["state"], failed["problem"]["type"]) == ("failed", "urn:warpsmith:problem:invalid-spec")
    assert fields(failed["problem"]) == [field]
    assert client.get("/v1/ops").json()["items"] == []


def test_a_body_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with client_of(settings_for(tmp_path, max_body_bytes=1024)) as client:
        problem(client.post(IMPORT, json=body(GATHER)), 413, "body-too-large")


def test_more_uploads_than_a_team_may_have_open_are_sent_away(tmp_path: Path) -> None:
    with client_of(settings_for(tmp_path, max_open_imports=1)) as client:
        first = client.post(IMPORT, json=body(GATHER))
        refused = client.post(IMPORT, json=body(DEFINITIONS[0]))
        problem(refused, 429, "too-many-imports")
        assert refused.headers["retry-after"] == "10"
        assert imported(client, first)["state"] == "done"
        assert client.post(IMPORT, json=body(DEFINITIONS[0])).status_code == 202


def test_a_problem_whose_code_must_run_is_run_in_the_sandbox(client: TestClient) -> None:
    pytest.importorskip("torch", reason="a KernelBench problem is run to be understood")
    result = imported(client, client.post(IMPORT, json=body(KERNELBENCH[1])))["result"]
    assert result["sandbox"] in ("confined", "isolated")
    spec = client.get(f"/v1/ops/{result['op_id']}").json()["spec"]
    assert [state["attribute"] for state in spec["state"]] == ["gain", "linear.weight", "linear.bias"]

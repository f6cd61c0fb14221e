"""GET /v1/kernels/{id}/export in every format, and what a format has no room for."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.kinds import nightly_but
from tests.support.api_support import (
    Said,
    application,
    client_of,
    command_line,
    database,
    fields,
    problem,
    seed,
    settings_for,
)
from warpsmith.kernels_db.export import registry
from warpsmith.kernels_db.library import SHIPPED, entries, read_entry
from warpsmith.kernels_db.library.seed_library import stock
from warpsmith.kernels_db.store.db import Database
from warpsmith.kernels_db.store.tables import KernelRow, ModelCallRow, OpRow
from warpsmith.workers.gate.normalise import normalised_digest

FORMATS = [each.name for each in registry.FORMATS]
ANY_OP = [name for name in FORMATS if name not in ("vllm", "robust-kbench") and not name.endswith("-bare")]
"""Formats that take the seeded op, which is no layer of vLLM's."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with client_of(settings_for(tmp_path)) as found:
        seed(database(found))
        yield found


def export(client: TestClient, form: str) -> dict[str, str]:
    """The texts of an export by their paths."""
    response = client.get("/v1/kernels/kn_0/export", params={"format": form})
    assert response.status_code == 200, response.text
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


def test_the_service_lists_the_formats_that_there_are(client: TestClient) -> None:
    found = client.get("/v1/kernels/kn_0").json()
    assert [form["name"] for form in found["formats"]] == ANY_OP
    refused = {form["name"]: form["errors"] for form in found["refused_formats"]}
    assert set(refused) == set(FORMATS) - set(ANY_OP)
    assert [error["field"] for error in refused["gpu-mode-bare"]] == ["op.language"]


@pytest.fixture(scope="module")
def with_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service that has stored every kernel that ships."""
    with client_of(settings_for(tmp_path_factory.mktemp("library"))) as found:
        stock(database(found), entries())
        yield found


SHIPPED_KERNELS = sorted(file.parent.name for file in SHIPPED.glob("*/kernel.json"))


def test_every_kernel_that_ships_is_listed_and_opens(with_library: TestClient) -> None:
    """Ids in capitals, too, which some of them have: one of those may be the last of a page."""
    listed: list[str] = []
    after: str | None = None
    while len(listed) < len(SHIPPED_KERNELS):
        params = {"limit": 1, "sort": "created"} | ({"after": after} if after else {})
        page = with_library.get("/v1/kernels", params=params)
        assert page.status_code == 200, page.text
        listed += [kernel["id"] for kernel in page.json()["items"]]
        after = page.json()["next"]
    assert set(listed) == {entry.document["id"] for entry in entries()}
    assert all(with_library.get(f"/v1/kernels/{each}").status_code == 200 for each in listed)


@pytest.mark.parametrize("directory", nightly_but(lambda name: name.startswith("add_rms_norm_cuda"), SHIPPED_KERNELS))
def test_a_format_is_offered_where_its_export_answers_and_nowhere_else(
    with_library: TestClient, directory: str
) -> None:
    kernel = f"/v1/kernels/{read_entry(SHIPPED / directory).document['id']}"
    found = with_library.get(kernel).json()
    answers = {form: with_library.get(f"{kernel}/export", params={"format": form}) for form in FORMATS}
    assert [form["name"] for form in found["formats"]] == [name for name in FORMATS if answers[name].status_code == 200]
    refused = {form["name"]: form["errors"] for form in found["refused_formats"]}
    assert refused == {
        name: [{"line": None, **error} for error in each.json()["errors"]]
        for name, each in answers.items()
        if each.status_code == 422
    }
    assert len(refused) + len(found["formats"]) == len(FORMATS)


@pytest.mark.parametrize("form", ANY_OP)
def test_a_kernel_comes_in_every_format_in_a_directory_of_its_own(client: TestClient, form: str) -> None:
    files = export(client, form)
    assert len({path.partition("/")[0] for path in files}) == 1
    assert any("kn_0" in text for text in files.values())


def test_an_export_names_the_prompts_that_led_to_it(client: TestClient) -> None:
    with database(client).writing() as session:
        session.get_one(KernelRow, "kn_0").lineage = [{"node_id": "nd_bad"}]
        session.get_one(ModelCallRow, "mc_0").model = "a-model"
    [text] = export(client, "module").values()
    assert f"code by a-model (agent): {'a' * 64}" in text


def test_a_format_that_cannot_say_the_op_names_the_part(client: TestClient) -> None:
    with database(client).writing() as session:
        row = session.get_one(OpRow, "op_seed")
        axes = row.spec["axes"] | {"half": {"kind": "expr", "expr": "n // 2"}}
        row.spec = row.spec | {"axes": axes}
    response = client.get("/v1/kernels/kn_0/export", params={"format": "flashinfer-bench"})
    assert fields(problem(response, 422, "not-expressible")) == ["op.axes.half"]


def test_a_kernel_whose_evidence_is_for_another_source_is_refused(client: TestClient) -> None:
    with database(client).writing() as session:
        session.get_one(KernelRow, "kn_0").source += "\nX = 1\n"
    refused = problem(client.get("/v1/kernels/kn_0/export"), 422, "invalid-input")
    assert fields(refused) == ["path.kernel_id"]
    assert "a kernel whose evidence is of the source that it has" in refused["detail"]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Said]:
    app = application(settings_for(tmp_path))
    with command_line(app, capsys, monkeypatch) as run_it:
        seed(app.state.service.db)
        yield run_it


@pytest.mark.parametrize(
    "form", nightly_but({"gpu-mode", "hf-kernels"}.__contains__, (name for name in ANY_OP if name != "package"))
)
def test_the_command_line_writes_every_format(command: Said, form: str, tmp_path: Path) -> None:
    code, out, err = command("export", "kn_0", "--format", form, "-o", str(tmp_path / "out"), "--json")
    assert code == 0, err
    files = json.loads(out)["files"]
    assert files
    assert all(Path(path).is_file() for path in files)
    [project] = (tmp_path / "out").iterdir()
    (project / "of somebody else").write_text("kept")
    code, _, err = command("export", "kn_0", "--format", form, "-o", str(tmp_path / "out"))
    assert code != 0
    assert "of somebody else" in err
    assert (project / "of somebody else").read_text() == "kept"


def test_the_command_line_lists_the_formats_to_whoever_names_another(command: Said, tmp_path: Path) -> None:
    code, _, err = command("export", "kn_0", "--format", "wheel", "-o", str(tmp_path / "out"))
    assert code == 2
    assert all(name in err for name in FORMATS)


def add_kernel(db: Database, name: str, op: str = "op_seed") -> None:
    """Another kernel of the seeded search, with a source of its own."""
    with db.writing() as session:
        seeded = session.get_one(KernelRow, "kn_0")
        values = {column.name: getattr(seeded, column.name) for column in KernelRow.__table__.columns}
        source = f"{seeded.source}\nNAME = {name!r}\n"
        session.add(
            KernelRow(
                **values | {"id": name, "op_id": op, "source": source, "source_digest": normalised_digest(source)}
            )
        )


def test_several_kernels_of_one_op_come_in_one_package(client: TestClient) -> None:
    add_kernel(database(client), "kn_1")
    response = client.get("/v1/kernels/kn_0/export", params={"with": ["kn_1"]})
    assert response.status_code == 200, response.text
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        [provenance] = [json.loads(archive.read(n)) for n in archive.namelist() if n.endswith("provenance.json")]
    assert {kernel["kernel"] for kernel in provenance["kernels"]} == {"kn_0", "kn_1"}
    again = client.get("/v1/kernels/kn_1/export", params={"with": ["kn_0"]})
    assert again.content == response.content, "whichever is named first"


def test_kernels_that_cannot_stand_in_one_package_are_named(client: TestClient) -> None:
    add_kernel(database(client), "kn_1")
    with database(client).writing() as session:
        op = session.get_one(OpRow, "op_seed")
        reference = "def run(x, y):\n    return (x + y).clamp(min=0.0)\n"
        session.add(
            OpRow(id="op_else", name=op.name, digest="d" * 64, spec=op.spec | {"reference": reference}, created_at=0.0)
        )
    add_kernel(database(client), "kn_2", "op_else")

    def refused(form: str, *others: str) -> dict[str, Any]:
        response = client.get("/v1/kernels/kn_0/export", params={"format": form, "with": list(others)})
        return problem(response, 422, "invalid-input" if form == "package" else "not-expressible")

    other_op = refused("package", "kn_1", "kn_2")
    assert fields(other_op) == ["query.with[1]"]
    assert "which differs in reference" in other_op["detail"]
    assert fields(refused("package", "kn_0")) == ["query.with[0]"]
    several = refused("kernelbench", "kn_1")
    assert "of the formats package, module, hf-kernels, vllm hold several" in several["detail"]
    problem(client.get("/v1/kernels/kn_0/export", params={"with": ["kn_absent"]}), 404, "not-found")


def test_a_stored_spec_that_this_version_refuses_is_told(client: TestClient) -> None:
    add_kernel(database(client), "kn_1")
    with database(client).writing() as session:
        row = session.get_one(OpRow, "op_seed")
        row.spec = row.spec | {"workloads": [row.spec["workloads"][0] | {"role": "warm-up"}]}
    alone = problem(client.get("/v1/kernels/kn_0/export"), 422, "not-expressible")
    assert fields(alone) == ["op.workloads[0].role"]
    both = problem(client.get("/v1/kernels/kn_0/export", params={"with": ["kn_1"]}), 422, "invalid-input")
    assert fields(both) == ["path.kernel_id", "query.with[0]"]
    assert "workloads[0].role: found 'warm-up'" in both["detail"]


def test_the_command_line_writes_several_kernels_as_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = application(settings_for(tmp_path))
    with command_line(app, capsys, monkeypatch) as run_it:
        seed(app.state.service.db)
        add_kernel(app.state.service.db, "kn_1")
        code, out, err = run_it("export", "kn_0", "kn_1", "-o", str(tmp_path / "out"), "--no-verify", "--json")
        assert code == 0, err
        document = json.loads(out)
        assert (document["kernel"], document["kernels"]) == ("kn_0", ["kn_0", "kn_1"])
        assert len([path for path in document["files"] if "/_kernel_cpp_" in path]) == 2
        code, _, err = run_it("export", "kn_0", "kn_0", "-o", str(tmp_path / "out"))
        assert code != 0
        assert "query.with[0]" in err
        code, _, err = run_it("export", "sr_1", "sr_2", "--format", "pool")
        assert code == 2
        assert "one search with --format pool" in err


def test_an_op_without_a_layer_in_vllm_is_refused(client: TestClient) -> None:
    found = problem(client.get("/v1/kernels/kn_0/export", params={"format": "vllm"}), 422, "not-expressible")
    assert "an op whose layer in vLLM is known: one of rms_norm (RMSNorm)" in found["detail"]


def test_an_export_has_the_name_that_is_asked_for(client: TestClient) -> None:
    response = client.get("/v1/kernels/kn_0/export", params={"name": "warpsmith_add_relu"})
    assert response.status_code == 200, response.text
    assert response.headers["Content-Disposition"] == 'attachment; filename="warpsmith_add_relu.zip"'
    for params in ({"name": "torch"}, {"name": "warpsmith_watch"}, {"name": "warpsmith_a", "format": "library"}):
        refused = problem(client.get("/v1/kernels/kn_0/export", params=params), 422, "invalid-input")
        assert fields(refused) == ["query.name"]


def check_offers(client: TestClient) -> None:
    """Check that the document of a kernel offers the formats that its export answers in, and refuses the others."""
    found = client.get("/v1/kernels/kn_0").json()
    answers = {form: client.get("/v1/kernels/kn_0/export", params={"format": form}) for form in FORMATS}
    assert [form["name"] for form in found["formats"]] == [name for name in FORMATS if answers[name].status_code == 200]
    assert {form["name"]: [error["field"] for error in form["errors"]] for form in found["refused_formats"]} == {
        name: fields(each.json()) for name, each in answers.items() if each.status_code == 422
    }


def test_a_kernel_that_no_export_may_hold_is_offered_in_none(client: TestClient) -> None:
    with database(client).writing() as session:
        session.get_one(KernelRow, "kn_0").source += "\nSECOND = 2\n"
    check_offers(client)
    assert client.get("/v1/kernels/kn_0").json()["formats"] == []


def test_a_kernel_whose_spec_is_refused_is_offered_where_it_is_taken_as_it_is(client: TestClient) -> None:
    with database(client).writing() as session:
        op = session.get_one(OpRow, session.get_one(KernelRow, "kn_0").op_id)
        op.spec = {**op.spec, "axes": {"half": {"type": "of a later version"}}}
    check_offers(client)

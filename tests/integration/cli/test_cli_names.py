"""Ops are named wherever their ids are: one way from a name to an op, in the service's store or an example."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_support import application, command_line, seed, settings_for
from warpsmith.kernels_db.spec.op import Op, load_op, parse_op
from warpsmith.kernels_db.store.records import add_op
from warpsmith.kernels_db.store.tables import KernelRow
from warpsmith.service.cli import run
from warpsmith.service.client.errors import CommandError
from warpsmith.service.client.http import Client
from warpsmith.service.local.examples import list_examples
from warpsmith.service.mcp.specs import spec_of


@pytest.fixture
def place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, redis_url: str
) -> Iterator[Any]:
    """Commands against a service with the seeded search of add_relu; what they run in, and its database."""
    app = application(settings_for(tmp_path, broker_url=redis_url))
    seed(app.state.service.db)
    with command_line(app, capsys, monkeypatch) as run_it:
        yield run_it, app.state.service.db


def store_another_add_relu(db: Any) -> Op:
    op = load_op(list_examples()["add_relu"])
    other = parse_op(op.document() | {"description": "another add_relu"})
    with db.writing() as session:
        add_op(session, other)
    return other


def test_an_op_is_found_by_file_id_and_name(place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said, _ = place
    for text, told in (("op_seed", "op_seed: op_seed of "), ("add_relu", "add_relu: op_seed of ")):
        code, out, err = said("ops", "validate", text, "--json")
        assert (code, json.loads(out)["name"]) == (0, "add_relu"), err
        assert told in err
    code, out, err = said("ops", "validate", "softmax", "--json")
    assert (code, json.loads(out)["name"]) == (0, "softmax"), err
    assert "softmax: the example " in err
    monkeypatch.chdir(tmp_path)
    Path("softmax").mkdir()  # a directory is no spec
    assert said("ops", "validate", "softmax")[0] == 0
    Path("add_relu").write_text(list_examples()["gelu_tanh"].read_text())
    assert json.loads(said("ops", "validate", "add_relu", "--json")[1])["name"] == "gelu_tanh"


def test_a_search_is_begun_by_name_and_found_by_name(place: Any) -> None:
    said, _ = place
    code, out, err = said("search", "add_relu", "--target", "cpu", "--model", "agent", "--detach", "--json")
    assert code == 0, err
    assert json.loads(out)["op_id"] == "op_seed"
    assert len(json.loads(said("searches", "--op", "add_relu", "--json")[1])) == 2
    code, _, err = said("search", "add_rleu", "--model", "agent", "--detach")
    assert (code, "stored: add_relu; examples: " in err) == (2, True)
    assert "(op_...) or name of an op; did you mean add_relu? stored: " in err, err
    assert said("searches", "--op", "softmax")[::2] == (0, "no search matches\n")
    assert said("kernels", "--op", "softmax")[::2] == (
        0,
        "no kernels yet: a search keeps its best verified candidate\n",
    )


@pytest.mark.parametrize(
    ("command", "field"),
    [
        (("searches", "--op", "ad_relu"), "--op"),
        (("kernels", "--op", "ad_relu"), "--op"),
        (("export", "ad_relu"), "KERNEL|OP"),
        (("judge", "ad_relu", "candidate.py"), "OP"),
        (("ops", "check", "ad_relu"), "OP"),
        (("try", "ad_relu", "candidate.py"), "ASK|NODE|OP"),
    ],
)
def test_an_unknown_name_is_told_what_is_like_it(
    place: Any, command: tuple[str, ...], field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, _ = place
    monkeypatch.chdir(tmp_path)
    Path("candidate.py").write_text("from kernels_db.runtime import cpp\n")
    code, out, err = said(*command, "--json")
    assert code == 2
    [error] = json.loads(out)["error"]["errors"]
    assert (error["field"], error["found"]) == (field, "ad_relu")
    assert "did you mean add_relu" in err


def test_a_name_of_several_ops_names_each(place: Any) -> None:
    said, db = place
    store_another_add_relu(db)
    code, _, err = said("ops", "validate", "add_relu")
    assert code == 2
    assert "expected one op, but 2 stored ops have this name; the id of one: op_" in err
    assert "op_seed (stored " in err
    assert said("ops", "validate", "op_seed")[0] == 0


def test_kernels_of_two_ops_of_one_name_are_not_compared(place: Any, tmp_path: Path) -> None:
    said, db = place
    other = store_another_add_relu(db)
    with db.writing() as session:
        row, _ = add_op(session, other)
        seeded = session.get_one(KernelRow, "kn_0")
        values = {column.name: getattr(seeded, column.name) for column in KernelRow.__table__.columns}
        session.add(KernelRow(**values | {"id": "kn_1", "op_id": row.id, "score": 9.0}))
    code, _, err = said("export", "add_relu", "--output", str(tmp_path / "out"), "--no-verify")
    assert code == 2
    assert "expected one op, but 2 ops of this name have a kernel; the id of one: op_seed (kn_0, " in err
    code, out, err = said("export", "op_seed", "--output", str(tmp_path / "out"), "--no-verify", "--json")
    assert (code, json.loads(out)["kernel"]) == (0, "kn_0"), err
    code, _, err = said("export", "add_relu", "--target", "cuda:sm_90", "--output", str(tmp_path / "out"))
    assert (code, "--target: found 'cuda:sm_90', expected one that add_relu has a kernel for: cpu:" in err) == (2, True)


def test_an_op_whose_searches_kept_no_kernel_is_no_unknown_one(place: Any, tmp_path: Path) -> None:
    said, db = place
    with db.writing() as session:
        add_op(session, load_op(list_examples()["softmax"]))
    code, _, err = said("export", "softmax", "--output", str(tmp_path / "out"))
    assert (code, "expected an op with a kernel: no search of softmax has kept one; warpsmith" in err) == (2, True), err


def test_an_agent_names_ops_alike(place: Any) -> None:
    _, db = place
    with Client(os.environ["WARPSMITH_URL"]) as client:
        assert spec_of(client, "add_relu") == spec_of(client, "op_seed")
        assert spec_of(client, "softmax")["name"] == "softmax"
        with pytest.raises(CommandError, match=r"name of an op; did you mean softmax\? stored: add_relu; examples: "):
            spec_of(client, "soft-max")
        store_another_add_relu(db)
        with pytest.raises(CommandError, match="one op, but 2 stored ops have this name"):
            spec_of(client, "add_relu")


def test_without_a_service_an_example_serves(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.socket() as bound:  # bound and not listening: nothing answers there
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        monkeypatch.setenv("WARPSMITH_HOME", str(tmp_path))
        monkeypatch.setenv("WARPSMITH_PORT", str(port))
        monkeypatch.delenv("WARPSMITH_URL", raising=False)
        assert run(["ops", "validate", "softmax"]) == 0
        assert "softmax: the example " in capsys.readouterr().err
        assert run(["ops", "validate", "softmaxx"]) == 2
        assert "no service answers; examples: " in capsys.readouterr().err
        assert run(["ops", "validate", "op_0"]) == 1
        assert "where nothing answers" in capsys.readouterr().err
        assert run(["ops", "validate", "softmax", "--url", f"http://127.0.0.1:{port}"]) == 1
        assert "where nothing answers" in capsys.readouterr().err


def test_an_example_is_the_op_of_its_files_name() -> None:
    for name, path in list_examples().items():
        assert load_op(path).name == name


def test_a_search_is_named_by_its_op_and_by_its_own_name(place: Any) -> None:
    said, _ = place
    tree = said("tree", "sr_seed")[1]
    code, out, err = said("tree", "add_relu")
    assert (code, out) == (0, tree), err
    assert "add_relu: sr_seed, " in err
    assert said("label", "add_relu", "--name", "Long rows")[0] == 0
    assert said("tree", "Long rows")[:2] == (0, tree)
    assert said("label", "Long rows", "--name", "größere Zeilen")[0] == 0
    assert said("tree", "größere Zeilen")[:2] == (0, tree)
    assert said("label", "add_relu", "--name", "Long rows")[0] == 0
    assert said("node", "Long rows#0")[1] == said("node", "sr_seed#0")[1]
    code, _, err = said("tree", "Long")  # a part of a name is none
    assert (code, "SEARCH: found 'Long', expected a search's id (sr_...), its name, or the name of its op" in err) == (
        2,
        True,
    )
    assert "its op; did you mean Long rows; warpsmith searches lists them" in said("tree", "Lomg rows")[2]
    assert "did you mean add_relu;" in said("pause", "add_rleu")[2]
    assert said("tree", "sr_none")[0] == 1


def test_a_name_of_several_searches_names_each_and_changes_none(place: Any) -> None:
    said, _ = place
    code, out, err = said("search", "add_relu", "--target", "cpu", "--model", "agent", "--detach", "--json")
    assert code == 0, err
    other = json.loads(out)["id"]
    code, _, err = said("cancel", "add_relu")
    assert (code, "SEARCH: found 'add_relu', which 2 searches have, expected the id of one:" in err) == (2, True)
    assert all(f"  {each}  " in err for each in (other, "sr_seed"))
    assert json.loads(said("tree", other, "--json")[1])["search"]["state"] != "cancelled"
    assert said("label", other, "--name", "add_relu")[0] == 0  # a search's own name goes before its op's
    assert said("cancel", "add_relu")[:2] == (0, f"search {other} is cancelled\n")
    assert said("archive", "add_relu")[:2] == (0, f"search {other} is archived\n")
    assert said("unarchive", "add_relu")[:2] == (0, f"search {other} is listed again\n"), "not the one that is listed"
    assert said("unarchive", "add_relu")[0] == 2
    assert said("delete", "add_relu", "--yes")[0] == 0
    assert "sr_seed" in said("tree", "add_relu")[2]

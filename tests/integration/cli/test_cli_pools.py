"""`warpsmith export SEARCH --format pool` and `warpsmith import FILE --format pool` against a served API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_support import application, command_line, import_worker, seed, settings_for


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Run a command, in a directory of its own; returns exit code, standard output, standard error."""
    app = application(settings_for(tmp_path))
    seed(app.state.service.db)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with command_line(app, capsys, monkeypatch) as run_it, import_worker(app.state.service.db):
        yield run_it


def test_a_search_goes_out_as_a_pool_and_comes_in_again(said: Any) -> None:
    code, out, err = said("export", "sr_seed", "--format", "pool")
    assert (code, out) == (0, "1 replies of sr_seed in sr_seed.jsonl\n"), err
    first = Path("sr_seed.jsonl").read_bytes()
    assert said("pools", "export", "sr_seed", "--output", "again.jsonl")[0] == 0
    assert Path("again.jsonl").read_bytes() == first
    code, out, _ = said("import", "sr_seed.jsonl", "--format", "pool", "--json")
    assert code == 0
    stored = json.loads(out)
    assert stored["replies"] == 1
    assert json.loads(said("pools", "import", "again.jsonl", "--json")[1])["id"] == stored["id"]


def test_a_pool_that_is_wrong_is_told_by_its_line_and_listed(said: Any) -> None:
    assert said("export", "sr_seed", "--format", "pool")[0] == 0
    assert said("pools", "import", "sr_seed.jsonl", "--json")[0] == 0
    Path("wrong.jsonl").write_text(Path("sr_seed.jsonl").read_text().replace('"ordinal": 0', '"ordinal": -1'))
    code, _, err = said("pools", "import", "wrong.jsonl")
    assert code == 2
    assert "line 2, ordinal: found -1, expected a whole number" in err
    failed, done = json.loads(said("imports", "--json")[1])
    assert (failed["state"], done["state"]) == ("failed", "done")
    code, out, _ = said("imports", failed["id"])
    assert code == 0
    assert "failed  line 2, ordinal: found -1, expected" in out
    assert json.loads(said("imports", done["id"], "--json")[1])["result"] == done["result"]
    assert done["result"]["pool_id"] in said("imports", "--state", "done")[1]
    assert "no imports" in said("imports", "--state", "running")[2]


def test_a_file_with_another_content_is_replaced_by_force_alone(said: Any) -> None:
    Path("sr_seed.jsonl").write_text("mine")
    code, _, err = said("export", "sr_seed", "--format", "pool")
    assert code == 1
    assert "--output: found sr_seed.jsonl with another content" in err
    assert Path("sr_seed.jsonl").read_text() == "mine"
    assert said("export", "sr_seed", "--format", "pool", "--force")[0] == 0
    assert said("export", "sr_seed", "--format", "pool")[0] == 0, "the same content again is no error"


def test_a_file_in_the_place_of_the_directory_is_named(said: Any) -> None:
    Path("taken").write_text("mine")
    code, _, err = said("export", "sr_seed", "--format", "pool", "--output", "taken/pool.jsonl")
    assert code == 2
    assert "--output: found 'taken', expected a directory that is there or can be made (File exists)" in err
    assert Path("taken").read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["sr_seed"], 2, "a search is exported with --format pool"),
        (["sr_seed", "--format", "zip"], 2, "--format: found 'zip', expected one of package, module, "),
        (["sr_seed", "--format", "pool", "--target", "cpu"], 2, "--target: found 'cpu', expected no target"),
        (["kn_0", "--format", "pool"], 2, "SEARCH: found 'kn_0', expected a search's id (sr_...), its name,"),
        (["sr_none", "--format", "pool"], 1, "search: found 'sr_none', expected the id of one that is stored, sr_..."),
        (["sr_/../kernels", "--format", "pool"], 1, "id: found 'sr_/../kernels', expected one such as sr_"),
        (["../kernels", "--format", "pool"], 2, "SEARCH: found '../kernels', expected a search's id (sr_...)"),
    ],
)
def test_what_cannot_be_exported_is_told(said: Any, arguments: list[str], code: int, message: str) -> None:
    found, _, err = said("export", *arguments)
    assert found == code
    assert message in err

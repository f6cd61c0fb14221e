"""`warpsmith bundle` and `warpsmith merge`, against a service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.schemas import BundleDocument
from tests.integration.api_support import application, command_line, settings_for
from tests.integration.test_bundles import attempts, created, verdict_line
from workers.judge.directory import read_bundle


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Run a command against a service, with its database as `db`; returns exit code and both outputs."""
    app = application(settings_for(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    with command_line(app, capsys, monkeypatch) as run_it:
        run_it.db = app.state.service.db  # type: ignore[attr-defined] # for the tests
        yield run_it


def lie_in(directory: Path) -> dict[str, Any]:
    """What a host that lies would write on the bundle's first job."""
    header, jobs = read_bundle(directory)
    bundle = BundleDocument(**{**header, "left": 0, "jobs": [json.dumps(job) for job in jobs]})
    return verdict_line(bundle)


def test_there_and_back(said: Any, tmp_path: Path) -> None:
    search_id = created(said.db)
    directory = tmp_path / "out" / "bundle"
    code, out, err = said("bundle", search_id, "--output", str(directory), "--with-judge")
    assert code == 0, err
    assert "1 job for add_relu on cpu:x86_64" in out
    assert f"warpsmith merge {directory}" in err
    assert (directory / "judge" / "workers" / "judge" / "__main__.py").is_file()
    assert "PYTHONPATH=judge python -m workers.judge ." in (directory / "README.txt").read_text()
    assert not [name for name in directory.rglob("*") if name.name == "bundle.key"]

    code, _, err = said("merge", str(directory))
    assert (code, "found no verdicts.jsonl" in err) == (2, True)
    line = json.dumps(lie_in(directory))
    verdicts = directory / "verdicts.jsonl"
    verdicts.write_text(line.replace('"signature": "', '"signature": "0')[:-1] + "}\n" + line + "\n" + line[:99])
    code, out, err = said("merge", str(directory))
    assert code == 1
    assert out == "1 verdict merged, 1 refused\n"
    assert "line 1: refused: signature: found" in err
    assert "the last line was not finished" in err
    assert f"the search goes on: warpsmith tree {search_id}" in err

    verdicts.write_text(line + "\n")
    assert said("merge", str(verdicts))[:2] == (0, "0 verdicts merged, 1 already merged\n")
    code, out, _ = said("merge", str(directory), "--json")
    assert (code, json.loads(out)["already"]) == (0, 1)


def test_lines_keep_their_numbers_across_requests(said: Any, tmp_path: Path) -> None:
    file = tmp_path / "verdicts.jsonl"
    file.write_text("\n" * 700 + "{}\n")
    code, out, err = said("merge", str(file))
    assert (code, out) == (1, "0 verdicts merged, 1 refused\n")
    assert "line 701: refused: nonce: found None, expected this field" in err


def test_a_bundle_is_dropped(said: Any, tmp_path: Path) -> None:
    search_id = created(said.db)
    code, out, _ = said("bundle", search_id, "-o", str(tmp_path / "b"), "--json")
    document = json.loads(out)
    assert (code, document["count"], "jobs" in document) == (0, 1, False)
    code, _, err = said("bundle", "--drop", str(tmp_path / "b"))
    assert (code, "stands in" in err) == (2, True)
    assert said("bundle", "--drop", document["id"])[:2] == (
        0,
        f"1 job of {document['id']} returned to the queue of {search_id}\n",
    )
    assert attempts(said.db, search_id)[0].state == "pending"
    code, _, err = said("bundle", "--drop", document["id"])
    assert (code, "expected the id of a bundle that is out" in err) == (1, True)


def test_what_cannot_be_written_takes_no_jobs(said: Any, tmp_path: Path) -> None:
    search_id = created(said.db)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    code, _, err = said("bundle", search_id, "-o", str(tmp_path / "full"))
    assert (code, "not empty, expected a new directory" in err) == (2, True)
    (tmp_path / "file").write_text("")
    code, _, err = said("bundle", search_id, "-o", str(tmp_path / "file" / "below"))
    assert code == 1, err
    assert attempts(said.db, search_id)[0].state == "pending"  # taken, and given back when it could not be written


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["bundle"], 2, "SEARCH: found None"),
        (["bundle", "sr_x"], 2, "--output: found None"),
        (["bundle", "sr_x", "--drop", "bn_x"], 2, "--drop: found 'bn_x', expected nothing beside it"),
        (["bundle", "sr_absent", "-o", "{new}"], 1, "expected the id of one that is stored"),
        (["merge", "{new}"], 2, "expected a bundle's directory"),
    ],
)
def test_misuse_is_named(arguments: list[str], code: int, message: str, said: Any, tmp_path: Path) -> None:
    found, _, err = said(*(word.replace("{new}", str(tmp_path / "new")) for word in arguments))
    assert found == code, err
    assert message in err
    assert not (tmp_path / "new").exists()

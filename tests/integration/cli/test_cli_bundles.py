"""`warpsmith bundle` and `warpsmith merge`, against a service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.api.test_bundle_trips import GOOD, write
from tests.integration.api.test_bundles import attempts, created, nodes, small_op, unjudged_line, verdict_line
from tests.support.api_support import application, command_line, settings_for
from warpsmith.kernels_db.store.tables import AttemptRow, NodeRow, ProfileRow, WorkerRow
from warpsmith.service.documents.bundles import BundleDocument
from warpsmith.workers import steps
from warpsmith.workers.judge.protocol.directory import read_bundle


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Run a command against a service, with its database as `db`; returns exit code and both outputs."""
    app = application(settings_for(tmp_path / "home", log_level="ERROR"))
    monkeypatch.setenv("COLUMNS", "200")
    with command_line(app, capsys, monkeypatch) as run_it:
        run_it.db = app.state.service.db  # type: ignore[attr-defined] # for the tests
        yield run_it


def bundle_in(directory: Path) -> BundleDocument:
    """The bundle as the service answered it."""
    header, jobs = read_bundle(directory)
    return BundleDocument(**{**header, "left": 0, "jobs": [json.dumps(job) for job in jobs]})


def lie_in(directory: Path) -> dict[str, Any]:
    """What a host that lies would write on the bundle's first job."""
    return verdict_line(bundle_in(directory))


def test_there_and_back(said: Any, tmp_path: Path) -> None:
    search_id = created(said.db)
    directory = tmp_path / "out" / "bundle"
    code, out, err = said("bundle", search_id, "--output", str(directory), "--with-judge")
    assert code == 0, err
    assert "1 job for add_relu on cpu:x86_64" in out
    assert f"warpsmith merge {directory}" in err
    assert (directory / "judge" / "warpsmith" / "workers" / "judge" / "__main__.py").is_file()
    assert "PYTHONPATH=judge python -m warpsmith.workers.judge ." in (directory / "README.txt").read_text()
    assert not [name for name in directory.rglob("*") if name.name == "bundle.key"]

    code, _, err = said("merge", str(directory))
    assert (code, "found no verdicts.jsonl" in err) == (2, True)
    (directory / "verdicts.jsonl").touch()  # a judge that found no device leaves it empty
    code, out, err = said("merge", str(directory))
    assert (code, out, f"DIR: found no verdicts in {directory}, expected" in err) == (2, "", True)
    line = json.dumps(lie_in(directory))
    verdicts = directory / "verdicts.jsonl"
    verdicts.write_text(line.replace('"signature": "', '"signature": "0')[:-1] + "}\n" + line + "\n" + line[:99])
    code, out, err = said("merge", str(directory))
    assert code == 1
    assert out == "1 verdict merged, 1 refused\n"
    assert "verdicts.jsonl, line 1: refused: signature: found" in err
    assert "the last line of verdicts.jsonl was not finished" in err
    assert f"the search goes on: warpsmith tree {search_id}" in err

    verdicts.write_text(line + "\n")
    assert said("merge", str(verdicts))[:2] == (0, "0 verdicts merged, 1 already merged\n")
    code, out, _ = said("merge", str(directory), "--json")
    assert (code, json.loads(out)["already"]) == (0, 1)


def test_a_directory_without_verdicts_is_named_and_the_others_are_merged(said: Any, tmp_path: Path) -> None:
    search_id = created(said.db)
    judged, waiting = tmp_path / "judged", tmp_path / "waiting"
    assert said("bundle", search_id, "--output", str(judged))[0] == 0
    (judged / "verdicts.jsonl").write_text(json.dumps(lie_in(judged)) + "\n")
    waiting.mkdir()
    code, out, err = said("merge", str(waiting), str(judged))
    assert (code, out) == (1, "1 verdict merged\n")
    assert f"{waiting}: left out: DIR: found no verdicts.jsonl" in err
    code, out, _ = said("merge", str(waiting), str(judged), "--json")
    document = json.loads(out)
    assert (code, document["already"]) == (1, 1)
    assert [one["directory"] for one in document["left_out"]] == [str(waiting)]


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
    assert (code, document["count"], {"jobs", "verifications"} & document.keys()) == (0, 1, set())
    code, _, err = said("bundle", "--drop", str(tmp_path / "b"))
    assert code == 2
    assert "bundle.json" in err, err
    assert said("bundle", "--drop", document["id"])[:2] == (
        0,
        f"1 job of {document['id']} returned to the queue in {search_id}\n",
    )
    assert attempts(said.db, search_id)[0].state == "pending"
    code, _, err = said("bundle", "--drop", document["id"])
    assert (code, "expected the id of a bundle that is out" in err) == (1, True)


def test_what_was_not_judged_is_shown_and_settled(said: Any, tmp_path: Path) -> None:
    search_id = created(said.db)
    directory = tmp_path / "b"
    assert said("bundle", search_id, "-o", str(directory))[0] == 0
    bundle = bundle_in(directory)
    (directory / "verdicts.jsonl").write_text("")
    forged = {**unjudged_line(bundle), "signature": "0" * 64}
    hostile = unjudged_line(bundle, kind="refused", reason="limits: found \x1b[2J0")
    (directory / "unjudged.jsonl").write_text(f"{json.dumps(forged)}\n{json.dumps(hostile)}\n")
    code, out, err = said("merge", str(directory))
    assert (code, out) == (1, "0 verdicts merged, 1 not judged, 1 refused\n")
    assert "unjudged.jsonl, line 1: refused: signature: found" in err
    assert "unjudged.jsonl, line 2: bj_" in err
    assert "has no verdict: refused: limits: found" in err
    assert f"warpsmith bundle --requeue {bundle.id}, or --give-up {bundle.id}" in err
    assert "\x1b" not in err

    code, out, _ = said("merge", str(directory / "unjudged.jsonl"), "--json")
    assert [(line["file"], line["line"]) for line in json.loads(out)["lines"]] == [
        ("unjudged.jsonl", 1),
        ("unjudged.jsonl", 2),
    ]
    code, out, err = said("bundle", "--show", bundle.id)
    assert code == 0, err
    assert out.startswith("#0 judge: bj_")
    assert "refused: limits: found" in out
    assert [job["attempt_id"] for job in json.loads(said("bundle", "--show", bundle.id, "--json")[1])] == [
        attempts(said.db, search_id)[0].id
    ]

    assert said("bundle", "--requeue", bundle.id)[:2] == (
        0,
        f"1 job of {bundle.id} returned to the queue in {search_id}\n",
    )
    assert attempts(said.db, search_id)[0].state == "pending"
    code, _, err = said("bundle", "--show", bundle.id)
    assert (code, "expected the id of a bundle that is out" in err) == (1, True)


def test_several_directories_are_merged_at_once(said: Any, tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "other"]
    for directory in directories:
        assert said("bundle", created(said.db), "-o", str(directory))[0] == 0
        (directory / "verdicts.jsonl").write_text("")
        (directory / "unjudged.jsonl").write_text(json.dumps(unjudged_line(bundle_in(directory))) + "\n")
    code, out, err = said("merge", *map(str, directories))
    assert (code, out) == (0, "0 verdicts merged, 2 not judged\n"), err
    assert all(f"{directory / 'unjudged.jsonl'}, line 1: bj_" in err for directory in directories)
    code, _, err = said("merge", str(directories[0]), str(tmp_path / "none"))
    assert (code, "expected a bundle's directory" in err) == (2, True)


def test_all_searches_that_wait_go_into_one_directory_and_come_back_from_it(said: Any, tmp_path: Path) -> None:
    ids = {created(said.db), created(said.db)}
    out_there = tmp_path / "out"
    code, out, err = said("bundle", "--all", "-o", str(out_there), "--with-judge")
    assert (code, len(out.splitlines())) == (0, 2), err
    assert "PYTHONPATH=judge python -m warpsmith.workers.judge sr_*" in err
    assert {each.name for each in out_there.iterdir()} == {*ids, "judge"}
    assert (out_there / "judge" / "warpsmith" / "workers" / "judge" / "__main__.py").is_file()
    code, out, _ = said("bundle", "--all", "-o", str(tmp_path / "again"))
    assert (code, out) == (0, "no search has jobs that wait for a judge\n")
    for search_id in ids:
        line = json.dumps(verdict_line(bundle_in(out_there / search_id)))
        (out_there / search_id / "verdicts.jsonl").write_text(line + "\n")
    code, out, err = said("merge", str(out_there))
    assert (code, out) == (0, "2 verdicts merged\n"), err


def test_searches_for_several_targets_go_into_no_one_directory(said: Any, tmp_path: Path) -> None:
    here, there = created(said.db), created(said.db, target="cuda:sm_90")
    code, _, err = said("bundle", "--all", "-o", str(tmp_path / "out"))
    assert (code, "--target: found None, expected one of cpu:x86_64, cuda:sm_90" in err) == (2, True), err
    assert {attempts(said.db, each)[0].state for each in (here, there)} == {"pending"}, "nothing was taken"
    for target, search_id in (("cuda:sm_90", there), ("cpu:x86_64", here)):
        output = tmp_path / search_id
        code, out, err = said("bundle", "--all", "--target", target, "-o", str(output), "--json")
        assert code == 0, err
        assert [each["search_id"] for each in json.loads(out)["bundles"]] == [search_id]
    assert said("bundle", "--all", "--target", "cuda:sm_80", "-o", str(tmp_path / "none"))[0] == 0


def test_a_profile_of_a_paused_search_goes_with_all_others_and_its_steps_stay(said: Any, tmp_path: Path) -> None:
    search_id, other = created(said.db), created(said.db)
    for each in (search_id, other):
        steps.pause(said.db, each, "on request", said.db.now())
    (judge,) = attempts(said.db, search_id)
    asked = ProfileRow(id="pf_asked", search_id=search_id, node_id=judge.node_id, state="pending", document={})
    asked.created_at = said.db.now()
    with said.db.writing() as session:
        session.get_one(NodeRow, judge.node_id).source = "code"
        session.add(asked)
    code, out, err = said("bundle", "--all", "-o", str(tmp_path / "out"), "--json")
    assert code == 0, err
    assert [(each["search_id"], each["count"]) for each in json.loads(out)["bundles"]] == [(search_id, 1)]
    assert attempts(said.db, search_id)[0].state == "pending"


def test_where_a_model_worker_alone_is_missing_nothing_is_bundled(said: Any, tmp_path: Path) -> None:
    search_id = created(said.db)
    now = said.db.now()
    (judge,) = attempts(said.db, search_id)
    asked = AttemptRow(id="at_asked", search_id=search_id, node_id=judge.node_id, kind="ideate", ordinal=1, params={})
    asked.state, asked.tries, asked.created_at = "pending", 0, now
    worker = WorkerRow(name="a", role="judge", target="cpu:x86_64", facts={}, started_at=now, seen_at=now)
    with said.db.writing() as session:
        session.add_all([asked, worker])
    code, out, err = said("bundle", "--all", "-o", str(tmp_path / "out"))
    assert (code, out) == (0, "no search has jobs that wait for a judge\n"), err
    assert attempts(said.db, search_id)[0].state == "pending", "its worker takes it"


def test_what_was_not_judged_is_given_up(said: Any, tmp_path: Path) -> None:
    search_id = created(said.db)
    assert said("bundle", search_id, "-o", str(tmp_path / "b"))[0] == 0
    bundle = bundle_in(tmp_path / "b")
    assert said("bundle", "--show", bundle.id)[1] == f"no unjudged jobs are known of {bundle.id}\n"
    file = tmp_path / "unjudged.jsonl"
    file.write_text(json.dumps(unjudged_line(bundle)) + "\n")
    assert said("bundle", "--give-up", bundle.id)[1] == f"0 jobs of {bundle.id} given up in {search_id}\n"
    assert said("merge", str(file))[:2] == (0, "0 verdicts merged, 1 not judged\n")
    code, out, err = said("bundle", "--give-up", bundle.id)
    assert (code, out) == (0, f"1 job of {bundle.id} given up in {search_id}\n"), err
    assert attempts(said.db, search_id)[0].state == "failed"


def test_what_cannot_be_written_takes_no_jobs(said: Any, tmp_path: Path) -> None:
    search_id = created(said.db)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    code, _, err = said("bundle", search_id, "-o", str(tmp_path / "full"))
    assert (code, "not empty, expected a new directory" in err) == (2, True)
    (tmp_path / "file").write_text("")
    code, _, err = said("bundle", search_id, "-o", str(tmp_path / "file"))
    assert (code, "file, which is a file, expected a new directory" in err) == (2, True)
    code, _, err = said("bundle", search_id, "-o", str(tmp_path / "file" / "below"))
    assert code == 1, err
    assert attempts(said.db, search_id)[0].state == "pending"  # taken, and given back when it could not be written


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["bundle"], 2, "SEARCH: found None"),
        (["bundle", "sr_x"], 2, "--output: found None"),
        (["bundle", "sr_x", "--all"], 2, "--all: found 'sr_x', expected no SEARCH beside it"),
        (["bundle", "sr_x", "--drop", "bn_x"], 2, "--drop: found 'bn_x', expected nothing beside it"),
        (["bundle", "--show", "bn_x", "--give-up", "bn_y"], 2, "--show: found 'bn_x', expected nothing beside it"),
        (["bundle", "--give-up", "bn_x"], 1, "expected the id of a bundle that is out"),
        (["bundle", "sr_absent", "-o", "{new}"], 1, "expected the id of one that is stored"),
        (["merge", "{new}"], 2, "expected a bundle's directory"),
    ],
)
def test_misuse_is_named(arguments: list[str], code: int, message: str, said: Any, tmp_path: Path) -> None:
    found, _, err = said(*(word.replace("{new}", str(tmp_path / "new")) for word in arguments))
    assert found == code, err
    assert message in err
    assert not (tmp_path / "new").exists()


def test_builds_are_asked_for_where_a_bundle_is_written(said: Any, tmp_path: Path) -> None:
    search_id = created(said.db)
    code, _, err = said("bundle", search_id, "-o", str(tmp_path / "b"), "--with-builds")
    assert code == 0, err
    assert "0 jobs of bn_" in err
    assert "compiled here" in err
    assert not (tmp_path / "b" / "builds.jsonl").exists()
    code, _, err = said("bundle", "--drop", "bn_1", "--with-builds")
    assert (code, "nothing beside it" in err) == (2, True)


def test_what_was_asked_for_and_not_judged_needs_no_settling(said: Any, tmp_path: Path) -> None:
    search_id = created(said.db)
    assert said("bundle", search_id, "-o", str(tmp_path / "first"))[0] == 0
    (tmp_path / "x.py").write_text(GOOD)
    code, _, err = said("try", nodes(said.db, search_id)[0].id, str(tmp_path / "x.py"), "--wait", "0")
    assert code == 1
    assert f"A bundle takes it to a GPU elsewhere: warpsmith bundle {search_id} -o DIR" in err.replace("\n", " ")
    code, out, err = said("bundle", "--all", "-o", str(tmp_path / "all"))
    assert code == 0, err
    directory = tmp_path / "all" / search_id
    (directory / "verdicts.jsonl").write_text("")
    (directory / "unjudged.jsonl").write_text(json.dumps(unjudged_line(bundle_in(directory))) + "\n")
    code, out, err = said("merge", str(directory))
    assert (code, out) == (0, "0 verdicts merged, 1 not judged\n")
    assert "has no verdict: died: its driver fell" in err
    assert "--requeue" not in err


@pytest.mark.alone
@pytest.mark.nightly
def test_a_trip_brings_a_profile_and_a_try_back(said: Any, tmp_path: Path, examples: Path) -> None:
    """All of it as a user does it: only the model is played, and the host has nothing but the bundle's own judge."""
    search_id = created(said.db, small_op(examples))
    bundles = [tmp_path / name for name in ("baselines", "round", "asked")]
    assert said("bundle", search_id, "-o", str(bundles[0]), "--with-judge")[0] == 0
    write(said.db, search_id, [GOOD])
    assert said("bundle", search_id, "-o", str(bundles[1]), "--with-judge")[0] == 0
    (file := tmp_path / "x.py").write_text(GOOD)
    node = f"{search_id}#1"
    assert said("profile", node, "--wait", "0")[0] == 1
    for level in ("screen", "profile"):
        assert said("try", node, str(file), "--level", level, "--wait", "0")[0] == 1
    code, out, err = said("bundle", search_id, "-o", str(bundles[2]), "--with-judge")
    assert (code, "3 jobs for" in out) == (0, True), err
    there = {"PATH": os.environ["PATH"], "WARPSMITH_JUDGE_CACHE": str(tmp_path / "cache"), "PYTHONPATH": "judge"}
    for directory in bundles:
        command = [sys.executable, "-m", "warpsmith.workers.judge", "."]
        judged = subprocess.run(command, check=False, cwd=directory, env=there, capture_output=True, text=True)
        assert judged.returncode == 0, judged.stderr
    code, out, err = said("merge", *map(str, bundles))
    assert (code, out) == (0, "6 verdicts merged\n"), err
    assert f"the search goes on: warpsmith tree {search_id}" in err
    code, out, err = said("profile", node, "--last")
    assert (code, "kernels.bias_relu" in out) == (0, True), (out, err)
    code, out, err = said("node", node)
    assert out.count("  try      ty_") == 2, out
    assert "screen accepted" in out
    assert "profile ambiguous" in out

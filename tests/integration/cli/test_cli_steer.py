"""Steering from the command line, against a service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_support import application, command_line, seed, settings_for

IDEA = ["--technique", "tiling", "--title", "One pass", "--mechanism", "Both loops become one."]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Run a command against a service with the seeded search; returns exit code, standard output, standard error."""
    app = application(settings_for(tmp_path))
    seed(app.state.service.db)
    monkeypatch.setenv("COLUMNS", "200")
    with command_line(app, capsys, monkeypatch) as run_it:
        yield run_it


def test_an_idea_is_added_by_options_or_from_a_file(said: Any, tmp_path: Path) -> None:
    assert said("idea", "sr_seed", *IDEA, "--codes", "2")[:2] == (0, "planned as #3, #4 in round 2\n")
    file = tmp_path / "idea.json"
    file.write_text(json.dumps({"technique": "fusion", "title": "From a file", "mechanism": "Less to do."}))
    code, out, _ = said("idea", "sr_seed", "--file", str(file), "--parent", "sr_seed#0", "--json")
    assert code == 0
    (node,) = json.loads(out)["nodes"]
    assert (node["title"], node["parent_id"], node["origin"]) == ("From a file", "nd_root", "person")
    code, _, err = said("idea", "sr_seed", "--file", str(file))
    assert code == 1
    assert "the same idea as node #5" in err
    tree = said("tree", "sr_seed")[1]
    assert "One pass [memory_access, round 2]" in tree
    assert "a person's idea" in tree


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["idea", "sr_seed", "--title", "x", "--mechanism", "y"], "--technique: found None, expected words"),
        (
            ["idea", "sr_seed", *IDEA, "--technique", "magic"],
            "--technique: found 'magic', expected one of memory_access",
        ),
        (["idea", "sr_seed", *IDEA, "--parent", "sr_seed#x"], "NODE: found 'sr_seed#x'"),
        (["idea", "sr_seed", *IDEA, "--parent", "sr_seed#77"], "expected the number of a node of sr_seed"),
        (["idea", "sr_seed", "--file", "absent.json"], "--file: found 'absent.json', expected a file that can be read"),
        (["budget", "sr_seed"], "expected a limit to change"),
        (["budget", "sr_seed", "--candidates", "many"], "--candidates: found 'many', expected a number above zero"),
        (["budget", "sr_seed", "--candidates", "1"], "budget.candidates: found 1, expected at least what is spent"),
        (["branch", "nd_good", "--policy", "name=luck"], 'policy.name: found "luck"'),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], message: str, said: Any) -> None:
    code, _, err = said(*arguments)
    assert code == 2, err
    assert message in err


def test_a_file_that_is_no_idea_is_named(said: Any, tmp_path: Path) -> None:
    file = tmp_path / "idea.json"
    for text, message in (
        ("[1]", "a JSON object with technique"),
        ("{", f"--file: found '{file}, which is not JSON at line 1, column 2', expected a JSON object with technique"),
        ('{"gain": 1}', "--file gain"),
    ):
        file.write_text(text)
        code, _, err = said("idea", "sr_seed", "--file", str(file))
        assert code == 2
        assert message in err


def test_marks(said: Any) -> None:
    assert said("pin", "sr_seed#1")[:2] == (0, "node nd_good (#1) is pinned\n")
    assert "pinned" in said("tree", "sr_seed")[1]
    assert said("unpin", "nd_good")[1] == "node nd_good (#1) is unmarked\n"
    assert json.loads(said("ban", "nd_good", "--json")[1])["mark"] == "banned"
    assert said("unban", "nd_good")[:2] == (0, "node nd_good (#1) is unmarked\n")
    code, _, err = said("ban", "sr_seed#0")
    assert code == 1
    assert err.startswith('error: node nd_root: found "the root", expected a node with an idea')


def test_a_budget(said: Any) -> None:
    out = said("budget", "sr_seed", "--candidates", "80", "--cost", "2.5", "--time", "1h", "--gpu", "10m")[1]
    assert out == "search sr_seed may use 80 candidates, $2.50, 1:00:00 of running time, 10:00 on the device\n"
    lifted = ["--candidates", "none", "--cost", "none", "--time", "none", "--gpu", "none"]
    assert said("budget", "sr_seed", *lifted)[1] == "search sr_seed may use the limits of its policy alone\n"


def test_a_branch(said: Any) -> None:
    code, out, err = said("branch", "sr_seed#1", "--budget", "candidates=3", "--model", "agent")
    assert code == 0, err
    assert f"warpsmith tree {out.strip()}" in err
    document = json.loads(said("branch", "nd_good", "--json")[1])
    assert (document["branched_from"], document["budget"]) == ("nd_good", {"candidates": 12})
    assert "branched" in said("tree", out.strip())[1]


def test_a_branch_with_other_models(said: Any, tmp_path: Path) -> None:
    file = tmp_path / "model.json"
    file.write_text('{"provider": "agent"}')
    document = json.loads(said("branch", "nd_good", "--model-file", str(file), "--json")[1])
    assert document["model"] == {"provider": "agent"}
    code, _, err = said("branch", "nd_good", "--model-file", str(file), "--model", "agent")
    assert code == 2
    assert "--model: found 'agent', expected not both it and --model-file" in err
    code, _, err = said("branch", "nd_good", "--base-url", "nowhere")
    assert code == 2, "an endpoint without a model is openai's, not nothing"
    assert "base_url: found" in err


def test_the_tree_is_followed_by_the_story(said: Any) -> None:
    out = said("tree", "sr_seed")[1]
    assert out.index("reference and its baselines") < out.index("WHAT WAS ASKED") < out.index("WHERE IT STANDS")
    alone = said("tree", "sr_seed", "--story")[1]
    assert alone.startswith("add_relu on cpu:x86_64: running")
    document = json.loads(said("tree", "sr_seed", "--json")[1])
    assert set(document) == {"search", "nodes", "story"}
    assert document["story"]["text"].rstrip() == alone.rstrip()
    assert set(json.loads(said("tree", "sr_seed", "--story", "--json")[1])) == {"search", "story"}

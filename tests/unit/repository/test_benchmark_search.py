"""Ways to search compared: what is read of a search, how winners are set beside each other, what is printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import search

TREE: dict[str, Any] = {
    "search": {
        "op_name": "add",
        "language": "triton",
        "policy": {"name": "idea_beam"},
        "budget": {"candidates": 8},
        "spend": {"gpu_seconds": 81.5},
    },
    "nodes": [
        {"seq": 0, "id": "n0", "state": "judged", "verdict": "accepted", "score": None, "verification": "none"},
        {"seq": 1, "id": "n1", "state": "judged", "verdict": "accepted", "score": 1.5, "verification": "passed"},
        {"seq": 2, "id": "n2", "state": "judged", "verdict": "accepted", "score": 1.9, "verification": "failed"},
        {"seq": 3, "id": "n3", "state": "judged", "verdict": "rejected", "score": None, "verification": "none"},
        {"seq": 4, "id": "n4", "state": "planned", "verdict": None, "score": None, "verification": "none"},
    ],
}
ASKS = [
    {"kind": "ideate", "reply": "four ideas", "messages": [{"content": "x" * 400}, {"content": "y" * 40}]},
    {"kind": "code", "reply": "code", "messages": [{"content": "z" * 800}]},
    {"kind": "code", "reply": None, "messages": [{"content": "z" * 800}]},
]


def printing(directory: Path) -> str:
    """Write a command line that prints the documents of one search, as a version of Warpsmith does."""
    for node in TREE["nodes"]:
        node.update({"title": "an idea", "technique": "fusion", "ci95": [1.4, 1.6], "best": node["seq"] == 1})
    documents = {"tree": TREE, "ask": ASKS, "node": {"source": "def run(x): ..."}}
    file = directory / "warpsmith"
    file.write_text(
        f"#!{sys.executable}\nimport json, sys\nfound = json.loads({json.dumps(documents)!r})\n"
        "print(json.dumps(found[sys.argv[1]])) if sys.argv[2] != 'gone' else sys.exit('no such search')\n"
    )
    file.chmod(0o755)
    return str(file)


def verdict(score: float | None, state: str = "accepted") -> dict[str, Any]:
    ends = None if score is None else [score * 0.99, score * 1.01]
    return {"verdict": state, "gate": "time", "reason": "", "score": score, "score_ci95": ends, "workloads": []}


def test_a_search_is_read_by_the_documents_that_its_version_prints(tmp_path: Path) -> None:
    row = search.read(printing(tmp_path), "today", "sr_1")
    assert (row["calls"], row["prompt_tokens"], row["reply_tokens"]) == (2, {"code": [200], "ideate": [110]}, 4)
    assert (row["candidates"], row["right"], row["sweep_seconds"]) == (3, 1, 0.0)
    assert (row["best"]["seq"], row["source"]) == (1, "def run(x): ...")


def test_a_search_that_is_not_there_is_named_with_what_the_command_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"tree gone --json: exit 1: no such search"):
        search.read(printing(tmp_path), "today", "gone")


def test_verdicts_are_joined_and_arms_compared_over_the_ops_that_both_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.json"
    command = printing(tmp_path)
    for arm in ("today", "yesterday"):
        search.main(["read", str(data), arm, "sr_1", "--warpsmith", command, "--note", f"as of {arm}"])
    found = [
        {"op": "add", "arm": "today", "verdict": verdict(3.0), "error": ""},
        {"op": "add", "arm": "yesterday", "verdict": verdict(2.0), "error": ""},
        {"op": "other", "arm": "today", "verdict": verdict(9.0), "error": ""},
    ]
    (tmp_path / "verdicts.json").write_text(json.dumps(found))
    search.main(["join", str(data), str(tmp_path / "verdicts.json")])
    search.main(["table", str(data)])
    printed = capsys.readouterr().out
    assert "3.000x [2.970, 3.030]" in printed
    assert "today over yesterday: 1.500 [1.500, 1.500] over 1 ops" in printed
    assert "yesterday: as of yesterday" in printed


def test_a_winner_that_is_rejected_when_judged_together_counts_in_no_comparison() -> None:
    rows = [
        {"op": "add", "arm": "today", "verdict": verdict(None, "rejected")},
        {"op": "add", "arm": "yesterday", "verdict": verdict(2.0)},
    ]
    assert search.compare(rows, "today", "yesterday") is None

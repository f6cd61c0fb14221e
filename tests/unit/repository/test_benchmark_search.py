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
        {"seq": 0, "id": "n0", "verdict": "accepted"},
        {"seq": 1, "id": "n1", "verdict": "accepted"},
        {"seq": 2, "id": "n2", "verdict": "accepted"},
        {"seq": 3, "id": "n3", "verdict": "rejected"},
        {"seq": 4, "id": "n4", "verdict": None},
    ],
}


def node(seq: int, score: float | None, verification: str = "none", number: int = 1) -> dict[str, Any]:
    ends = None if score is None else [score * 0.99, score * 1.01]
    screen = {"verdict": "rejected" if score is None else "accepted", "score": score, "score_ci95": ends}
    verdicts = [{"level": "screen", "document": screen | {"device": {"name": "a GPU"}}}]
    if verification != "none":
        verdicts.append({"level": "verify", "document": screen | {"score": 9.0, "device": {"name": "another GPU"}}})
    told = {"seq": seq, "round": number, "technique": "fusion", "title": "an idea", "verification": verification}
    return told | {"verdicts": verdicts, "source": f"def run_{seq}(x): ..."}


NODES = {"n1": node(1, 1.5, "passed"), "n2": node(2, 1.9, "failed"), "n3": node(3, None)}
ASKS = [
    {"kind": "ideate", "reply": "four ideas", "messages": [{"content": "x" * 400}, {"content": "y" * 40}]},
    {"kind": "code", "reply": "code", "messages": [{"content": "z" * 800}]},
    {"kind": "code", "reply": None, "messages": [{"content": "z" * 800}]},
]


def printing(directory: Path) -> str:
    """Write a command line that prints the documents of one search, as a version of Warpsmith does."""
    documents = {"tree": TREE, "ask": ASKS, "node": NODES}
    file = directory / "warpsmith"
    file.write_text(
        f"#!{sys.executable}\nimport json, sys\nfound = json.loads({json.dumps(documents)!r})[sys.argv[1]]\n"
        "if sys.argv[2] == 'gone': sys.exit('no such search')\n"
        "print(json.dumps(found[sys.argv[2]] if sys.argv[1] == 'node' else found))\n"
    )
    file.chmod(0o755)
    return str(file)


def verdict(score: float | None, state: str = "accepted") -> dict[str, Any]:
    ends = None if score is None else [score * 0.99, score * 1.01]
    return {"verdict": state, "gate": "time", "reason": "", "score": score, "score_ci95": ends, "workloads": []}


def test_a_search_is_read_by_the_documents_that_its_version_prints(tmp_path: Path) -> None:
    row = search.read(printing(tmp_path), "today", "sr_1")
    assert (row["calls"], row["prompt_tokens"], row["reply_tokens"]) == (2, {"code": [200], "ideate": [110]}, 4)
    assert [(each["seq"], each["score"], each["right"]) for each in row["judged"]] == [
        (1, 1.5, True),
        (2, 1.9, False),
        (3, None, False),
    ], "as they were screened; one that failed its verification is not right"
    assert {each["device"] for each in row["judged"]} == {"a GPU"}
    assert (row["source"], row["sweep_seconds"]) == ("def run_1(x): ...", 0.0)


def test_a_search_that_is_not_there_is_named_with_what_the_command_said(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"tree gone --json: exit 1: no such search"):
        search.read(printing(tmp_path), "today", "gone")


def test_verdicts_are_joined_and_arms_compared_over_the_ops_that_both_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data.json"
    command = printing(tmp_path)
    for arm in ("today", "yesterday"):
        search.main(["read", str(data), arm, f"sr_{arm}", "--warpsmith", command, "--note", f"as of {arm}"])
    found = [
        {"search": "sr_today", "op": "add", "arm": "today", "verdict": verdict(3.0), "error": ""},
        {"search": "sr_yesterday", "op": "add", "arm": "yesterday", "verdict": verdict(2.0), "error": ""},
        {"search": "sr_gone", "op": "add", "arm": "today", "verdict": verdict(9.0), "error": ""},
    ]
    (tmp_path / "verdicts.json").write_text(json.dumps(found))
    search.main(["join", str(data), str(tmp_path / "verdicts.json")])
    search.main(["table", str(data)])
    printed = capsys.readouterr().out
    assert "3.000x [2.970, 3.030]" in printed
    assert "winners, judged together: today over yesterday: 1.500 [1.500, 1.500] over 1 ops" in printed
    assert "round 1 on a GPU, best of 3, screened: today over yesterday: 1.000 [1.000, 1.000] over 1 ops" in printed
    assert "yesterday: as of yesterday" in printed


def row(arm: str, op: str, *judged: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"arm": arm, "op": op, "judged": list(judged)} | more


def shown(score: float, device: str = "a GPU", number: int = 1) -> dict[str, Any]:
    return {"score": score, "ci95": [score, score], "right": True, "device": device, "round": number}


def test_rounds_are_compared_on_one_device_and_with_as_many_candidates_alone() -> None:
    rows = [
        row("today", "add", shown(3.0), shown(2.0)),
        row("yesterday", "add", shown(1.0), shown(1.5)),
        row("today", "more", shown(9.0), shown(8.0)),
        row("yesterday", "more", shown(1.0)),
        row("today", "elsewhere", shown(9.0)),
        row("yesterday", "elsewhere", shown(1.0, device="another GPU")),
        row("today", "later", shown(9.0)),
        row("yesterday", "later", shown(1.0, number=2)),
        row("today", "wrong", shown(1.0), shown(1.0)),
        row("yesterday", "wrong", shown(1.0) | {"right": False}, shown(1.0) | {"right": False}),
    ]
    assert search.compare(rows, "today", "yesterday") == [
        "round 1 on a GPU, best of 2, screened: today over yesterday: 2.000 [2.000, 2.000] over 1 ops "
        "(3.000x and 1.500x in the mean); nothing right in one of them: wrong"
    ]


def test_a_winner_that_is_rejected_when_judged_together_counts_in_no_comparison() -> None:
    rows = [
        row("today", "add", verdict=verdict(None, "rejected")),
        row("yesterday", "add", verdict=verdict(2.0)),
    ]
    assert search.compare(rows, "today", "yesterday") == []

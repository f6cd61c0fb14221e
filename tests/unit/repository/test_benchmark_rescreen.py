"""Recorded candidates screened again: what is read of a pool, in which order it is judged, and what comes of it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import rescreen, search
from benchmarks.rescreen import Recorded, recorded, screen
from benchmarks.showcase import Shown
from tests import REPOSITORY
from warpsmith.kernels_db.spec.resolve import DEFAULT_LIMITS
from warpsmith.service.local import extra

POOLS = REPOSITORY / "examples" / "pools" / "cuda-sm_90" / "compared"
OP = "group_norm_silu"
TUNED = 'TUNE = {"ROWS": [1, 2]}\nROWS = 1\n'


def row(arm: str, *judged: dict[str, Any], op: str = OP, **budget: float) -> dict[str, Any]:
    told = {"search": f"sr_{arm}", "op": op, "arm": arm, "language": "triton", "policy": {}, "budget": budget}
    return told | {"judged": list(judged), "source": None}


def written(seq: int, source: str, number: int = 1) -> Recorded:
    return Recorded(seq, number, "fusion", f"idea {seq}", source)


class Judge:
    """Stands in for the judge: a verdict by the source, with the jobs that were asked for."""

    def __init__(
        self, scores: dict[str, float | None], *, ends_after: int = 99, verifies: dict[str, float | None] | None = None
    ) -> None:
        self._scores, self._left, self._verifies = scores, ends_after, {**scores, **(verifies or {})}
        self.jobs: list[dict[str, Any]] = []

    def ask(self, _: object, job: Any) -> Shown:
        if len(self.jobs) == self._left:
            raise KeyboardInterrupt
        self.jobs.append(job)
        source = job["candidate"]["source"]
        if source == f"dies in {job['level']}":
            return Shown(OP, "triton", 0.0, None, "JudgeDied: gone")
        score = (self._scores if job["level"] == "screen" else self._verifies)[source]
        ends = None if score is None else [score, score]
        word = "rejected" if score is None else "accepted"
        verdict: Any = {"verdict": word, "gate": "time", "reason": word, "score": score, "score_ci95": ends}
        verdict |= {"device": {"name": "a GPU"}, "workloads": [], "level": job["level"]}
        if "TUNE" in source and job["level"] == "screen":
            verdict |= {"sweep": {"chosen": {"ROWS": 2}}, "sweep_seconds": 4.0}
        return Shown(OP, "triton", 0.0, verdict)

    @property
    def asked(self) -> list[tuple[str, str]]:
        return [(job["level"], job["candidate"]["source"]) for job in self.jobs]


def judged_by(monkeypatch: pytest.MonkeyPatch, judge: Judge) -> Judge:
    monkeypatch.setattr(rescreen, "gpu_target", lambda: "cuda:sm_90")
    monkeypatch.setattr(rescreen, "JudgeClient", lambda **_: contextlib.nullcontext())
    monkeypatch.setattr(rescreen, "ask", judge.ask)
    return judge


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_candidates_have_the_numbers_of_their_search_or_the_order_of_the_ideas() -> None:
    pool = POOLS / "today" / f"{OP}.jsonl"
    found = recorded(row("today"), pool)
    assert [(each.seq, each.round, each.technique) for each in found] == [
        (1, 1, "fusion"),
        (2, 1, "memory_access"),
        (3, 1, "parallelism"),
        (4, 1, "asynchrony"),
    ], "the pool's order is another: that in which the codes came"
    assert all("def run(" in each.source for each in found)
    known = {"seq": 7, "round": 3, "title": found[3].title}
    numbered = recorded(row("today", known, known | {"device": "another GPU"}), pool)
    assert [(each.seq, each.round) for each in numbered] == [(1, 1), (2, 1), (3, 1), (7, 3)]


@pytest.mark.parametrize("arm", ["today", "free"])
def test_candidates_of_later_rounds_are_numbered_as_the_search_did(arm: str) -> None:
    stored = json.loads(search.STORED.read_text("utf-8"))["rows"]
    (of_arm,) = (each for each in stored if (each["arm"], each["op"]) == (arm, "triplet_margin_loss"))
    found = recorded(of_arm, POOLS / arm / "triplet_margin_loss.jsonl")
    told = {(each["seq"], each["round"], each["title"]) for each in of_arm["judged"]}
    assert {(each.seq, each.round, each.title) for each in found} == told
    alone = recorded(of_arm | {"judged": []}, POOLS / arm / "triplet_margin_loss.jsonl")
    assert {(each.round, each.title) for each in alone} == {(number, title) for _, number, title in told}


def test_arms_take_turns_and_the_best_of_the_shared_rounds_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = judged_by(monkeypatch, Judge({"a1": 1.0, "a2": None, "a3": 9.0, "b1": 1.0, "b2": 2.0}))
    one, other = row("today"), row("yesterday")
    found = {
        "sr_today": [written(1, "a1"), written(2, "a2"), written(3, "a3", 2)],
        "sr_yesterday": [written(1, "b1"), written(2, "b2")],
    }
    results = list(screen([one, other], found, 3.0))
    assert judge.asked == [
        *(("screen", source) for source in ("a1", "b1", "a2", "b2", "a3")),
        ("verify", "a1"),
        ("verify", "b2"),
    ], "a3 is of a round that the other arm does not have"
    assert {job["target"] for job in judge.jobs} == {"cuda:sm_90"}
    assert all(job["limits"].items() >= DEFAULT_LIMITS.items() for job in judge.jobs), "as a search's"
    assert [each["right"] for each in results[:5]] == [True, True, False, True, True]
    assert (results[-1]["seq"], results[-1]["source"], results[-1]["verdict"]["level"]) == (2, "b2", "verify")


def test_the_next_best_is_verified_where_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scores: dict[str, float | None] = {"slow": 1.0, "dies in verify": 5.0, "wrong": 9.0, "good": 2.0, "lost": 3.0}
    judge = judged_by(monkeypatch, Judge(scores, verifies={"wrong": None, "lost": None}))
    found = {
        "sr_today": [written(seq, source) for seq, source in enumerate(("slow", "dies in verify", "wrong", "good"), 1)],
        "sr_yesterday": [written(1, "lost")],
    }
    results: list[dict[str, Any]] = []
    for each in screen([row("today"), row("yesterday")], found, 3.0):
        results += [] if each in results else [each]
    verified = [source for level, source in judge.asked if level == "verify"]
    assert verified == ["wrong", "dies in verify", "good", "lost"], "until one passes, or none is left"
    told = {each["source"]: (each["verification"], each["right"], each["passed_over"]) for each in results[1:]}
    assert told == {
        "dies in verify": ("none", True, [3]),
        "wrong": ("failed", False, []),
        "good": ("passed", True, [3, 2]),
        "lost": ("failed", False, []),
    }
    assert "verdict" not in results[0], "slower than the one that passed"
    (tmp_path / "found.json").write_text(json.dumps(results))
    cost = {"calls": 0, "prompt_tokens": {}, "reply_tokens": 0, "gpu_seconds": 0.0, "sweep_seconds": 0.0}
    data = stored(tmp_path / "data.json", row("today") | cost, row("yesterday") | cost)
    search.main(["join", str(data), str(tmp_path / "found.json")])
    one, other = json.loads(data.read_text())["rows"]
    assert (one["source"], one["verdict"]["verdict"]) == ("good", "accepted")
    assert (other["source"], other["verdict"]["verdict"]) == ("lost", "rejected")
    search.main(["table", str(data)])
    printed = capsys.readouterr().out
    assert "2.000x [2.000, 2.000], after #3 and #2 failed" in printed
    assert "rejected at time" in printed


def test_tunables_are_swept_within_the_limit_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = TUNED.replace("ROWS = 1", "ROWS = 2")
    judge = judged_by(monkeypatch, Judge({TUNED: 1.0, "plain": 1.0, f"{TUNED}#": 2.0, f"{chosen}#": 2.0}))
    found = {"sr_today": [written(1, TUNED), written(2, "plain"), written(3, f"{TUNED}#")]}
    list(screen([row("today", sweep_seconds=40)], found, 3.0))
    assert [job["limits"].get("sweep_s") for job in judge.jobs] == [20.0, None, 36.0, None]
    assert judge.asked[-1] == ("verify", f"{chosen}#"), "with the numbers that its sweep chose"
    judge.jobs.clear()
    list(screen([row("today")], found, 3.0))
    assert all("sweep_s" not in job["limits"] for job in judge.jobs), "the judge's own limit"


def stored(file: Path, *rows: dict[str, Any]) -> Path:
    file.write_text(json.dumps({"arms": {}, "rows": list(rows)}))
    return file


def test_an_interrupt_leaves_what_was_judged_and_it_joins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = POOLS / "today" / f"{OP}.jsonl"
    candidates = recorded(row("today"), pool)
    scores: dict[str, float | None] = {each.source: float(each.seq) for each in candidates}
    judged_by(monkeypatch, Judge(scores, ends_after=2))
    old = {"seq": 1, "round": 1, "title": candidates[0].title, "technique": "fusion", "verification": "none"}
    old |= {"score": 5.0, "ci95": [5.0, 5.0], "right": True}
    data = stored(tmp_path / "data.json", row("today", old | {"device": "a GPU"}, old | {"device": "another GPU"}))
    given = ["screen", str(data), str(POOLS), "--output", str(tmp_path / "found.json")]
    assert search.main(given) == 130
    assert f"{OP} today: 4 candidates" in capsys.readouterr().err
    search.main(["join", str(data), str(tmp_path / "found.json")])
    (joined,) = json.loads(data.read_text())["rows"]
    assert {(each["seq"], each["device"]): each["score"] for each in joined["judged"]} == {
        (1, "another GPU"): 5.0,
        (1, "a GPU"): 1.0,
        (2, "a GPU"): 2.0,
    }
    assert set(joined["judged"][0]) == {*old, "device"}
    judged_by(monkeypatch, Judge(scores))
    assert search.main(given) == 0
    search.main(["join", str(data), str(tmp_path / "found.json")])
    (joined,) = json.loads(data.read_text())["rows"]
    assert (joined["source"], joined["verdict"]["level"]) == (candidates[3].source, "verify")


def test_a_candidate_without_a_verdict_is_told_and_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged_by(monkeypatch, Judge({}))
    (result,) = screen([row("today")], {"sr_today": [written(1, "dies in screen")]}, 3.0)
    assert result["error"] == "JudgeDied: gone"
    (tmp_path / "found.json").write_text(json.dumps([result]))
    data = stored(tmp_path / "data.json", row("today"))
    search.main(["join", str(data), str(tmp_path / "found.json")])
    assert json.loads(data.read_text())["rows"] == [row("today")]


def test_it_reads_pools_without_the_service_and_then_asks_for_a_gpu(tmp_path: Path) -> None:
    data = stored(tmp_path / "data.json", row("today"))
    blocked = [*extra.MODULES, "httpx2", "kombu", "redis", "starlette"]
    program = (
        f"import sys, types; sys.modules.update(dict.fromkeys({blocked}))\n"
        "no_gpu = types.SimpleNamespace(is_available=lambda: False)\n"
        "sys.modules['torch'] = types.SimpleNamespace(cuda=no_gpu)  # its import takes a second\n"
        "from benchmarks.search import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", program, "screen", str(data), str(POOLS)]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == 1
    assert ran.stderr.splitlines() == [
        f"{OP} today: 4 candidates",
        "found no GPU here, expected one: candidates are compared on the device that they are for",
    ]


def test_a_pool_that_is_not_there_is_named(tmp_path: Path) -> None:
    data = stored(tmp_path / "data.json", row("today", op="no_op"))
    with pytest.raises(SystemExit, match=r"today/no_op\.jsonl: .*No such file"):
        search.main(["screen", str(data), str(POOLS)])

"""How searches look: lines, panel, tree, table."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from warpsmith.kernels_db.job.attack_summary import summarise_attack
from warpsmith.service.cli.commands.tries import print_node
from warpsmith.service.client.narrator import Narrator
from warpsmith.service.client.progress import (
    build_progress_panel,
    build_result_rows,
    build_result_table,
    build_tree,
    describe_outcome,
    describe_spend,
    describe_time_left,
    describe_untimed,
    find_best_path,
    shorten,
)
from warpsmith.service.documents.figures import (
    format_attack,
    format_duration,
    format_host,
    format_microseconds,
    format_ratio,
)
from warpsmith.service.documents.nodes import NodeDocument, NodeSummary, VerdictRecord
from warpsmith.service.documents.searches import EventDocument, SearchDocument
from warpsmith.service.documents.workloads import WorkloadTimes


def text_of(renderable: RenderableType, width: int = 160) -> str:
    output = io.StringIO()
    Console(file=output, width=width, color_system=None).print(renderable)
    return output.getvalue()


def node(seq: int, parent: int | None, **changes: Any) -> NodeSummary:
    values: dict[str, Any] = {
        "id": f"nd_{seq}",
        "seq": seq,
        "parent_id": None if parent is None else f"nd_{parent}",
        "round": 0 if parent is None else 1,
        "technique": None if parent is None else "fusion",
        "title": None if parent is None else f"idea {seq}",
        "state": "judged",
        "reason": None,
        "language": "cpp",
        "variant": 0,
        "repairs": 0,
        "verdict": "accepted",
        "gate": "time",
        "score": 2.0,
        "ci95": [1.9, 2.1],
        "limit_fraction": 0.5,
        "verification": "none",
        "best": False,
        "created_at": 0.0,
        "updated_at": 0.0,
    }
    return NodeSummary(**(values | changes))


def search(**changes: Any) -> SearchDocument:
    values: dict[str, Any] = {
        "id": "sr_1",
        "op_id": "op_1",
        "op_name": "layer_norm",
        "target": "cpu:x86_64",
        "language": "cpp",
        "state": "running",
        "reason": None,
        "best_score": None,
        "spend": {"candidates": 3, "model_calls": 5, "tokens": 1200, "cost_usd": 0.25, "wall_clock_s": 60.0},
        "created_at": 0.0,
        "updated_at": 1000.0,
        "problem": None,
        "policy": {},
        "budget": {"candidates": 20, "cost_usd": 1.5, "wall_clock_s": 600.0},
        "model": {"provider": "agent"},
        "round": 2,
        "nodes": 4,
        "nodes_by_state": {"judged": 3, "closed": 1},
        "nodes_by_verdict": {"accepted": 2, "rejected": 1},
        "baselines": [],
        "best": None,
        "kernels": [],
        "waiting_for": [],
    }
    return SearchDocument(**(values | changes))


def event(kind: str, /, **payload: Any) -> EventDocument:
    return EventDocument(id=1, type=kind, search_id="sr_1", node_id="nd_1", payload=payload, created_at=0.0)


def told(*events: EventDocument) -> str | None:
    """The line of the last event."""
    narrator = Narrator()
    return [narrator.line(item) for item in events][-1]


CREATED = event("node.created", seq=7, title="one pass", technique="fusion")
JUDGED = {"seq": 7, "technique": "fusion", "repairs": 0, "gate": "time", "reason": "wrong value at y[3]"}


def test_lines_say_what_became_of_a_node() -> None:
    good = JUDGED | {"verdict": "accepted", "score": 2.0, "ci95": [1.9, 2.1]}
    assert told(CREATED) is None
    assert told(CREATED, event("node.judged", **good)) == "  #7 accepted 2.00x [1.90, 2.10]: one pass (fusion)"
    assert (
        told(CREATED, event("node.verified", **good, best=True))
        == "  #7 verified: accepted 2.00x [1.90, 2.10], the best so far: one pass (fusion)"
    )
    wrong = JUDGED | {"verdict": "rejected", "gate": "screen", "repairs": 1}
    assert (
        told(CREATED, event("node.judged", **wrong))
        == "  #7 rejected at screen after 1 repair (wrong value at y[3]): one pass (fusion)"
    )
    assert told(CREATED, event("node.closed", seq=7, reason="no reply")) == "  #7 closed (no reply): one pass"


def test_the_roots_verdict_is_the_baselines() -> None:
    measured = {"even": {"eager": 33.1, "compile": 12.34}, "odd": {}}
    root = {"seq": 0, "verdict": "accepted", "time_us": measured, "reason": "sound"}
    assert told(event("node.judged", **root)) == "  baselines: even eager 33.1 us, torch.compile 12.3 us"
    refused = {"seq": 0, "verdict": "rejected", "reason": "it raises"}
    assert told(event("node.judged", **refused)) == "  the reference is rejected: it raises"


@pytest.mark.parametrize(
    ("happened", "line"),
    [
        (event("round.started", round=2), "round 2"),
        (event("search.paused", reason="the key was refused"), "search paused: the key was refused"),
        (event("search.finished"), "search finished"),
        (event("attempt.deferred", seq=3, reason="429"), "  #3 waits for the model: 429"),
        (event("attempt.failed", seq=3, kind="code", error="no reply"), None),
        (event("attempt.failed", seq=3, kind="verify", error="x"), "  #3 the step verify failed: x"),
        (event("ask.opened", seq=3, ask_id="ak_1"), "  #3 asks for an answer: warpsmith ask ak_1"),
        (event("ask.opened", seq=3, ask_id="ak_2", replaces="ak_1"), None),
        (
            event("ask.expired", seq=3, ask_id="ak_1", replaced_by="ak_2"),
            "  #3 nobody answered ak_1 in time; it is asked again: warpsmith ask ak_2",
        ),
        (
            event("node.seeded", seq=1, kernel_id="kn_1", op="soft\x1b[2Jmax"),
            "  #1 a stored kernel to start from: kernel kn_1 of soft[2Jmax",
        ),
        (
            event(
                "node.verified",
                seq=3,
                verdict="accepted",
                score=2.0,
                ci95=[1.9, 2.1],
                technique="fusion",
                attack={"tries": 1234, "seconds": 3.0, "ratio": 0.4321, "found": False},
            ),
            "  #3 verified: accepted 2.00x [1.90, 2.10]; counterexample search: 1,234 tries, worst error 0.43 of what "
            "is allowed:  (fusion)",
        ),
        (event("search.branched", from_seq=4, from_search="sr_0"), "search branched from #4 of sr_0"),
        (event("kernel.kept", seq=3, kernel_id="kn_1"), "#3 is kept as kernel kn_1"),
        (event("an event of a later version"), None),
    ],
)
def test_lines_of_events(happened: EventDocument, line: str | None) -> None:
    assert told(happened) == line


def test_a_counterexample_search_in_one_line() -> None:
    def entry(ratio: object) -> dict[str, object]:
        return {"workload": "w", "tries": 1, "ratio": ratio, "recipe": None}

    def told_of(tries: int, *ratios: object, **more: object) -> str:
        attack = {"tries": tries, "seconds": 1.0, "workloads": [entry(one) for one in ratios], "counterexample": None}
        summary = summarise_attack({**attack, **more})
        assert summary is not None
        return format_attack(summary)

    head = "counterexample search:"
    assert told_of(912, 0.1, None, 0.4321) == f"{head} 912 tries, worst error 0.43 of what is allowed"
    assert told_of(1, None, "nan") == f"{head} 1 try, no question was fair"
    assert told_of(2, "inf", counterexample={}) == f"{head} wrong values found, 2 tries"
    assert told_of(0, skipped="no CUDA device") == f"{head} not made, no CUDA device"
    assert summarise_attack(None) is summarise_attack({}) is None


def test_the_hosts_time_in_one_line() -> None:
    host = {"workload": "small", "run": 7.04, "eager": 5.0}
    by_run = "7.0 us by its run, 5.0 us in eager mode"
    assert (
        format_host(host | {"plan": 2.56, "launches": 1})
        == f"host: 2.6 us by its launch plan, {by_run} (1 launch), at small"
    )
    assert format_host(host | {"unplanned": "no compiler"}) == f"host: {by_run}, at small; no launch plan: no compiler"


def test_the_panel_shows_round_nodes_best_cost_and_time() -> None:
    best = {
        "node_id": "nd_7",
        "seq": 7,
        "title": "one pass",
        "technique": "fusion",
        "language": "cpp",
        "verified": True,
        "score": 2.0,
        "ci95": [1.9, 2.1],
        "limit_fraction": 0.5,
        "speedup": {"eager": 3.0, "compile": 2.0},
        "workloads": [],
    }
    shown = text_of(build_progress_panel(search(best=best), ["  #7 accepted"], now=1030.0))
    for expected in ("layer_norm on cpu:x86_64", "running", "4 (2 accepted, 1 rejected, 1 closed)"):
        assert expected in shown
    assert "#7 3.00x eager, 2.00x torch.compile (verified): one pass" in shown
    assert "$0.25 of $1.50, 5 calls, 1,200 tokens" in shown
    assert "8:30 of 10:00, 17 of 20 candidates" in shown
    assert "#7 accepted" in shown


def test_sweeps_are_told_with_their_limit() -> None:
    spent = {"candidates": 1, "model_calls": 2, "tokens": 3, "cost_usd": 0.0, "wall_clock_s": 4.0}
    assert "sweeps" not in describe_spend(search(budget={}, spend=spent))
    assert describe_spend(search(budget={}, spend={**spent, "sweep_seconds": 61.2})).endswith(", sweeps 1:01")
    told = describe_spend(search(budget={"sweep_seconds": 90}, spend={**spent, "sweep_seconds": 61.2}))
    assert told.endswith(", sweeps 1:01 of 1:30")


def test_time_stands_still_while_a_search_is_paused() -> None:
    assert describe_time_left(search(state="paused"), now=9999.0).startswith("9:00 of 10:00")
    assert describe_time_left(search(budget={}), now=1000.0) == "no limit (1:00 so far)"


def test_the_tree_marks_the_path_to_the_best_and_shows_failures() -> None:
    nodes = [
        node(0, None),
        node(1, 0),
        node(2, 0, verdict="rejected", gate="compile", reason="no such function"),
        node(3, 1, best=True, verification="passed", technique="vectorise"),
    ]
    lines = text_of(build_tree(search(), nodes)).splitlines()
    starred = [line for line in lines if "*" in line]
    assert find_best_path(nodes) == {"nd_0", "nd_1", "nd_3"}
    assert len(starred) == 3
    assert any("#2 idea 2 [fusion, round 1]  rejected at compile (no such function)" in line for line in lines)
    assert any("#3 idea 3 [vectorise, round 1]" in line and "verification passed" in line for line in lines)


def test_what_was_planned_when_the_search_ended_was_not_tried() -> None:
    nodes = [node(0, None), node(1, 0, state="planned", verdict=None)]
    assert "round 1]  planned" in text_of(build_tree(search(), nodes))
    assert "round 1]  not tried" in text_of(build_tree(search(state="finished"), nodes))


def test_titles_are_text_not_markup() -> None:
    shown = text_of(build_tree(search(), [node(0, None), node(1, 0, title="[bold]x[/bold] [/]")]))
    assert "[bold]x[/bold] [/]" in shown


def test_results_compare_with_the_fastest_baseline() -> None:
    workload = WorkloadTimes(
        id="images",
        role="bench",
        time_us={"eager": 300.0, "compile": 250.0, "max_autotune": 240.0, "candidate": 120.0},
        speedup={"eager": 2.5, "compile": 2.08, "max_autotune": 2.0},
        ci95={"max_autotune": [1.95, 2.05]},
        limit_fraction=0.62,
    )
    untimed = WorkloadTimes(id="ragged", role="test", time_us={}, speedup={})
    rows = build_result_rows("layer_norm", [workload, untimed])
    assert rows == [
        ["layer_norm", "images", "300", "250", "240", "", "120", "2.00x [1.95, 2.05] max-autotune", "62 %"],
    ]
    shown = text_of(build_result_table(rows))
    assert "2.00x [1.95, 2.05] max-autotune" in shown
    assert "experts" not in shown


def test_a_node_shows_what_the_kernel_the_baselines_and_the_limit_take(capsys: pytest.CaptureFixture[str]) -> None:
    timed = {
        "id": "images",
        "role": "bench",
        "time_us": {"candidate": 120.0, "eager": 300.0, "liger": 110.0},
        "speedup": {"eager": 2.5, "liger": 0.92},
        "ci95": {"liger": [0.91, 0.93]},
        "limit_fraction": 0.625,
    }
    line = "images: kernel 120 us, eager 300 us (2.50x), liger 110 us (0.92x [0.91, 0.93]), limit 75 us (62 % reached)"
    workloads = [timed, timed | {"role": "holdout"}, {"id": "ragged", "role": "bench", "time_us": {"eager": 3.0}}]
    record = {"level": "verify", "verdict": "accepted", "gate": "time", "id": "vd_1", "source": None, "created_at": 0.0}
    verdict = VerdictRecord(**record, document={"score": 1.5, "reason": "right", "workloads": workloads})
    untimed = VerdictRecord(**record, document={"reason": "slow"})
    fields = dict.fromkeys(NodeDocument.model_fields) | {"seq": 7, "state": "judged", "title": "Rings", "tries": []}
    print_node(NodeDocument.model_construct(**fields | {"repairs": 0, "verdicts": [untimed, verdict], "source": "x"}))
    shown = capsys.readouterr().out.splitlines()
    assert shown[1:] == [
        "  verdict  verify accepted at time: slow",
        "  verdict  verify accepted at time 1.50x: right",
        f"    {line}",
        "",
        "x",
    ]


def test_results_show_the_experts_of_an_op_beside_pytorch() -> None:
    workload = WorkloadTimes(
        id="images",
        role="bench",
        time_us={"eager": 300.0, "liger": 110.0, "quack": 90.0, "candidate": 120.0},
        speedup={"eager": 2.5, "liger": 0.92, "quack": 0.75},
        ci95={"quack": [0.74, 0.76]},
        limit_fraction=0.62,
    )
    rows = build_result_rows("layer_norm", [workload])
    assert rows == [
        ["layer_norm", "images", "300", "-", "-", "liger 110, quack 90", "120", "0.75x [0.74, 0.76] quack", "62 %"],
    ]
    shown = text_of(build_result_table(rows))
    assert "Against PyTorch and experts" in shown
    assert "liger 110, quack 90" in shown


def test_a_baseline_that_was_not_timed_says_where_and_why() -> None:
    why = {"compile": "does not run: raises: no\x1b[31mgraph"}
    workloads = [
        WorkloadTimes(id=name, role="bench", time_us={"eager": 2.0, "candidate": 1.0}, not_timed=why)
        for name in ("large", "small")
    ] + [WorkloadTimes(id="odd", role="bench", time_us={"eager": 2.0, "candidate": 1.0})]
    (line,) = describe_untimed(workloads)
    assert line.startswith("torch.compile not timed on large, small: does not run: raises: no")
    assert "\x1b" not in line


def test_numbers() -> None:
    assert format_ratio(None, None) == "without timing"
    assert format_ratio(1.234, None) == "1.23x"
    assert format_duration(3723) == "1:02:03"
    assert format_duration(0) == "0:00"
    assert format_microseconds(None) == "-"
    assert format_microseconds(12.345) == "12.3"
    assert format_microseconds(12345.6) == "12,346"


@given(st.text(), st.integers(min_value=4, max_value=80))
def test_shortened_text_is_one_line_of_bounded_length(text: str, length: int) -> None:
    line = shorten(text, length)
    assert len(line) <= length
    assert "\n" not in line


def test_a_repair_counts_once_it_is_judged() -> None:
    wrong = node(3, 0, verdict="rejected", gate="screen", reason="wrong", repairs=1)
    assert describe_outcome(wrong) == "rejected at screen after 1 repair (wrong)"
    again = wrong.model_copy(update={"state": "coding"})
    assert describe_outcome(again) == "rejected at screen, repair 1 under way (wrong)"
    assert describe_outcome(again, ended=True) == "rejected at screen (wrong)"

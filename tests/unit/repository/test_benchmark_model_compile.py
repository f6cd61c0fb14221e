"""Seconds to a model's first call, and where its time goes on a GPU: what is told of them, and one real run."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from benchmarks import model_compile, model_where, models
from benchmarks.model_cases import CASES, Case
from benchmarks.model_compile import HITS, PARTS, ChildFailed, Start
from benchmarks.model_where import CALLS, Span

SAMPLE = next(case for case in CASES if case.kind == "recommender")


def start(variant: str, caches: str, first_s: float) -> Start:
    phases = {"long": 3.0, "longer": 4.0, "short": 0.1}
    parts = model_compile.parts_of(first_s, 0.25, {})
    return Start("a model", variant, caches, first_s, 2 * first_s, 0.5, phases, [], 0.75, parts, dict.fromkeys(HITS, 1))


def test_starts_are_held_against_one_variant_with_the_same_caches() -> None:
    starts = [start("own", "empty", 10.0), start("own", "warm", 2.0)]
    starts += [start("other", "empty", 12.0), start("other", "warm", 3.0)]
    head, *rows = model_compile.table(starts, "own")
    assert head[2:4] == ["first call", "of own"]
    assert [row[2:6] for row in rows] == [
        ["10.0 s", "1.00x", "20.0 s", "1.00x"],
        ["2.0 s", "1.00x", "4.0 s", "1.00x"],
        ["12.0 s", "1.20x", "24.0 s", "1.20x"],
        ["3.0 s", "1.50x", "6.0 s", "1.50x"],
    ]
    assert model_compile.told(starts[0]) == "own, caches empty: first call 10.0 s; longer 4.0, long 3.0"
    assert model_compile.told(starts[1]).endswith("; longer 4.00, long 3.00, short 0.10"), "of a warm one more is told"


def test_the_parts_of_a_first_call_are_the_whole_of_it() -> None:
    phases = {"_compile.compile_inner": 6.0, "bytecode_tracing": 2.5, "OutputGraph.call_user_compiler": 3.0}
    parts = model_compile.parts_of(8.0, 1.5, phases)
    assert list(parts.items()) == list(zip(PARTS, (1.5, 2.5, 3.0, 0.5, 0.5), strict=True))
    head, row = model_compile.parts_table([start("own", "warm", 2.0)])
    assert head[-2:] == ["AOTAutograd hits", "Inductor hits"]
    assert row == ["own", "warm", "0.25 s", "0.00 s", "0.00 s", "0.00 s", "1.75 s", "0.75 s", "1", "1"]


def test_of_a_process_that_failed_the_error_is_told() -> None:
    hints = "\n\nSet TORCHDYNAMO_VERBOSE=1 for the internal stack trace\n\n"
    failed = "a: b: exit status 1\nTraceback\n  x\n"
    assert model_compile.raised(f"{failed}ValueError: y{hints}") == "exit status 1: ValueError: y"
    chained = "RuntimeError: first\n\nTraceback (most recent call last):\n  x\nwarpsmith.x.NotUsable: found y"
    assert model_compile.raised(failed + chained) == "exit status 1: warpsmith.x.NotUsable: found y"
    assert model_compile.raised("a: b: exit status -9\nUserWarning: z\n  warnings.warn(z)") == (
        "exit status -9: warnings.warn(z)"
    )
    assert model_compile.raised("a: b: found no end after 600 s") == "a: b: found no end after 600 s"


def test_a_variant_without_its_peer_has_no_ratio() -> None:
    rows = model_compile.table([start("own", "empty", 1.0), start("other", "warm", 3.0)], "own")
    assert [row[3] for row in rows[1:]] == ["1.00x", "-"]


def test_time_of_two_kernels_at_once_counts_once() -> None:
    kernels = [("a", 200.0, 100.0), ("a", 0.0, 100.0), ("b", 60.0, 100.0)]
    events = [{"cat": "kernel", "name": name, "ts": begun, "dur": took} for name, begun, took in kernels]
    spans = model_where.read({"traceEvents": [{"cat": "cpu_op", "name": "c", "ts": 0, "dur": 9}, {"ph": "M"}, *events]})
    assert spans == [Span("a", 0.0, 100.0), Span("b", 60.0, 160.0), Span("a", 200.0, 300.0)]
    head, *rows = model_where.told(spans)
    assert (
        head == f"{300 / CALLS:.0f} us a call: {260 / CALLS:.0f} of work in 0 launches, {40 / CALLS:.0f} between them"
    )
    assert [row.split() for row in rows] == [
        ["20.0", "us,", "0", "times:", "a"],
        ["6.0", "us,", "0", "times:", "b"],
    ]
    assert model_where.told([]) == ["the profiler saw nothing on a GPU"]


def test_a_real_trace_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's profiler writes it; what it says of a CPU stands for what it would say of a GPU."""
    x = torch.ones(8)
    assert model_where.spans_of(x.sin, torch.device("cpu")) == [], "nothing ran on a GPU"
    monkeypatch.setattr(model_where, "ON_DEVICE", ("cpu_op",))
    spans = model_where.spans_of(x.sin, torch.device("cpu"))
    assert [span.name for span in spans].count("aten::sin") == CALLS
    assert all(one.begun_us <= other.begun_us for one, other in pairwise(spans))
    assert all(span.ended_us > span.begun_us > 0 for span in spans)
    assert any(row.endswith(" 1 times: aten::sin") for row in model_where.told(spans))


@pytest.mark.nightly
def test_where_a_compiled_models_time_goes_is_told_with_its_row() -> None:
    cpu = torch.device("cpu")
    with torch.no_grad():
        rows = list(models.measure(SAMPLE, cpu, ["default"], ["default"], None, 0.1, profiled=True))
    assert [row.where for row in rows] == [[], [], [], ["the profiler saw nothing on a GPU"]]


@pytest.mark.nightly
def test_a_process_that_fails_is_told(tmp_path: Path) -> None:
    [failed] = model_compile.measure(SAMPLE, ["no mode"], None)
    assert isinstance(failed, ChildFailed)
    assert re.match(r"sample recommender: no mode: exit status 1\n[\s\S]*Unrecognized mode", str(failed))


def test_variants_start_in_turns_and_one_that_fails_starts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def started(case: Case, variant: str, caches: str, kernels: object, directory: Path) -> Start:
        asked.append((variant, caches, directory.name))
        if variant == "bad":
            raise ChildFailed(case, variant, "exit status 1\nValueError: y")
        return start(variant, caches, 1.0)

    monkeypatch.setattr(model_compile, "_started", started)
    found = list(model_compile.measure(SAMPLE, ["own", "bad", "other"], None, empty=2, warm=2))
    assert asked[:3] == [("own", "empty", "0-0"), ("bad", "empty", "1-0"), ("other", "empty", "2-0")]
    assert asked[3:5] == [("own", "empty", "0-1"), ("other", "empty", "2-1")], "empty: of a turn of its own"
    assert asked[5:] == [("own", "warm", "0-1"), ("other", "warm", "2-1")] * 2
    assert [str(each) for each in found if isinstance(each, ChildFailed)] == [
        f"{SAMPLE.name}: bad: exit status 1\nValueError: y"
    ]


def test_of_several_starts_the_median_is_told() -> None:
    starts = [start("own", "empty", 10.0), *(start("own", "warm", first_s) for first_s in (5.0, 2.0, 3.0))]
    empty, warm = model_compile.medians([*starts, start("own", "warm", 4.0), start("own", "warm", 9.0)])
    assert empty == starts[0]
    assert (warm.first_s, warm.third_s, warm.parts["running"]) == (4.0, 8.0, 3.75)


@pytest.mark.nightly
def test_a_second_process_has_the_caches_of_the_first(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "starts.json"
    assert model_compile.run([SAMPLE], ["reduce-overhead", "warpsmith, reduce-overhead"], None, file) == 0
    out = capsys.readouterr().out
    assert out.count("warpsmith, reduce-overhead") >= 2
    starts = json.loads(file.read_text("utf-8"))
    assert [sum(start["hits"].values()) for start in starts] == [0, 0, 2, 2]
    assert "graph 1:" in out

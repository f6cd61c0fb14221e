"""Traced references as plain data: what is read is what was written, and what is no pattern is traced anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import fx

from warpsmith.workers.optimize.compiled import patterns
from warpsmith.workers.optimize.compiled.match import Pattern

aten = torch.ops.aten


def pattern(target: object = aten.mul.Tensor) -> Pattern:
    """A graph with arguments of each kind."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    whole = graph.call_function(aten.full.default, ([3, 4], float("-inf")), {"dtype": torch.bfloat16})
    there = graph.call_function(aten.to.device, (x, torch.device("cpu"), torch.float32))
    both = graph.call_function(target, (there, whole))  # type: ignore[arg-type]
    for node in (x, whole, there, both):
        node.meta["val"] = torch.empty(3, 4, device="meta")
    graph.output((both,))
    return Pattern((x,), (both,), (0.25,))


def told(found: Pattern) -> list[object]:
    """All that a match looks at."""
    nodes = [node for node in found.outputs[0].graph.nodes if node.op != "output"]
    rows = [(node.op, node.name, node.target, node.args, node.kwargs, node.meta["val"].dim()) for node in nodes]
    return [repr(rows), [type(each) for row in rows for each in row[3]], repr(found.inputs), found.numbers]


def test_another_process_reads_what_was_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(tmp_path / "kernels"))
    kept = patterns.Kept.of(["a reference"])
    kept.add((1, 3), pattern())
    kept.add((3,), None)
    assert patterns.Kept.of(["a reference"]) is kept
    monkeypatch.setattr(patterns.Kept, "_open", {})
    again = patterns.Kept.of(["a reference"])
    assert (1, 3) in again
    assert again[3,] is None
    found = again[1, 3]
    assert found is not None
    assert told(found) == told(pattern())
    assert (3,) not in patterns.Kept.of(["another one"])


def test_what_is_no_pattern_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    good = patterns.document(pattern())
    bad = {**good, "nodes": [{**good["nodes"][-1], "target": "aten.no_such_operator.default"}]}
    file.write_text(json.dumps({"3": good, "5": bad, "7": {}, "1": [4]}))
    kept = patterns.Kept(file)
    assert [lead for lead in ((3,), (5,), (7,), (1,)) if lead in kept] == [(3,)]
    file.write_text("no JSON")
    assert (3,) not in patterns.Kept(file)


def test_a_target_that_is_no_operator_is_kept_in_this_process_alone(tmp_path: Path) -> None:
    file = tmp_path / "kept.json"
    kept = patterns.Kept(file)
    kept.add((3,), pattern(torch.mul))
    assert kept[3,] is not None
    assert not file.exists()

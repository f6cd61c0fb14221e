"""What kernels lose around them at most, held against what their places save."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import fx

from warpsmith.workers.optimize.compiled import inductor, match, seams
from warpsmith.workers.optimize.compiled.choice import Decision
from warpsmith.workers.optimize.compiled.patterns import keep
from warpsmith.workers.optimize.compiled.places import Region

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""Inductor imports a module of its own that warns."""

KERNEL = cast("Any", SimpleNamespace(mutated=(), names=[]))
FOUND = Decision(us=4.0, inductor_us=8.0, ci95=(1.75, 2.25))
VALUE_BYTES = 4 * 8 * 4


def chain() -> tuple[fx.Graph, list[fx.Node]]:
    """A graph of four steps, each on what the one before gives, and its steps; a view lies between two of them."""

    def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        first = torch.relu(x + weight)
        return torch.tanh(torch.relu(first.reshape(8, 4)))

    graph = inductor.operators(run, [torch.zeros(4, 8), torch.zeros(8)])
    return graph, [node for node in graph.nodes if node.op == "call_function" and not match.is_view(node)]


def region(nodes: list[fx.Node], inputs: list[fx.Node], kernel: Any = KERNEL) -> Region:
    return Region(kernel, match.Match(tuple(inputs), (nodes[-1],), tuple(nodes)))


def lost(*regions: Region) -> float:
    found = seams.bound([(each, FOUND) for each in regions], 1e-3)
    assert found is not None
    return found.lost_us


def test_a_tensor_between_a_place_and_its_surroundings_counts_once() -> None:
    graph, (add, relu, again, tanh) = chain()
    x, weight = (node for node in graph.nodes if node.op == "placeholder")
    one = seams.LAUNCH_US + 2 * VALUE_BYTES / 1e-3
    assert lost(region([add, relu], [x, weight])) == pytest.approx(one)  # what the graph is given is read either way
    view = again.all_input_nodes[0]
    assert view is not relu
    assert lost(region([again], [view])) == pytest.approx(2 * one)
    assert lost(region([add, relu], [x, weight]), region([again], [view])) == pytest.approx(2 * one)
    assert lost(region([add, relu], [x, weight]), region([again, tanh], [view])) == pytest.approx(2 * one)


def test_what_an_op_writes_to_counts() -> None:
    graph, (add, relu, *_) = chain()
    x, weight = (node for node in graph.nodes if node.op == "placeholder")
    writing = cast("Any", SimpleNamespace(mutated=(0,), names=["x"]))
    there = Region(writing, match.Match((x, weight), (add, relu), (add, relu)))
    one = seams.LAUNCH_US + 2 * VALUE_BYTES / 1e-3
    assert lost(there) == pytest.approx(2 * one)  # x itself, and what is no value left in it


def test_places_save_what_the_low_ends_of_their_intervals_say() -> None:
    graph, (add, relu, *_) = chain()
    x, weight = (node for node in graph.nodes if node.op == "placeholder")
    place = region([add, relu], [x, weight])
    found = seams.bound([(place, FOUND)], 1e9)
    assert found is not None
    assert found.saved_us == pytest.approx(4.0 * 0.75)
    assert not found.sure, "3 us for a launch of 3 and a little"
    better = seams.bound([(place, Decision(us=4.0, inductor_us=8.0, ci95=(1.9, 2.1)))], 1e9)
    assert better is not None
    assert better.sure
    assert str(better).startswith("they save at least 4 us of a call, for at most 3 lost")
    assert seams.bound([(place, Decision(us=4.0, inductor_us=8.0))], 1e9) is None


@pytest.mark.parametrize(("device", "patches"), [("cpu", {"triton.cudagraphs": True}), ("cuda", {})])
def test_nothing_is_said_where_a_call_costs_the_host(device: str, patches: dict[str, Any]) -> None:
    graph, (add, relu, *_) = chain()
    x, weight = (node for node in graph.nodes if node.op == "placeholder")
    place = region([add, relu], [x, weight])
    assert seams.gain(torch.device(device), patches, [(place, FOUND)]) is None
    assert seams.gain(torch.device("cuda"), {"triton.cudagraphs": True}, []) is None


def test_nothing_is_said_where_a_copy_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(device: torch.device) -> float:
        raise torch.OutOfMemoryError

    graph, (add, relu, *_) = chain()
    x, weight = (node for node in graph.nodes if node.op == "placeholder")
    place = region([add, relu], [x, weight])
    how = torch.device("cuda"), {"triton.cudagraphs": True}, [(place, FOUND)]
    monkeypatch.setattr(seams, "_bytes_per_us", lambda device: 1e9)
    assert seams.gain(*how) == seams.bound([(place, FOUND)], 1e9)
    monkeypatch.setattr(seams, "_bytes_per_us", full)
    assert seams.gain(*how) is None


@pytest.mark.parametrize("text", ["", "[]", '{"saved_us": 1}', '{"saved_us": "x", "lost_us": 1}'])
def test_what_was_kept_is_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "whole"
    file.write_text(text)
    assert seams.read(file) is None
    keep(file, {"saved_us": 5.0, "lost_us": 2.5})
    assert seams.read(file) == seams.Gain(5.0, 2.5)

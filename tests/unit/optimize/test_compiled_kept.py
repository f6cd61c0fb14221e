"""Sines and cosines that many elements share: which are kept, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import fx
from torch._inductor.inductor_prims import force_stride_order

from warpsmith.workers.optimize.compiled import inductor, kept

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
Model = Callable[..., object]


def rewritten(model: Model, *inputs: torch.Tensor) -> tuple[fx.Graph, list[fx.Node]]:
    """A model's graph of operators after the pass, and the nodes that keep a value."""
    graph = inductor.operators(model, inputs)
    kept.keep_shared(graph)
    graph.lint()
    return graph, [node for node in graph.nodes if node.target is force_stride_order]


def table(rows: int = 16) -> torch.Tensor:
    return torch.linspace(0, 30, rows * 8).reshape(rows, 8)


def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    cos, sin = (turn(angles).mul(1.0).to(x.dtype)[None] for turn in (torch.cos, torch.sin))
    return x * cos + x.flip(-1) * sin


def test_what_a_batch_shares_is_kept_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WORTH", 4 * 128)
    _, nodes = rewritten(rotated, torch.randn(8, 16, 8).to(torch.bfloat16), table())
    assert len(nodes) == 2
    for node in nodes:
        (before,) = node.all_input_nodes
        assert before.meta["val"].dtype is torch.bfloat16  # behind factor and conversion
        assert list(before.users) == [node]


def test_few_elements_are_computed_again() -> None:
    assert rewritten(rotated, torch.randn(8, 16, 8), table())[1] == []


def test_what_is_read_once_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WORTH", 1)
    assert rewritten(lambda x: torch.sin(x) + 1, table())[1] == []
    assert len(rewritten(lambda x: torch.sin(x)[None].expand(3, -1, -1) + 1, table())[1]) == 1


def test_a_result_of_the_graph_is_kept_for_its_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WORTH", 1)

    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        turned = torch.cos(x)
        return turned, turned + 1, turned * x

    graph, (node,) = rewritten(model, table())
    (result,) = (each for each in graph.nodes if each.op == "output")
    assert result.all_input_nodes[0] is node
    assert len(node.users) == 3

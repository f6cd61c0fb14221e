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


def rewritten(model: Model, *inputs: torch.Tensor) -> tuple[fx.Graph, int]:
    """A model's graph of operators after the pass, and how many values the pass says it keeps."""
    graph = inductor.operators(model, inputs)
    count = kept.keep_shared(graph)
    graph.lint()
    return graph, count


def table(rows: int = 16) -> torch.Tensor:
    return torch.linspace(0, 30, rows * 8).reshape(rows, 8)


def rotated(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    cos, sin = (turn(angles).mul(1.0).to(x.dtype)[None] for turn in (torch.cos, torch.sin))
    return x * cos + x.flip(-1) * sin


def test_what_a_batch_shares_is_kept_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WORTH", 4 * 128)
    graph, count = rewritten(rotated, torch.randn(8, 16, 8).to(torch.bfloat16), table())
    nodes = [node for node in graph.nodes if node.target is force_stride_order]
    assert count == len(nodes) == 2
    assert all(node.args[0].meta["val"].dtype is torch.bfloat16 for node in nodes)  # behind factor and conversion
    assert all(node.args[0].users == {node: None} for node in nodes)


def test_few_elements_are_computed_again() -> None:
    graph, count = rewritten(rotated, torch.randn(8, 16, 8), table())
    assert count == 0
    assert not any(node.target is force_stride_order for node in graph.nodes)


def test_what_is_read_once_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WORTH", 1)
    assert rewritten(lambda x: torch.sin(x) + 1, table())[1] == 0
    assert rewritten(lambda x: torch.sin(x)[None].expand(3, -1, -1) + 1, table())[1] == 1


def test_a_result_of_the_graph_is_kept_for_its_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WORTH", 1)

    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        turned = torch.cos(x)
        return turned, turned + 1, turned * x

    graph, count = rewritten(model, table())
    assert count == 1
    (result,) = (node for node in graph.nodes if node.op == "output")
    assert result.args[0][0].target is force_stride_order

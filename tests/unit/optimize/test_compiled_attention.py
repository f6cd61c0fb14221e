"""Attention written as products: which calls are, that results stay right, and that nothing else changes."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from warpsmith.workers.optimize.compiled import attention, rewriting

PROCESSORS = 8
Shape = tuple[int, int, int, int]


@pytest.fixture(autouse=True)
def small_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_processors", lambda device: PROCESSORS)


def drawn(shape: Shape, dtype: torch.dtype = torch.float32, *, seed: int = 0) -> torch.Tensor:
    batch, heads, positions, width = shape
    made = torch.randn(batch, positions, heads, width, generator=torch.Generator().manual_seed(seed))
    return made.to(dtype).transpose(1, 2)  # as models hand heads to attention


def attending(*tensors: torch.Tensor, bias: Any = None, log_sumexp: bool = False, **named: Any) -> fx.Graph:
    """The graph of one call of PyTorch's fused kernel for float32, which has no code for a CPU."""
    graph = fx.Graph()
    with FakeTensorMode() as mode:
        inputs = []
        for name, tensor in zip(("query", "key", "value"), tensors, strict=True):
            inputs.append(graph.placeholder(name))
            inputs[-1].meta["val"] = mode.from_tensor(tensor)
        node = graph.call_function(attention._ATTENTION, (*inputs, bias, log_sumexp), named)
        batch, heads, queries, _ = tensors[0].shape
        result = torch.empty(batch, queries, heads, tensors[2].shape[-1]).transpose(1, 2)
        node.meta["val"] = (result,)
        first = graph.call_function(operator.getitem, (node, 0))
        first.meta["val"] = result
        flat = graph.call_function(torch.ops.aten.permute.default, (first, [0, 2, 1, 3]))
        flat = graph.call_function(torch.ops.aten.view.default, (flat, [batch, queries, -1]))  # needs its memory so
    graph.output((flat,))
    return graph


def is_written(graph: fx.Graph) -> bool:
    attention.write_as_products(graph)
    graph.lint()
    return not graph.find_nodes(op="call_function", target=attention._ATTENTION)


@pytest.mark.parametrize(
    ("queries", "keys", "named"),
    [
        (130, 130, {}),
        (130, 130, {"is_causal": True}),
        (130, 77, {"is_causal": True, "scale": 0.3}),
        (128, 300, {"scale": 2.0}),
    ],
)
def test_few_blocks_are_products(queries: int, keys: int, named: dict[str, Any]) -> None:
    tensors = drawn((1, 2, queries, 16)), drawn((1, 2, keys, 16), seed=1), drawn((1, 2, keys, 24), seed=2)
    graph = attending(*tensors, **named)
    assert is_written(graph)
    (found,) = fx.GraphModule(torch.nn.Module(), graph)(*tensors)
    exact = torch.nn.functional.scaled_dot_product_attention(*(each.double() for each in tensors), **named)
    expected = exact.transpose(1, 2).reshape(1, queries, -1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


def test_what_is_not_a_number_stays_one() -> None:
    query, key, value = (drawn((1, 1, 128, 16), seed=seed) for seed in range(3))
    query[0, 0, 3, 0], key[0, 0, 100, 0], value[0, 0, 127, 5] = float("nan"), float("inf"), float("-inf")
    graph = attending(query, key, value, is_causal=True)
    assert is_written(graph)
    (found,) = fx.GraphModule(torch.nn.Module(), graph)(query, key, value)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.testing.assert_close(found, expected.transpose(1, 2).reshape(1, 128, -1), equal_nan=True)


def test_what_was_not_measured_or_is_more_than_attention_stays() -> None:
    def attend(shape: Shape, dtype: torch.dtype = torch.float32, **named: Any) -> fx.Graph:
        return attending(drawn(shape, dtype), drawn(shape, dtype), drawn(shape, dtype), **named)

    assert is_written(attend((1, 2, 192, 16)))  # 6 blocks, three quarters of the processors
    assert not is_written(attend((1, 2, 193, 16)))
    assert not is_written(attend((2, 2, 128, 16)))
    assert not is_written(attend((1, 2, 127, 16)))
    assert not is_written(attend((1, 2, 128, 256)))
    assert not is_written(attend((1, 2, 128, 16), torch.float64))
    assert not is_written(attend((1, 2, 128, 16), dropout_p=0.1))
    assert not is_written(attend((1, 2, 128, 16), log_sumexp=True))
    longer = drawn((1, 2, 1025, 16))
    assert not is_written(attending(drawn((1, 2, 128, 16)), longer, longer))

    graph = attend((1, 2, 128, 16))
    (node,) = graph.find_nodes(op="call_function", target=attention._ATTENTION)
    with graph.inserting_after(node):
        other = graph.call_function(operator.getitem, (node, 1))
    graph.find_nodes(op="output")[0].args = ((other,),)
    assert not is_written(graph)

    graph = attend((1, 2, 128, 16))
    (node,) = graph.find_nodes(op="call_function", target=attention._ATTENTION)
    node.update_arg(3, node.args[0])  # a mask
    assert not is_written(graph)


def test_less_exact_products_are_not_taken_nor_what_the_caller_switched_off() -> None:
    assert "attention" in rewriting._last({})
    torch.set_float32_matmul_precision("high")
    try:
        assert "attention" not in rewriting._last({})
    finally:
        torch.set_float32_matmul_precision("highest")
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION):
        assert "attention" not in rewriting._last({})

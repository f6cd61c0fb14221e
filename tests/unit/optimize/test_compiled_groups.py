"""Heads that are repeated for groups of queries: which calls of attention take them as they are, which do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch.nn.functional import scaled_dot_product_attention as attend

from warpsmith.workers.optimize.compiled.groups import share_heads
from warpsmith.workers.optimize.compiled.masks import ATTENTION

Model = Callable[..., torch.Tensor]
GROUP = 3


def captured(
    model: Model, *inputs: torch.Tensor, dynamic: bool = False
) -> tuple[torch.Tensor, list[str], list[fx.Node]]:
    """What a model returns with its graph rewritten and run as it is; the calls that share, and all calls."""
    shared: list[str] = []
    graphs: list[fx.GraphModule] = []

    def backend(graph: fx.GraphModule, _: list[torch.Tensor]) -> fx.GraphModule:
        shared.extend(share_heads(graph))
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(model, backend=backend, dynamic=dynamic)(*inputs)
    (graph,) = graphs
    return found, shared, [node for node in graph.graph.nodes if node.op.startswith("call_")]


def inputs() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, heads, 12, 8, generator=generator) for heads in (2 * GROUP, 2, 2)]


def as_transformers(x: torch.Tensor) -> torch.Tensor:
    batch, heads, length, size = x.shape
    return x[:, :, None, :, :].expand(batch, heads, GROUP, length, size).reshape(batch, heads * GROUP, length, size)


def by_unsqueeze(x: torch.Tensor) -> torch.Tensor:
    return x.unsqueeze(-3).expand(-1, -1, GROUP, -1, -1).reshape(2, -1, 12, 8)


def by_keyword(x: torch.Tensor) -> torch.Tensor:
    return torch.unsqueeze(input=x, dim=2).expand(-1, -1, GROUP, -1, -1).reshape(2, -1, 12, 8)


def interleaved(x: torch.Tensor) -> torch.Tensor:
    return x.repeat_interleave(GROUP, dim=1)


@pytest.mark.parametrize("repeat", [as_transformers, by_unsqueeze, by_keyword, interleaved])
def test_repeated_heads_are_given_as_they_are(repeat: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def model(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend(q, repeat(k), repeat(v), is_causal=True, scale=0.3)

    found, shared, calls = captured(model, *inputs())
    torch.testing.assert_close(found, model(*inputs()))
    assert len(shared) == 1
    assert [node.target for node in calls] == [ATTENTION]
    assert calls[0].kwargs["enable_gqa"] is True
    assert (calls[0].kwargs["is_causal"], calls[0].kwargs["scale"]) == (True, 0.3)


def test_lengths_that_vary_keep_varying() -> None:
    def model(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend(q, as_transformers(k), as_transformers(v), is_causal=True)

    found, shared, calls = captured(model, *inputs(), dynamic=True)
    torch.testing.assert_close(found, model(*inputs()))
    assert len(shared) == 1
    value = next(node for node in calls if node.target is ATTENTION).meta["example_value"]
    assert isinstance(value.shape[2], torch.SymInt)


def test_a_scale_that_sizes_decide_stays_as_it_is() -> None:
    def model(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend(q, as_transformers(k), as_transformers(v), scale=q.shape[-1] ** -0.5)

    found, shared, _ = captured(model, *inputs(), dynamic=True)
    torch.testing.assert_close(found, model(*inputs()))
    assert shared == []


def test_what_else_reads_a_repetition_keeps_it() -> None:
    def model(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        keys = as_transformers(k)
        return attend(q, keys, as_transformers(v)) + keys

    found, shared, _ = captured(model, *inputs())
    torch.testing.assert_close(found, model(*inputs()))
    assert len(shared) == 1


def other_order(x: torch.Tensor) -> torch.Tensor:
    """Head after head, all heads once: another repetition than that of groups."""
    return x[:, None].expand(2, GROUP, 2, 12, 8).reshape(2, 2 * GROUP, 12, 8)


def keys_alone(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attend(q, as_transformers(k), other_order(v))


def one_head_of_queries(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attend(q[:, :1], as_transformers(k), as_transformers(v))


def with_a_mask(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attend(q, as_transformers(k), as_transformers(v), attn_mask=torch.ones(12, 12, dtype=torch.bool))


def repeated_positions(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attend(q[:, :2], k.repeat_interleave(GROUP, dim=2), v.repeat_interleave(GROUP, dim=2))


def by_tensor(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attend(q, k.repeat_interleave(torch.tensor([4, 2]), 1, output_size=6), interleaved(v))


def written_between(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    keys, values = k.clone(), as_transformers(v)
    repeated = as_transformers(keys)
    keys.mul_(2)
    return attend(q, repeated, values)


@pytest.mark.parametrize(
    "model", [keys_alone, one_head_of_queries, with_a_mask, repeated_positions, by_tensor, written_between]
)
def test_other_attention_stays_as_it_is(model: Model) -> None:
    found, shared, calls = captured(model, *inputs())
    torch.testing.assert_close(found, model(*inputs()))
    assert shared == []
    assert not any(node.kwargs.get("enable_gqa") for node in calls)


def test_repetition_stays_where_pytorch_has_another_kernel_for_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(*_: torch.Tensor, enable_gqa: bool, **__: Any) -> int:
        return 0 if enable_gqa else 1  # products and a softmax of their own, in place of a kernel

    monkeypatch.setattr(torch, "_fused_sdp_choice", chosen)

    def model(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend(q, as_transformers(k), as_transformers(v))

    assert captured(model, *inputs())[1] == []

"""Attention masks that no input decides: which are taken out, which stay and why, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import fx
from torch.nn.functional import scaled_dot_product_attention as attend

from warpsmith.workers.optimize.compiled.masks import ATTENTION, Place, meaning, take_out_masks

Model = Callable[..., Any]


def captured(model: Model, *inputs: Any, dynamic: bool = False) -> tuple[Any, list[Place], list[fx.GraphModule]]:
    """What a model returns with its graphs rewritten and run as they are; its places, its graphs."""
    places: list[Place] = []
    graphs: list[fx.GraphModule] = []

    def backend(graph: fx.GraphModule, _: list[torch.Tensor]) -> fx.GraphModule:
        places.extend(take_out_masks(graph))
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, dynamic=dynamic)
    return compiled(*inputs), places, graphs


def heads(length: int = 12, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, 3, length, 8, generator=generator) for _ in range(3)]


def triangle(length: int) -> torch.Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril()


def by_positions(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    at = torch.arange(q.shape[2])
    mask = (at[None, :] <= at[:, None]) & torch.ones((), dtype=torch.bool)
    return attend(q, k, v, attn_mask=mask[None, None].expand(q.shape[0], 1, -1, -1), scale=0.3)


def in_place(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    mask = torch.full((q.shape[2], q.shape[2]), float("-inf"))
    mask.view(-1)[:].view(mask.shape).triu_(1)
    return attend(q, k, v, mask, 0.0)


def lowest(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    hidden = ~torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
    return attend(q, k, v, torch.zeros(q.shape[2], q.shape[2]).masked_fill(hidden, torch.finfo(torch.float32).min))


def everything(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attend(q, k, v, attn_mask=torch.zeros(2, 1, q.shape[2], k.shape[2]))


@pytest.mark.parametrize(
    ("model", "means"),
    [(by_positions, "causal"), (in_place, "causal"), (lowest, "causal"), (everything, "hides nothing")],
)
def test_a_mask_of_sizes_alone_is_taken_out_with_all_that_made_it(model: Model, means: str) -> None:
    found, places, (graph,) = captured(model, *heads())
    torch.testing.assert_close(found, model(*heads()))
    assert [place.means for place in places] == [means]
    (call,) = (node for node in graph.graph.nodes if node.target is ATTENTION)
    assert call.kwargs["attn_mask"] is None
    assert call.kwargs["is_causal"] == (means == "causal")
    assert ("scale" in call.kwargs) == (model is by_positions)
    if model is not in_place:  # what is written to stays with who writes: Inductor drops it
        assert [node for node in graph.graph.nodes if node.op.startswith("call_")] == [call]


def from_an_input(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attend(q, k, v, attn_mask=triangle(q.shape[2]) & (q[0, 0, :, :1] > -100.0))


def partly_from_an_input(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros(q.shape[2], q.shape[2])
    mask[0] = 0 * q[0, 0, :, 0]
    return attend(q, k, v, attn_mask=mask)


def added_to_by_an_input(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    mask = torch.zeros(q.shape[2], q.shape[2])
    mask[1:].add_(q[0, 0, 1:, :1])
    return attend(q, k, v, attn_mask=mask)


def window(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attend(q, k, v, attn_mask=torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril().triu(-3))


def other_lengths(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return attend(q[:, :, :5], k, v, attn_mask=torch.ones(5, k.shape[2], dtype=torch.bool).tril())


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (from_an_input, "an input of the graph decides the mask"),
        (partly_from_an_input, "may write what an input decides into a tensor that none did"),
        (added_to_by_an_input, "may write what an input decides into a tensor that none did"),
        (window, "the mask of shape [12, 12] is neither causal nor empty"),
        (other_lengths, "the mask of shape [5, 12] is neither causal nor empty"),
    ],
)
def test_what_an_input_decides_or_no_flag_says_stays(model: Model, why: str) -> None:
    found, (place,), _ = captured(model, *heads())
    torch.testing.assert_close(found, model(*heads()))
    assert place.means is None
    assert why in place.why


def test_a_mask_of_chance_stays() -> None:
    def chance(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend(q, k, v, attn_mask=torch.rand(q.shape[2], q.shape[2]) < 0.5)

    _, (place,), _ = captured(chance, *heads())
    assert place.why == "the mask is not the same each time it is computed"


def test_sizes_that_vary_are_named() -> None:
    found, (place,), _ = captured(by_positions, *heads(), dynamic=True)
    torch.testing.assert_close(found, by_positions(*heads()))
    assert place.why.startswith("sizes that vary from call to call decide the mask")


def test_a_mask_that_is_used_elsewhere_too_is_still_there() -> None:
    def shared(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
        return attend(q, k, v, attn_mask=mask), mask.sum(-1)

    found, (place,), _ = captured(shared, *heads())
    torch.testing.assert_close(found, shared(*heads()))
    assert place.means == "causal"


class Cached(torch.nn.Module):
    """Writes its keys into a buffer, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 3, 12, 8))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        assert isinstance(self.keys, torch.Tensor)
        assert isinstance(self.calls, torch.Tensor)
        self.keys.index_copy_(2, torch.arange(q.shape[2]), k)
        self.calls += 1
        with torch.no_grad():
            mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
        return attend(q, self.keys, v, attn_mask=mask)


def test_what_a_graph_writes_and_its_gradients_stay() -> None:
    plain, rewritten = Cached(), Cached()
    inputs = [one.requires_grad_() for one in heads()]
    expected = plain(*heads())
    found, (place,), _ = captured(rewritten, *inputs)
    assert place.means == "causal"
    torch.testing.assert_close(found, expected)
    for name in ("keys", "calls"):
        torch.testing.assert_close(getattr(rewritten, name), getattr(plain, name))
    found.sum().backward()
    assert all(one.grad is not None for one in (inputs[0], inputs[2]))


def test_a_mask_counts_as_its_user_finds_it() -> None:
    def changed_between(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
        first = attend(q, k, v, attn_mask=mask)
        mask.fill_(True)
        second = attend(first, k, v, attn_mask=mask)
        mask[:, 3:] = False
        return attend(second, k, v, attn_mask=mask)

    found, places, _ = captured(changed_between, *heads())
    torch.testing.assert_close(found, changed_between(*heads()))
    assert [place.means for place in places] == ["causal", "hides nothing", None]


def test_a_mask_that_needs_what_is_around_it_stays() -> None:
    def by_vmap(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        at = torch.arange(q.shape[2])
        return attend(q, k, v, attn_mask=torch.vmap(lambda row: at <= row)(at))

    found, (place,), _ = captured(by_vmap, *heads())
    torch.testing.assert_close(found, by_vmap(*heads()))
    assert place.means is None
    assert place.why.startswith("the mask cannot be computed here: ")


def test_a_graph_without_masks_is_left_alone() -> None:
    def bare(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend(q, k, v, is_causal=True)

    found, places, _ = captured(bare, *heads())
    assert places == []
    torch.testing.assert_close(found, bare(*heads()))


NEG = float("-inf")
LEAST = torch.finfo(torch.bfloat16).min


@pytest.mark.parametrize(
    ("mask", "means"),
    [
        (triangle(4), "causal"),
        (triangle(4).expand(2, 1, 4, 4), "causal"),
        (torch.ones(4, 7, dtype=torch.bool), "hides nothing"),
        (triangle(1), "hides nothing"),
        (torch.zeros(2, 2), "hides nothing"),
        (torch.tensor([[0.0, NEG], [0.0, 0.0]]), "causal"),
        (torch.tensor([[0.0, LEAST], [0.0, 0.0]], dtype=torch.bfloat16), "causal"),
        (torch.tensor([[0.0, -1e4], [0.0, 0.0]]), None),  # a weight of e^-10000 is zero; one of -1 would not be
        (torch.tensor([[0.0, NEG], [0.5, 0.0]]), None),
        (torch.tensor([[0.0, float("nan")], [0.0, 0.0]]), None),
        (torch.stack([triangle(4), torch.ones(4, 4, dtype=torch.bool)]), None),  # two batches, two masks
        (torch.ones(4, 4, dtype=torch.int64).tril(), None),
        (torch.ones(4, dtype=torch.bool), None),
        (torch.ones(0, 4, dtype=torch.bool), None),
    ],
)
def test_the_meaning_of_a_mask(mask: torch.Tensor, means: str | None) -> None:
    assert meaning(mask) == means


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**36 - 1))
def test_a_flag_gives_what_its_mask_gave(queries: int, keys: int, bits: int) -> None:
    mask = torch.tensor([(bits >> at) & 1 for at in range(queries * keys)], dtype=torch.bool).view(queries, keys)
    generator = torch.Generator().manual_seed(bits)
    q, k, v = (torch.randn(1, 1, length, 4, generator=generator) for length in (queries, keys, keys))
    means = meaning(mask)
    if means is not None:
        found = attend(q, k, v, is_causal=means == "causal")
        torch.testing.assert_close(found, attend(q, k, v, attn_mask=mask))

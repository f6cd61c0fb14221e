"""The products of a mixture of experts in models of `transformers`: ends of groups, and experts that were chosen."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from tests.experts import (
    EXPERTS,
    EXPERTS_CPP,
    EXPERTS_FP32,
    EXPERTS_FP32_CPP,
    GROUPED_MM,
    GROUPED_MM_CPP,
    GROUPED_SWIGLU,
    GROUPED_SWIGLU_CPP,
)
from tests.exporting import exported
from tests.integration.test_optimize_gate import block, captured, served
from tests.support.plans import with_plans
from warpsmith.kernels_db.export.package import build
from warpsmith.workers.optimize.compiled import choice, inductor, places
from warpsmith.workers.optimize.compiled.kernel import Kernel
from warpsmith.workers.optimize.compiled.served import Served

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning"),
]
"""Inductor imports a module of its own that warns."""

OPS = {
    "moe_grouped_mm": (GROUPED_MM, GROUPED_MM_CPP),
    "moe_grouped_swiglu": (GROUPED_SWIGLU, GROUPED_SWIGLU_CPP),
    "moe_experts": (EXPERTS, EXPERTS_CPP),
    "moe_experts_fp32": (EXPERTS_FP32, EXPERTS_FP32_CPP),
}
QWEN3, MIXTRAL = ("Qwen3_MoE", 16, 4), ("Mixtral", 8, 2)
LAYERS = [
    (*QWEN3, 1),
    (*MIXTRAL, 12),
    pytest.param(*QWEN3, 12, marks=pytest.mark.nightly),
    pytest.param(*MIXTRAL, 1, marks=pytest.mark.nightly),
]
"""A layer's model, experts, experts of a token, and tokens."""


@dataclass(frozen=True)
class Layer:
    """A layer with its results, and its graph, which a test may change."""

    expected: torch.Tensor
    captured: fx.GraphModule
    inputs: list[Any]

    @property
    def graph(self) -> fx.GraphModule:
        return inductor.copied(self.captured)


@functools.cache
def layer(which: str, experts: int, top: int, tokens: int) -> Layer:
    """One layer for all tests: to capture one takes seconds."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    made, x = block(which, experts, top), torch.randn(1, tokens, 32).to(torch.bfloat16)
    with torch.no_grad():
        return Layer(made(x), *captured(made, x))


@pytest.fixture(scope="module", autouse=True)
def _caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is known of any region before these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARPSMITH_KERNEL_CACHE", with_plans(tmp_path_factory.mktemp("kernels")))
        yield
    layer.cache_clear()


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("experts")
    return {name: build(exported(spec, source), directory) for name, (spec, source) in OPS.items()}


@pytest.fixture(scope="module")
def kernels(packages: dict[str, Path]) -> dict[str, Served]:
    return {name: Served(Kernel(package / package.name)) for name, package in packages.items()}


@pytest.mark.parametrize(("which", "experts", "top", "tokens"), LAYERS)
def test_grouped_products_stand_in_a_mixture_of_experts(
    packages: dict[str, Path], kernels: dict[str, Served], which: str, experts: int, top: int, tokens: int
) -> None:
    """The products up and down, and up with what follows it: a place each, and the model's results."""
    made = layer(which, experts, top, tokens)
    graph, rows = made.graph, tokens * top
    product, gated = kernels["moe_grouped_mm"], kernels["moe_grouped_swiglu"]
    up, down = places.find(graph.graph, [product]).regions
    (both,) = places.find(graph.graph, [gated]).regions
    assert up.shapes == both.shapes == f"{rows}x32, {experts}x64x32, {experts}"
    assert down.shapes == f"{rows}x32, {experts}x32x32, {experts}"
    assert all(region.integers(2, even=even) is not None for region in (up, down, both) for even in (True, False))
    with torch.no_grad():
        assert [choice.compare(region) for region in (up, down, both)] == [None] * 3
        places.put(graph.graph, [both, down])
        graph.recompile()
        (found,) = graph(*made.inputs)
    torch.testing.assert_close(found, made.expected, rtol=0.03, atol=0.03)
    assert served(packages["moe_grouped_swiglu"]) > 0
    assert served(packages["moe_grouped_mm"]) > 0


@pytest.mark.parametrize(("which", "experts", "top", "tokens"), LAYERS)
def test_the_experts_of_few_tokens_are_one_place(
    packages: dict[str, Path], kernels: dict[str, Served], which: str, experts: int, top: int, tokens: int
) -> None:
    """From the sorting to the sum over a token's experts, which are drawn as the model's `topk` gives them.

    Mixtral's weights of experts are float32, which is an op of its own.
    """
    op = "moe_experts_fp32" if which == "Mixtral" else "moe_experts"
    made = layer(which, experts, top, tokens)
    graph = made.graph
    (region,) = places.find(graph.graph, [kernels[op]]).regions
    given = f"{tokens}x32, {tokens}x{top}, {tokens}x{top}"
    assert region.shapes == f"{given}, {experts}x64x32, {experts}x32x32"
    assert region.integers(1, even=False) is not None
    with torch.no_grad():
        assert choice.compare(region) is None
        places.put(graph.graph, [region])
        graph.recompile()
        assert "sort" not in graph.code
        calls = served(packages[op])
        (found,) = graph(*made.inputs)
    torch.testing.assert_close(found, made.expected, rtol=0.03, atol=0.03)
    assert served(packages[op]) == calls + 1


def test_weights_of_float32_are_outside_of_the_experts_that_were_verified(kernels: dict[str, Served]) -> None:
    """Mixtral's are: the same structure but for a cast, which the envelope refuses."""
    graph = layer(*MIXTRAL, 12).graph
    (region,) = places.find(graph.graph, [kernels["moe_experts"]]).regions
    unfit = choice.compare(region)
    assert unfit is not None
    assert unfit.why == "weights is torch.float32, verified for torch.bfloat16"
    assert places.find(layer(*QWEN3, 1).graph.graph, [kernels["moe_experts_fp32"]]).regions == []


@pytest.mark.parametrize("tokens", [1, 12])
def test_experts_whose_rows_are_masked_are_places_too(kernels: dict[str, Served], tokens: int) -> None:
    """As transformers 5.17 writes them: rows of an expert that is not on this device, of which there are none."""

    def run(scores: torch.Tensor, x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        values, chosen = scores.softmax(-1).topk(4, dim=-1)
        expert, order = torch.sort(chosen.reshape(-1))
        ends = torch.cumsum(torch.histc(expert.float(), bins=16, min=0, max=15), dim=0, dtype=torch.int32)
        elsewhere = (expert >= 16).unsqueeze(-1)
        expert.clamp_(max=15)
        rows = x[order // 4]
        rows.masked_fill_(elsewhere, 0.0)
        both = torch._grouped_mm(rows, gate_up.transpose(1, 2), ends).masked_fill(elsewhere, 0.0)
        gate, up = both.chunk(2, dim=-1)
        y = torch._grouped_mm(torch.nn.functional.silu(gate) * up, down.transpose(1, 2), ends)
        y = y.masked_fill(elsewhere, 0.0) * values.to(x.dtype).reshape(-1)[order].unsqueeze(-1)
        back = torch.empty_like(order)
        back[order] = torch.arange(order.shape[0])
        return y[back].view(tokens, 4, -1).sum(dim=1) + 1

    shapes = (tokens, 32), (16, 64, 32), (16, 32, 32)
    given = [torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes]
    graph = inductor.operators(run, [torch.rand(tokens, 16), *given])
    found = places.find(graph, [kernels["moe_experts"], kernels["moe_grouped_swiglu"]]).regions
    assert [region.kernel.op for region in found] == ["moe_experts", "moe_grouped_swiglu"]


def test_ends_are_drawn_for_a_place_with_and_without_empty_experts(kernels: dict[str, Served]) -> None:
    def run(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        return torch._grouped_mm(x, weight.transpose(1, 2), ends) + 1

    given = torch.zeros(48, 32, dtype=torch.bfloat16), torch.zeros(16, 64, 32, dtype=torch.bfloat16)
    graph = inductor.operators(run, [*given, torch.full((16,), 48, dtype=torch.int32)])
    (region,) = places.find(graph, [kernels["moe_grouped_mm"]]).regions
    for even in (True, False):
        drawn = region.integers(2, even=even)
        assert drawn is not None
        assert (drawn.dtype, drawn.shape, int(drawn[-1])) == (torch.int32, (16,), 48)
        assert bool((drawn.diff() >= 0).all())
        assert int(drawn[0]) >= 0


def experts_of(chosen: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
    source: dict[str, Any] = {}
    exec(EXPERTS["reference"], source)
    x, weights, gate_up, down = given
    found: torch.Tensor = source["run"](x, chosen, weights, gate_up, down) + 1
    return found


def region_of(kernel: Served, run: Any, *inputs: torch.Tensor) -> places.Region:
    (region,) = places.find(inductor.operators(run, list(inputs)), [kernel]).regions
    return region


def test_experts_are_drawn_where_a_topk_over_all_of_them_chose(kernels: dict[str, Served]) -> None:
    shapes = (12, 32), (12, 4), (16, 64, 32), (16, 32, 32)
    given = [torch.zeros(shape, dtype=torch.bfloat16) for shape in shapes]
    kernel = kernels["moe_experts"]
    region = region_of(
        kernel, lambda s, *rest: experts_of(s.topk(4, dim=-1).indices, *rest), torch.rand(12, 16), *given
    )
    drawn = region.integers(1, even=True)
    assert drawn is not None
    assert (drawn.dtype, drawn.shape) == (torch.int64, (12, 4))
    assert 0 <= int(drawn.min()) <= int(drawn.max()) < 16
    assert all(len(set(row)) == 4 for row in drawn.tolist())
    crowded = region.integers(1, even=False)
    assert crowded is not None
    assert len(set(map(tuple, crowded.tolist()))) == 1, "so each of these experts has twelve tokens"
    of_some = region_of(kernel, lambda s, *rest: experts_of(s.topk(4).indices, *rest), torch.rand(12, 9), *given)
    assert of_some.integers(1, even=True) is None, "others than all experts: what they index is not known"
    over_tokens = region_of(
        kernel, lambda s, *rest: experts_of(s.topk(12, 0).indices, *rest), torch.rand(16, 4), *given
    )
    assert over_tokens.integers(1, even=True) is None
    passed_in = region_of(kernel, experts_of, torch.zeros(12, 4, dtype=torch.int64), *given)
    assert passed_in.integers(1, even=True) is None, "nothing says where they come from"

"""The products of a mixture of experts in models of `transformers`: ends of groups, and experts that were chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.experts import EXPERTS, EXPERTS_CPP, GROUPED_MM, GROUPED_MM_CPP, GROUPED_SWIGLU, GROUPED_SWIGLU_CPP
from tests.exporting import exported
from tests.integration.test_optimize_gate import block, captured, served
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
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("experts")
    return {name: build(exported(spec, source), directory) for name, (spec, source) in OPS.items()}


@pytest.fixture(scope="module")
def kernels(packages: dict[str, Path]) -> dict[str, Served]:
    return {name: Served(Kernel(package / package.name)) for name, package in packages.items()}


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(tmp_path / "kernels"))
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("which", "experts", "top", "tokens"),
    [
        ("Qwen3_MoE", 16, 4, 1),
        ("Mixtral", 8, 2, 12),
        pytest.param("Qwen3_MoE", 16, 4, 12, marks=pytest.mark.nightly),
        pytest.param("Mixtral", 8, 2, 1, marks=pytest.mark.nightly),
    ],
)
def test_grouped_products_stand_in_a_mixture_of_experts(
    packages: dict[str, Path], kernels: dict[str, Served], which: str, experts: int, top: int, tokens: int
) -> None:
    """The products up and down, and up with what follows it: a place each, and the model's results."""
    made, x = block(which, experts, top), torch.randn(1, tokens, 32).to(torch.bfloat16)
    rows = tokens * top
    with torch.no_grad():
        expected = made(x)
        graph, inputs = captured(made, x)
        product, gated = kernels["moe_grouped_mm"], kernels["moe_grouped_swiglu"]
        up, down = places.find(graph.graph, [product]).regions
        (both,) = places.find(graph.graph, [gated]).regions
        assert up.shapes == both.shapes == f"{rows}x32, {experts}x64x32, {experts}"
        assert down.shapes == f"{rows}x32, {experts}x32x32, {experts}"
        assert all(region.integers(2, even=even) is not None for region in (up, down, both) for even in (True, False))
        assert [choice.compare(region) for region in (up, down, both)] == [None] * 3
        places.put(graph.graph, [both, down])
        graph.recompile()
        (found,) = graph(*inputs)
        torch.testing.assert_close(found, expected, rtol=0.03, atol=0.03)
    assert served(packages["moe_grouped_swiglu"]) > 0
    assert served(packages["moe_grouped_mm"]) > 0


@pytest.mark.parametrize("tokens", [1, 12])
def test_the_experts_of_few_tokens_are_one_place(
    packages: dict[str, Path], kernels: dict[str, Served], tokens: int
) -> None:
    """From the sorting to the sum over a token's experts, which are drawn as the model's `topk` gives them."""
    made, x = block("Qwen3_MoE", 16, 4), torch.randn(1, tokens, 32).to(torch.bfloat16)
    with torch.no_grad():
        expected = made(x)
        graph, inputs = captured(made, x)
        (region,) = places.find(graph.graph, [kernels["moe_experts"]]).regions
        assert region.shapes == f"{tokens}x32, {tokens}x4, {tokens}x4, 16x64x32, 16x32x32"
        assert region.integers(1, even=False) is not None
        assert choice.compare(region) is None
        places.put(graph.graph, [region])
        graph.recompile()
        assert "sort" not in graph.code
        calls = served(packages["moe_experts"])
        (found,) = graph(*inputs)
        torch.testing.assert_close(found, expected, rtol=0.03, atol=0.03)
    assert served(packages["moe_experts"]) == calls + 1


def test_weights_of_float32_are_outside_of_the_experts_that_were_verified(kernels: dict[str, Served]) -> None:
    """Mixtral's are: the same structure, which the envelope refuses."""
    with torch.no_grad():
        graph, _ = captured(block("Mixtral", 8, 2), torch.randn(1, 12, 32).to(torch.bfloat16))
    (region,) = places.find(graph.graph, [kernels["moe_experts"]]).regions
    unfit = choice.compare(region)
    assert unfit is not None
    assert unfit.why == "weights is torch.float32, verified for torch.bfloat16"


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

"""The gate of a mixture of experts in models of `transformers`: an op with an integer k and indices that are int32."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

import warpsmith
from tests.exporting import exported
from tests.gate import GATE, GATE_CPP
from tests.support.plans import with_plans
from warpsmith.kernels_db.export.package import build
from warpsmith.workers.optimize.compiled import choice, inductor, places
from warpsmith.workers.optimize.compiled.kernel import Kernel
from warpsmith.workers.optimize.compiled.served import Served

transformers = pytest.importorskip("transformers", reason="transformers is not installed: its layers are optimized")
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning"),
]
"""Inductor imports a module of its own that warns."""

Gate = Callable[[torch.Tensor], Any]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(exported(GATE, GATE_CPP), tmp_path_factory.mktemp("gate"))


@pytest.fixture(scope="module")
def gate(package: Path) -> Served:
    return Served(Kernel(package / package.name))


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of any region, and Inductor has compiled nothing."""
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", with_plans(tmp_path / "kernels"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    torch.manual_seed(0)


def block(which: str, experts: int, chosen: int) -> torch.nn.Module:
    """The experts of one layer with their gate, in bfloat16; logits lie far apart, as those of a trained one do."""
    module = importlib.import_module(f"transformers.models.{which.lower()}.modeling_{which.lower()}")
    own: dict[str, Any] = {"num_local_experts": experts}
    if which == "Qwen3_MoE":
        own = {"num_experts": experts, "moe_intermediate_size": 32, "norm_topk_prob": True}
    name = which.replace("_", "").replace("MoE", "Moe")
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_experts_per_tok": chosen}
    config = getattr(transformers, f"{name}Config")(**sizes, **own)
    config._experts_implementation = "grouped_mm"  # what a whole model of transformers has unless told otherwise
    made: torch.nn.Module = getattr(module, f"{name}SparseMoeBlock")(config).eval()
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    return made.to(torch.bfloat16)


@pytest.mark.parametrize(("which", "experts", "chosen"), [("Qwen3_MoE", 16, 4), ("Mixtral", 8, 2)])
def test_a_gate_stands_in_a_mixture_of_experts(
    package: Path, gate: Served, which: str, experts: int, chosen: int
) -> None:
    made, x = block(which, experts, chosen), torch.randn(1, 12, 32).to(torch.bfloat16)
    with torch.no_grad():
        graph, inputs = captured(made, x)
        (region,) = places.find(graph.graph, [gate]).regions
        assert (region.shapes, region.numbers) == (f"12x{experts}", (chosen,))
        assert choice.compare(region) is None
        places.put(graph.graph, [region])
        graph.recompile()
        calls = served(package)
        (found,) = graph(*inputs)
        assert served(package) == calls + 1
        torch.testing.assert_close(found, made(x), rtol=0.02, atol=0.02)


@pytest.mark.nightly
@pytest.mark.parametrize(("which", "experts", "chosen"), [("Qwen3_MoE", 16, 4), ("Mixtral", 8, 2)])
def test_a_gate_stands_in_what_inductor_compiles(package: Path, which: str, experts: int, chosen: int) -> None:
    made, x = block(which, experts, chosen), torch.randn(1, 12, 32).to(torch.bfloat16)
    with torch.no_grad():
        fast = warpsmith.optimize(made, kernels=[package], keep="right")
        fast(x)
        assert "1 of 1 places of kernels taken" in fast.report(), fast.report()
        calls = served(package)
        torch.testing.assert_close(fast(x), made(x), rtol=0.02, atol=0.02)
    assert served(package) == calls + 1


def captured(run: Any, *given: torch.Tensor) -> tuple[fx.GraphModule, list[Any]]:
    """The graph of operators of a model, with its inputs."""
    seen: list[Any] = []

    def backend(graph: fx.GraphModule, inputs: list[Any]) -> fx.GraphModule:
        seen.extend((inductor.operators_of(graph, inputs), inputs))
        return graph

    torch.compile(run, backend=backend)(*given)
    graph, inputs = seen
    return graph, inputs


def served(package: Path) -> int:
    """Calls that the kernel served so far."""
    return int(importlib.import_module(package.name).status()["served"]["kernel"])


def softmax(logits: torch.Tensor) -> torch.Tensor:
    return torch.softmax(logits, -1, dtype=torch.float32)


def chosen_of(probabilities: torch.Tensor, k: int = 4, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    weights, chosen = torch.topk(probabilities, k, dim=-1, **options)
    return weights / weights.sum(-1, keepdim=True), chosen


def as_int32(weights: torch.Tensor, chosen: torch.Tensor) -> Any:
    return weights.to(torch.bfloat16), chosen.to(torch.int32)


def as_both(weights: torch.Tensor, chosen: torch.Tensor) -> Any:
    return weights, chosen, chosen.to(torch.int32)


def reshaped(weights: torch.Tensor, chosen: torch.Tensor) -> Any:
    return weights, chosen.reshape(-1) // 4


def found_in(gate: Served, run: Gate, *shape: int, dtype: torch.dtype = torch.bfloat16) -> places.Found:
    """The places of the gate in a function's graph."""
    return places.find(inductor.operators(run, [torch.zeros(shape or (12, 16), dtype=dtype)]), [gate])


@pytest.mark.parametrize(
    ("run", "numbers"),
    [
        (lambda x: chosen_of(softmax(x)), (4,)),
        (lambda x: chosen_of(softmax(x), 2), (2,)),
        (lambda x: chosen_of(torch.softmax(x.float(), -1), 8), (8,)),
        (lambda x: as_int32(*chosen_of(softmax(x))), (4,)),
        (lambda x: as_both(*chosen_of(softmax(x))), (4,)),
        (lambda x: reshaped(*chosen_of(softmax(x))), (4,)),
    ],
)
def test_a_gate_is_found_with_its_k(gate: Served, run: Gate, numbers: tuple[int, ...]) -> None:
    found = found_in(gate, run)
    assert [region.numbers for region in found.regions] == [numbers]


@pytest.mark.parametrize("shape", [(1, 16), (2, 5, 16), (1, 1, 16)])
def test_a_gate_of_a_batch_of_rows_is_one_of_rows(gate: Served, shape: tuple[int, ...]) -> None:
    found = found_in(gate, lambda x: chosen_of(softmax(x)), *shape)
    assert [(region.shapes, region.numbers) for region in found.regions] == [("x".join(map(str, shape)), (4,))]


def test_a_gate_is_found_where_the_number_of_rows_varies(gate: Served) -> None:
    x = torch.randn(12, 16).to(torch.bfloat16)
    torch._dynamo.mark_dynamic(x, 0)
    graph, _ = captured(lambda given: chosen_of(softmax(given)), x)
    (region,) = places.find(graph.graph, [gate]).regions
    assert region.numbers == (4,)
    places.put(graph.graph, [region])
    graph.recompile()
    rows = torch.randn(7, 16).to(torch.bfloat16)
    weights, chosen = graph(7, rows)
    assert chosen.dtype == torch.int64
    torch.testing.assert_close(weights, chosen_of(softmax(rows))[0])


@pytest.mark.parametrize("k", ["the number of experts", "the number of rows"])
def test_a_gate_whose_k_varies_is_no_place(gate: Served, k: str) -> None:
    """What sizes decide from call to call is not the op's k, though it was the same in the call that is compiled."""

    def run(given: torch.Tensor) -> Any:
        return chosen_of(softmax(given), given.shape[0] if k == "the number of rows" else given.shape[1])

    x = torch.randn(8, 8).to(torch.bfloat16)
    torch._dynamo.mark_dynamic(x, 0 if k == "the number of rows" else 1)
    graph, _ = captured(run, x)
    assert "topk" in graph.code
    assert places.find(graph.graph, [gate]).regions == []


def unscaled(x: torch.Tensor) -> Any:
    return torch.topk(softmax(x), 4, dim=-1)


def softmax_behind(x: torch.Tensor) -> Any:
    values, chosen = torch.topk(x.float(), 4, dim=-1)
    return torch.softmax(values, -1), chosen


def sigmoid(x: torch.Tensor) -> Any:
    return chosen_of(torch.sigmoid(x.float()))


def with_epsilon(x: torch.Tensor) -> Any:
    weights, chosen = torch.topk(softmax(x), 4, dim=-1)
    return weights / (weights.sum(-1, keepdim=True) + 1e-20), chosen


def scaled_by_all(x: torch.Tensor) -> Any:
    probabilities = softmax(x)
    weights, chosen = torch.topk(probabilities, 4, dim=-1)
    return weights / probabilities.sum(-1, keepdim=True), chosen


def by_another_choice(x: torch.Tensor) -> Any:
    """The weights of one choice and the indices of another."""
    probabilities = softmax(x)
    return chosen_of(probabilities)[0], torch.topk(probabilities, 2, dim=-1)[1]


def probabilities_as_well(x: torch.Tensor) -> Any:
    """All probabilities leave: a kernel that has none of them would have them computed again."""
    probabilities = softmax(x)
    return probabilities, *chosen_of(probabilities)


def unscaled_as_well(x: torch.Tensor) -> Any:
    weights, chosen = torch.topk(softmax(x), 4, dim=-1)
    return weights, weights / weights.sum(-1, keepdim=True), chosen


def over_tokens(x: torch.Tensor) -> Any:
    weights, chosen = torch.topk(torch.softmax(x, 0, dtype=torch.float32), 4, dim=0)
    return weights / weights.sum(0, keepdim=True), chosen


def in_half_precision(x: torch.Tensor) -> Any:
    return chosen_of(torch.softmax(x, -1).float())


@pytest.mark.parametrize(
    "run",
    [
        unscaled,
        softmax_behind,
        sigmoid,
        with_epsilon,
        scaled_by_all,
        by_another_choice,
        probabilities_as_well,
        unscaled_as_well,
        over_tokens,
        in_half_precision,
        lambda x: chosen_of(softmax(x), sorted=False),
        lambda x: chosen_of(softmax(x), largest=False),
        lambda x: chosen_of(softmax(x * 2)[:, :8] * 2),
        lambda x: chosen_of(softmax(x))[0],
    ],
)
def test_what_is_no_such_gate_is_no_place(gate: Served, run: Gate) -> None:
    assert found_in(gate, run).regions == []


def test_a_gate_is_found_in_a_graph_without_any_cast(tmp_path: Path) -> None:
    """The op's own of its indices is none that the model has to have."""
    logits, k = GATE["inputs"]
    spec = GATE | {"name": "gate_of_float32", "inputs": [logits | {"dtype": "float32"}, k]}
    project = build(exported(spec, GATE_CPP), tmp_path)
    served = Served(Kernel(project / project.name))
    found = found_in(served, lambda x: chosen_of(torch.softmax(x, -1)), dtype=torch.float32)
    assert [region.numbers for region in found.regions] == [(4,)]


def test_logits_of_another_dtype_are_no_place(gate: Served) -> None:
    assert found_in(gate, lambda x: chosen_of(torch.softmax(x, -1)), dtype=torch.float32).regions == []


def test_a_k_that_was_not_verified_stays_with_inductor(gate: Served) -> None:
    """The structure is the op's, so there is a place, and the envelope speaks."""
    (region,) = found_in(gate, lambda x: chosen_of(softmax(x), 3)).regions
    unfit = choice.compare(region)
    assert unfit is not None
    assert unfit.why == "top is 3, verified for multiples of 2"


def test_indices_leave_a_place_as_the_model_has_them(gate: Served) -> None:
    """Of logits among which are equals both choices are right: the weights are the same, and so is what is chosen."""
    x = torch.randn(33, 16).round().to(torch.bfloat16)
    graph, inputs = captured(lambda given: chosen_of(softmax(given)), x)
    places.put(graph.graph, places.find(graph.graph, [gate]).regions)
    graph.recompile()
    weights, chosen = graph(*inputs)
    expected, own = chosen_of(softmax(x))
    assert chosen.dtype == torch.int64
    assert not torch.equal(chosen, own), "the kernel takes equals as PyTorch does, and this test asks less than it says"
    torch.testing.assert_close(weights, expected)
    assert torch.equal(x.gather(-1, chosen), x.gather(-1, own))

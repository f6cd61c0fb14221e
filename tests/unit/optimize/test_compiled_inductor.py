"""What is used of Inductor's private parts: that copies of graphs say all that Dynamo said, and how a graph is seen."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import torch
from torch import fx
from torch._functorch import aot_autograd
from torch._inductor import config

from warpsmith.workers.optimize.compiled import inductor
from warpsmith.workers.optimize.compiled.handle import Optimized

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""Inductor imports a module of its own that warns."""


_metadata: Any = vars(aot_autograd)["_try_get_metadata_from_dynamo"]
"""What AOTAutograd reads of what Dynamo says: PyTorch's own, of no public name."""


class Cached(torch.nn.Module):
    """A weight, and a buffer at an address that stays."""

    kept: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.register_buffer("kept", torch.zeros(4))
        torch._dynamo.mark_static_address(self.kept)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(x)
        self.kept.copy_(found[0])
        return found


def test_a_copy_says_which_inputs_stay_where_they_are() -> None:
    """Without that a model's weights would be inputs that move, and its CUDA graph is given up."""
    seen: list[Any] = []

    def backend(graph: fx.GraphModule, inputs: list[Any]) -> fx.GraphModule:
        both = [
            _metadata(one, dict(one.named_parameters()).keys(), len(inputs), [])
            for one in (graph, inductor.copied(graph))
        ]
        seen.extend(both)
        return graph

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(Cached(), backend=backend)(torch.ones(2, 4))
    (sources, static), (copied_sources, copied_static) = seen
    assert sources == copied_sources
    assert sources is not None
    assert static == copied_static
    assert len(static) == 3  # weight, bias and the buffer; not x


def test_a_copy_is_written_as_its_graph() -> None:
    """What is known of a graph is found by how it is written, which is asked of the copy that is compiled."""
    seen: list[Any] = []

    def backend(graph: fx.GraphModule, inputs: list[Any]) -> fx.GraphModule:
        seen.extend([inductor.copied(graph).code, graph.code])
        return graph

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(Cached(), backend=backend)(torch.ones(2, 4))
    assert seen[0] == seen[1]
    assert "l_self_modules_layer_parameters_weight_" in seen[0]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_triton_is_hashed_beside_dynamo_once() -> None:
    from torch._inductor.runtime.triton_compat import triton_key  # noqa: PLC0415 - seconds

    inductor.hash_triton.cache_clear()
    triton_key.cache_clear()
    uncompiled = torch.compiler.disable(lambda x: x + 1)
    Optimized(uncompiled, None, None, lambda _: [], "right")(torch.ones(2))
    assert inductor.hash_triton.cache_info().currsize == 1, "begun by a first call, before anything is compiled"
    thread = inductor.hash_triton()
    assert thread is not None
    thread.join()
    assert triton_key.cache_info().currsize == 1
    assert inductor.hash_triton() is thread


def test_cuda_graphs_are_those_of_a_mode_on_a_gpu() -> None:
    gpu = torch.device("cuda", 0)
    modes = (None, "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
    assert [inductor.captures(gpu, inductor.patches_of(mode, None)) for mode in modes] == [False, True, True, False]
    assert not inductor.captures(torch.device("cpu"), inductor.patches_of("reduce-overhead", None))


def test_a_function_is_seen_as_the_pass_sees_a_model() -> None:
    def norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, (8,), weight, 0.25) + 1

    graph = inductor.operators(norm, [torch.randn(2, 3, 8), torch.randn(8)])
    seen: list[list[str]] = []
    torch._dynamo.reset()

    def targets(graph: fx.Graph) -> list[str]:
        return [str(node.target) for node in graph.nodes if node.op == "call_function"]

    def see(graph: fx.Graph) -> None:
        seen.append(targets(graph))
        raise InterruptedError  # what the graph becomes is another matter, for which a compiler works ten seconds

    def backend(module: fx.GraphModule, inputs: list[Any]) -> Any:
        return inductor.compile_graph(module, inputs, inductor.with_pass({}, see, None))

    with torch.no_grad(), pytest.raises(Exception, match="InterruptedError"):
        torch.compile(norm, backend=backend)(torch.randn(2, 3, 8), torch.randn(8))
    assert seen == [targets(graph)]


def test_a_function_is_traced_and_never_computed() -> None:
    """Its tensors hold what memory held: indices out of every range, by which a GPU fails all that follows."""

    def loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(logits, targets)

    graph = inductor.operators(loss, [torch.randn(3, 8), torch.full((3,), 10**6)])
    assert [node.name for node in graph.nodes if node.op == "placeholder"] == ["arg0_1", "arg1_1"]
    assert any("gather" in str(node.target) for node in graph.nodes)


def test_a_reference_is_one_for_modes_that_differ_in_cuda_graphs_alone() -> None:
    """And for machines whose compilers have other names; not for one in which products are decomposed."""
    plain = inductor.configuration()
    with config.patch(inductor.patches_of("reduce-overhead", None) | {"cpp.cxx": (None, "another")}):
        assert inductor.configuration() == plain
    with config.patch(inductor.patches_of("max-autotune", None)):
        assert inductor.configuration() != plain
        tuned = inductor.configuration()
    with config.patch(inductor.patches_of("max-autotune-no-cudagraphs", None)):
        assert inductor.configuration() == tuned
    with config.patch({"emulate_precision_casts": True}):
        assert inductor.configuration() != plain

"""What `profile` finds in a model, `warpsmith.optimize` finds again: the whole way, on the CPU.

Each spec that is written is made a package, as that of a kernel is, and its op looked for where `optimize` looks: in
the graph that Inductor is given when the model is compiled anew, not in the one that was profiled.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import warpsmith
from tests import REPOSITORY
from tests.exporting import exported
from tests.support.plans import with_plans
from warpsmith.kernels_db.export.package import build
from warpsmith.kernels_db.spec.op import Target
from warpsmith.workers.optimize import contract, specs
from warpsmith.workers.optimize.compiled import inductor, places
from warpsmith.workers.optimize.compiled.groups import share_heads
from warpsmith.workers.optimize.compiled.kernel import Kernel
from warpsmith.workers.optimize.compiled.masks import take_out_masks
from warpsmith.workers.optimize.compiled.match import is_view
from warpsmith.workers.optimize.compiled.served import Served
from warpsmith.workers.optimize.traced import Traced, trace

if os.environ.get("CI") == "true":
    import transformers
else:
    transformers = pytest.importorskip("transformers", reason="the extra `models` is not installed")

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""Inductor imports a module of its own that warns."""

Call = Callable[[Callable[..., Any]], Any]
CPU = Target.parse("cpu")
KERNEL = """from kernels_db.runtime import cpp

kernels = cpp.compile(r\"\"\"
extern "C" void nothing() {}
\"\"\")


def run(*tensors):
    raise NotImplementedError
"""
"""No test here calls it: what is looked for is the op."""
SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 50,
}


def llama() -> tuple[Any, Call]:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, num_key_value_heads=2)).eval()
    ids = torch.randint(0, 50, (2, 12))
    return model, lambda run: run(input_ids=ids, use_cache=False)


def llama_decode() -> tuple[Any, Call]:
    """A step into a static cache, in bfloat16: what it writes keeps nothing else out."""
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, num_key_value_heads=2)).eval().bfloat16()
    cache = transformers.StaticCache(config=model.config, max_cache_len=64)
    with torch.no_grad():
        model(torch.randint(0, 50, (1, 12)), past_key_values=cache, use_cache=True)
    ids = torch.randint(0, 50, (1, 1))
    return model, lambda run: run(input_ids=ids, past_key_values=cache, use_cache=True)


def bert() -> tuple[Any, Call]:
    model = transformers.BertModel(transformers.BertConfig(**SMALL)).eval()
    ids = torch.randint(0, 50, (2, 12))
    return model, lambda run: run(input_ids=ids)


def vit() -> tuple[Any, Call]:
    sizes = {name: size for name, size in SMALL.items() if name != "vocab_size"}
    model = transformers.ViTModel(transformers.ViTConfig(**sizes, image_size=32, patch_size=8)).eval()
    pixels = torch.randn(2, 3, 32, 32)
    return model, lambda run: run(pixel_values=pixels)


def example(name: str) -> tuple[Any, Call]:
    user = contract.load(REPOSITORY / "examples" / "models" / f"{name}.py", torch.device("cpu"))
    return user.module, user.inputs.call


MODELS: dict[str, tuple[Callable[[], tuple[Any, Call]], set[str], int]] = {
    "transformer": (
        lambda: example("transformer"),
        {"rms_norm + linear", "linear + add", "rms_norm + linear + gelu + linear + add", "add + rms_norm"},
        0,
    ),
    "recommender": (lambda: example("recommender"), {"cat + bmm + index_select + cat", "add + embedding"}, 0),
    "llama": (
        llama,
        {"rms_norm + 3 linear", "rms_norm + linear + silu + linear + mul", "rms_norm + linear", "linear + add"},
        0,
    ),
    "llama decode": (
        llama_decode,
        {"rms_norm + 3 linear", "rms_norm + linear + silu + linear + mul + linear + add", "linear + add"},
        0,
    ),
    "bert": (bert, {"3 linear", "layer_norm + 3 linear", "layer_norm + linear + gelu + linear + add"}, 0),
    "vit": (vit, {"layer_norm + 3 linear", "layer_norm + linear + gelu", "linear + add", "conv"}, 0),
}
"""By name: the model, some of what has to be among its regions, and how many regions may be without a spec."""


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def served(kind: specs.Kind, directory: Path) -> Served:
    """A package for the op of a spec, as `optimize` imports it."""
    assert kind.written is not None
    project = build(exported(kind.written.document, KERNEL), directory)
    sys.path.insert(0, str(project))
    try:
        return Served(Kernel(importlib.import_module(project.name)))
    finally:
        sys.path.remove(str(project))


def seen_by_optimize(model: Any, call: Call) -> list[torch.fx.Graph]:
    """The graphs that the pass of `optimize` is given."""
    graphs: list[torch.fx.Graph] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        take_out_masks(graph)
        share_heads(graph)
        graphs.append(inductor.operators_of(inductor.copied(graph), inputs).graph)
        return graph

    torch._dynamo.reset()
    with torch.no_grad():
        call(torch.compile(model, backend=backend))
    return graphs


def names(nodes: Any) -> frozenset[str]:
    return frozenset(node.name for node in nodes if not is_view(node))


@pytest.mark.parametrize("name", [pytest.param(each, marks=pytest.mark.nightly) for each in MODELS])
def test_each_spec_that_is_written_is_found_at_every_place_it_came_from(name: str, tmp_path: Path) -> None:
    make, wanted, without = MODELS[name]
    model, call = make()
    graphs = trace(model, call)
    kinds = specs.kinds_of(graphs)
    specs.describe_all(graphs, kinds, CPU, lambda _: None)
    assert wanted <= {kind.region.title for kind in kinds}
    assert len([kind.reason for kind in kinds if kind.reason]) <= without, [kind.reason for kind in kinds]
    looked_at = seen_by_optimize(model, call)
    assert len(looked_at) == len(graphs)
    for number, kind in enumerate(kind for kind in kinds if kind.op is not None):
        op = served(kind, tmp_path / str(number))
        found = {names(region.match.nodes) for graph in looked_at for region in places.find(graph, [op]).regions}
        places_of_kind = {names(region.nodes) for _, region in kind.places}
        assert places_of_kind <= found, (kind.region.title, kind.written and kind.written.document["reference"])


def test_a_region_of_a_small_model_is_found_again(tmp_path: Path) -> None:
    """The same way for one model, quick enough for every run."""

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.up, self.down = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
            return found

    model, x = torch.nn.Sequential(Block(), Block()).eval(), torch.randn(2, 3, 8)

    def call(run: Callable[..., Any]) -> Any:
        return run(x)

    graphs: list[Traced] = trace(model, call)
    kinds = [kind for kind in specs.kinds_of(graphs) if kind.region.title.endswith("gelu + linear + add")]
    (kind,) = [kind for kind in kinds if kind.region.title.startswith("layer_norm")]
    specs.describe_all(graphs, [kind], CPU, lambda _: None)
    op = served(kind, tmp_path)
    (graph,) = seen_by_optimize(model, call)
    found = [names(region.match.nodes) for region in places.find(graph, [op]).regions]
    assert found == [names(region.nodes) for _, region in kind.places]
    assert len(found) == 2, "a region of each layer, and one op"


@pytest.mark.nightly
def test_a_kernel_for_a_spec_is_tried_where_the_spec_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way with a kernel that computes: whether it pays is this machine's to say, that it fits is not."""
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", with_plans(tmp_path / "kernels"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))  # code from there is rewritten by no pass
    model, call = example("transformer")
    graphs = trace(model, call)
    (kind,) = [kind for kind in specs.kinds_of(graphs) if kind.region.title == "add + rms_norm"]
    specs.describe_all(graphs, [kind], CPU, lambda _: None)
    assert kind.written is not None
    source = REPOSITORY / "benchmarks" / "model_kernels" / "transformer" / "add_rms_norm.cpp.py"
    project = build(exported(kind.written.document, source.read_text()), tmp_path / "packages")
    fast = warpsmith.optimize(model, kernels=[project])
    with torch.no_grad():
        torch.testing.assert_close(call(fast), call(model), rtol=1e-4, atol=1e-4)
    lines = [line for line in fast.report().splitlines() if "add_rms_norm at" in line]
    (line,) = [line for line in lines if "and 2 more" in line]  # three places
    (other,) = [each for each in lines if each is not line]  # positions are added by broadcasting: no place
    assert other.endswith("stays: x_2.shape[0] is 64, expected rows = 256")
    assert "times as fast" in line or "not surely faster than Inductor's code" in line, line

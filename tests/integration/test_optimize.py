"""`warpsmith.optimize` and the backend: whole models, compiled by Inductor on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch
from torch import fx
from torch._inductor import metrics

import warpsmith
from tests.unit.optimize.test_compiled_masks import captured
from warpsmith.kernels_db.spec.op import Target, load_op
from warpsmith.workers.optimize.compiled import inductor as lowered
from warpsmith.workers.optimize.compiled import places
from warpsmith.workers.optimize.sought import Sought

if TYPE_CHECKING:
    from warpsmith.workers.optimize.compiled.served import Served

if os.environ.get("CI") == "true":
    import transformers
else:
    transformers = pytest.importorskip("transformers", reason="the extra `models` is not installed")


inductor = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""It imports a module of its own that warns."""


class Block(torch.nn.Module):
    """Attention behind a mask of sizes alone, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.out = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
        attended = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=seen)
        found: torch.Tensor = self.out(attended)
        return found


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


@inductor
def test_a_model_is_compiled_told_about_and_left_as_it_was() -> None:
    torch.manual_seed(0)
    model, x = Block(), torch.randn(2, 3, 16, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    expected = model(x)
    fast = warpsmith.optimize(model)
    assert fast.report() == "nothing is compiled yet: call it once"
    torch.testing.assert_close(fast(x), expected)
    assert fast.report().splitlines() == [
        "graph 1: 4 calls; 1 of 1 masks of attention taken out; no kernels: gradients are needed, for which no kernel "
        "was searched",
        "  attended: causal",
    ]
    assert fast.model is model
    assert torch.equal(fast.model(x), expected)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@inductor
def test_the_backend_has_a_name_and_takes_modes_and_options() -> None:
    model, x = Block(), torch.randn(1, 1, 16, 8)
    compiled = torch.compile(model, backend="warpsmith", options={"max_autotune": False})
    torch.testing.assert_close(compiled(x), model(x))
    with pytest.raises(ValueError, match=r"mode: found 'fast', expected one of .*'reduce-overhead'"):
        warpsmith.optimize(model, mode="fast")
    with pytest.raises(TypeError, match=r"model: found a int, expected a torch\.nn\.Module or a function of tensors"):
        warpsmith.optimize(3)
    with pytest.raises(AttributeError, match=r"has no 'generate': it is called, and `\.model` is the model itself"):
        warpsmith.optimize(model).generate(x)


@inductor
def test_a_table_that_many_elements_share_is_computed_by_a_loop_of_its_own() -> None:
    """A million elements of cosine are spared; left alone, Inductor makes one loop of all."""
    angles = torch.linspace(0, 1000, 512 * 64).reshape(512, 64)

    def turned(x: torch.Tensor) -> torch.Tensor:
        return x * torch.cos(angles)

    x = torch.randn(40, 512, 64)
    metrics.reset()
    with torch.no_grad():
        torch.testing.assert_close(warpsmith.optimize(turned, kernels=[])(x), turned(x))
    assert metrics.generated_kernel_count == 2


SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 50,
}


@inductor
def test_a_break_of_the_graph_is_told_with_its_reason_and_the_results_are_the_models() -> None:
    """As in a mixture of experts that asks which of them are hit."""

    def model(x: torch.Tensor) -> torch.Tensor:
        return (x + 1)[torch.nonzero(x[:, 0] > 0)[:, 0]] * 2

    torch.manual_seed(0)
    x = torch.randn(6, 4)
    fast = warpsmith.optimize(model)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x))
    told = fast.report().splitlines()
    assert len(fast.graphs) == 2
    assert told[0] == "Dynamo broke the model 1 times: Python runs between its graphs"
    assert told[2].startswith("  it ends early: Dynamic shape operator: Operator `aten.nonzero.default`")
    assert "(test_optimize.py:" in told[2]
    assert told[3].startswith("graph 2: ")


@pytest.mark.parametrize(
    ("name", "config", "masks"),
    [
        ("LlamaModel", {"num_key_value_heads": 2, "use_cache": False}, 2),
        ("BertModel", {}, 0),  # asks for none where no mask is given
    ],
)
def test_models_of_transformers_with_nothing_hidden_need_no_mask(name: str, config: dict[str, Any], masks: int) -> None:
    """The graph is run as it is after rewriting: what Inductor makes of it is Inductor's."""
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**SMALL, **config)).eval()
    ids = torch.randint(0, SMALL["vocab_size"], (1, 24))

    def run(given: torch.Tensor) -> torch.Tensor:
        return model(input_ids=given)[0]

    with torch.no_grad():
        found, places, graphs = captured(run, ids)
        torch.testing.assert_close(found, run(ids))
    assert len(graphs) == 1  # no graph breaks
    assert [place.means for place in places] == ["causal"] * masks


@inductor
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`:UserWarning")
def test_the_activation_of_a_mixture_of_experts_is_a_place_at_each_width() -> None:
    """Its halves are cut by a number: that of the width at which the op was traced is another one."""
    op = load_op(Path(__file__).parents[2] / "examples" / "silu_and_mul.yaml")
    source: dict[str, Any] = {}
    exec(op.reference, source)
    wanted = Sought(op, source["run"], Target.parse("cpu"))
    seen: list[fx.Graph] = []

    def backend(graph: fx.GraphModule, inputs: list[Any]) -> fx.GraphModule:
        seen.append(lowered.operators_of(graph, inputs).graph)
        return graph

    experts: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 1}
    for width in (24, 16):
        config = transformers.Qwen3MoeConfig(**SMALL | experts, moe_intermediate_size=width)
        model = transformers.Qwen3MoeForCausalLM(config).eval().to(torch.bfloat16)
        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(model, backend=backend)(torch.randint(0, 50, (1, 6)), use_cache=False)
        found = places.find(seen.pop(), [cast("Served", wanted)])
        assert [region.shapes for region in found.regions] == [f"12x{2 * width}"]


def test_a_mask_that_hides_padding_stays() -> None:
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**SMALL)).eval()
    ids, seen = torch.randint(0, 50, (2, 24)), torch.ones(2, 24, dtype=torch.int64)
    seen[1, 20:] = 0

    def run(given: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return model(input_ids=given, attention_mask=mask)[0]

    with torch.no_grad():
        found, places, _ = captured(run, ids, seen)
        torch.testing.assert_close(found, run(ids, seen))
    assert [place.why for place in places] == ["an input of the graph decides the mask"] * 2

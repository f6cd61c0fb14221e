"""The pure parts of `profile`: regions of a traced model, those that join others, references, specs, ranking."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="graphs are torch's, which is not installed")

import torch
from torch import nn
from torch.nn import functional

from warpsmith.kernels_db.spec.op import Target, load_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.kernels_db.spec.yaml_text import as_yaml
from warpsmith.workers.optimize import checking, joined, regions, specs
from warpsmith.workers.optimize.compiled import match
from warpsmith.workers.optimize.forms import forms
from warpsmith.workers.optimize.profiling import write_specs
from warpsmith.workers.optimize.ranking import Opportunity, ranked, without_overlap
from warpsmith.workers.optimize.reference import Unspeakable, write
from warpsmith.workers.optimize.traced import NoGraph, Traced, trace

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""Inductor imports a module of its own that warns."""

CPU = Target.parse("cpu")
Function = Callable[..., Any]


class Plain(nn.Module):
    """A function with some weights as a model."""

    def __init__(self, run: Function, **weights: torch.Tensor) -> None:
        super().__init__()
        self._run = run
        for name, value in weights.items():
            self.register_parameter(name, nn.Parameter(value, requires_grad=False))

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self._run(*tensors, **dict(self.named_parameters()))


def traced(run: Function, *inputs: torch.Tensor, **weights: torch.Tensor) -> Traced:
    (found,) = trace(Plain(run, **weights), lambda model: model(*inputs))
    return found


def titles(found: Traced) -> list[str]:
    return [region.title for region in regions.find(found.graph)]


def joined_titles(found: Traced) -> list[str]:
    return [region.title for region in joined.join(found.graph, regions.find(found.graph))]


def test_a_chain_is_one_region_and_a_product_takes_what_follows_it() -> None:
    def run(x: Any, w: Any) -> Any:
        return functional.gelu(functional.linear(x * 2 + 1, w)) - 1

    assert titles(traced(run, torch.randn(6, 8), w=torch.randn(4, 8))) == ["mul + add", "linear + gelu + sub"]


def test_what_leads_to_a_normalisation_is_its_own() -> None:
    def run(x: Any, r: Any, w: Any) -> Any:
        total = r + functional.linear(x, w)
        return total, functional.layer_norm(total, (8,))

    found = traced(run, torch.randn(6, 8), torch.randn(6, 8), w=torch.randn(8, 8))
    (product, norm) = regions.find(found.graph)
    assert (product.title, norm.title) == ("linear", "add + layer_norm")
    assert len(norm.outputs) == 2, "the sum is used outside, too"
    assert joined_titles(found) == ["linear + add"], "and may be the product's as well"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_normalisation_written_out_is_one_region_and_has_its_name(dtype: torch.dtype) -> None:
    def run(x: Any, r: Any, w: Any, g: Any) -> Any:
        total = (r + functional.linear(x, w)).float()
        return g * (total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6)).to(dtype)

    inputs = [torch.randn(6, 8, dtype=dtype) for _ in range(2)]
    found = titles(traced(run, *inputs, w=torch.randn(8, 8, dtype=dtype), g=torch.ones(8, dtype=dtype)))
    assert found == ["linear", "add + rms_norm"]


def test_a_norm_whose_weight_is_added_to_one_is_a_norm() -> None:
    def run(x: Any, w: Any, g: Any) -> Any:
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + g.float())
        return functional.linear(normed.to(x.dtype), w) + x

    half = torch.bfloat16
    found = traced(run, torch.randn(6, 8, dtype=half), w=torch.randn(8, 8, dtype=half), g=torch.ones(8, dtype=half))
    assert titles(found) == ["rms_norm", "linear + add"]
    assert joined_titles(found) == ["rms_norm + linear + add"]


def test_attention_written_out_is_one_region_and_two_layers_are_not() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return torch.softmax(torch.bmm(q, k.transpose(-1, -2)), -1) @ v

    shape = (3, 5, 4)
    found = traced(attention, *(torch.randn(shape) for _ in range(3)))
    (region,) = regions.find(found.graph)
    assert region.title == "bmm + softmax + bmm"

    def layers(x: Any, a: Any, b: Any) -> Any:
        return functional.linear(functional.relu(functional.linear(x, a)), b)

    both = traced(layers, torch.randn(3, 4), a=torch.randn(5, 4), b=torch.randn(2, 5))
    assert titles(both) == ["linear + relu", "linear"]
    assert joined_titles(both) == ["linear + relu + linear"]


def test_no_path_leaves_a_region_and_comes_back() -> None:
    def run(x: Any) -> Any:
        halved = x * 0.5
        return torch.sort(halved)[0] + halved

    found = traced(run, torch.randn(6, 8))
    assert titles(found) == ["mul", "add"], "sort, which no region holds, stands between"
    for region in regions.find(found.graph):
        assert match.convex(set(region.nodes))


def test_strided_views_go_into_the_region_that_reads_them() -> None:
    def run(x: Any) -> Any:
        return torch.relu(x.view(4, 2, 3).transpose(0, 1)) * 2

    (region,) = regions.find(traced(run, torch.randn(4, 6)).graph)
    assert [tuple(node.meta["val"].shape)[-1] for node in region.inputs] == [3]
    assert region.inputs[0].meta["val"].is_contiguous()
    assert "torch.permute(x, [1, 0, 2])" in write(region, list(forms(region))[-1])


def test_products_of_one_input_their_norm_and_what_follows_are_joined() -> None:
    def half(x: Any, g: Any, gate: Any, up: Any, down: Any) -> Any:
        n = functional.rms_norm(x, (8,), g, 1e-5)
        return x + functional.linear(functional.silu(functional.linear(n, gate)) * functional.linear(n, up), down)

    weights = {"g": torch.ones(8), "gate": torch.randn(16, 8), "up": torch.randn(16, 8), "down": torch.randn(8, 16)}
    found = traced(half, torch.randn(2, 3, 8), **weights)
    parts = regions.find(found.graph)
    larger = {region.title: region for region in joined.join(found.graph, parts)}
    assert set(larger) == {
        "linear + silu + linear + mul",
        "rms_norm + linear + silu + linear + mul",
        "rms_norm + linear + silu + linear + mul + linear + add",
    }
    whole = larger["rms_norm + linear + silu + linear + mul + linear + add"]
    assert set(whole.parts) == set(parts)
    norm, up, gated, again = 8 * 3, 16 * 2, 16 * 2, 8  # written and read once or twice; x is read once more
    assert joined.bytes_saved(whole) == 4 * 6 * (norm + up + gated + again)


def test_what_takes_a_mutated_input_is_kept_out_and_nothing_else() -> None:
    class Counting(nn.Module):
        seen: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen.add_(x.sum(0))
            return torch.relu(x) * 2 + self.seen

    model, x = Counting(), torch.rand(6, 8)
    (found,) = trace(model, lambda compiled: compiled(x))
    assert set(titles(found)) == {"sum", "relu + mul + add"}, "the sum goes into what is written, where nothing is"
    torch.testing.assert_close(model.seen, x.sum(0))
    found.restore()
    assert not model.seen.any(), "what a call wrote is taken back"


def spec_of(run: Function, *inputs: torch.Tensor, **weights: torch.Tensor) -> tuple[dict[str, Any], Any]:
    """The document of the only region, and the op that was checked."""
    found = traced(run, *inputs, **weights)
    (kind,) = specs.kinds_of([found])
    specs.describe_all([found], [kind], CPU, lambda _: None)
    assert kind.written is not None, kind.reason
    return kind.written.document, kind.op


def test_a_region_becomes_a_spec_with_rows_where_leading_sizes_may_vary() -> None:
    def run(x: Any, weight: Any, bias: Any) -> Any:
        return torch.relu(functional.linear(x, weight, bias))

    document, op = spec_of(run, torch.randn(6, 5, 8), weight=torch.randn(4, 8), bias=torch.rand(4))
    assert document["axes"] == {"rows": {"kind": "var"}}
    assert [(item["name"], item["shape"], item.get("role")) for item in document["inputs"]] == [
        ("x", ["rows", 8], None),
        ("weight", [4, 8], "weight"),
        ("bias", [4], "weight"),
    ]
    assert document["inputs"][2]["dist"]["kind"] == "uniform", "nothing below zero was found"
    assert document["limits"] == {"flops": "64 * rows"}
    assert [(item["id"], item["axes"]) for item in document["workloads"]] == [
        ("sample", {"rows": 30}),
        ("odd", {"rows": 21}),
        ("one", {"rows": 1}),
    ]
    assert "torch.nn.functional.linear(x, weight, bias)" in document["reference"]
    assert load_op(as_yaml(document)).digest == op.digest, "the file reads back as what was checked"
    assert resolve_workload(op, op.workloads[0])["flops"] == 2 * 6 * 5 * 4 * 8


def test_sizes_that_are_not_alike_in_all_rows_do_not_vary() -> None:
    document, _ = spec_of(lambda x, weight: torch.relu(x + weight), torch.randn(6, 5, 8), weight=torch.randn(5, 8))
    assert [item["shape"] for item in document["inputs"]] == [["batch", 5, 8], [5, 8]]
    document, _ = spec_of(lambda x: torch.relu(x - x.mean(0)), torch.randn(6, 8))
    assert document["axes"] == {}, "its rows depend on one another"


def test_attention_of_groups_of_queries_says_that_it_is() -> None:
    """A model that repeats keys and values for them is profiled as it is compiled, without the repetition."""

    def run(q: Any, k: Any, v: Any) -> Any:
        keys, values = (x.repeat_interleave(3, dim=1) for x in (k, v))
        return functional.scaled_dot_product_attention(q, keys, values, is_causal=True)

    document, _ = spec_of(run, *(torch.randn(2, heads, 12, 8) for heads in (6, 2, 2)))
    assert [item["shape"] for item in document["inputs"]] == [["batch", heads, 12, 8] for heads in (6, 2, 2)]
    assert "is_causal=True, enable_gqa=True" in document["reference"]


def test_rows_that_are_gathered_are_what_a_table_costs() -> None:
    def run(x: Any, weight: Any) -> Any:
        return functional.embedding(x, weight)

    document, op = spec_of(run, torch.randint(100, (7,)), weight=torch.randn(100, 4))
    assert document["inputs"][0]["dist"] == {"kind": "randint", "low": 0, "high": 100}
    assert document["inputs"][1]["name"] == "weight"
    assert resolve_workload(op, op.workloads[0])["min_bytes"] == 4 * 7 * 4 // 2 + 8 * 7 + 4 * 7 * 4


@pytest.mark.parametrize(
    ("run", "weight", "limits"),
    [
        (lambda x, weight: torch.relu(x[:, 2:5]) * weight[1], (5, 3), (4 * 6 * 3 + 4 * 3 + 4 * 6 * 3, None)),
        (lambda x, weight: torch.relu(x)[:, 2:5] * weight[1], (5, 3), (4 * 3 + 4 * 6 * 3, None)),
        (lambda x, weight: functional.linear(x, weight)[:, 1:] * 2, (4, 8), (4 * 6 * 3, None)),
        (lambda x, weight: functional.linear(x, weight) * 2, (4, 8), (4 * (6 * 8 + 4 * 8 + 6 * 4), 2 * 6 * 8 * 4)),
    ],
    ids=["slices", "a slice of what is computed", "a part of a product", "a whole product"],
)
def test_what_nobody_needs_is_no_limit(run: Function, weight: tuple[int, ...], limits: tuple[int, int | None]) -> None:
    document, op = spec_of(run, torch.randn(6, 8), weight=torch.randn(weight))
    found = resolve_workload(op, op.workloads[0])
    assert (found["min_bytes"], found["flops"]) == limits, document


def test_a_spec_that_is_not_what_the_model_computes_is_not_written() -> None:
    document, _ = spec_of(lambda x: torch.relu(x) * 2, torch.randn(6, 8))
    x = torch.randn(6, 8)
    with pytest.raises(Unspeakable, match="does not give what the model gave"):
        checking.checked(document, [x], [torch.relu(x) * 3])
    with pytest.raises(AssertionError, match="values that are not finite"):
        spec_of(lambda x: torch.relu(x) * 2, torch.tensor([1.0, float("-inf")]))


@pytest.mark.parametrize(("widths", "ops"), [((8, 8), 1), ((8, 4), 2)])
def test_the_same_region_of_two_layers_is_one_op(widths: tuple[int, ...], ops: int) -> None:
    layers = [nn.Sequential(nn.Linear(8, width), nn.ReLU()) for width in widths]
    x = torch.randn(6, 8)
    graphs = trace(nn.Sequential(*layers).eval(), lambda model: model(x))
    kinds = [kind for kind in specs.kinds_of(graphs) if not kind.region.parts]
    assert len(kinds) == ops
    assert sum(len(kind.places) for kind in kinds) == 2


def test_a_model_with_breaks_is_several_graphs() -> None:
    class Gate(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x) if x.sum() > 0 else -x

    x = torch.ones(2, 4)
    assert [titles(each) for each in trace(Gate(), lambda model: model(x))] == [["sum + gt"], ["relu"]]
    with pytest.raises(NoGraph, match="finds no operators"):
        trace(nn.Identity(), lambda model: model(x))


def test_specs_are_not_written_over_others(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("mine")
    with pytest.raises(FileExistsError, match="--force"):
        write_specs({"two": {"name": "two"}, "one": {"name": "one"}}, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["one.yaml"]
    assert set(write_specs({"one": {"name": "one"}}, tmp_path, force=True)) == {"one"}


def test_opportunities_are_ranked_by_what_they_would_save() -> None:
    def one(name: str, time_us: float, limit_us: float | None) -> Opportunity:
        return Opportunity(name, name, ("here", "there"), time_us, limit_us, "bytes")

    rows = [one("slow", 50, 45), one("far", 40, 10), one("below", 5, 9), one("unknown", 90, None)]
    assert [row.name for row in ranked(rows)] == ["far", "slow", "unknown", "below"]
    assert [row.saving_us for row in ranked(rows)] == [30, 5, 0, 0]
    document = one("far", 40, 10).document(100)
    assert (document["share"], document["saving_us"], document["model_speedup"]) == (0.4, 30, 1.4286)


def test_of_regions_that_overlap_the_one_that_saves_most_counts() -> None:
    def places(*groups: str) -> list[frozenset[str]]:
        return [frozenset(group) for group in groups]

    savings = [(5.0, places("a", "d")), (9.0, places("ab", "de")), (3.0, places("c", "f")), (0.0, places("g"))]
    assert without_overlap(savings) == [0, 2, 2, 0]
    assert without_overlap([(5.0, places("a", "d")), (9.0, places("ab"))]) == [1, 1], "where nothing larger is"

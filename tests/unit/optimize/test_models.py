"""The pure parts of `profile`, `apply` and `ablate`: regions, ranking, references, specs, matches, packages."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="graphs are torch's, which is not installed")

import torch
from torch import nn
from torch.nn import functional

from tests.exporting import IN_PLACE, IN_PLACE_CPP, SCALED_ADD, SCALED_ADD_CPP, exported
from warpsmith.kernels_db.export.package import build
from warpsmith.kernels_db.spec.op import load_op
from warpsmith.kernels_db.spec.resolve import resolve_workload
from warpsmith.kernels_db.spec.yaml_text import as_yaml
from warpsmith.workers.optimize import applying, checking, contract, packages, regions, shipped
from warpsmith.workers.optimize.capturing import Captured, NotExportable, Recorder, capture
from warpsmith.workers.optimize.compiled import match
from warpsmith.workers.optimize.compiled.inputs import Inputs
from warpsmith.workers.optimize.profiling import write_specs
from warpsmith.workers.optimize.ranking import Opportunity, ranked, scaled
from warpsmith.workers.optimize.reference import Unspeakable, write
from warpsmith.workers.optimize.spec import describe

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


def captured(run: Function, *inputs: torch.Tensor, **weights: torch.Tensor) -> Captured:
    return capture(Plain(run, **weights), Inputs(inputs))


def titles(graph: Captured) -> list[str]:
    return [region.title for region in regions.find(graph.graph)]


def test_a_chain_is_one_region_and_a_product_takes_what_follows_it() -> None:
    def run(x: Any, w: Any) -> Any:
        return functional.gelu(functional.linear(x * 2 + 1, w)) - 1

    assert titles(captured(run, torch.randn(6, 8), w=torch.randn(4, 8))) == ["mul + add", "linear + gelu + sub"]


def test_what_leads_to_a_normalisation_is_its_own() -> None:
    def run(x: Any, r: Any, w: Any) -> Any:
        total = r + functional.linear(x, w)
        return total, functional.layer_norm(total, (8,))

    (product, norm) = regions.find(captured(run, torch.randn(6, 8), torch.randn(6, 8), w=torch.randn(8, 8)).graph)
    assert (product.title, norm.title) == ("linear", "add + layer_norm")
    assert len(norm.outputs) == 2, "the sum is used outside, too"


def test_a_normalisation_written_out_is_one_region() -> None:
    def run(x: Any, r: Any, w: Any) -> Any:
        total = r + functional.linear(x, w)
        return total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + 1e-6)

    found = titles(captured(run, torch.randn(6, 8), torch.randn(6, 8), w=torch.randn(8, 8)))
    assert found == ["linear", "add + pow + mean + add + rsqrt + mul"]


def test_attention_written_out_is_one_region_and_two_layers_are_not() -> None:
    def attention(q: Any, k: Any, v: Any) -> Any:
        return torch.softmax(q @ k.transpose(-1, -2) * 0.5, -1) @ v

    shape = (2, 3, 5, 4)
    (region,) = regions.find(captured(attention, *(torch.randn(shape) for _ in range(3))).graph)
    assert region.title == "matmul + mul + softmax + matmul"

    def layers(x: Any, a: Any, b: Any) -> Any:
        return functional.linear(functional.relu(functional.linear(x, a)), b)

    found = titles(captured(layers, torch.randn(3, 4), a=torch.randn(5, 4), b=torch.randn(2, 5)))
    assert found == ["linear + relu", "linear"]


def test_no_path_leaves_a_region_and_comes_back() -> None:
    def run(x: Any) -> Any:
        halved = x * 0.5
        return torch.sort(halved)[0] + halved

    found = captured(run, torch.randn(6, 8))
    assert titles(found) == ["mul", "add"], "sort, which no region holds, stands between"
    for region in regions.find(found.graph):
        assert match.convex(set(region.nodes))


def test_strided_views_go_into_the_region_that_reads_them() -> None:
    def run(x: Any) -> Any:
        return torch.relu(x.view(4, 2, 3).transpose(0, 1)) * 2

    (region,) = regions.find(captured(run, torch.randn(4, 6)).graph)
    assert [tuple(node.meta["val"].shape)[-1] for node in region.inputs] == [3]
    assert region.inputs[0].meta["val"].is_contiguous()
    assert "torch.transpose(x, 0, 1)" in write(region)


def spec_of(run: Function, *inputs: torch.Tensor, **weights: torch.Tensor) -> tuple[dict[str, Any], Any]:
    """The document of the only region, and the op that was checked."""
    found = captured(run, *inputs, **weights)
    (region,) = regions.find(found.graph)
    recorder = Recorder(found.module, {*region.inputs, *region.outputs})
    recorder.of(Inputs(inputs))
    document = describe(region, found.graph, recorder.kept).document
    op = checking.checked(
        document, [recorder.kept[n] for n in region.inputs], [recorder.kept[n] for n in region.outputs]
    )
    return document, op


def test_a_region_becomes_a_spec_with_axes_where_sizes_vary() -> None:
    def run(x: Any, weight: Any, bias: Any) -> Any:
        return torch.relu(functional.linear(x, weight, bias))

    document, op = spec_of(run, torch.randn(6, 5, 8), weight=torch.randn(4, 8), bias=torch.rand(4))
    assert document["axes"] == {"batch": {"kind": "var"}, "length": {"kind": "var"}}
    assert [(item["name"], item["shape"], item.get("role")) for item in document["inputs"]] == [
        ("x", ["batch", "length", 8], None),
        ("weight", [4, 8], "weight"),
        ("bias", [4], "weight"),
    ]
    assert document["inputs"][2]["dist"]["kind"] == "uniform", "nothing below zero was found"
    assert document["limits"] == {"flops": "2 * batch * length * 4 * 8"}
    assert [(item["id"], item["axes"]) for item in document["workloads"]] == [
        ("sample", {"batch": 6, "length": 5}),
        ("odd", {"batch": 5, "length": 3}),
        ("one", {"batch": 1, "length": 1}),
    ]
    assert load_op(as_yaml(document)).digest == op.digest, "the file reads back as what was checked"
    assert resolve_workload(op, op.workloads[0])["flops"] == 2 * 6 * 5 * 4 * 8


def test_rows_that_are_gathered_are_what_a_table_costs() -> None:
    def run(x: Any, weight: Any) -> Any:
        return functional.embedding(x, weight)

    document, op = spec_of(run, torch.randint(100, (7,)), weight=torch.randn(100, 4))
    assert document["inputs"][0]["name"] == "weight"
    assert document["inputs"][1]["dist"] == {"kind": "randint", "low": 0, "high": 100}
    assert resolve_workload(op, op.workloads[0])["min_bytes"] == 4 * 7 * 4 // 2 + 8 * 7 + 4 * 7 * 4


@pytest.mark.parametrize(
    ("run", "weight", "limits"),
    [
        (lambda x, weight: torch.relu(x[:, 2:5]) * weight[1], (5, 3), (4 * 6 * 3 + 4 * 3 + 4 * 6 * 3, None)),
        (lambda x, weight: torch.relu(x)[:, 2:5] * weight[1], (5, 3), (4 * 3 + 4 * 6 * 3, None)),
        (lambda x, weight: functional.linear(x, weight)[:, 1:] * 2, (4, 8), (4 * 6 * 3, None)),
        (lambda x, weight: functional.linear(x, weight) * 2, (4, 8), (4 * (6 * 8 + 4 * 8 + 6 * 4), 2 * 6 * 8 * 4)),
        (lambda x, weight: weight.split(2)[0] * x.unbind(1)[3].sum(), (4, 8), (4 * 2 * 8 + 4 * 6 + 4 * 2 * 8, None)),
    ],
    ids=["slices", "a slice of what is computed", "a part of a product", "a whole product", "parts"],
)
def test_what_nobody_needs_is_no_limit(run: Function, weight: tuple[int, ...], limits: tuple[int, int | None]) -> None:
    document, op = spec_of(run, torch.randn(6, 8), weight=torch.randn(weight))
    found = resolve_workload(op, op.workloads[0])
    assert (found["min_bytes"], found["flops"]) == limits, document


def test_sizes_that_are_sums_stand_in_parentheses() -> None:
    def run(x: Any, y: Any, weight: Any) -> Any:
        return torch.relu(functional.linear(torch.cat([x, y]), weight))

    found = captured(run, torch.randn(6, 8), torch.randn(5, 8), weight=torch.randn(4, 8))
    region = regions.find(found.graph)[-1]
    recorder = Recorder(found.module, {*region.inputs, *region.outputs})
    recorder.of(Inputs((torch.randn(6, 8), torch.randn(5, 8))))
    document = describe(region, found.graph, recorder.kept).document
    op = checking.checked(
        document, [recorder.kept[n] for n in region.inputs], [recorder.kept[n] for n in region.outputs]
    )
    assert resolve_workload(op, op.workloads[0])["flops"] == 2 * 11 * 4 * 8


def test_a_spec_that_is_not_what_the_model_computes_is_not_written() -> None:
    document, _ = spec_of(lambda x: torch.relu(x) * 2, torch.randn(6, 8))
    x = torch.randn(6, 8)
    with pytest.raises(Unspeakable, match="does not give what the model gave"):
        checking.checked(document, [x], [torch.relu(x) * 3])
    with pytest.raises(Unspeakable, match="values that are not finite"):
        spec_of(lambda x: torch.relu(x) * 2, torch.tensor([1.0, float("-inf")]))


def test_the_same_region_of_two_layers_has_one_identity() -> None:
    def identities(*widths: int) -> list[str]:
        layers = [nn.Sequential(nn.Linear(8, width), nn.ReLU()) for width in widths]
        model, x = nn.Sequential(*layers).eval(), torch.randn(6, 8)
        found = capture(model, Inputs((x,)))
        both = regions.find(found.graph)
        recorder = Recorder(found.module, {node for region in both for node in region.inputs})
        recorder.of(Inputs((x,)))
        return [describe(region, found.graph, recorder.kept).identity for region in both]

    one, other = identities(8, 8)
    assert one == other, "other weights, and values drawn otherwise, but the same op"
    one, other = identities(8, 4)
    assert one != other, "another width"


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


def test_times_of_operators_are_no_more_than_the_models() -> None:
    assert scaled({"a": 30.0, "b": 90.0}, 60.0) == {"a": 15.0, "b": 45.0}
    assert scaled({"a": 3.0}, 60.0) == {"a": 3.0}


def pattern(run: Function, *inputs: torch.Tensor) -> match.Pattern:
    return match.Pattern.of(capture(Plain(run), Inputs(inputs), dynamic=False).graph)


def test_a_pattern_is_found_at_other_sizes_and_with_other_orders_but_not_with_other_constants() -> None:
    def op(x: Any, y: Any) -> Any:
        return torch.relu(x + y).reshape(2, 6) * 0.5

    def run(x: Any, y: Any) -> Any:
        one = torch.relu(y + x).view(4, 10) * 0.5
        other = torch.relu(one + one).reshape(8, 5) * 0.25
        return other + 1

    wanted = pattern(op, torch.zeros(3, 4), torch.zeros(3, 4))
    found = match.find(wanted, captured(run, torch.randn(8, 5), torch.randn(8, 5)).graph)
    assert [[node.name for node in one.nodes] for one in found] == [["add", "relu", "view", "mul"]]


def test_a_constant_is_not_found_for_a_size() -> None:
    def op(x: Any) -> Any:
        return torch.relu(x * 16)

    found = captured(lambda x: torch.relu(x * x.shape[1]), torch.randn(8, 16))
    assert match.find(pattern(op, torch.zeros(3, 4)), found.graph) == []


def test_what_others_use_is_no_part_of_a_match() -> None:
    def op(x: Any) -> Any:
        return torch.relu(x) * 2

    def run(x: Any) -> Any:
        inner = torch.relu(x)
        return inner * 2, inner

    assert match.find(pattern(op, torch.zeros(3)), captured(run, torch.randn(5)).graph) == []


def test_an_export_that_is_refused_names_part_line_and_remedy() -> None:
    class Gate(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(NotExportable) as caught:
        capture(nn.Sequential(nn.Linear(4, 4), Gate()), Inputs((torch.ones(2, 4),)))
    assert caught.value.part == "'1' of the model"
    assert "test_models.py, line" in caught.value.where
    assert "x.sum() > 0" in caught.value.where
    assert "torch.where" in caught.value.remedy


@pytest.mark.parametrize(
    ("text", "field", "found"),
    [
        ("import torch\nmodel = 3\n", "file.py: model", "a int"),
        ("import torch\n1 / 0\n", "MODEL.py", "ZeroDivisionError: division by zero (line 2)"),
        ("import torch\ndef model():\n    return torch.nn.Linear(2, 2)\n", "file.py: example_inputs", "nothing"),
        (
            "import torch\ndef model():\n    return torch.nn.Linear(2, 2)\ndef example_inputs():\n    return 3\n",
            "example_inputs()",
            "no tensor",
        ),
        (
            "import torch\ndef model():\n    return torch.nn.Linear(2, 2)\n"
            "def example_inputs():\n    return torch.ones(3)\n",
            "example_inputs()",
            "RuntimeError: ",
        ),
    ],
    ids=["no function", "raises", "no inputs", "no tensor", "wrong inputs"],
)
def test_a_file_without_the_contract_is_refused(text: str, field: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(text)
    with pytest.raises(contract.NoModel) as caught:
        contract.load(tmp_path / "file.py", torch.device("cpu"))
    assert caught.value.field == field
    assert caught.value.found.startswith(found)


def test_a_package_whose_files_were_changed_is_refused(tmp_path: Path) -> None:
    project = build(exported(SCALED_ADD, SCALED_ADD_CPP), tmp_path)
    assert [each.module for each in packages.opened([project])] == [project.name]
    (project / project.name / "_reference.py").write_text("def run(x, y, m):\n    return x\n")
    with pytest.raises(packages.BadPackage, match=r"contents: _reference.py was changed"):
        packages.opened([project])


FILE = """
import torch
from torch import nn

class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 3).t() * 0.3)  # not contiguous

    def forward(self, x):
        return {result}

    def get_extra_state(self):
        return {{"no": "tensor"}}

    def set_extra_state(self, state):
        pass

def model():
    return nn.Sequential(nn.Tanh(), Sum()).eval()

def example_inputs():
    return torch.linspace(-1, 1, 24).view(3, 8)
"""


@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")  # Inductor's own
@pytest.mark.parametrize(
    ("result", "agrees"),
    [
        ("self.weight.contiguous() * 0.5 + x", True),
        ("((x + 0.5 * self.weight.contiguous()) * 1e9).to(torch.int64)", False),
    ],
)
def test_a_package_is_written_where_results_agree(
    result: str, agrees: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SCALED_ADD_CPP.replace("x[i] + m * y[i]", "(x[i] + m * y[i]) * 1.0000002f")
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", str(tmp_path / "kernels"))
    reference = "def run(x, y, m):\n    return x + m * y\n"
    spec = SCALED_ADD | {"name": f"written_{uuid.uuid4().hex[:8]}", "reference": reference}
    projects = packages.opened([build(exported(spec, source), tmp_path)])
    file = tmp_path / "sum.py"
    file.write_text(FILE.format(result=result))
    user = contract.load(file, torch.device("cpu"))
    found = applying.apply(user, projects, tmp_path, applying.How(None, "right"), lambda _: None)
    assert [place["replaced"] for place in found["places"]] == [True]
    assert (found["agrees"], found["weights_untouched"], found["unchanged"]) == (agrees, True, True)
    made = packages.destination(file, tmp_path)
    assert found["package"] == (str(made) if agrees else None)
    assert made.exists() is agrees


def test_a_users_assertions_stay_in_the_graph() -> None:
    def run(x: Any) -> Any:
        torch._assert_async((x < 3).all())
        return torch.relu(x)

    found = captured(run, torch.zeros(4))
    assert [str(node.target) for node in found.graph.nodes if "assert" in str(node.target)] == [
        "aten._assert_async.default"
    ]


def test_an_op_in_place_stands_in_no_model(tmp_path: Path) -> None:
    _, others = shipped.served(packages.opened([build(exported(IN_PLACE, IN_PLACE_CPP), tmp_path)]))
    assert ["works in place" in reason for reason in others.values()] == [True]

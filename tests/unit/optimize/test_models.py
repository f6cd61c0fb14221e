"""Model files, packages on their way into a model, and how a reference is found in a graph."""

from __future__ import annotations

import ast
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="graphs are torch's, which is not installed")

import torch
from torch import fx

from tests.exporting import SCALED_ADD, SCALED_ADD_CPP, exported
from tests.support.plans import with_plans
from warpsmith.kernels_db.export.package import build
from warpsmith.workers.optimize import applying, contract, packages
from warpsmith.workers.optimize.compiled import inductor, match

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
"""Inductor imports a module of its own that warns."""

Function = Callable[..., Any]


def graph(run: Function, *inputs: torch.Tensor) -> fx.Graph:
    return inductor.operators(run, inputs)


def pattern(run: Function, *inputs: torch.Tensor) -> match.Pattern:
    return match.Pattern.of(graph(run, *inputs))


def test_the_modules_that_go_with_a_model_import_no_others() -> None:
    """A package for a model has these alone: what they import of `compiled` goes along."""
    directory = Path(match.__file__).parent
    trees = [ast.parse((directory / name).read_text("utf-8")) for name in packages.MODULES]
    found = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
    named = {node.module for node in found if node.module} | {
        alias.name for node in found if not node.module for alias in node.names
    }
    assert {f"{name}.py" for name in named} <= set(packages.MODULES)


def test_a_pattern_is_found_at_other_sizes_and_with_other_orders_but_not_with_other_constants() -> None:
    def op(x: Any, y: Any) -> Any:
        return torch.relu(x + y).reshape(2, 6) * 0.5

    def run(x: Any, y: Any) -> Any:
        one = torch.relu(y + x).view(4, 10) * 0.5
        other = torch.relu(one + one).reshape(8, 5) * 0.25
        return other + 1

    wanted = pattern(op, torch.zeros(3, 4), torch.zeros(3, 4))
    found = match.find(wanted, graph(run, torch.randn(8, 5), torch.randn(8, 5)))
    assert [[node.name for node in one.nodes] for one in found] == [["add", "relu", "view", "mul"]]


def test_what_others_use_is_no_part_of_a_match() -> None:
    def op(x: Any) -> Any:
        return torch.relu(x) * 2

    def run(x: Any) -> Any:
        inner = torch.relu(x)
        return inner * 2, inner

    assert match.find(pattern(op, torch.zeros(3)), graph(run, torch.randn(5))) == []


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
    monkeypatch.setenv("WARPSMITH_KERNEL_CACHE", with_plans(tmp_path / "kernels"))
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

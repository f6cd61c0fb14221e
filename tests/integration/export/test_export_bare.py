"""Exports of a kernel alone, called as the benchmarks call them: under Triton's interpreter, without Warpsmith."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.exporting import IN_PLACE, SCALED_ADD, SCALED_ADD_TRITON, exported
from tests.integration.export.test_export_formats import SAID, STATEFUL, used
from tests.integration.formats.test_formats_sandbox import analysed_here
from warpsmith.kernels_db.formats.op_import import import_op
from warpsmith.kernels_db.formats.shared.files import RawFile

pytest.importorskip("torch", reason="exports are used with torch, which is not installed")
pytest.importorskip("triton", reason="the kernels are written in Triton, which is not installed")

IN_PLACE_TRITON = SCALED_ADD_TRITON.replace("x, y, m, out", "x, y, m").replace("out", "x")
STATEFUL_TRITON = """import triton
import triton.language as tl


@triton.jit
def scaled_rows(x, scale, out, n, columns, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * tl.load(scale + i % columns, i < n), i < n)


def run(x, scale, out):
    n = out.numel()
    scaled_rows[(triton.cdiv(n, 64),)](x, scale, out, n, x.shape[1], BLOCK=64)
"""
GPU_MODE = """
import sys
import torch, yaml

sys.path.insert(0, DIRECTORY)
import reference
reference.DEVICE = "cpu"
from submission import custom_kernel

task = yaml.safe_load(open(f"{DIRECTORY}/task.yml"))
for case in task["tests"] + task["benchmarks"]:
    data = reference.generate_input(**case)
    given = tuple(one.clone() if isinstance(one, torch.Tensor) else one for one in data)
    print(*reference.check_implementation(data, custom_kernel(given)))
"""
KERNELBENCH = """
import importlib.util
import torch


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, f"{DIRECTORY}/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


problem, solution = loaded("problem"), loaded("solution")
models = []
for kind in (problem.Model, solution.ModelNew):
    torch.manual_seed(42)
    models.append(kind(*problem.get_init_inputs()))
inputs = problem.get_inputs()
with torch.no_grad():
    one, other = (model(*inputs) for model in models)
torch.testing.assert_close(one, other)
print(one.abs().sum().item() > 0)
"""


KERNELBOOK = """import torch


class Net(torch.nn.Module):
    def __init__(self, width, by=1.0):
        super(Net, self).__init__()
        self.scale = torch.nn.Parameter(torch.rand(width) * by)

    def forward(self, x):
        return x * self.scale


def get_inputs():
    return [torch.rand([4, 8])]


def get_init_inputs():
    return [[8], {'by': 3.0}]
"""


@pytest.mark.parametrize(
    ("spec", "source"), [(SCALED_ADD, SCALED_ADD_TRITON), (IN_PLACE, IN_PLACE_TRITON)], ids=["returns", "in_place"]
)
def test_gpu_mode_checks_the_kernel_alone(spec: dict[str, Any], source: str, tmp_path: Path) -> None:
    kernel = exported(spec, source, "triton", target="cuda:sm_90")
    assert used("gpu-mode-bare", kernel, GPU_MODE, tmp_path, TRITON_INTERPRET="1") == ["True "] * 3


@pytest.mark.parametrize(
    ("spec", "source"), [(SAID, SCALED_ADD_TRITON), (STATEFUL, STATEFUL_TRITON)], ids=["run", "Model"]
)
def test_kernelbench_compares_the_kernel_alone_with_the_problem(
    spec: dict[str, Any], source: str, tmp_path: Path
) -> None:
    kernel = exported(spec, source, "triton", target="cuda:sm_90")
    assert used("kernelbench-bare", kernel, KERNELBENCH, tmp_path, TRITON_INTERPRET="1") == ["True"]


@pytest.mark.parametrize("name", ["Net", "Model"])
def test_a_problem_of_kernelbook_has_a_solution_that_is_constructed_as_it_says(name: str, tmp_path: Path) -> None:
    file = RawFile(f"3_{name}.py", KERNELBOOK.replace("Net", name).encode())
    spec = import_op([file], None, analysed_here).op.model_dump(mode="json")
    kernel = exported(spec, STATEFUL_TRITON, "triton", target="cuda:sm_90")
    assert used("kernelbench-bare", kernel, KERNELBENCH, tmp_path, TRITON_INTERPRET="1") == ["True"]

"""Exports of imported ops, used without Warpsmith: what their references need, and how a format's data holds inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.exporting import SCALED_ADD_CPP, exported, in_fresh_process
from tests.integration.formats.test_formats_sandbox import PROBLEM, analysed_here, made_here
from tests.integration.formats.test_task_objects_and_sizes import WITH_OBJECTS, files_of
from warpsmith.kernels_db.export import registry
from warpsmith.kernels_db.export.task_data import input_sources, result_sources
from warpsmith.kernels_db.formats import kernel_import
from warpsmith.kernels_db.formats.op_import import import_op
from warpsmith.kernels_db.formats.shared.files import RawFile
from warpsmith.kernels_db.spec.op import Op

pytest.importorskip("torch", reason="imports are analysed with torch, which is not installed")

ON_GPU = """import torch


def generate_input(rows, seed):
    x = torch.randn(rows, 8, device="cuda")
    return x, torch.randn(rows, 8, device="cuda").to(torch.float8_e4m3fnuz)


def ref_kernel(data):
    x, scales = data
    return x * torch.full((8,), 2.0, device="cuda") + scales.float()
"""
USED = """
import importlib, sys
from pathlib import Path
import torch

assert not any(name.partition(".")[0] in ("warpsmith", "kernels_db") for name in sys.modules)
project = Path(PROJECT)
sys.path.insert(0, str(project))
[name] = [path.name for path in project.iterdir() if (path / "_spec.py").exists()]
x, scales = torch.ones(4, 8), torch.zeros(4, 8, dtype=torch.uint8)
found = getattr(importlib.import_module(name), OP)(x, scales)
torch.testing.assert_close(found, torch.full((4, 8), 2.0))
print("right")
"""
TOLD = """
import json
from pathlib import Path
import torch

[path] = Path(PROJECT).rglob("definitions/**/*.json")
space = {}
exec(json.loads(path.read_text())["reference"], space)
x, scales = torch.ones(4, 8), torch.zeros(4, 8)
torch.testing.assert_close(space["run"](x, scales), torch.full((4, 8), 2.0))
print("right")
"""


@pytest.fixture(scope="module")
def op() -> Op:
    """An op of a task whose reference puts tensors on a GPU."""
    return import_op(files_of(ON_GPU, '"rows": 4, "seed": 1'), None, analysed_here).op


def used(project: Path, op: Op, script: str, tmp_path: Path) -> None:
    """Run a script beside an export in a process that has nothing of Warpsmith."""
    path = tmp_path / "script.py"
    path.write_text(f"PROJECT, OP = {str(project)!r}, {op.name!r}\n{script}")
    variables = {"CXX": "no-such-compiler", "WARPSMITH_KERNEL_CACHE": str(tmp_path)}
    done = in_fresh_process(tmp_path / "none", str(path), home=tmp_path, variables=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["right"]


def without_origin(op: Op) -> dict[str, Any]:
    return {name: value for name, value in op.document().items() if name != "origin"}


def test_a_package_falls_back_to_its_reference_on_a_cpu(op: Op, tmp_path: Path) -> None:
    project = registry.named("package").build(exported(op.document(), SCALED_ADD_CPP), tmp_path / "out")
    assert "kernels_db" not in "".join(path.read_text() for path in project.rglob("_reference.py"))
    used(project, op, USED, tmp_path)


def test_a_definition_holds_what_its_reference_needs_on_a_cpu(tmp_path: Path) -> None:
    plain = ON_GPU.replace(".to(torch.float8_e4m3fnuz)", "")  # which the format has no name for
    op = import_op(files_of(plain, '"rows": 4, "seed": 1'), None, analysed_here).op
    kernel = exported(without_origin(op), SCALED_ADD_CPP)
    project = registry.named("flashinfer-bench").build(kernel, tmp_path / "out")
    used(project, op, TOLD, tmp_path)


def test_a_submission_for_a_task_that_names_a_gpu_is_taken_and_written(op: Op, tmp_path: Path) -> None:
    text = "def custom_kernel(data):\n    return data[0] * 2 + data[1].float()\n"
    adapted = kernel_import.adapt(RawFile("submission.py", text.encode()), op)
    assert "_call((x, scales.view(torch.float8_e4m3fnuz)), (out,), ())" in adapted.source
    project = registry.named("gpu-mode").build(exported(op.document(), SCALED_ADD_CPP), tmp_path / "out")
    text = (project / "submission.py").read_text()
    assert "arguments = (data[0], data[1].view(torch.uint8),)" in text
    compile(text, "submission.py", "exec")


def test_inputs_that_are_attributes_of_an_object_are_taken_from_it() -> None:
    op = import_op(files_of(WITH_OBJECTS, '"rows": 4, "seed": 1'), None, analysed_here).op
    assert input_sources(op, imported=True) == [
        "data[0].weight",
        "data[0].sizes[0]",
        "data[0].sizes[1]",
        "data[1]",
        "data[2].filled",
        "data[2].scale",
        "data[2].kept",
    ]


IN_ANOTHER_ORDER = """import torch


def generate_input(rows, seed):
    return torch.randn(rows, 8), torch.empty(rows, 8), torch.empty(rows, 4)


def ref_kernel(data):
    x, whole, half = data
    whole[...] = x + 1
    half[...] = x[:, :4] - 1
    return RESULT
"""


@pytest.mark.parametrize(
    ("result", "source"),
    [
        ("half, x.sum(-1), whole", "(arguments[2], outputs[0], arguments[1])"),
        ("{'y': whole}", "{'y': arguments[1]}"),
        ("half, whole", "(arguments[2], arguments[1])"),
    ],
)
def test_a_submission_returns_what_the_reference_does(result: str, source: str) -> None:
    text = IN_ANOTHER_ORDER.replace("RESULT", result)
    op = import_op(files_of(text, '"rows": 4, "seed": 1'), None, analysed_here).op
    assert result_sources(op, imported=True) == [source]


def test_a_submission_returns_the_buffer_of_an_object_that_it_writes() -> None:
    op = import_op(files_of(WITH_OBJECTS, '"rows": 4, "seed": 1'), None, analysed_here).op
    assert result_sources(op, imported=True) == ["(outputs[0], arguments[6])"]


REPEATED = """
from pathlib import Path
import torch

[path] = Path(PROJECT).iterdir()
space = {}
exec(path.read_text(), space)
model, new = space["Model"](), space["ModelNew"]()
for times in ((2, 3), (3, 2)):  # the kernel is for the first alone
    x = torch.rand(4)
    torch.testing.assert_close(new(times, x, None), model(times, x, None))
times, x, name = space["get_inputs"]()
assert new(times, x, name).shape == (2, 12)
print("right")
"""


def test_a_model_of_a_problem_with_constants_takes_them(tmp_path: Path) -> None:
    text = PROBLEM.format(top="", result="x.repeat(times) if name is None else None", init="[]")
    text = text.replace("forward(self, x)", "forward(self, times, x, name)")
    op = made_here(text.replace("[torch.rand(4)]", "[(2, 3), torch.rand(4), None]")).op
    project = registry.named("kernelbench").build(exported(op.document(), SCALED_ADD_CPP), tmp_path / "out")
    used(project, op, REPEATED, tmp_path)

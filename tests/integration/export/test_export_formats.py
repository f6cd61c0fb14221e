"""Each format's export, called as the format's own harness would call it: in a fresh process without Warpsmith."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.exporting import (
    IN_PLACE,
    IN_PLACE_CPP,
    SCALED_ADD,
    SCALED_ADD_CPP,
    SCALED_ADD_TRITON,
    exported,
    in_fresh_process,
)
from warpsmith.kernels_db.export import registry
from warpsmith.kernels_db.export.kernel import ExportedKernel

pytest.importorskip("torch", reason="exports are used with torch, which is not installed")
pytest.importorskip("triton", reason="one of the kernels is written in Triton, which is not installed")

SAID: dict[str, Any] = SCALED_ADD | {"axes": {"rows": {"kind": "var"}, "columns": {"kind": "const", "value": 8}}}
STATEFUL: dict[str, Any] = {
    "schema_version": 1,
    "name": "scaled_rows",
    "axes": {"rows": {"kind": "var"}, "columns": {"kind": "var"}},
    "inputs": [{"name": "x", "shape": ["rows", "columns"], "dtype": "float32"}],
    "outputs": [{"name": "out", "shape": ["rows", "columns"], "dtype": "float32"}],
    "reference": """import torch


class Model(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scales = torch.nn.ParameterList([torch.randn(columns)])

    def forward(self, x):
        return x * self.scales[0]
""",
    "init": [8],
    "state": [{"name": "scale", "attribute": "scales.0", "shape": ["columns"], "dtype": "float32"}],
    "workloads": [
        {"id": "small", "role": "test", "axes": {"rows": 3, "columns": 8}},
        {"id": "large", "role": "bench", "axes": {"rows": 40, "columns": 8}},
    ],
}
STATEFUL_CPP = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void scaled_rows(const float* x, const float* scale, float* out, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) out[r * columns + c] = x[r * columns + c] * scale[c];
}
""")


def run(x, scale, out):
    kernels.scaled_rows(x, scale, out, x.shape[0], x.shape[1])
'''


def used(form: str, kernel: ExportedKernel, harness: str, tmp_path: Path, **variables: str) -> list[str]:
    """The lines that `harness` prints with the export before it as DIRECTORY."""
    project = registry.named(form).build(kernel, tmp_path / "out")
    script = tmp_path / "harness.py"
    script.write_text(f"DIRECTORY = {str(project)!r}\n{harness}")
    done = in_fresh_process(project, str(script), home=tmp_path, variables=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


MODULE = """
import importlib, warnings
from pathlib import Path
import torch

[file] = Path(DIRECTORY).iterdir()
pasted = importlib.import_module(file.stem)
x, y = torch.randn(40, 8), torch.randn(40, 8)
expected = x + 0.5 * y
torch.testing.assert_close(pasted.scaled_add(x, y, 0.5), expected)
print(pasted.explain(x, y, 0.5))
compiled = torch.compile(lambda x, y: pasted.scaled_add(x, y, 0.5) * 2, fullgraph=True, backend="aot_eager")
torch.testing.assert_close(compiled(x, y), 2 * expected)
print(pasted.status()["served"])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.testing.assert_close(pasted.scaled_add(x.double(), y.double(), 0.5), expected.double())
print([str(w.message) for w in caught])
needs = x.clone().requires_grad_()
pasted.scaled_add(needs, y, 0.5).sum().backward()
torch.testing.assert_close(needs.grad, torch.ones_like(x))
with pasted.disabled():
    print(pasted.explain(x, y, 0.5))
"""


@pytest.mark.parametrize(
    ("language", "source"),
    [("cpp", SCALED_ADD_CPP), pytest.param("triton", SCALED_ADD_TRITON, marks=pytest.mark.nightly)],
)
def test_module_is_used_from_one_file(language: str, source: str, tmp_path: Path) -> None:
    kernel = exported(SCALED_ADD, source, language)
    lines = used("module", kernel, MODULE, tmp_path, TRITON_INTERPRET="1")
    assert lines[0].startswith("kernel: inside the envelope")
    assert lines[1] == "{'kernel': 2, 'pytorch': 0}"
    assert "x is torch.float64" in lines[2]
    assert lines[3].startswith("PyTorch:")


def test_module_without_its_compiler_leaves_the_calls_to_pytorch(tmp_path: Path) -> None:
    script = (
        "import importlib, torch\nfrom pathlib import Path\n[file] = Path(DIRECTORY).iterdir()\n"
        "pasted = importlib.import_module(file.stem)\nx = torch.ones(3, 8)\nprint(pasted.explain(x, x, 0.5))\n"
    )
    variables = {"CXX": "no-such-compiler", "WARPSMITH_KERNEL_CACHE": str(tmp_path)}
    [line] = used("module", exported(SCALED_ADD, SCALED_ADD_CPP), script, tmp_path, **variables)
    assert line.startswith("PyTorch: the kernel did not load")


KERNELBENCH = """
import importlib.util
from pathlib import Path
import torch

[file] = Path(DIRECTORY).iterdir()
source = file.read_text()


def original():
    context = {}
    exec(source, context)
    return context["Model"], context["get_init_inputs"], context["get_inputs"], context


def custom_by_file():
    spec = importlib.util.spec_from_file_location("temp_module", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelNew


def custom_by_text(context):
    exec("import os\\nos.environ['TORCH_EXTENSIONS_DIR'] = 'build'\\n" + source, context)
    return context["ModelNew"]


Model, get_init_inputs, get_inputs, context = original()
for ModelNew in (custom_by_text(context), custom_by_file()):
    torch.manual_seed(42)
    init = get_init_inputs()
    torch.manual_seed(42)
    model = Model(*init)
    torch.manual_seed(42)
    ours = ModelNew(*init)
    for precision in (torch.float32, torch.bfloat16):
        for trial in range(2):
            torch.manual_seed(trial)
            inputs = [v.to(precision) if isinstance(v, torch.Tensor) else v for v in get_inputs()]
            with torch.no_grad():
                wanted = model.to(precision)(*inputs)
                found = ours.to(precision)(*inputs)
            assert found.shape == wanted.shape and torch.allclose(found, wanted, rtol=1e-4, atol=1e-4)
        print(ModelNew.__module__, precision, context["_package"].status()["served"])
"""


@pytest.mark.parametrize(("spec", "source"), [(STATEFUL, STATEFUL_CPP), (SAID, SCALED_ADD_CPP)], ids=["Model", "run"])
def test_kernelbench_compares_model_new_with_model(spec: dict[str, Any], source: str, tmp_path: Path) -> None:
    lines = used("kernelbench", exported(spec, source), KERNELBENCH, tmp_path)
    assert [line.split("served")[-1].split(" ", 2)[-1] for line in lines] == [
        "{'kernel': 2, 'pytorch': 0}",
        "{'kernel': 2, 'pytorch': 2}",
        "{'kernel': 4, 'pytorch': 2}",
        "{'kernel': 4, 'pytorch': 4}",
    ]


def test_kernelbench_gives_an_imported_problem_back_with_model_new(tmp_path: Path) -> None:
    problem = STATEFUL["reference"] + "\n\ndef get_inputs():\n    return [torch.rand(40, 8)]  # as it came\n"
    problem += "\n\ndef get_init_inputs():\n    return [8]\n"
    origin = {"format": "kernelbench", "files": [{"path": "17_scaled.py", "text": problem}]}
    kernel = exported(STATEFUL | {"reference": problem, "origin": origin}, STATEFUL_CPP)
    project = registry.named("kernelbench").build(kernel, tmp_path / "out")
    [file] = project.iterdir()
    assert problem in file.read_text()
    assert len(used("kernelbench", kernel, KERNELBENCH, tmp_path / "again")) == 4


GPU_MODE = """
import re, sys
import torch
import yaml

sys.path.insert(0, DIRECTORY)
from reference import check_implementation, generate_input
from submission import custom_kernel
from submission import _package as package


def clone(data):
    if isinstance(data, tuple):
        return tuple(clone(item) for item in data)
    return data.clone() if isinstance(data, torch.Tensor) else data


task = yaml.safe_load(open(f"{DIRECTORY}/task.yml"))
lines = ["; ".join(f"{key}: {value}" for key, value in case.items()) for case in task["tests"] + task["benchmarks"]]
for line in lines:
    case = {}
    for part in line.split(";"):
        matched = re.fullmatch(r"\\s*([a-zA-Z]+):\\s*([a-zA-Z]+|[+-]?[0-9]+)\\s*", part)
        case[matched[1]] = int(matched[2])
    data = generate_input(**case)
    good, message = check_implementation(data, custom_kernel(clone(data)))
    wrong, why = check_implementation(data, torch.zeros(1))
    print(good, message, wrong, why)
print(package.status()["served"])
"""


EXACT = SCALED_ADD | {"outputs": [{**SCALED_ADD["outputs"][0], "tolerance": {"rtol": 0.0, "atol": 0.0}}]}  # type: ignore[index]


@pytest.mark.parametrize(
    ("spec", "source"),
    [(SCALED_ADD, SCALED_ADD_CPP), (EXACT, SCALED_ADD_CPP), (IN_PLACE, IN_PLACE_CPP)],
    ids=["returns", "exact", "in_place"],
)
def test_gpu_mode_checks_the_submission(spec: dict[str, Any], source: str, tmp_path: Path) -> None:
    *cases, served = used("gpu-mode", exported(spec, source), GPU_MODE, tmp_path)
    assert len(cases) == 3
    assert all(case.startswith("True  False ") and "found torch.float32 of (1,)" in case for case in cases)
    assert served == "{'kernel': 3, 'pytorch': 0}"


FLASHINFER = """
import importlib, json, sys
from pathlib import Path
import torch

root, work = Path(DIRECTORY), Path("build")
[definition] = [json.loads(p.read_text()) for p in (root / "definitions").rglob("*.json")]
[solution] = [json.loads(p.read_text()) for p in (root / "solutions").rglob("*.json")]
[traces] = [[json.loads(line) for line in p.read_text().splitlines()] for p in (root / "traces").rglob("*.jsonl")]
assert solution["definition"] == definition["name"]
for source in solution["sources"]:
    path = work / "fib_python_1234" / source["path"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source["content"])
sys.path.insert(0, str(work))
file, symbol = solution["spec"]["entry_point"].split("::")
run = getattr(importlib.import_module("fib_python_1234." + file.removesuffix(".py")), symbol)
reference = {}
exec(definition["reference"], reference)
for trace in traces:
    sizes = {name: axis.get("value") for name, axis in definition["axes"].items()} | trace["workload"]["axes"]
    inputs = []
    for name, spec in definition["inputs"].items():
        given = trace["workload"]["inputs"][name]
        if given["type"] == "scalar":
            inputs.append(given["value"])
        else:
            inputs.append(torch.randn([sizes[a] for a in spec["shape"]], dtype=getattr(torch, spec["dtype"])))
    torch.testing.assert_close(run(*inputs), reference["run"](*inputs))
    print(json.dumps(trace))
package = sys.modules["fib_python_1234." + solution["name"]]
print(json.dumps(package.status()["served"]))
"""


def test_flashinfer_bench_builds_and_runs_the_solution(tmp_path: Path) -> None:
    lines = used("flashinfer-bench", exported(SAID, SCALED_ADD_CPP), FLASHINFER, tmp_path)
    trace, large, served = map(json.loads, lines)
    assert served == {"kernel": 2, "pytorch": 0}
    assert large["workload"]["axes"] == {"rows": 40}
    assert trace["evaluation"]["status"] == "PASSED"
    assert trace["evaluation"]["performance"] == {
        "latency_ms": 0.002,
        "reference_latency_ms": 0.004,
        "speedup_factor": 2.0,
    }
    assert trace["evaluation"]["correctness"]["max_absolute_error"] == 3e-8
    assert trace["workload"]["axes"] == {"rows": 3}
    assert trace["workload"]["inputs"]["m"] == {"type": "scalar", "value": 0.5}


def test_flashinfer_bench_gives_an_imported_definition_back(tmp_path: Path) -> None:
    first = registry.named("flashinfer-bench").build(exported(SAID, SCALED_ADD_CPP), tmp_path / "first")
    [raw] = [p.read_text() for p in (first / "definitions").rglob("*.json")]
    raw = raw.replace('"tags"', '"unknown field": 3,\n  "tags"')
    workload = {"axes": {"rows": 3}, "inputs": {"x": {"type": "random"}, "m": {"type": "scalar", "value": 0.5}}}
    given = json.dumps({"definition": "scaled_add", "workload": workload | {"uuid": "small"}, "solution": None})
    files = [{"path": "definitions/d.json", "text": raw}, {"path": "workloads/d.jsonl", "text": given + "\n"}]
    kernel = exported(SAID | {"origin": {"format": "flashinfer-bench", "files": files}}, SCALED_ADD_CPP)
    project = registry.named("flashinfer-bench").build(kernel, tmp_path / "out")
    assert [p.read_text() for p in (project / "definitions").rglob("*.json")] == [raw]
    [traces] = [p.read_text().splitlines() for p in (project / "traces").rglob("*.jsonl")]
    assert json.loads(traces[0])["workload"] == json.loads(given)["workload"]


IMPORTED_TASK = """
def ref_kernel(data):
    config, tensors, out = data
    out[...] = tensors["x"] + config[0] * tensors["y"]
    return out


_ref_kernel = ref_kernel


def run(x, y, m, out):
    found = _ref_kernel(([m, 'text'], {'x': x, 'y': y}, out))
    return None
"""


def test_gpu_mode_takes_an_imported_tasks_data_apart(tmp_path: Path) -> None:
    spec = SAID | {
        "inputs": [*SAID["inputs"], {"name": "out", "shape": ["rows", "columns"], "dtype": "float32", "mutated": True}],
        "outputs": [],
        "reference": IMPORTED_TASK,
        "origin": {"format": "gpu-mode", "files": [{"path": "task.yml", "text": "files: []\n"}]},
    }
    harness = (
        "import sys, os, torch\nsys.path.insert(0, DIRECTORY)\nfrom submission import custom_kernel, _package\n"
        "x, y, out = torch.randn(3, 8), torch.randn(3, 8), torch.zeros(3, 8)\n"
        "found = custom_kernel(([0.5, 'text'], {'x': x, 'y': y}, out))\n"
        "torch.testing.assert_close(found, x + 0.5 * y)\n"
        "print([name for name in os.listdir(DIRECTORY) if name[0] != '_'], found is out, _package.status()['served'])\n"
    )
    assert used("gpu-mode", exported(spec, SCALED_ADD_CPP), harness, tmp_path) == [
        "['submission.py'] True {'kernel': 1, 'pytorch': 0}"
    ]

"""Ops that came from a format go back into it: imported by the real analysis, exported, called by the format's harness.

The kernel finds no compiler, so PyTorch serves every call: what is tested is how each format's arguments and results
are taken apart and put together.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exporting import SCALED_ADD_CPP, exported, in_fresh_process
from tests.support.formats_support import EXAMPLES, files_of
from warpsmith.kernels_db.export import registry
from warpsmith.kernels_db.formats.op_import import import_op
from warpsmith.workers.judge.analysis.client import Analyser

pytest.importorskip("torch", reason="imports are analysed with torch, which is not installed")


def used(paths: list[Path], harness: str, tmp_path: Path, analyse: Analyser) -> None:
    """Import each file, export the op into its own format, and run `harness` with EXPORTS: their directories."""
    exports = []
    imported = [import_op(files_of(path), None, analyse) for path in paths]
    for found in imported:
        kernel = exported(found.op.document(), SCALED_ADD_CPP)
        exports.append(str(registry.named(found.format).build(kernel, tmp_path / "out")))
    script = tmp_path / "harness.py"
    script.write_text(f"EXPORTS = {exports!r}\nFILES = {[str(path) for path in paths]!r}\n{harness}")
    variables = {"CXX": "no-such-compiler", "WARPSMITH_KERNEL_CACHE": str(tmp_path)}
    done = in_fresh_process(tmp_path / "out" / "none", str(script), home=tmp_path, variables=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["right"] * len(paths)


KERNELBENCH = """
from pathlib import Path
import torch

for directory, file in zip(EXPORTS, FILES, strict=True):
    problem, ours = {}, {}
    exec(Path(file).read_text(), problem)
    [exported] = Path(directory).iterdir()
    exec(exported.read_text(), ours)
    torch.manual_seed(42)
    model = problem["Model"](*problem["get_init_inputs"]())
    torch.manual_seed(42)
    new = ours["ModelNew"](*ours["get_init_inputs"]())
    torch.manual_seed(1)
    inputs = problem["get_inputs"]()
    with torch.no_grad():
        torch.testing.assert_close(new(*inputs), model(*inputs))
    print("right")
"""


@pytest.mark.nightly
def test_kernelbench(tmp_path: Path, analyse: Analyser) -> None:
    examples = EXAMPLES / "kernelbench"
    used([examples / "2_linear_gelu_scale.py"], KERNELBENCH, tmp_path, analyse)


GPU_MODE = """
import shutil, sys
from pathlib import Path
import torch
import yaml

[directory], [file] = EXPORTS, FILES
place = Path("task")
shutil.copytree(Path(file).parent, place)
shutil.copy(Path(file).parent.parent / "utils.py", place)
shutil.copytree(directory, place, dirs_exist_ok=True)
reference = place / "reference.py"
reference.write_text(reference.read_text().replace('"cuda"', '"cpu"'))  # the harness of a machine without a GPU
sys.path.insert(0, str(place))
from reference import check_implementation, generate_input
from submission import custom_kernel


def clone(data):
    if isinstance(data, (tuple, list)):
        return type(data)(clone(item) for item in data)
    if isinstance(data, dict):
        return {key: clone(item) for key, item in data.items()}
    return data.clone() if isinstance(data, torch.Tensor) else data


case = yaml.safe_load((place / "task.yml").read_text())["tests"][0]
data = generate_input(**case)
good, message = check_implementation(data, custom_kernel(clone(data)))
assert good, message
print("right")
"""


@pytest.mark.parametrize("name", [pytest.param("gated_projection", marks=pytest.mark.nightly), "grayscale"])
def test_gpu_mode(name: str, tmp_path: Path, analyse: Analyser) -> None:
    used([EXAMPLES / "gpu-mode" / name / "task.yml"], GPU_MODE, tmp_path, analyse)


FLASHINFER = """
import importlib, json, sys
from pathlib import Path
import torch

for directory, file in zip(EXPORTS, FILES, strict=True):
    root = Path(directory)
    [exported] = (root / "definitions").rglob("*.json")
    assert exported.read_bytes() == Path(file).read_bytes()
    definition = json.loads(exported.read_text())
    [solution] = [json.loads(p.read_text()) for p in (root / "solutions").rglob("*.json")]
    package = "fib_" + solution["name"]
    for source in solution["sources"]:
        path = Path("build") / package / source["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source["content"])
    sys.path.insert(0, "build")
    importlib.invalidate_caches()
    run = importlib.import_module(package + ".main").run
    [lines] = [p.read_text().splitlines() for p in (root / "traces").rglob("*.jsonl")]
    given = (Path(file).parents[2] / "workloads" / Path(file).parent.name / (Path(file).stem + ".jsonl")).read_text()
    known = [json.loads(line).get("workload", json.loads(line)) for line in given.splitlines() if line.strip()]
    traces = [json.loads(line) for line in lines]
    assert traces and all(trace["workload"] in known for trace in traces)
    workload = traces[0]["workload"]
    sizes = {name: axis.get("value") for name, axis in definition["axes"].items()} | workload["axes"]
    inputs = {
        name: workload["inputs"][name]["value"]
        if spec["shape"] is None
        else torch.randn([sizes[axis] for axis in spec["shape"]]).to(getattr(torch, spec["dtype"]))
        for name, spec in definition["inputs"].items()
    }
    reference = {}
    exec(definition["reference"], reference)
    expected = reference["run"](**inputs)
    torch.testing.assert_close(run(*inputs.values()), expected)
    torch.testing.assert_close(run(**inputs), expected)
    print("right")
"""


def test_flashinfer_bench(tmp_path: Path, analyse: Analyser) -> None:
    definitions = EXAMPLES / "flashinfer-bench" / "definitions"
    paths = [definitions / "rmsnorm" / "rmsnorm_h1024.json", definitions / "activation" / "scaled_silu.json"]
    used(paths, FLASHINFER, tmp_path, analyse)

"""`warpsmith profile` on both example models; `apply` and `ablate`, with real kernels for specs written by hand."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import REPOSITORY
from tests.exporting import SCALED_ADD, SCALED_ADD_CPP, exported
from tests.support.api_support import SPEC, application, command_line, seed, settings_for
from tests.support.plans import with_plans
from warpsmith.kernels_db.export.package import build
from warpsmith.kernels_db.spec.op import load_op
from warpsmith.kernels_db.spec.target import Target
from warpsmith.kernels_db.store.tables import KernelRow
from warpsmith.service.cli import run

pytest.importorskip("torch", reason="models are run with torch, which is not installed")

from benchmarks.applied_models import KERNELS, candidates

MODELS = REPOSITORY / "examples" / "models"
TRANSFORMER, RECOMMENDER = MODELS / "transformer.py", MODELS / "recommender.py"

RMS_NORM = {
    "schema_version": 1,
    "name": "rms_norm",
    "description": "by hand",
    "axes": {"batch": {"kind": "var"}, "length": {"kind": "var"}, "width": {"kind": "var"}},
    "inputs": [
        {"name": "x", "shape": ["batch", "length", "width"], "dtype": "float32"},
        {"name": "weight", "shape": ["width"], "dtype": "float32", "role": "weight"},
    ],
    "outputs": [{"name": "y", "shape": ["batch", "length", "width"], "dtype": "float32"}],
    "reference": "import torch\n\n\ndef run(x, weight):\n"
    "    return torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-6)\n",
    "workloads": [
        {"id": "large", "role": "bench", "axes": {"batch": 4, "length": 64, "width": 128}},
        {"id": "small", "role": "test", "axes": {"batch": 1, "length": 3, "width": 16}},
    ],
}
RMS_NORM_CPP = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
#include <cmath>
extern "C" void rms_norm(const float* x, const float* w, float* y, int64_t rows, int64_t n) {
  for (int64_t row = 0; row < rows; ++row, x += n, y += n) {
    double squares = 0;
    for (int64_t i = 0; i < n; ++i) squares += double(x[i]) * x[i];
    const double scale = 1 / std::sqrt(squares / n + 1e-6);
    for (int64_t i = 0; i < n; ++i) y[i] = float(x[i] * scale * w[i]);
  }
}
""")


def run(x, weight, y):
    n = weight.numel()
    kernels.rms_norm(x, weight, y, x.numel() // n, n)
'''


def by_hand(name: str, axes: dict[str, int], inputs: list[Any], outputs: list[Any], reference: str) -> dict[str, Any]:
    """An op as `apply` finds it in an exported graph; inputs and outputs are pairs of a name and a shape."""
    return {
        "schema_version": 1,
        "name": name,
        "description": "by hand",
        "axes": {axis: {"kind": "var"} for axis in axes},
        "inputs": [
            {"name": one, "shape": shape, "dtype": "float32"} | more
            for one, shape, *rest in inputs
            for more in [dict(*rest)]
        ],
        "outputs": [{"name": one, "shape": shape, "dtype": "float32"} for one, shape in outputs],
        "reference": f"import torch\n\n\n{reference}",
        "workloads": [
            {"id": "sample", "role": "bench", "axes": axes},
            {"id": "one", "role": "test", "axes": dict.fromkeys(axes, 1)},
        ],
    }


ROWS = ["batch", "length", 128]
BY_HAND = {
    "add_rms_norm": by_hand(
        "add_rms_norm",
        {"batch": 4, "length": 64},
        [("x", ROWS), ("x_2", ROWS), ("weight", [128])],
        [("y", ROWS), ("y_2", ROWS)],
        "def run(x, x_2, weight):\n    added = x + x_2\n"
        "    return added, torch.nn.functional.rms_norm(added, [128], weight, 1e-6)\n",
    ),
    "linear_relu_3": by_hand(
        "linear_relu_3",
        {"batch": 256},
        [("x", ["batch", 68]), ("weight", [64, 68]), ("bias", [64])],
        [("y", ["batch", 64])],
        "def run(x, weight, bias):\n    return torch.relu(torch.nn.functional.linear(x, weight, bias))\n",
    ),
    "cat_bmm_index_select_cat": by_hand(
        "cat_bmm_index_select_cat",
        {"batch": 256},
        [
            ("x", ["batch", 32]),
            ("x_2", ["batch", 8, 32]),
            ("pairs", [36], {"dtype": "int64", "dist": {"kind": "randint", "low": 0, "high": 81}}),
        ],
        [("y", ["batch", 68])],
        "def run(x, x_2, pairs):\n    vectors = torch.cat([torch.unsqueeze(x, 1), x_2], 1)\n"
        "    products = torch.bmm(vectors, torch.transpose(vectors, 1, 2))\n"
        "    return torch.cat([x, torch.index_select(torch.flatten(products, 1), 1, pairs)], 1)\n",
    ),
}


@dataclass(frozen=True)
class Profiled:
    """What `warpsmith profile` said of a model."""

    document: dict[str, Any]
    specs: Path


@dataclass(frozen=True)
class Packed:
    """Packages of kernels for a model."""

    packages: list[Path]

    @property
    def options(self) -> list[str]:
        return [part for package in self.packages for part in ("--package", str(package))]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all tests of this module keep builds and peaks: nothing is built twice."""
    made = tmp_path_factory.mktemp("home")
    with_plans(made / "kernels")
    return made


@pytest.fixture(autouse=True)
def _kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in variables(home).items():
        monkeypatch.setenv(name, value)


def variables(home: Path) -> dict[str, str]:
    return {"WARPSMITH_HOME": str(home), "WARPSMITH_KERNEL_CACHE": str(home / "kernels")}


def asked(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert run([*words, "--json"]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def profiled(model: Path, directory: Path, home: Path) -> tuple[dict[str, Any], Path]:
    """A profile in a process of its own, as a module's fixture has no output to capture."""
    specs = directory / "specs"
    words = ["profile", str(model), "--output", str(specs), "--top", "20", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "warpsmith.service.cli", *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=MODELS.parents[1],
        env=os.environ | variables(home),
    )
    return json.loads(done.stdout), specs


def packaged(model: str, directory: Path) -> list[Path]:
    """Packages of the benchmark's C++ kernels for ops of this model."""
    return [build(exported(BY_HAND[one.op], one.file.read_text()), directory) for one in candidates(model, "cpu")]


@pytest.fixture(scope="module")
def transformer_kernels(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    directory = tmp_path_factory.mktemp("transformer")
    whole = build(exported(RMS_NORM, RMS_NORM_CPP), directory)
    return Packed([*packaged("transformer", directory), whole])


@pytest.fixture(scope="module")
def recommender_kernels(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return Packed(packaged("recommender", tmp_path_factory.mktemp("recommender")))


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Profiled:
    return Profiled(*profiled(TRANSFORMER, tmp_path_factory.mktemp("transformer"), home))


@pytest.fixture(scope="module")
def recommender(tmp_path_factory: pytest.TempPathFactory, home: Path) -> Profiled:
    return Profiled(*profiled(RECOMMENDER, tmp_path_factory.mktemp("recommender"), home))


def by_places(document: dict[str, Any]) -> dict[tuple[str, ...], dict[str, Any]]:
    return {tuple(one["places"]): one for one in document["opportunities"]}


@pytest.mark.nightly
def test_a_transformers_costs_are_ranked_and_written_as_specs(transformer: Profiled) -> None:
    found = transformer.document
    assert (found["dynamic"], found["graphs"]) == (True, 1)
    rows = found["opportunities"]
    assert [row["saving_us"] for row in rows] == sorted((row["saving_us"] for row in rows), reverse=True)
    assert all(row["reason"] is None and row["limit_us"] > 0 for row in rows)
    alone = [row for row in rows if row["joins"] == 1]
    assert sum(row["time_us"] for row in alone) <= found["compiled_us"] * 1.001
    assert {row["operators"] for row in alone} == {
        "embedding + add + rms_norm",
        "linear",
        "scaled_dot_product_attention",
        "add + rms_norm",
        "linear + gelu",
        "add + layer_norm",
    }
    (gelu,) = [row for row in alone if row["operators"] == "linear + gelu"]
    assert len(gelu["places"]) == 2, "two layers, one spec"
    (half,) = [row for row in rows if row["operators"] == "rms_norm + linear + gelu + linear + add"]
    assert (half["joins"], len(half["places"])) == (4, 2)
    assert half["bytes_saved"] > 0
    assert 0 <= found["total"]["saving_us"] <= sum(row["saving_us"] for row in rows)
    assert sum(row["counted"] for row in rows) > 0
    assert {row["name"] for row in found["operators"]} >= {"aten::mm", "aten::addmm"}
    files = {Path(row["file"]) for row in rows}
    assert files == set(transformer.specs.glob("*.yaml"))
    axes = {file.stem: load_op(file).workload(Target.parse("cpu"), "sample").axes for file in files}
    assert axes["add_rms_norm"] == {"rows": 256}
    assert axes["attention"] == axes["embedding_add_rms_norm"] == {"batch": 4}
    attention = load_op(transformer.specs / "attention.yaml")
    assert "is_causal=True" in attention.reference
    assert attention.inputs[0].shape == ("batch", 64, 3, 4, 32), "contiguous; split inside"


@pytest.mark.nightly
def test_a_recommenders_costs(recommender: Profiled) -> None:
    rows = by_places(recommender.document)
    assert rows[("interaction",)]["operators"] == "cat + bmm + index_select + cat"
    op = load_op(Path(rows[("interaction",)]["file"]))
    assert op.limits is not None
    assert op.limits.flops is None, "of the products 36 numbers a row are taken, whichever they are"
    assert op.inputs[2].dist is not None
    assert op.inputs[2].dist.model_dump() == {"kind": "randint", "low": 0, "high": 81}
    table = load_op(Path(rows[("the model, table",)]["file"]))
    assert "min(4 * 8000 * 32" in str(table.limits.bytes), "a table is not read as a whole"


@pytest.mark.nightly
def test_a_spec_that_profile_wrote_is_judged_as_it_is(
    recommender: Profiled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    candidate = tmp_path / "candidate.py"
    shutil.copy(KERNELS / "recommender" / "cat_bmm_index_select_cat.cpp.py", candidate)
    spec = tmp_path / "spec.yaml"
    text = (recommender.specs / "cat_bmm_index_select_cat.yaml").read_text()
    spec.write_text(text + "objective: {baselines: [eager]}\n")  # nothing is compiled for a minute
    run(["judge", str(spec), str(candidate), "--level", "screen", "--json"])
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["verdict"], verdict["gate"]) == ("accepted", "time"), verdict["reason"]
    assert verdict["workloads"][0]["error"]["candidate"] <= verdict["workloads"][0]["error"]["limit"]


@pytest.mark.nightly
def test_a_transformer_is_compiled_with_kernels_and_stays_as_it_was(
    transformer_kernels: Packed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["apply", str(TRANSFORMER), *transformer_kernels.options, "--keep", "right", "--output", str(tmp_path)]
    found = asked(capsys, *words)
    replaced = [(place["op"], place["where"]) for place in found["places"] if place["replaced"]]
    assert ("add_rms_norm", "blocks.0: feed_forward_norm") in [(op, where) for op, where in replaced] or replaced
    assert all(place["us"] > 0 and place["inductor_us"] > 0 for place in found["places"] if place["replaced"])
    assert (found["agrees"], found["reference"]) == (True, "float64")
    assert 0 < found["largest_difference"] < 1e-4
    assert found["argmax_agreement"] == 1.0
    assert found["weights_untouched"]
    assert found["unchanged"]
    used_without_warpsmith(TRANSFORMER, tmp_path / "transformer_kernels", tmp_path)


USE = """
import sys
import torch
import {model} as file
import {package} as kernels

model, inputs = file.model(), file.example_inputs()
with torch.no_grad():
    before = model(*inputs)
    fast = kernels.optimize(model)
    torch.testing.assert_close(before, fast(*inputs), rtol=1e-4, atol=1e-4)
    half = tuple(value[: len(value) // 2] for value in inputs)
    torch.testing.assert_close(model(*half), fast(*half), rtol=1e-4, atol=1e-4)
    assert fast.compare(*inputs).agrees
    assert torch.equal(before, fast.model(*inputs))
print(fast.report())
assert not [name for name in sys.modules if name.split(".")[0] in ("warpsmith", "kernels_db")]
"""


def used_without_warpsmith(model: Path, package: Path, directory: Path) -> None:
    """The generated package in a process that has the model's file and it alone."""
    home = directory / "home"
    home.mkdir()
    shutil.copy(model, home)
    shutil.move(package, home)
    (home / "use.py").write_text(USE.format(model=model.stem, package=package.name))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-I", "-c", f"import sys; sys.path.insert(0, {str(home)!r}); import use"],
        capture_output=True,
        text=True,
        check=False,
        cwd=home,
    )
    assert done.returncode == 0, done.stderr
    assert "us for Inductor's" in done.stdout, "a kernel is there"


@pytest.mark.nightly
def test_a_recommender_is_compiled_with_kernels(
    recommender_kernels: Packed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["apply", str(RECOMMENDER), *recommender_kernels.options, "--keep", "right", "--output", str(tmp_path)]
    found = asked(capsys, *words)
    assert [place["where"] for place in found["places"] if place["replaced"]]
    assert found["agrees"]
    assert found["weights_untouched"]
    assert found["unchanged"]
    assert found["argmax_agreement"] is None, "one number a row has no largest"
    used_without_warpsmith(RECOMMENDER, tmp_path / "recommender_kernels", tmp_path)


@pytest.mark.parametrize("which", ["transformer", "recommender"])
@pytest.mark.nightly
def test_each_kernel_is_measured_on_and_off_and_left_out(
    which: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    model: Packed = request.getfixturevalue(f"{which}_kernels")
    words = ["ablate", str(MODELS / f"{which}.py"), *model.options, "--keep", "right", "--time", "0.5"]
    found = asked(capsys, *words)
    names = found["kernels"]
    assert names
    assert set(names) <= {package.name for package in model.packages}
    several = [*(f"only {name}" for name in names), *(f"without {name}" for name in names)] if len(names) > 1 else []
    assert [row["variant"] for row in found["variants"]] == ["model", "compiled", "rewrites", "all", *several]
    rows = {row["variant"]: row for row in found["variants"]}
    for row in rows.values():
        assert row["agrees"]
        if found["rounds"] < 6:
            assert row["ms_ci95"] is None, "too few to say"
        else:
            assert row["ms_ci95"][0] <= row["ms"] <= row["ms_ci95"][1]
    assert rows["model"]["speedup"] == 1.0
    assert rows["compiled"]["over_compiled"] == 1.0
    assert rows["model"]["largest_difference"] == 0.0
    assert rows["all"]["largest_difference"] > 0
    assert [one["kernel"] for one in found["brings"]] == names
    assert found["rounds"] >= 3


ADD_RELU = '''from kernels_db.runtime import cpp

kernels = cpp.compile(r"""
extern "C" void add_relu(const float* x, const float* y, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i] < 0 ? 0.0f : x[i] + y[i];
}
""")


def run(x, y, out):
    kernels.add_relu(x, y, out, out.numel())
'''
ADD_RELU_MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def forward(self, x, y):
        return torch.relu(x + y) * 2

def model():
    return Net().eval()

def example_inputs():
    return {"x": torch.linspace(-1, 1, 4096), "y": torch.linspace(3, -2, 4096)}
"""


@pytest.mark.nightly
def test_stored_kernels_are_exported_and_applied(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "net.py"
    file.write_text(ADD_RELU_MODEL)
    kept = exported(SPEC, ADD_RELU)
    app = application(settings_for(tmp_path))
    db = app.state.service.db
    seed(db)
    with db.writing() as session:
        kernel = session.get_one(KernelRow, "kn_0")
        kernel.source, kernel.source_digest = kept.source, kept.source_digest
        kernel.envelope, kernel.evidence = kept.envelope, kept.evidence
    with command_line(app, capsys, monkeypatch) as said:
        code, out, err = said("apply", str(file), "--keep", "right", "--json")
        assert code == 0, err
        (place,) = json.loads(out)["places"]
        assert (place["op"], place["replaced"]) == ("add_relu", True)
        code, _, err = said("apply", str(file), "--kernel", "kn_none")
        assert code == 1
        assert "kn_none" in err


@pytest.mark.nightly
def test_a_kernel_that_fits_nowhere_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    narrow = RMS_NORM | {"workloads": [{"id": "s", "role": "bench", "axes": {"batch": 2, "length": 3, "width": 128}}]}
    wrong = RMS_NORM_CPP.replace("1e-6", "0.5")
    options = []
    for number, kernel in enumerate(
        [exported(narrow, RMS_NORM_CPP), exported(RMS_NORM, wrong), exported(SCALED_ADD, SCALED_ADD_CPP)]
    ):
        options += ["--package", str(build(kernel, tmp_path / str(number)))]
    found = asked(capsys, "apply", str(TRANSFORMER), *options, "--keep", "right", code=1)
    reasons: dict[str, set[str]] = {}
    for place in found["places"]:
        reasons.setdefault(place["kernel"], set()).add(place["reason"])
    outside, incorrect, foreign = reasons.values()
    assert all("batch is 4" in reason for reason in outside)
    assert all(reason.startswith("the kernel's result is wrong: relative error") for reason in incorrect)
    assert all("expected columns = 8" in reason for reason in foreign)
    assert found["agrees"]
    assert found["unchanged"]


BRANCHES = """
import torch
from torch import nn

class Gate(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x
        return -x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), Gate())
    def forward(self, x):
        return self.inner(x)

def model():
    return Net()

def example_inputs():
    return torch.ones(2, 4)
"""


@pytest.mark.nightly
def test_a_model_with_breaks_is_profiled_and_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "branches.py"
    file.write_text(BRANCHES)
    found = asked(capsys, "profile", str(file), "--output", str(tmp_path / "specs"))
    assert found["opportunities"], "what Dynamo takes of it"
    package = build(exported(SCALED_ADD, SCALED_ADD_CPP), tmp_path)
    found = asked(capsys, "apply", str(file), "--package", str(package), code=1)
    assert found["agrees"]
    assert {place["reason"] for place in found["places"]} == {"the graph does not compute this op"}


def test_a_model_without_operators_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "empty.py"
    file.write_text(
        "import torch\ndef model():\n    return torch.nn.Identity()\ndef example_inputs():\n    return torch.ones(3)\n"
    )
    error = asked(capsys, "profile", str(file), "--output", str(tmp_path / "specs"), code=2)["error"]["errors"][0]
    assert error == {
        "field": "model()",
        "found": "torch.compile finds no operators in the model",
        "expected": "a model that torch.compile takes",
    }
    assert not list((tmp_path / "specs").glob("*"))


def test_a_file_without_the_contract_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.py"
    file.write_text("def model():\n    return 3\n")
    error = asked(capsys, "profile", str(file), "--output", str(tmp_path / "specs"), code=2)["error"]["errors"][0]
    assert error == {"field": "model()", "found": "a int", "expected": "a torch.nn.Module"}


@pytest.mark.nightly
def test_what_is_no_package_and_what_stands_in_the_way_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = asked(capsys, "apply", str(TRANSFORMER), "--package", str(tmp_path), code=2)["error"]
    assert error["message"].startswith(f"--package: {tmp_path} holds 0 packages")
    made = tmp_path / "transformer_kernels"
    made.mkdir()
    words = ["apply", str(TRANSFORMER), "--package", str(tmp_path), "--output", str(tmp_path)]
    (error,) = asked(capsys, *words, code=2)["error"]["errors"]
    assert (error["field"], error["found"]) == ("--output", str(made))
    for option, value, expected in (("--mode", "quick", "reduce-overhead"), ("--keep", "all", "faster, right")):
        (error,) = asked(capsys, "apply", str(TRANSFORMER), *words[2:4], option, value, code=2)["error"]["errors"]
        assert (error["field"], error["found"]) == (option, value)
        assert expected in error["expected"]

"""A problem of each format on its whole way: imported, admitted by the judge, a candidate judged, a search stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.api_support import client_of, settings_for
from tests.support.formats_support import EXAMPLES, files_of
from tests.support.launching import warpsmith

pytest.importorskip("torch", reason="the judge runs references in PyTorch")

HEAD = """from kernels_db.runtime import cpp

kernels = cpp.compile(r\"\"\"
{kernel}
\"\"\")


def run({parameters}):
    {call}
"""

CASES: dict[str, tuple[Path, str, str, str]] = {
    "kernelbench": (
        EXAMPLES / "kernelbench" / "2_linear_gelu_scale.py",
        "x, gain, linear_weight, linear_bias, out",
        "kernels.linear_gelu(x, gain, linear_weight, linear_bias, out, x.shape[0], x.shape[1], out.shape[1])",
        """#include <cmath>
extern "C" void linear_gelu(const float* x, const float* gain, const float* weight, const float* bias, float* out,
                            int64_t rows, int64_t wide, int64_t features) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < features; j++) {
      double sum = bias[j];
      for (int64_t k = 0; k < wide; k++) sum += (double)x[i * wide + k] * weight[j * wide + k];
      out[i * features + j] = (float)(0.5 * sum * (1.0 + std::erf(sum * 0.70710678118654752)) * gain[j] * 0.5);
    }
}""",
    ),
    "flashinfer-bench": (
        EXAMPLES / "flashinfer-bench" / "definitions" / "activation" / "scaled_silu.json",
        "x, scale, y",
        "kernels.silu(x, scale, y, x.numel())",
        """#include <cmath>
extern "C" void silu(const float* x, double scale, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = (float)(scale * x[i] / (1.0 + std::exp(-(double)x[i])));
}""",
    ),
    "robust-kbench": (
        EXAMPLES / "robust-kbench" / "biased_tanh" / "func_backward.py",
        "x, grad_output, bias, out_0, out_1",
        "kernels.gradients(x, grad_output, bias, out_0, out_1, x.shape[0], x.shape[1])",
        """#include <cmath>
extern "C" void gradients(const float* x, const float* gradient, const float* bias, float* of_x, float* of_bias,
                          int64_t rows, int64_t features) {
  for (int64_t j = 0; j < features; j++) {
    double sum = 0.0;
    for (int64_t i = 0; i < rows; i++) {
      double value = std::tanh((double)x[i * features + j] + bias[j]);
      double one = gradient[i * features + j] * (1.0 - value * value);
      of_x[i * features + j] = (float)one;
      sum += one;
    }
    of_bias[j] = (float)sum;
  }
}""",
    ),
    "gpu-mode": (
        EXAMPLES / "gpu-mode" / "grayscale" / "task.yml",
        "picture, output",
        "kernels.grey(picture, output, output.numel())",
        """extern "C" void grey(const float* picture, float* output, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    output[i] = (float)(0.2989 * picture[3 * i] + 0.5870 * picture[3 * i + 1] + 0.1140 * picture[3 * i + 2]);
}""",
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("format_name", CASES)
def test_a_problem_is_imported_admitted_and_searched(format_name: str, tmp_path: Path) -> None:
    problem, parameters, call, kernel = CASES[format_name]
    home, spec, candidate = tmp_path / "home", tmp_path / "op.json", tmp_path / "candidate.py"
    said = _said(home, "import", str(problem), "--output", str(spec), "--json")
    assert (said["format"], said["output"]) == (format_name, str(spec))
    given = tmp_path / "given back"
    warpsmith(home, "ops", "origin", str(spec), "--output", str(given))
    assert _tree(given) == {Path(file.path).name: file.data for file in files_of(problem)}

    _with_eager_alone(spec)
    checked = _said(home, "ops", "check", str(spec), "--json")
    assert checked["admitted"] is True
    assert all(answer["caught"] for answer in checked["answers"] if answer["needed"])

    candidate.write_text(HEAD.format(parameters=parameters, call=call, kernel=kernel))
    verdict = _said(home, "judge", str(spec), str(candidate), "--level", "screen", "--json")
    assert verdict["verdict"] == "accepted"

    with client_of(settings_for(tmp_path / "service")) as client:
        _submitted(client, json.loads(spec.read_text()))


def _said(home: Path, *arguments: str) -> Any:
    return json.loads(warpsmith(home, *arguments).stdout)


def _tree(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def _with_eager_alone(spec: Path) -> None:
    """Compiled baselines take most of a check's time, and say nothing of the import."""
    document = json.loads(spec.read_text())
    document["objective"] = {"baselines": ["eager"]}
    spec.write_text(json.dumps(document))


def _submitted(client: TestClient, op: dict[str, Any]) -> None:
    body = {"op": op, "target": "cpu", "model": {"provider": "agent"}, "budget": {"candidates": 2}}
    response = client.post("/v1/searches", json=body)
    assert response.status_code == 202, response.text
    assert response.json()["op_name"] == op["name"]


def test_a_spec_that_was_not_imported_has_no_files_to_give_back(tmp_path: Path) -> None:
    result = warpsmith(tmp_path, "ops", "origin", "examples/softmax.yaml", "--output", str(tmp_path / "x"), code=2)
    assert "expected a spec that was imported" in result.stderr
    assert not (tmp_path / "x").exists()


def test_nothing_is_overwritten_unless_it_is_forced(tmp_path: Path) -> None:
    definition = str(EXAMPLES / "flashinfer-bench" / "definitions" / "gemm" / "gemm_n256_k512.json")
    spec = tmp_path / "op.json"
    spec.write_text("mine")
    result = warpsmith(tmp_path / "home", "import", definition, "--output", str(spec), code=1)
    assert "another content" in result.stderr
    assert spec.read_text() == "mine"
    warpsmith(tmp_path / "home", "import", definition, "--output", str(spec), "--force")
    (tmp_path / "back" / "definitions" / "gemm").mkdir(parents=True)
    mine = tmp_path / "back" / "definitions" / "gemm" / "gemm_n256_k512.json"
    mine.write_text("mine")
    result = warpsmith(tmp_path / "home", "ops", "origin", str(spec), "--output", str(tmp_path / "back"), code=1)
    assert "another content" in result.stderr
    assert mine.read_text() == "mine"
    assert not (tmp_path / "back" / "workloads").exists(), "all or nothing"
